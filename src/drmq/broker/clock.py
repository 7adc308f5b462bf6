"""The two clocks, handed in so that tests and the simulator can turn them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Monotonic time drives deadlines; wall time only stamps and expires."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class ExpiryClock:
    """The time by which things expire: what the wall clock says, unless that is in doubt.

    A wall clock can be wrong by days, and what expired by it is gone. So it is believed as far as it goes along with
    the time that has passed. Ahead of that, it was set, or the machine slept, or the node was down; which of these
    cannot be told from here, and only in one of them is it wrong. It is then believed once it has gone on steadily for
    as long as it is ahead, or for a day: time enough for whoever looks after it to see the warning. Until then things
    expire by the time that has passed. A clock that is behind is believed at once: nothing expires too early by it.
    """

    def __init__(self, clock: Clock, *, tolerance_ms: int = 60_000, doubt_max_ms: int = 86_400_000) -> None:
        self._clock = clock
        self._tolerance_ms = tolerance_ms
        self._doubt_max_ms = doubt_max_ms
        self._believed_ms = clock.wall_ms()
        self._at_ms = clock.monotonic_ms()
        self._doubted_from_ms: int | None = None
        """By monotonic time: since when the wall clock says what is not believed."""
        self._doubted_offset_ms = 0

    def resume(self, believed_ms: int) -> None:
        """Go on from the time that was believed before the node was started."""
        self._believed_ms = believed_ms

    @property
    def doubt(self) -> str | None:
        """What is not believed at the moment, and for how long; for people."""
        if self._doubted_from_ms is None:
            return None
        ahead_ms = self._doubted_offset_ms + self._at_ms - self._believed_ms
        left_ms = min(ahead_ms, self._doubt_max_ms) - (self._at_ms - self._doubted_from_ms)
        return (
            f"the clock is {ahead_ms / 1000:.0f} s ahead of the time that has passed since it was last believed; for "
            f"{left_ms / 1000:.0f} s more nothing expires by it. If it is wrong, set it right before"
        )

    def now_ms(self) -> int:
        """The time that is believed."""
        wall_ms, at_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        expected_ms = self._believed_ms + at_ms - self._at_ms
        ahead_ms, offset_ms = wall_ms - expected_ms, wall_ms - at_ms
        self._at_ms = at_ms
        if ahead_ms > self._tolerance_ms:
            if self._doubted_from_ms is None or abs(offset_ms - self._doubted_offset_ms) > self._tolerance_ms:
                # Set, and perhaps set again: steady it must be.
                self._doubted_from_ms, self._doubted_offset_ms = at_ms, offset_ms
            if at_ms - self._doubted_from_ms < min(ahead_ms, self._doubt_max_ms):
                self._believed_ms = expected_ms
                return expected_ms
        self._doubted_from_ms = None
        self._believed_ms = wall_ms
        return wall_ms


class SeenClock:
    """A clock for stamps by which things expire later: never behind the time by which things expired last.

    Whoever is stamped while the clock is days behind would expire once it is set right.
    """

    def __init__(self, clock: Clock, seen_ms: Callable[[], int]) -> None:
        self.monotonic_ms = clock.monotonic_ms
        self.wall_ms = seen_ms


class SystemClock:
    """The machine's own clocks."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
