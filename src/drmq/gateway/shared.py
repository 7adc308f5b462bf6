"""A value that is costly to find: all callers within a while share one look. Looks never overlap.

The while is at least a minimum, and ten times as long as the look took: however large the cluster is, and however many
pages are open, looking takes a tenth of one thread at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_SHARE: Final = 10


class Shared(Generic[T]):
    """Lives on the event loop."""

    def __init__(self, look: Callable[[], Awaitable[T]], age_s_max: float) -> None:
        self._look = look
        self._age_s_max = age_s_max
        self._task: asyncio.Future[T] | None = None
        self._forgotten: asyncio.Future[T] | None = None
        """A look that may still run, and whose result is old already."""
        self._valid_until_s = 0.0

    async def get(self) -> T:
        """The value, found now or a moment ago. Raises what looking raises."""
        task = self._task
        if task is None or (task.done() and (_has_failed(task) or time.monotonic() >= self._valid_until_s)):
            before, self._forgotten = self._forgotten, None
            task = self._task = asyncio.ensure_future(self._find(before))
        # A caller that goes away must not end the look for the others.
        return await asyncio.shield(task)

    def forget(self) -> None:
        """The next caller looks again: something was changed."""
        if self._task is not None:
            self._forgotten, self._task = self._task, None

    async def close(self) -> None:
        tasks = [task for task in (self._forgotten, self._task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, before: asyncio.Future[T] | None) -> T:
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        began_s = time.monotonic()
        found = await self._look()
        ended_s = time.monotonic()
        self._valid_until_s = ended_s + max(self._age_s_max, _SHARE * (ended_s - began_s))
        return found


def _has_failed(task: asyncio.Future[T]) -> bool:
    return task.cancelled() or task.exception() is not None
