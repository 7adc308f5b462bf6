"""Connections that could wait for ever, and memory that could grow without bound: found in a review, and closed."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from drmq.transport import Answer, Connection, Listener, ListenerOptions, Pause

from .fakes import FakeTransport, Line, Recorder, frame

PRODUCE = 0
MEBIBYTE = 1 << 20


def opening(answers: list[Answer]) -> Recorder:
    """A handler that opens an answer for each request and leaves it to the test."""
    return Recorder(lambda connection, _: answers.append(connection.open_answer()))


def sweep(line: Line) -> None:
    """Do what the listener does once a second."""

    async def once() -> None:
        line.listener._sweep()
        assert line.listener._sweeper is not None
        line.listener._sweeper.cancel()

    asyncio.run(once())
    line.loop.turn()


# ---- pauses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_flight_max", [1, 2, 3])
def test_few_requests_in_flight_are_enough_to_go_on(in_flight_max: int) -> None:
    answers: list[Answer] = []
    line = Line(opening(answers), ListenerOptions(requests_in_flight_max=in_flight_max))
    line.receive(frame(8) * 7)
    for _ in range(20):
        for answer in answers:
            if answer.buffers is None:
                answer.send([b"."])
        line.loop.turn()
    assert line.transport.written == b"." * 7
    assert not line.transport.paused()


def test_answers_behind_a_slow_one_stop_the_reading() -> None:
    """They cannot be written, so the socket does not push back; the connection must."""
    answers: list[Answer] = []
    line = Line(opening(answers))
    line.receive(frame(8) * 100)
    for answer in answers[1:4]:
        answer.send([bytes(MEBIBYTE)])
    assert line.transport.paused()
    assert line.connection.unread_bytes == line.listener.blocked_bytes == 3 * MEBIBYTE
    line.connection.resume(Pause.DISK)
    line.loop.turn()
    assert line.transport.paused()

    answers[0].send([b"first"])
    line.loop.turn()
    assert not line.transport.paused()
    assert len(line.transport.written) == 3 * MEBIBYTE + 5
    assert line.listener.blocked_bytes == 0


def test_answers_that_nobody_reads_count_at_once_and_no_longer_than_they_are_there() -> None:
    line = Line(Recorder(lambda connection, _: connection.open_answer().send([b"x"])), ListenerOptions())
    line.transport.unsent = 300 * MEBIBYTE
    line.connection.pause_writing()
    assert line.listener.is_congested
    line.transport.unsent = 0
    line.connection.resume_writing()
    assert line.listener.blocked_bytes == 0

    line.transport.unsent = 300 * MEBIBYTE
    line.connection.pause_writing()
    line.connection.connection_lost(None)
    assert line.listener.blocked_bytes == 0


def test_a_large_answer_counts_before_it_is_written() -> None:
    """Otherwise a thousand clients that ask in one turn of the loop would all be answered as if there were none."""
    answers: list[Answer] = []
    line = Line(opening(answers))
    line.receive(frame(8) * 3)
    for index, answer in enumerate(answers):
        answer.send([bytes(300_000)])
        assert line.listener.blocked_bytes == (index + 1) * 300_000
    line.transport.unsent = 0
    line.loop.turn()
    assert line.listener.blocked_bytes == 0


def test_a_write_counts_as_a_whole_until_its_last_byte_is_sent() -> None:
    """The event loop keeps all buffers of a write, and all of what they are a part of, also those that are sent."""
    answers: list[Answer] = []
    line = Line(opening(answers))
    line.receive(frame(8) * 5)

    def write(*sizes: int) -> None:
        """Answer, and write in one turn."""
        for size in sizes:
            answers.pop(0).send([memoryview(bytes(size + 1_000))[:size]])
        line.transport.unsent += sum(sizes)
        line.loop.turn()

    def counted(unsent: int) -> int:
        line.transport.unsent = unsent
        line.connection.count_unread()
        assert line.connection.unread_bytes == line.listener.blocked_bytes
        return line.listener.blocked_bytes

    write(100_000, 100_000)
    write(300_000)
    write(50)
    assert counted(500_050) == 504_050
    assert counted(300_051) == 504_050, "one byte of the first write is left"
    assert counted(300_050) == 302_050
    assert counted(51) == 302_050
    assert counted(50) == 1_050, "a small write behind large ones"
    assert counted(0) == 0
    write(50)
    assert counted(50) == 50


def test_one_who_neither_reads_nor_asks_is_gone() -> None:
    """Unread answers below the socket's limit must not keep a silent connection for ever."""
    line = Line(options=ListenerOptions(idle_timeout_ms=1))
    line.transport.unsent = 1_000
    line.connection.last_active = -1_000.0
    sweep(line)
    assert line.transport.is_aborted


# ---- memory ----------------------------------------------------------------------------------------


def half_a_frame(line: Line, size: int, sent: int) -> tuple[Connection, FakeTransport]:
    """A connection that has announced `size` bytes and sent some, as far as it was read."""
    connection, transport = line.connect()
    rest = frame(size, PRODUCE)[:sent]
    while rest and not transport.paused():
        room = len(connection.get_buffer(-1))
        line.receive(rest[:room], connection)
        rest = rest[room:]
    return connection, transport


def test_small_requests_get_through_while_large_halves_fill_the_memory() -> None:
    budget = 4 * MEBIBYTE
    line = Line(options=ListenerOptions(partial_request_bytes_max=budget, connections_max=100))
    for _ in range(10):
        half_a_frame(line, 60 * MEBIBYTE, 2 * MEBIBYTE)
    assert line.listener.is_out_of_memory
    assert line.listener.partial_bytes <= 3 * budget
    small = frame(30_000, PRODUCE)
    line.receive(small)
    assert line.recorder.frames == [small[4:]]
    assert line.listener.partial_bytes <= 3 * budget


def test_waiting_for_memory_ends_although_somebody_else_is_slow() -> None:
    """A client that sends a byte now and then must not keep those who wait from their turn."""
    budget = 2 * MEBIBYTE
    line = Line(options=ListenerOptions(partial_request_bytes_max=budget))
    line.listener.now = time.monotonic()
    slow, _ = line.connect()
    line.receive(frame(100)[:9], slow)
    large = [half_a_frame(line, 3 * MEBIBYTE, 3 * MEBIBYTE + 4) for _ in range(4)]
    waiting = [transport for _, transport in large if transport.paused()]
    assert waiting
    for _ in range(20):
        sweep(line)
        for connection, transport in large:
            while not transport.paused() and connection._frame_size:
                line.receive(b"x" * len(connection.get_buffer(-1)), connection)
    assert len(line.recorder.frames) == 4
    assert not any(transport.paused() for transport in waiting)


def test_one_that_waits_for_memory_and_closes_is_forgotten() -> None:
    line = Line(options=ListenerOptions(partial_request_bytes_max=MEBIBYTE))
    large = [half_a_frame(line, 8 * MEBIBYTE, 4 * MEBIBYTE) for _ in range(4)]
    assert any(transport.paused() for _, transport in large)
    for connection, _ in large:
        connection.connection_lost(None)
    assert line.listener.partial_bytes == 0
    assert not line.listener._waiting_for_memory
    assert line.listener._favoured is None


def test_what_a_pause_leaves_over_counts_as_memory() -> None:
    line = Line(
        Recorder(lambda connection, _: connection.pause(Pause.HANDLER)),
        ListenerOptions(partial_request_bytes_max=MEBIBYTE),
    )
    connections = []
    for _ in range(50):
        connection, transport = line.connect()
        connections.append(connection)
        room = len(connection.get_buffer(-1))
        line.receive((frame(100) * 3_000)[:room], connection)
        assert transport.paused()
    assert line.listener.partial_bytes < 2 * MEBIBYTE
    for connection in connections:
        connection.connection_lost(None)
    assert line.listener.partial_bytes == 0


def test_a_backlog_is_handled_in_full() -> None:
    line = Line(Recorder(lambda connection, _: connection.pause(Pause.HANDLER)))
    line.receive(frame(100) * 5 + frame(50)[:20])
    for _ in range(5):
        line.connection.resume(Pause.HANDLER)
        line.loop.turn()
    line.receive(frame(50)[20:])
    assert len(line.recorder.frames) == 6
    line.connection.resume(Pause.HANDLER)
    line.loop.turn()
    assert line.listener.partial_bytes == 0


# ---- the end ---------------------------------------------------------------------------------------


def test_a_connection_that_comes_while_the_listener_closes_is_closed() -> None:
    """From Python 3.12 on the server waits for all its connections, so this one would hold it for ever."""

    async def main() -> None:
        listener = Listener(Recorder(), ListenerOptions())
        await listener.open("127.0.0.1", 0)
        await listener.close()
        transport = FakeTransport()
        Connection(listener).connection_made(cast(Any, transport))
        assert transport.is_aborted
        assert not listener.connections

    asyncio.run(main())


def test_a_connection_that_cannot_be_written_to_does_not_silence_the_others() -> None:
    line = Line(Recorder(lambda connection, _: connection.open_answer().send([b"x"])))
    broken, transport = line.connect()

    def refuse(*_: object) -> None:
        raise RuntimeError("the handler is closed")

    cast(Any, transport).write = refuse
    line.receive(frame(8), broken)
    line.receive(frame(8))
    line.loop.turn()
    assert line.transport.written == b"x"
    assert broken.closed


# ---- a handler that cannot keep up -----------------------------------------------------------------


def test_large_halves_wait_while_the_handler_has_too_much_in_hand() -> None:
    """It pauses those who gave it a request. All others together must not add one more large one each."""
    line = Line()
    line.listener.hold_back(True)
    large, transport = half_a_frame(line, 8 * MEBIBYTE, 8 * MEBIBYTE + 4)
    assert transport.paused()
    line.receive(frame(6_000))
    assert len(line.recorder.frames) == 1
    line.listener.hold_back(False)
    line.loop.turn()
    assert not transport.paused()
    while large._frame_size:
        line.receive(b"x" * len(large.get_buffer(-1)), large)
    assert len(line.recorder.frames) == 2
