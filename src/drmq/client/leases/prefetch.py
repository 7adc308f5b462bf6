"""How many messages to lease ahead of the application.

Too few, and a fast application waits for a round trip again and again. Too many, and a slow one holds work that others
could do. So the limit follows the application: it doubles whenever the application has used up everything although the
last request brought all that was asked for, and it falls to what the application took in the last second.

What an application asks for while it waits comes on top: it will have it at once.
"""

from __future__ import annotations

FIRST_LIMIT = 16
_PERIOD_S = 1.0


class Prefetch:
    """The present limit. Times are seconds of one clock."""

    def __init__(self, count_max: int, now_s: float) -> None:
        assert count_max >= 0, count_max
        self._count_max = count_max
        self.limit = min(FIRST_LIMIT, count_max)
        self._was_short = False
        """Whether the last answer had everything that was asked for: there may be more."""
        self._taken = 0
        self._period_start_s = now_s

    def room(self, leased_ahead: int, waited_for: int) -> int:
        """How many messages to ask for, if so many are leased or asked for already and so many are waited for.

        Nothing while more than half are there: a request for a few would cost as much as one for many.
        """
        wanted = max(self.limit, waited_for)
        return wanted - leased_ahead if leased_ahead <= wanted // 2 else 0

    def on_received(self, count: int, asked: int) -> None:
        """An answer had `count` messages, where `asked` would have been welcome."""
        self._was_short = count >= asked > 0

    def on_taken(self, count: int, left: int, now_s: float) -> None:
        """The application took `count` messages, and `left` are still there."""
        self._taken += count
        if left == 0 and self._was_short:
            self.limit = min(max(2 * self.limit, 1), self._count_max)
            self._was_short = False
        self._end_period(now_s)

    def on_unused(self) -> None:
        """Messages had to be given back because the application did not take them in time."""
        self.limit = 0
        self._was_short = True

    def _end_period(self, now_s: float) -> None:
        elapsed_s = now_s - self._period_start_s
        if elapsed_s >= _PERIOD_S:
            per_period = int(self._taken * _PERIOD_S / elapsed_s) + 1
            self.limit = min(self.limit, max(per_period, 1), self._count_max)
            self._taken, self._period_start_s = 0, now_s
