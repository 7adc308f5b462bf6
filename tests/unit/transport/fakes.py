"""A transport in memory, and a handler that writes down what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from drmq.transport import Connection, Listener, ListenerOptions

Buffer = bytes | bytearray | memoryview


class FakeTransport:
    """Stands in for a socket: what is written to it is kept, what it is told is remembered."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.writes: list[bytes] = []
        self._is_paused = False
        self.is_aborted = False
        self.unsent = 0

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("10.0.0.1", 5000)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def paused(self) -> bool:
        return self._is_paused

    def pause_reading(self) -> None:
        assert not self._is_paused, "paused twice"
        self._is_paused = True

    def resume_reading(self) -> None:
        assert self._is_paused, "resumed without a pause"
        self._is_paused = False

    def write(self, data: Buffer) -> None:
        self.writes.append(bytes(data))
        self.written += data

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self.written += buffer

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_aborted = True


class Recorder:
    """A handler that keeps the frames it is given, and does what a test asks for with each."""

    def __init__(self, then: Callable[[Connection, bytes], None] = lambda connection, frame: None) -> None:
        self.frames: list[bytes] = []
        self.closed: list[Connection] = []
        self.slow: list[tuple[object, float, bool]] = []
        self._then = then

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self._then(connection, bytes(frame))

    def on_close(self, connection: Connection) -> None:
        self.closed.append(connection)

    def on_slow(self, connection: Connection, request: object, seconds: float, is_answered: bool) -> None:
        self.slow.append((request, seconds, is_answered))


class FakeLoop:
    """Runs what it is asked to call soon when the test says so."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()


class Line:
    """A connection with a fake socket below it and a recorder above it."""

    def __init__(self, recorder: Recorder | None = None, options: ListenerOptions | None = None) -> None:
        self.recorder = recorder or Recorder()
        self.listener = Listener(self.recorder, options or ListenerOptions())
        self.loop = FakeLoop()
        self.listener.loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.connection, self.transport = self.connect()

    def connect(self) -> tuple[Connection, FakeTransport]:
        connection, transport = Connection(self.listener), FakeTransport()
        connection.connection_made(cast(Any, transport))
        return connection, transport

    def receive(self, data: bytes, connection: Connection | None = None) -> None:
        """Bytes arrive, as an event loop delivers them: as many at a time as the connection has room for."""
        target = connection or self.connection
        rest = memoryview(data)
        while rest:
            assert not target.closed, "bytes for a closed connection"
            buffer = target.get_buffer(-1)
            assert len(buffer) > 0, "an event loop cannot read into nothing"
            taken = min(len(buffer), len(rest))
            buffer[:taken] = rest[:taken]
            # A real loop still holds the buffer while it tells the protocol; so does this one.
            target.buffer_updated(taken)
            del buffer
            rest = rest[taken:]


def frame(size: int, api_key: int = 3, fill: bytes = b"x") -> bytes:
    """A request of `size` bytes without its prefix, as it stands on the wire."""
    body = api_key.to_bytes(2, "big") + fill * (size - 2)
    return len(body).to_bytes(4, "big") + body
