"""Which byte ranges of a file were checked since it was opened: a few merged, half-open spans."""

from __future__ import annotations

SPANS_MAX = 64


class Spans:
    """A set of ranges that may forget some of them, but never contains what was not added.

    Several threads may add at the same time. Each replaces the whole tuple, so at worst one addition is lost and a
    range is checked twice.
    """

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: tuple[tuple[int, int], ...] = ()

    def covers(self, start: int, end: int) -> bool:
        """Whether all of `start..end` was added."""
        return any(low <= start and end <= high for low, high in self._spans)

    def add(self, start: int, end: int) -> None:
        """Add a range, merging it with those that it touches; past the limit the shortest are forgotten."""
        apart = []
        for low, high in self._spans:
            if high < start or end < low:
                apart.append((low, high))
            else:
                start, end = min(start, low), max(end, high)
        apart.append((start, end))
        if len(apart) > SPANS_MAX:
            apart.sort(key=lambda span: span[0] - span[1])
            del apart[SPANS_MAX:]
        self._spans = tuple(apart)
