"""Work that takes long, a little at a time, with turns for each caller.

A caller that asks for much waits for itself: its jobs run one after the other, or a few at a time, and between them the
jobs of other callers get their turn. A job that has begun ends, also if its caller does not wait any more, so that a
caller cannot start more by closing its connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Job(NamedTuple):
    work: Callable[[], Awaitable[Any]]
    done: asyncio.Future[Any]


class FairQueue:
    """Runs at most `slots` jobs at a time, and at most `slots_per_caller` of one caller. Lives on the event loop."""

    def __init__(self, slots: int, slots_per_caller: int) -> None:
        assert 0 < slots_per_caller <= slots, (slots, slots_per_caller)
        self._slots = slots
        self._slots_per_caller = slots_per_caller
        self._waiting: dict[str, deque[_Job]] = {}
        """By caller, the one whose turn is next first."""
        self._running: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, caller: str, work: Callable[[], Awaitable[T]]) -> T:
        """Wait for a turn of this caller, and return what the work returns."""
        return await self.submit(caller, work)

    def submit(self, caller: str, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Queue work; the jobs of a caller begin in the order of the calls."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(_Job(work, done))
        self._start()
        return done

    def _start(self) -> None:
        while len(self._tasks) < self._slots:
            caller = next((each for each in self._waiting if self._running[each] < self._slots_per_caller), None)
            if caller is None:
                return
            jobs = self._waiting.pop(caller)
            job = jobs.popleft()
            if jobs:
                # Behind all others.
                self._waiting[caller] = jobs
            if job.done.cancelled():
                continue
            self._running[caller] += 1
            task = asyncio.get_running_loop().create_task(self._work(job))
            self._tasks.add(task)
            task.add_done_callback(lambda ended, caller=caller: self._on_ended(ended, caller))  # type: ignore[misc]

    async def _work(self, job: _Job) -> None:
        try:
            result = await job.work()
        except Exception as error:  # noqa: BLE001  # for the caller
            if not job.done.done():
                job.done.set_exception(error)
        else:
            if not job.done.done():
                job.done.set_result(result)

    def _on_ended(self, task: asyncio.Task[None], caller: str) -> None:
        self._tasks.discard(task)
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]
        self._start()
