"""Turns: calls that need much memory run a few at a time, and no caller has all of the places.

A caller waits for a place of its own first, and only then for one of the places for all. So what a caller has asked for
beyond its places stands before nobody else, and those who wait for the places for all get them in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from drmq.gateway.problems import ProblemError


@dataclass(slots=True)
class _Places:
    """Those of one caller."""

    free: asyncio.Semaphore
    user_count: int = 0


class Turns:
    """Places for calls of one kind. Lives on the event loop."""

    def __init__(self, places: int, places_of_caller: int, waiting_max: int) -> None:
        self._free = asyncio.Semaphore(places)
        self._places_of_caller = places_of_caller
        self._waiting_max = waiting_max
        self._callers: dict[str | None, _Places] = {}
        self._user_count = 0

    @asynccontextmanager
    async def place(self, caller: str | None) -> AsyncIterator[None]:
        """Wait for a place and hold it. Raises `ProblemError` if too many wait."""
        if self._user_count >= self._waiting_max:
            raise ProblemError(503, "too many requests wait for their turn", advice="Try again in a moment.")
        own = self._callers.setdefault(caller, _Places(asyncio.Semaphore(self._places_of_caller)))
        own.user_count += 1
        self._user_count += 1
        try:
            async with own.free, self._free:
                yield
        finally:
            own.user_count -= 1
            self._user_count -= 1
            if not own.user_count:
                del self._callers[caller]
