"""Real sockets on both event loops: frames of all sizes, pauses at random, and answers in order all the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
import uvloop

from drmq.transport import Connection, Listener, ListenerOptions, Pause

from .fakes import frame

PRODUCE = 0
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


class Moody:
    """Answers each request with its number and size, now or later, and pauses the connection at will."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kept: list[memoryview] = []

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        loop = asyncio.get_running_loop()
        answer = connection.open_answer()
        text = bytes(frame[2:6]) + len(frame).to_bytes(4, "big") + bytes(self.random.choice([0, 10, 200_000]))
        buffers = [len(text).to_bytes(4, "big"), text]
        if self.random.random() < 0.5:
            answer.send(buffers)
        else:
            loop.call_later(self.random.random() / 200, answer.send, buffers)
        if self.random.random() < 0.3:
            reason = self.random.choice([Pause.HANDLER, Pause.DISK])
            connection.pause(reason)
            loop.call_later(self.random.random() / 200, connection.resume, reason)
        if self.random.random() < 0.5:
            self.kept = [frame, *self.kept[:20]]

    def on_close(self, connection: Connection) -> None: ...

    def on_slow(self, connection: Connection, request: object, seconds: float, is_answered: bool) -> None: ...


async def talk(port: int, seed: int) -> None:
    chance = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sizes = [chance.choice([8, 100, 5_000, 70_000, 300_000, 1_500_000]) + chance.randrange(50) for _ in range(60)]

    async def send() -> None:
        wire = b"".join(
            size.to_bytes(4, "big") + bytes(2) + number.to_bytes(4, "big") + bytes(size - 6)
            for number, size in enumerate(sizes)
        )
        position = 0
        while position < len(wire):
            step = chance.choice([1, 3, 700, 50_000, 400_000])
            writer.write(wire[position : position + step])
            position += step
            await writer.drain()
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() / 500)

    async def receive() -> None:
        for number, size in enumerate(sizes):
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            assert (int.from_bytes(answer[:4], "big"), int.from_bytes(answer[4:8], "big")) == (number, size)
            if chance.random() < 0.1:
                await asyncio.sleep(0.01)

    await asyncio.gather(send(), receive())
    writer.close()


@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("in_flight_max", [1, 128])
def test_every_request_is_answered_in_order_whatever_pauses(
    new_loop: Callable[[], asyncio.AbstractEventLoop], in_flight_max: int
) -> None:
    async def main() -> None:
        options = ListenerOptions(
            requests_in_flight_max=in_flight_max, partial_request_bytes_max=1_000_000, connections_max=100
        )
        listener = Listener(Moody(1), options, sweep_interval_s=0.005)
        _, port = await listener.open("127.0.0.1", 0)
        await asyncio.wait_for(asyncio.gather(*(talk(port, seed) for seed in range(8))), 60)
        while listener.connections:  # noqa: ASYNC110  # the listener has no event for it
            await asyncio.sleep(0.01)
        assert listener.partial_bytes == 0
        assert listener.blocked_bytes == 0
        assert not listener._waiting_for_memory
        await listener.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])
def test_a_client_that_hangs_up_in_the_middle_leaves_nothing_behind(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        listener = Listener(Moody(2), ListenerOptions(partial_request_bytes_max=500_000), sweep_interval_s=0.005)
        _, port = await listener.open("127.0.0.1", 0)
        for size in (3, 20, 5_000, 100_000, 1_000_000):
            for _ in range(4):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(frame(8) * 40 + frame(2_000_000, PRODUCE)[:size])
                await asyncio.sleep(0.002)
                writer.transport.abort()
        while listener.connections:  # noqa: ASYNC110  # the listener has no event for it
            await asyncio.sleep(0.01)
        assert listener.partial_bytes == 0
        assert listener.blocked_bytes == 0
        await asyncio.wait_for(listener.close(), 10)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
