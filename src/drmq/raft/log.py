"""The log as the core sees it: the entries in storage, and a tail that is not in storage yet.

Payloads are in storage. The core reads terms and entries through a `LogReader` and keeps only the *unstable* tail in
memory: entries that were appended and are not reported durable. Several batches of them may be on their way to the disk
at the same time, and a new leader may replace entries meanwhile. So a report that batch 1 is durable must not be taken
for its replacement in batch 2: each batch records how far the log reached when it was handed out, and truncation lowers
that index.

    1 ......... first_index ......... durable_index ......... last_index
       snapshot  |---------- storage ----------|---- unstable ----|

Always true between calls:

- entries are appended at `last_index + 1`, and indexes are assigned nowhere else;
- terms never decrease from one entry to the next;
- `commit_index` never decreases, and nothing at or below it is truncated;
- everything up to `durable_index` is on this node's disk exactly as in this log;
- only entries that are committed and durable on this node are handed out to be applied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from drmq.raft.snapshot import SnapshotMeta
from drmq.raft.types import NO_INDEX, Entry, HardState, IndexRange, LogIndex, Term

_last_index = attrgetter("index")


class LogReader(Protocol):
    """Read-only storage. It holds the content of a `Ready` at the latest when that `Ready` is reported persisted.

    Entries may be removed from the front at any time, up to the snapshot's index and never beyond the applied index.
    """

    @property
    def first_index(self) -> LogIndex:
        """The first entry that can be read; one past the last if there is none."""

    @property
    def last_index(self) -> LogIndex:
        """The last entry, or that of the snapshot."""

    @property
    def snapshot(self) -> SnapshotMeta:
        """The latest snapshot. In a new group it is at index 0 and holds the first configuration."""

    def term_at(self, index: LogIndex) -> Term | None:
        """The term of the entry at `index`. Also known just before `first_index`; None for all other indexes."""

    def entries(self, start: LogIndex, end: LogIndex, size_bytes_max: int, count_max: int) -> Sequence[Entry]:
        """Entries from the one at `start`, before `end`: at least one, however large, then as many as fit.

        An empty result means that they are not in memory; the driver reads them and calls `on_entries_read`.
        """

    def configuration_entries(self) -> Sequence[Entry]:
        """The configuration entries after the snapshot, in order. Called once, at the start."""


@dataclass(slots=True)
class _Batch:
    """What was handed out for persisting, and what becomes durable with it."""

    number: int
    end_index: LogIndex
    hard_state: HardState | None
    snapshot: SnapshotMeta | None


class RaftLog:
    """The log of one replica. Owned by the replica; every index in it is assigned here."""

    def __init__(self, reader: LogReader, commit_index: LogIndex, applied_index: LogIndex) -> None:
        self._reader = reader
        self._unstable: list[Entry] = []
        self._unstable_start = LogIndex(reader.last_index + 1)
        self._handed_end = self._unstable_start
        self._pending_snapshot: SnapshotMeta | None = None
        self._truncated_from: LogIndex | None = None
        self._batches: deque[_Batch] = deque()
        self.last_index = reader.last_index
        self.last_term = self._must_term_at(self.last_index)
        self.durable_index = self.last_index
        self.commit_index = max(commit_index, applied_index, reader.snapshot.index)
        assert self.commit_index <= self.last_index, (self.commit_index, self.last_index)
        assert applied_index >= reader.snapshot.index or applied_index == NO_INDEX, (applied_index, reader.snapshot)
        self.applied_index = max(applied_index, reader.snapshot.index)
        self._apply_start = LogIndex(self.applied_index + 1)

    # Reading

    @property
    def first_index(self) -> LogIndex:
        """The first entry that can be read."""
        if self._pending_snapshot is not None:
            return LogIndex(self._pending_snapshot.index + 1)
        return self._reader.first_index

    @property
    def snapshot(self) -> SnapshotMeta:
        """The snapshot at the front of the log; the one that is being installed if there is one."""
        return self._pending_snapshot or self._reader.snapshot

    def term_at(self, index: LogIndex) -> Term | None:
        """The term of an entry. Also known just before the first entry; None for all other indexes."""
        if index >= self._unstable_start:
            return self._unstable[self._position(index)].term if index <= self.last_index else None
        if self._pending_snapshot is not None:
            return self._pending_snapshot.term if index == self._pending_snapshot.index else None
        return self._reader.term_at(index) if index >= 0 else None

    def entries(self, start: LogIndex, size_bytes_max: int, count_max: int) -> Sequence[Entry]:
        """Some entries from the one at `start` on; at least one if one is in memory."""
        if start > self.last_index:
            return ()
        if start < self._unstable_start:
            return self._reader.entries(start, self._unstable_start, size_bytes_max, count_max)
        position = self._position(start)
        end = position + 1
        size_bytes = self._unstable[position].size_bytes
        while end < len(self._unstable) and end - position < count_max:
            size_bytes += self._unstable[end].size_bytes
            if size_bytes > size_bytes_max:
                break
            end += 1
        return self._unstable[position:end]

    def is_up_to_date(self, last_index: LogIndex, last_term: Term) -> bool:
        """Whether a log that ends there is at least as complete as this one (Raft paper, section 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def last_at_most(self, index: LogIndex, term: Term) -> LogIndex:
        """The last index up to `index` whose term is not later than `term`. It may lie inside an entry.

        Terms never decrease along a log, so this is a binary search, and a long conflict costs few reads. If that entry
        is covered by the snapshot, the result is some index before it.
        """
        low, high = LogIndex(self.first_index - 1), min(index, self.last_index)
        if high < low:
            return high
        if self._must_term_at(low) > term:
            return LogIndex(low - 1)
        while low < high:
            middle = LogIndex((low + high + 1) // 2)
            if self._must_term_at(middle) <= term:
                low = middle
            else:
                high = LogIndex(middle - 1)
        return low

    def _position(self, index: LogIndex) -> int:
        """The position of the entry at `index` in the unstable tail; past its end if it is not there yet."""
        return bisect_left(self._unstable, index, key=_last_index)

    def _must_term_at(self, index: LogIndex) -> Term:
        term = self.term_at(index)
        assert term is not None, f"no entry at {index}; the log is {self.first_index} to {self.last_index}"
        return term

    # Writing

    def append(self, entry: Entry) -> None:
        """Append an entry. The log grows only here."""
        assert entry.first == self.last_index + 1, (entry.first, self.last_index)
        assert entry.index >= entry.first, (entry.first, entry.index)
        assert entry.term >= self.last_term, (entry.term, self.last_term)
        self._unstable.append(entry)
        self.last_index = entry.index
        self.last_term = entry.term

    def truncate_from(self, start: LogIndex) -> None:
        """Remove the entries from `start` on, so that a new leader can replace them.

        Truncating committed entries would break a promise made to a client. Only a bug asks for that, so it stops the
        node.
        """
        assert start > self.commit_index, (start, self.commit_index)
        assert start <= self.last_index, (start, self.last_index)
        if start >= self._unstable_start:
            position = self._position(start)
            assert self._unstable[position].first == start, "an entry is removed as a whole"
            del self._unstable[position:]
        else:
            self._unstable.clear()
            self._unstable_start = start
        end = LogIndex(start - 1)
        self._handed_end = min(self._handed_end, start)
        self.durable_index = min(self.durable_index, end)
        for batch in self._batches:
            batch.end_index = min(batch.end_index, end)
        self._truncated_from = start if self._truncated_from is None else min(start, self._truncated_from)
        self.last_index = end
        self.last_term = self._must_term_at(end)

    def restore(self, meta: SnapshotMeta) -> None:
        """Start again after a snapshot. Earlier content is either part of the snapshot or was never committed."""
        assert meta.index > self.commit_index, (meta.index, self.commit_index)
        assert self.term_at(meta.index) != meta.term, "the log holds the snapshot's last entry and must be kept"
        self._unstable.clear()
        self._unstable_start = self._handed_end = self._apply_start = LogIndex(meta.index + 1)
        self._truncated_from = None
        for batch in self._batches:
            batch.end_index = NO_INDEX
        self.durable_index = min(self.durable_index, self.commit_index)
        self._pending_snapshot = meta
        self.commit_index = self.last_index = meta.index
        self.last_term = meta.term

    def commit_to(self, index: LogIndex) -> bool:
        """Raise the commit index. Returns True if it rose."""
        if index <= self.commit_index:
            return False
        assert index <= self.last_index, (index, self.last_index)
        self.commit_index = index
        return True

    # Handing out

    @property
    def has_work(self) -> bool:
        """Whether there is something to persist or to apply."""
        return (
            self._handed_end <= self.last_index
            or self._truncated_from is not None
            or self._apply_start <= min(self.commit_index, self.durable_index)
        )

    @property
    def has_in_flight(self) -> bool:
        """Whether something was handed out for persisting and is not reported durable yet."""
        return bool(self._batches)

    def take_unpersisted(self) -> tuple[LogIndex | None, tuple[Entry, ...]]:
        """The index to truncate storage from, and the entries to append after that."""
        truncated_from, self._truncated_from = self._truncated_from, None
        entries = tuple(self._unstable[self._position(self._handed_end) :])
        if truncated_from is not None and entries:
            # The truncation may start after entries that storage never received. These are handed out now, so storage
            # must hold nothing at their indexes.
            truncated_from = min(truncated_from, entries[0].first)
        self._handed_end = LogIndex(self.last_index + 1)
        return truncated_from, entries

    def on_handed_out(self, number: int, hard_state: HardState | None, snapshot: SnapshotMeta | None) -> None:
        """Record what a report of `number` will make durable."""
        self._batches.append(_Batch(number, self.last_index, hard_state, snapshot))

    def take_committed(self) -> IndexRange | None:
        """The committed entries that may be applied now and were not handed out before."""
        end = LogIndex(min(self.commit_index, self.durable_index) + 1)
        if end <= self._apply_start:
            return None
        committed = IndexRange(self._apply_start, end)
        self._apply_start = end
        return committed

    def on_persisted(self, number: int) -> HardState | None:
        """Everything handed out up to `number` is durable. Returns the hard state, if it was part of that."""
        hard_state = None
        while self._batches and self._batches[0].number <= number:
            batch = self._batches.popleft()
            hard_state = batch.hard_state or hard_state
            if batch.snapshot is not None and batch.snapshot is self._pending_snapshot:
                self._pending_snapshot = None
                self.applied_index = max(self.applied_index, batch.snapshot.index)
            if batch.end_index > self.durable_index:
                self.durable_index = batch.end_index
        if self.durable_index >= self._unstable_start:
            del self._unstable[: self._position(LogIndex(self.durable_index + 1))]
            self._unstable_start = LogIndex(self.durable_index + 1)
        return hard_state

    def on_applied(self, index: LogIndex) -> None:
        """The state machine has applied everything up to `index`."""
        assert index < self._apply_start, (index, self._apply_start)
        self.applied_index = max(self.applied_index, index)
