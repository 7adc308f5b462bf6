"""Ranges of offsets with a value each: sorted, disjoint, and merged where neighbours have the same value.

Work is leased in runs of offsets and settled in runs, so the state of a million records is a few ranges. The cost of an
operation depends on the number of ranges that it touches, and never on the number of offsets in them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")


class Piece(NamedTuple, Generic[V]):
    """The offsets from `first` to `last`, both included, and their common value."""

    first: int
    last: int
    value: V

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1


class Ranges(Generic[V]):
    """A sorted set of disjoint ranges. Values are compared when neighbours meet, and must not change."""

    __slots__ = ("_firsts", "_lasts", "_values", "count")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._values: list[V] = []
        self.count = 0
        """The number of offsets in all ranges."""

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Piece[V]]:
        return map(Piece, self._firsts, self._lasts, self._values)

    @property
    def first(self) -> int | None:
        """The lowest offset; None if there is none."""
        return self._firsts[0] if self._firsts else None

    def add(self, first: int, last: int, value: V) -> None:
        """Add a range that overlaps none of those that are here."""
        firsts, lasts, values = self._firsts, self._lasts, self._values
        self.count += last - first + 1
        index = bisect_left(firsts, first)
        assert index == 0 or lasts[index - 1] < first, (first, last)
        assert index == len(firsts) or last < firsts[index], (first, last)
        joins_before = index > 0 and lasts[index - 1] == first - 1 and values[index - 1] == value
        if index < len(firsts) and firsts[index] == last + 1 and values[index] == value:
            if joins_before:
                lasts[index - 1] = lasts[index]
                del firsts[index], lasts[index], values[index]
            else:
                firsts[index] = first
        elif joins_before:
            lasts[index - 1] = last
        else:
            firsts.insert(index, first)
            lasts.insert(index, last)
            values.insert(index, value)

    def find(self, first: int, last: int) -> list[Piece[V]]:
        """The parts of the ranges that lie between `first` and `last`, in order."""
        firsts, lasts, values = self._firsts, self._lasts, self._values
        found = []
        for index in range(bisect_left(lasts, first), bisect_right(firsts, last)):
            found.append(Piece(max(first, firsts[index]), min(last, lasts[index]), values[index]))
        return found

    def cut(self, first: int, last: int) -> list[Piece[V]]:
        """Remove what lies between `first` and `last`, and return it, in order."""
        firsts, lasts, values = self._firsts, self._lasts, self._values
        start, stop = bisect_left(lasts, first), bisect_right(firsts, last)
        if start >= stop:
            return []
        if stop - start == 1:
            return [self._cut_one(start, first, last)]
        removed = self.find(first, last)
        left = (firsts[start], first - 1, values[start]) if firsts[start] < first else None
        right = (last + 1, lasts[stop - 1], values[stop - 1]) if lasts[stop - 1] > last else None
        kept = [part for part in (left, right) if part is not None]
        firsts[start:stop] = [part[0] for part in kept]
        lasts[start:stop] = [part[1] for part in kept]
        values[start:stop] = [part[2] for part in kept]
        self.count -= sum(piece.size for piece in removed)
        return removed

    def _cut_one(self, index: int, first: int, last: int) -> Piece[V]:
        """Remove a part of one range: nearly every cut is this one."""
        firsts, lasts, values = self._firsts, self._lasts, self._values
        begin, end, value = firsts[index], lasts[index], values[index]
        first, last = max(begin, first), min(end, last)
        if begin < first:
            lasts[index] = first - 1
            if last < end:
                firsts.insert(index + 1, last + 1)
                lasts.insert(index + 1, end)
                values.insert(index + 1, value)
        elif last < end:
            firsts[index] = last + 1
        else:
            del firsts[index], lasts[index], values[index]
        self.count -= last - first + 1
        return Piece(first, last, value)

    def drop_first(self) -> None:
        """Remove the lowest range."""
        self.count -= self._lasts.pop(0) - self._firsts.pop(0) + 1
        del self._values[0]
