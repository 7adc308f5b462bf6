"""The monotonic clock and the wall clock, injected so that tests and the simulator can control them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Monotonic time is for deadlines; wall time is only for timestamps and expiry."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class ExpiryClock:
    """The time by which data expires: the wall clock, unless it has jumped ahead.

    A wall clock can be wrong by days, and expired data cannot be restored. The wall clock is therefore trusted only
    while it agrees with the time that has passed by the monotonic clock. If it is ahead, it was set, or the machine
    was suspended, or the node was down. These cases cannot be distinguished here, and only in the first can the clock
    be wrong. It is trusted again once it has run steadily for as long as it is ahead, or for a day, which gives an
    operator time to see the warning. Until then data expires by the time that has passed. A clock that is behind is
    trusted at once, because nothing expires too early by it.
    """

    def __init__(self, clock: Clock, *, tolerance_ms: int = 60_000, doubt_max_ms: int = 86_400_000) -> None:
        self._clock = clock
        self._tolerance_ms = tolerance_ms
        self._doubt_max_ms = doubt_max_ms
        self._believed_ms = clock.wall_ms()
        self._at_ms = clock.monotonic_ms()
        self._doubted_from_ms: int | None = None
        """Since when, by monotonic time, the wall clock has not been trusted."""
        self._doubted_offset_ms = 0

    def resume(self, believed_ms: int) -> None:
        """Continue from the trusted time of before the node was restarted."""
        self._believed_ms = believed_ms

    @property
    def ahead_ms(self) -> int:
        """How far the wall clock is ahead, if it is not trusted now; otherwise 0."""
        if self._doubted_from_ms is None:
            return 0
        return self._doubted_offset_ms + self._at_ms - self._believed_ms

    @property
    def doubt(self) -> str | None:
        """A text for operators if the wall clock is not trusted now: how far it is ahead, and for how long."""
        if self._doubted_from_ms is None:
            return None
        ahead_ms = self.ahead_ms
        left_ms = min(ahead_ms, self._doubt_max_ms) - (self._at_ms - self._doubted_from_ms)
        return (
            f"the clock is {ahead_ms / 1000:.0f} s ahead of the time that has passed since it was last trusted; "
            f"nothing expires by it for another {left_ms / 1000:.0f} s. If the clock is wrong, correct it before then"
        )

    def now_ms(self) -> int:
        """The trusted time."""
        wall_ms, at_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        expected_ms = self._believed_ms + at_ms - self._at_ms
        ahead_ms, offset_ms = wall_ms - expected_ms, wall_ms - at_ms
        self._at_ms = at_ms
        if ahead_ms > self._tolerance_ms:
            if self._doubted_from_ms is None or abs(offset_ms - self._doubted_offset_ms) > self._tolerance_ms:
                # The clock was set, perhaps not for the first time. The waiting time starts again with every jump.
                self._doubted_from_ms, self._doubted_offset_ms = at_ms, offset_ms
            if at_ms - self._doubted_from_ms < min(ahead_ms, self._doubt_max_ms):
                self._believed_ms = expected_ms
                return expected_ms
        self._doubted_from_ms = None
        self._believed_ms = wall_ms
        return wall_ms


class SeenClock:
    """A clock for timestamps by which data expires later: never behind the time that was last used for expiry.

    Data that gets its timestamp while the clock is days behind would expire as soon as the clock is corrected.
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
