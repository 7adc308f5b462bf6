"""Values that cost time to find out, for readers who may ask at any rate.

A node with thousands of partitions needs milliseconds to look at all of them, in the thread that serves its clients,
and every dashboard asks each second. So a result that was dear is used again for two hundred times as long as it took:
to find it out takes half a percent of the time at most, however many ask. What was cheap is always found out anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

REUSED_FACTOR: Final = 200
CHEAP_NS: Final = 500_000


class Sparingly(Generic[T]):
    """A function without arguments that is not called more often than its cost allows. Used by one thread."""

    def __init__(self, function: Callable[[], T], clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._function = function
        self._clock = clock
        self._kept: tuple[T, int] | None = None
        """The last result, and until when it is used again."""

    def __call__(self) -> T:
        began_ns = self._clock()
        if self._kept is not None and began_ns < self._kept[1]:
            return self._kept[0]
        found = self._function()
        ended_ns = self._clock()
        took_ns = ended_ns - began_ns
        self._kept = (found, ended_ns + took_ns * REUSED_FACTOR) if took_ns > CHEAP_NS else None
        return found
