"""`MemoryStorage`: a log in memory for tests, with the contract of the real storage."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from drmq.raft.ready import Ready
from drmq.raft.snapshot import SnapshotMeta
from drmq.raft.types import Entry, EntryKind, HardState, LogIndex, Term

_last_index = attrgetter("index")


class MemoryStorage:
    """Durable state, in memory. `write` does everything that a `Ready` asks for, at once.

    The driver in a test decides when to call it, and discards `Ready`s that are not written where a real node would
    crash.
    """

    def __init__(self, snapshot: SnapshotMeta) -> None:
        self.hard_state = HardState()
        self.snapshot = snapshot
        self.commit = snapshot.index
        self._before = (snapshot.index, snapshot.term)
        self._entries: list[Entry] = []

    @property
    def first_index(self) -> LogIndex:
        return LogIndex(self._before[0] + 1)

    @property
    def last_index(self) -> LogIndex:
        return self._entries[-1].index if self._entries else self._before[0]

    def term_at(self, index: LogIndex) -> Term | None:
        if index == self._before[0]:
            return self._before[1]
        return self._entries[self._position(index)].term if self._before[0] < index <= self.last_index else None

    def end_at_most(self, index: LogIndex) -> LogIndex:
        position = self._position(index)
        if position < len(self._entries) and self._entries[position].index == index:
            return index
        return self._entries[position - 1].index if position else self._before[0]

    def _position(self, index: LogIndex) -> int:
        return bisect_left(self._entries, index, key=_last_index)

    def entries(self, start: LogIndex, end: LogIndex, size_bytes_max: int, count_max: int) -> Sequence[Entry]:
        assert self.first_index <= start, (start, self.first_index)
        found: list[Entry] = []
        size_bytes = 0
        position = self._position(start)
        for entry in self._entries[position : position + count_max]:
            if entry.first >= end:
                break
            size_bytes += entry.size_bytes
            if found and size_bytes > size_bytes_max:
                break
            found.append(entry)
        return found

    def configuration_entries(self) -> Sequence[Entry]:
        return [e for e in self._entries if e.kind is EntryKind.CONFIGURATION and e.index > self.snapshot.index]

    def write(self, ready: Ready) -> None:
        """Make all of `ready` durable, except the chunks, which are files."""
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.snapshot is not None:
            self.install(ready.snapshot)
        if ready.truncate_from is not None:
            self.truncate_from(ready.truncate_from)
        self.append(ready.entries)
        self.commit = max(self.commit, min(ready.commit, self.last_index))

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries."""
        for entry in entries:
            assert entry.first == self.last_index + 1, (entry.first, self.last_index)
            self._entries.append(entry)

    def truncate_from(self, start: LogIndex) -> None:
        """Remove the entry that begins at `start` and all after it, if there are any."""
        position = self._position(start)
        assert position == len(self._entries) or self._entries[position].first == start, (start, self._entries)
        del self._entries[position:]

    def install(self, snapshot: SnapshotMeta) -> None:
        """Replace the log by a snapshot."""
        self.snapshot = snapshot
        self.commit = max(self.commit, snapshot.index)
        self._before = (snapshot.index, snapshot.term)
        self._entries.clear()

    def compact(self, snapshot: SnapshotMeta, keep_from: LogIndex) -> None:
        """Take a snapshot, and drop the entries before `keep_from` that it covers."""
        self.snapshot = snapshot
        last_dropped = LogIndex(min(keep_from - 1, snapshot.index))
        term = self.term_at(last_dropped)
        if last_dropped >= self.first_index and term is not None:
            assert self.end_at_most(last_dropped) == last_dropped, (last_dropped, "inside an entry")
            del self._entries[: self._position(last_dropped) + 1]
            self._before = (last_dropped, term)
