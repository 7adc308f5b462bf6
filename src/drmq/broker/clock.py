"""The two clocks, handed in so that tests and the simulator can turn them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time drives deadlines; wall time only stamps and expires."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
