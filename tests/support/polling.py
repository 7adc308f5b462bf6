"""Waiting for something that another process does, without sleeping longer than needed.

Clients and broker run in other threads and processes, so there is no fake clock to turn. A test names the condition
and the deadline; a deadline that passes fails with what was last seen, not with a bare timeout.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
"""How long a test waits for what normally takes milliseconds. Generous, because it is paid only on failure, and because
on a machine without time to spare a process may take half a minute just to start."""


def eventually(
    look: Callable[[], T],
    accept: Callable[[T], bool] = bool,
    *,
    timeout_s: float = PATIENCE_S,
    interval_s: float = 0.02,
    what: str = "",
) -> T:
    """Call `look` until `accept` likes what it returns, and return that."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = look()
        if accept(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what or 'condition'}; last seen: {seen!r}")
        time.sleep(interval_s)


class Deadline:
    """A point in time from which on a loop stops waiting."""

    def __init__(self, timeout_s: float = PATIENCE_S) -> None:
        self._end = time.monotonic() + timeout_s

    def passed(self) -> bool:
        return time.monotonic() >= self._end
