"""Places for calls that need much memory: how many run at a time, and that one caller does not have them all."""

from __future__ import annotations

import asyncio

import pytest

from drmq.gateway.problems import ProblemError
from drmq.gateway.turns import Turns


class Calls:
    """Calls that run until they are let go."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.running: list[str] = []
        self._let_go: dict[str, asyncio.Event] = {}

    async def begin(self, name: str) -> asyncio.Task[None]:
        """The caller is the first letter of the name."""
        self._let_go[name] = asyncio.Event()
        task = asyncio.ensure_future(self._call(name))
        await settled()
        return task

    async def end(self, name: str) -> None:
        self._let_go[name].set()
        await settled()

    async def _call(self, name: str) -> None:
        async with self._turns.place(name[0]):
            self.running.append(name)
            try:
                await self._let_go[name].wait()
            finally:
                self.running.remove(name)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_caller_with_many_calls_leaves_a_place_for_another() -> None:
    async def main() -> None:
        calls = Calls(Turns(3, 2, 100))
        for number in range(10):
            await calls.begin(f"a{number}")
        assert calls.running == ["a0", "a1"]
        await calls.begin("b0")
        await calls.begin("c0")
        assert calls.running == ["a0", "a1", "b0"], "three run"
        await calls.end("a0")
        assert calls.running == ["a1", "b0", "c0"], "who comes later with its first call is before the third of another"
        await calls.end("a1")
        assert calls.running == ["b0", "c0", "a2"]

    asyncio.run(main())


def test_a_call_that_is_cancelled_gives_its_place_back() -> None:
    """Also one that waits, for its own place or for one of all."""

    async def main() -> None:
        turns = Turns(1, 1, 100)
        calls = Calls(turns)
        tasks = [await calls.begin(name) for name in ("a0", "a1", "b0", "b1")]
        for task in reversed(tasks):
            task.cancel()
        await settled()
        assert not calls.running
        assert not turns._callers, "callers are forgotten"
        await calls.begin("c0")
        assert calls.running == ["c0"]

    asyncio.run(main())


def test_no_more_than_so_many_wait() -> None:
    async def main() -> None:
        calls = Calls(Turns(1, 1, 2))
        await calls.begin("a0")
        await calls.begin("b0")
        with pytest.raises(ProblemError) as caught:
            await (await calls.begin("c0"))
        assert caught.value.problem.status == 503

    asyncio.run(main())
