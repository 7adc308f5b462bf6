"""The two clocks, handed in so that tests and the simulator can turn them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time drives deadlines; wall time only stamps and expires."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class JumpDetector:
    """Tells when the wall clock has moved without time passing: set by hand, or by a time server.

    What expires by wall time waits out such a moment. A clock that is a day ahead for a minute must
    not cost a day of records.
    """

    def __init__(self, clock: Clock, tolerance_ms: int = 60_000) -> None:
        self._clock = clock
        self._tolerance_ms = tolerance_ms
        self._difference_ms = self._difference()

    def has_jumped(self) -> bool:
        """Whether the clock has jumped since the last time this was asked."""
        before, self._difference_ms = self._difference_ms, self._difference()
        return abs(self._difference_ms - before) > self._tolerance_ms

    def _difference(self) -> int:
        return self._clock.wall_ms() - self._clock.monotonic_ms()


class SystemClock:
    """The machine's own clocks."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
