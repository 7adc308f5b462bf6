"""Entries that a leader has appended and that some followers lack, kept in memory.

Consensus drops the bytes of an entry once they are on the leader's own disk. A follower that is slightly slower than
that disk then needs them again, and they would be read from the file once for each follower. Here they are kept
unchanged: the same views that the writer and the connections hold, so keeping them costs no copy.

This is only a cache. It belongs to one term of one leader, which only appends. Any other event (another leader, a
truncation, a snapshot, a failed disk, a restart) empties it, and then the entries are read from the disk. An entry that
is not here is in the file.

All partitions of a node share one limit in bytes. It counts the memory that is kept alive, not the bytes of the
entries: a batch of a hundred bytes in a buffer of a megabyte keeps the megabyte. If there is too much, the partition
with the oldest last append drops its oldest entries first.

Always true: the entries of one partition are contiguous; `held_bytes <= bytes_max`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter

from drmq.raft import Entry, LogIndex

RECENT_BYTES_MAX = 32 << 20
"""For a whole node. More than the unanswered bytes of one follower (`RaftOptions.in_flight_bytes_max`), so that a
follower that keeps up is served from memory. With less, the page cache serves it, at the cost of a read per
follower."""

_ENTRY_OVERHEAD_BYTES = 600
"""The size of the objects that make up an entry, besides the buffer with its bytes."""

_last_index = attrgetter("index")


class RecentMemory:
    """The memory that all partitions of a node share. Used on the event loop."""

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._uses: dict[int, int] = {}
        """By the identity of a buffer: how many entries use it. One buffer may hold batches of many partitions."""
        self._by_age: OrderedDict[RecentEntries, None] = OrderedDict()
        """The partitions with entries; the one with the oldest last append comes first."""

    def on_added(self, recent: RecentEntries, entries: Sequence[Entry]) -> None:
        """Count these entries, and drop the oldest ones until the limit is met."""
        for entry in entries:
            self.held_bytes += _ENTRY_OVERHEAD_BYTES
            buffer = _buffer_of(entry)
            if buffer is not None:
                uses = self._uses.get(id(buffer), 0)
                self._uses[id(buffer)] = uses + 1
                if not uses:
                    self.held_bytes += len(buffer)
        self._by_age[recent] = None
        self._by_age.move_to_end(recent)
        while self.held_bytes > self.bytes_max:
            next(iter(self._by_age)).forget_oldest()

    def on_forgotten(self, recent: RecentEntries, entries: Sequence[Entry]) -> None:
        """Stop counting these entries."""
        for entry in entries:
            self.held_bytes -= _ENTRY_OVERHEAD_BYTES
            buffer = _buffer_of(entry)
            if buffer is not None:
                uses = self._uses.pop(id(buffer)) - 1
                if uses:
                    self._uses[id(buffer)] = uses
                else:
                    self.held_bytes -= len(buffer)
        if not recent:
            self._by_age.pop(recent, None)


class RecentEntries:
    """The latest entries of one partition's leader. Owned by its `EntryLog`."""

    __slots__ = ("_entries", "_memory")

    def __init__(self, memory: RecentMemory) -> None:
        self._memory = memory
        self._entries: list[Entry] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add entries that follow the last ones; older ones are dropped if there is too much."""
        if self._entries:
            assert entries[0].first == self._entries[-1].index + 1, (entries[0].first, self._entries[-1].index)
        self._entries += entries
        self._memory.on_added(self, entries)

    def read(self, start: LogIndex, end: LogIndex, size_bytes_max: int, count_max: int) -> Sequence[Entry]:
        """Entries from the one at `start`, before `end`: at least one, then as many as fit; none if not here."""
        entries = self._entries
        if not entries or not entries[0].first <= start <= entries[-1].index:
            return ()
        first = position = bisect_left(entries, start, key=_last_index)
        last = min(len(entries), first + count_max)
        size_bytes = 0
        while position < last and entries[position].first < end:
            size_bytes += entries[position].size_bytes
            if size_bytes > size_bytes_max and position > first:
                break
            position += 1
        return entries[first:position]

    def release(self, index: LogIndex) -> None:
        """Drop the entries up to `index`, because every follower has them."""
        entries = self._entries
        if entries and entries[0].index <= index:
            self._forget(bisect_left(entries, index + 1, key=_last_index))

    def forget_oldest(self) -> None:
        self._forget(1)

    def clear(self) -> None:
        if self._entries:
            self._forget(len(self._entries))

    def _forget(self, count: int) -> None:
        forgotten = self._entries[:count]
        del self._entries[:count]
        self._memory.on_forgotten(self, forgotten)


def _buffer_of(entry: Entry) -> bytes | bytearray | None:
    """The buffer that an entry's batch is a view of; None for own entries, which are a few bytes."""
    data = getattr(entry.payload, "data", None)
    buffer = data.obj if isinstance(data, memoryview) else None
    return buffer if isinstance(buffer, bytes | bytearray) else None
