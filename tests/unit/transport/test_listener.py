"""Connections that break a limit are closed, and the others do not notice."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from drmq.transport import Answer, Connection, Listener, ListenerOptions, Pause

from .fakes import Recorder, frame


def echo(connection: Connection, data: bytes) -> None:
    connection.open_answer().send([len(data).to_bytes(4, "big"), data])


def run(options: ListenerOptions, scenario: Callable[[Listener, int], Awaitable[None]]) -> None:
    """Run a scenario against a real listener on loopback whose sweep comes every 20 ms."""

    async def main() -> None:
        listener = Listener(Recorder(echo), options, sweep_interval_s=0.02)
        _, port = await listener.open("127.0.0.1", 0)
        try:
            await asyncio.wait_for(scenario(listener, port), 10)
        finally:
            await listener.close(drain_timeout_s=0.5)

    asyncio.run(main())


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


async def until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110  # the listener has no event for each thing a test may look at
        await asyncio.sleep(0.005)


def test_a_request_is_answered() -> None:
    async def scenario(listener: Listener, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(100) * 2)
        assert await reader.readexactly(208) == frame(100) * 2
        writer.close()

    run(ListenerOptions(), scenario)


def test_who_comes_in_the_moment_of_closing_is_closed_too() -> None:
    """The connection is accepted in the turn of the loop before the one in which the listener closes."""

    async def scenario(listener: Listener, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as late:
            await asyncio.sleep(0)
            await asyncio.create_task(listener.close(drain_timeout_s=0.1))
            with suppress(ConnectionResetError):
                assert late.recv(1) == b""

    run(ListenerOptions(), scenario)


def test_a_length_that_never_comes() -> None:
    async def scenario(listener: Listener, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(100)[:50])
        assert await ended(reader)
        writer.close()

    run(ListenerOptions(request_receive_timeout_ms=100), scenario)


def test_silence() -> None:
    async def scenario(listener: Listener, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await ended(reader)
        writer.close()

    run(ListenerOptions(idle_timeout_ms=100), scenario)


def test_answers_that_nobody_reads() -> None:
    async def scenario(listener: Listener, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(3_000_000) * 8)
        await until(lambda: listener.refused_count > 0)
        await until(lambda: not listener.connections)
        writer.close()

    run(ListenerOptions(response_send_timeout_ms=200), scenario)


def test_one_connection_too_many() -> None:
    async def scenario(listener: Listener, port: int) -> None:
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in kept:
            writer.write(frame(10))
        for reader, _ in kept:
            await reader.readexactly(14)
        reader, refused = await asyncio.open_connection("127.0.0.1", port)
        assert await ended(reader)
        kept[0][1].write(frame(10))
        assert await kept[0][0].readexactly(14) == frame(10)
        for _, writer in [*kept, (reader, refused)]:
            writer.close()

    run(ListenerOptions(connections_max=2), scenario)


def test_closing_waits_for_answers_in_flight() -> None:
    """A request that was taken is answered before its connection is closed."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def slowly(connection: Connection, data: bytes) -> None:
            answer = connection.open_answer()
            loop.call_later(0.1, answer.send, [len(data).to_bytes(4, "big"), data])

        listener = Listener(Recorder(slowly), ListenerOptions())
        _, port = await listener.open("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(10))
        await until(lambda: any(connection.is_busy for connection in listener.connections))
        await listener.close()
        assert await reader.readexactly(14) == frame(10)
        assert await ended(reader)
        writer.close()

    asyncio.run(main())


def test_a_request_without_an_answer_is_reported_once_and_again_when_it_is_answered() -> None:
    async def scenario(listener: Listener, port: int) -> None:
        recorder = listener.handler
        assert isinstance(recorder, Recorder)
        waiting: list[Answer] = []
        names = iter(["slow", None])

        def wait(connection: Connection, data: bytes) -> None:
            connection.request = next(names)
            waiting.append(connection.open_answer())

        recorder._then = wait
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(100) * 2)
        await until(lambda: bool(recorder.slow))
        await asyncio.sleep(0.1)
        [(request, seconds, is_answered)] = recorder.slow
        assert (request, is_answered) == ("slow", False), "the other one may take as long as it likes"
        assert seconds >= 0.05
        waiting[0].send([b"\0\0\0\4okay"])
        [_, (request, _, is_answered)] = recorder.slow
        assert (request, is_answered) == ("slow", True)
        writer.close()

    run(ListenerOptions(slow_request_ms=50), scenario)


def test_a_request_that_came_just_now_is_not_slow() -> None:
    """The listener's clock is set once per sweep: what came since seems to be older than it is."""

    async def scenario(listener: Listener, port: int) -> None:
        recorder = listener.handler
        assert isinstance(recorder, Recorder)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        def wait(connection: Connection, data: bytes) -> None:
            connection.request = "quick"
            answer = connection.open_answer()
            # The clock is as wrong as it can be, and the sweep comes before the answer.
            answer.since = listener.loop.time() - listener.clock_error_s
            listener._sweep()
            answer.send([len(data).to_bytes(4, "big"), data])

        recorder._then = wait
        writer.write(frame(100))
        await reader.readexactly(104)
        assert recorder.slow == []
        writer.close()

    run(ListenerOptions(slow_request_ms=1), scenario)


def test_a_client_that_goes_is_noticed_while_it_is_not_read() -> None:
    """Also if it has sent more, which hides the end of what it sent."""

    async def scenario(listener: Listener, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(100))
        await reader.readexactly(104)
        [connection] = listener.connections
        connection.pause(Pause.HANDLER)
        writer.write(frame(100))
        await writer.drain()
        assert not connection.is_abandoned
        writer.close()
        await until(lambda: connection.is_abandoned)
        assert not connection.closed

    run(ListenerOptions(), scenario)
