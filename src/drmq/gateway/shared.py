"""A value that is costly to find: all callers within a while share one look.

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
        self._valid_until_s = 0.0

    async def get(self) -> T:
        """The value, found now or a moment ago. Raises what looking raises."""
        task = self._task
        if task is None or (task.done() and (_has_failed(task) or time.monotonic() >= self._valid_until_s)):
            task = self._task = asyncio.ensure_future(self._find())
        # A caller that goes away must not end the look for the others.
        return await asyncio.shield(task)

    def forget(self) -> None:
        """The next caller looks again: something was changed."""
        self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _find(self) -> T:
        began_s = time.monotonic()
        found = await self._look()
        ended_s = time.monotonic()
        self._valid_until_s = ended_s + max(self._age_s_max, _SHARE * (ended_s - began_s))
        return found


def _has_failed(task: asyncio.Future[T]) -> bool:
    return task.cancelled() or task.exception() is not None
