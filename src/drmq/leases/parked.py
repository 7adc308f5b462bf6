"""Offsets that wait for a time, in the order of that time.

A hundred thousand of them may wait, most with a time and a history of their own, so they are kept as rows of an array:
32 bytes for each run of offsets. Nothing looks one up by its offset: they leave when they are due, or with the queue.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator
from typing import NamedTuple

_FIELDS = 4


class ParkedRow(NamedTuple):
    """A run of offsets that waits, with its history."""

    first: int
    last: int
    attempt: int
    failed_ms: int


class Parked:
    """Runs of offsets by the time at which they return."""

    __slots__ = ("_due", "_rows", "count")

    def __init__(self) -> None:
        self._rows: dict[int, array[int]] = {}
        """By due time: the rows, one after the other."""
        self._due: list[int] = []
        """A heap of the keys of `_rows`."""
        self.count = 0
        """The number of offsets that wait."""

    def add(self, due_ms: int, row: ParkedRow) -> None:
        rows = self._rows.get(due_ms)
        if rows is None:
            rows = self._rows[due_ms] = array("q")
            heapq.heappush(self._due, due_ms)
        rows.extend(row)
        self.count += row.last - row.first + 1

    def next_due(self) -> int | None:
        """When the next ones return; None if none waits."""
        return self._due[0] if self._due else None

    def due_times(self) -> list[int]:
        """All times at which some return, in no particular order."""
        return list(self._due)

    def take(self, due_ms: int, count_max: int) -> list[ParkedRow]:
        """Remove the runs that are due until `due_ms`, the earliest first, until `count_max` offsets are reached."""
        taken: list[ParkedRow] = []
        count = 0
        while self._due and self._due[0] <= due_ms and count < count_max:
            rows = self._rows[self._due[0]]
            used = 0
            while used < len(rows) and count < count_max:
                row = ParkedRow(*rows[used : used + _FIELDS])
                used += _FIELDS
                count += row.last - row.first + 1
                taken.append(row)
            if used == len(rows):
                del self._rows[heapq.heappop(self._due)]
            else:
                del rows[:used]
        self.count -= count
        return taken

    def __iter__(self) -> Iterator[tuple[int, ParkedRow]]:
        """All rows with their due times, the earliest first."""
        for due_ms in sorted(self._due):
            rows = self._rows[due_ms]
            for at in range(0, len(rows), _FIELDS):
                yield due_ms, ParkedRow(*rows[at : at + _FIELDS])

    def first(self) -> int | None:
        """The lowest offset that waits. It looks at all rows."""
        return min((min(rows[::_FIELDS]) for rows in self._rows.values()), default=None)

    def trim(self, start: int) -> None:
        """Forget the offsets below `start`."""
        kept = [(due_ms, row._replace(first=max(row.first, start))) for due_ms, row in self if row.last >= start]
        self._rows, self._due, self.count = {}, [], 0
        for due_ms, row in kept:
            self.add(due_ms, row)
