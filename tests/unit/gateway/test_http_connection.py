"""When a connection is aborted because its client stands still."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from drmq.gateway.http_connection import HttpConnection


class FakeLoop:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.due.append((self.now_s + delay_s, action))

    def run_next(self) -> None:
        self.now_s, action = self.due.pop(0)
        action()


class FakeTransport:
    def __init__(self) -> None:
        self.buffered = 0
        self.protocol: object = None
        self.is_aborted = False

    def get_protocol(self) -> object:
        return self.protocol

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def abort(self) -> None:
        self.is_aborted = True


def watched() -> tuple[HttpConnection, FakeLoop, FakeTransport]:
    """A connection without a server that has just been made."""
    connection = HttpConnection.__new__(HttpConnection)
    connection.loop, connection.transport, connection.cycle = loop, transport, _ = FakeLoop(), FakeTransport(), None
    transport.protocol = connection
    connection._watch()
    return connection, loop, transport


def looks_until_aborted(loop: FakeLoop, transport: FakeTransport) -> int:
    count = 0
    while not transport.is_aborted:
        loop.run_next()
        count += 1
        assert count < 100
    return count


def test_a_client_that_sends_nothing_has_a_minute() -> None:
    _, loop, transport = watched()
    assert looks_until_aborted(loop, transport) == 6
    assert not loop.due


def test_a_client_that_reads_a_little_now_and_then_is_not_disturbed() -> None:
    _, loop, transport = watched()
    transport.buffered = 1_000_000
    for _ in range(1_000):
        transport.buffered -= 1
        for _ in range(5):
            loop.run_next()
            assert not transport.is_aborted
    assert looks_until_aborted(loop, transport) <= 7


def test_the_gateway_may_take_its_time() -> None:
    connection, loop, transport = watched()
    connection.cycle = SimpleNamespace(more_body=False, response_complete=False)
    for _ in range(1_000):
        loop.run_next()
    assert not transport.is_aborted
    connection.cycle.response_complete = True
    assert looks_until_aborted(loop, transport) <= 7


def test_a_web_socket_is_not_looked_at() -> None:
    _, loop, transport = watched()
    transport.protocol = object()
    loop.run_next()
    assert not loop.due
    assert not transport.is_aborted
