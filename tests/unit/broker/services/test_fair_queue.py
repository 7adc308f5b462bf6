"""Long work is done in turns: by caller, and only so much at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from drmq.broker.services.fair_queue import FairQueue


class Jobs:
    """Jobs that begin, and end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Future[str]] = {}

    def job(self, name: str) -> Callable[[], Awaitable[str]]:
        async def work() -> str:
            self.begun.append(name)
            self.ends[name] = asyncio.get_running_loop().create_future()
            return await self.ends[name]

        return work


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_callers_take_turns() -> None:
    """One with many jobs has its share of the slots, and another one does not wait for all of them."""

    async def scenario() -> None:
        queue, jobs = FairQueue(slots=3, slots_per_caller=2), Jobs()
        running = [asyncio.ensure_future(queue.run("a", jobs.job(f"a{index}"))) for index in range(5)]
        await settle()
        assert jobs.begun == ["a0", "a1"]
        running += [asyncio.ensure_future(queue.run("b", jobs.job(f"b{index}"))) for index in range(3)]
        await settle()
        assert jobs.begun == ["a0", "a1", "b0"]
        for name, then in (("a0", "a2"), ("b0", "b1"), ("a1", "a3"), ("b1", "b2")):
            jobs.ends[name].set_result(name)
            await settle()
            assert jobs.begun[-1] == then
        for name in ("a2", "a3", "b2"):
            jobs.ends[name].set_result(name)
        await settle()
        jobs.ends["a4"].set_result("a4")
        assert await asyncio.gather(*running) == ["a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2"]
        assert not queue._waiting
        assert not queue._running

    asyncio.run(scenario())


def test_a_job_that_has_begun_keeps_its_slot_when_its_caller_is_gone() -> None:
    """And one that has not begun is left out."""

    async def scenario() -> None:
        queue, jobs = FairQueue(slots=1, slots_per_caller=1), Jobs()
        first = asyncio.ensure_future(queue.run("a", jobs.job("first")))
        second = asyncio.ensure_future(queue.run("a", jobs.job("second")))
        third = asyncio.ensure_future(queue.run("a", jobs.job("third")))
        await settle()
        first.cancel()
        second.cancel()
        await settle()
        assert jobs.begun == ["first"]
        jobs.ends["first"].set_result("")
        await settle()
        assert jobs.begun == ["first", "third"]
        jobs.ends["third"].set_result("done")
        assert await third == "done"

    asyncio.run(scenario())


def test_an_error_is_for_its_caller() -> None:
    async def scenario() -> None:
        queue = FairQueue(slots=1, slots_per_caller=1)

        async def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await queue.run("a", fail)
        assert await queue.run("a", lambda: asyncio.sleep(0, "fine")) == "fine"

    asyncio.run(scenario())
