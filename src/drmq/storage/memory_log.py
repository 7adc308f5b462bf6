"""A log in memory, for temporary brokers and for tests: the contract of `Log` in its simplest form.

It behaves like `SegmentLog` as far as memory allows: unflushed batches are not served, and retention removes the same
groups of batches. It is a reference for tests, not a fast log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from drmq.model import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset
from drmq.records import LENGTH_OVERHEAD, BatchHeader, Buffer
from drmq.storage.epochs import EpochStart, EpochTable
from drmq.storage.errors import LogClosed, OffsetOutOfRange
from drmq.storage.log import LatestTime, LogOptions, StoredBatch, Unflushed
from drmq.storage.retention import start_to_keep


@dataclass(slots=True)
class _Segment:
    """A group of batches that retention removes together."""

    base_offset: Offset
    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    size_bytes: int = 0
    modified_ms: int = 0

    @property
    def end_offset(self) -> Offset:
        return self.batches[-1][0].next_offset if self.batches else self.base_offset

    def newest_ms(self) -> int:
        newest = max((header.max_timestamp for header, _ in self.batches), default=NO_TIMESTAMP)
        return newest if newest >= 0 else self.modified_ms


class MemoryLog:
    """A log that is lost when the process ends; implements `Log`."""

    def __init__(self, name: str = "memory", options: LogOptions | None = None, first_offset: int = 0) -> None:
        self.options = options or LogOptions()
        self.now_ms = 0
        """The time of appends, for records without a timestamp. Set by tests that need it."""
        self._name = name
        self._start_offset = self._flushed_offset = Offset(first_offset)
        self._segments: list[_Segment] = [_Segment(Offset(first_offset))]
        self._is_closed = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def start_offset(self) -> Offset:
        return self._start_offset

    @property
    def end_offset(self) -> Offset:
        return self._segments[-1].end_offset

    @property
    def flushed_offset(self) -> Offset:
        return self._flushed_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def is_fenced(self) -> bool:
        return False

    @property
    def epochs(self) -> EpochTable:
        batches = ((header.leader_epoch, header.base_offset) for header, _ in self._all())
        return EpochTable().with_batches(batches).without_prefix(self._start_offset)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        return self.epochs.at(offset) if offset < self.end_offset else NO_LEADER_EPOCH

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochStart:
        return self.epochs.end_of(epoch, self.end_offset)

    def latest_time(self, up_to: Offset | None = None) -> LatestTime:
        end = self.end_offset if up_to is None else up_to
        best = LatestTime(NO_TIMESTAMP, Offset(-1))
        for header, _ in self._all():
            if header.base_offset < end and header.max_timestamp > best.timestamp:
                best = LatestTime(header.max_timestamp, header.base_offset)
        return best

    def _all(self) -> Iterator[tuple[BatchHeader, bytes]]:
        return chain.from_iterable(segment.batches for segment in self._segments)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(self._name)

    def append(self, batches: Sequence[tuple[BatchHeader, Buffer]]) -> None:
        self._check_open()
        for header, batch in batches:
            size = len(batch)
            assert header.base_offset == self.end_offset, (header, self.end_offset)
            assert header.length + LENGTH_OVERHEAD == size, (header, size)
            segment = self._segments[-1]
            if segment.batches and segment.size_bytes + size > self.options.segment_bytes:
                self.roll()
                segment = self._segments[-1]
            segment.batches.append((header, bytes(batch)))
            segment.size_bytes += size
            segment.modified_ms = self.now_ms

    def flush(self) -> None:
        if self._flushed_offset != self.end_offset:
            self._check_open()
            self._flushed_offset = self.end_offset

    @property
    def synced_offset(self) -> Offset:
        return self._flushed_offset

    @property
    def unsynced_bytes(self) -> int:
        return 0

    def sync(self) -> None:
        self.flush()

    def begin_sync(self) -> None:
        return None

    def end_sync(self) -> None:
        pass

    def unflushed(self) -> Unflushed:
        return Unflushed(self._segments[-1].base_offset, 0, self.end_offset, (), 0)

    def on_journaled(self, unflushed: Unflushed) -> None:
        self._flushed_offset = unflushed.end_offset

    def _from(self, offset: Offset) -> Iterator[tuple[BatchHeader, bytes]]:
        """The batches of the segment with `offset`, from the one that contains it."""
        self._check_open()
        if not self._start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self._start_offset, self.end_offset)
        at = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        batches = self._segments[at].batches
        first = bisect_right(batches, offset, key=lambda batch: batch[0].base_offset) - 1
        return iter(batches[max(first, 0) :])

    def read(self, offset: Offset, max_bytes: int, up_to: Offset, cached_only: bool = False) -> Buffer | None:
        assert up_to <= self._flushed_offset, (offset, up_to)
        parts: list[bytes] = []
        size = 0
        for header, batch in self._from(offset):
            if offset >= up_to or header.base_offset >= up_to or (parts and size + len(batch) > max_bytes):
                break
            parts.append(batch)
            size += len(batch)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def batch_at_time(self, timestamp: int, up_to: Offset, start: Offset | None = None) -> StoredBatch | None:
        assert up_to <= self._flushed_offset, up_to
        for header, batch in self._all():
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp >= timestamp and header.next_offset > max(start or 0, self._start_offset):
                return StoredBatch(header, batch)
        return None

    def headers(self, start: Offset, end: Offset) -> Iterator[tuple[BatchHeader, int]]:
        self._from(start)
        for header, batch in self._all():
            if header.next_offset > start and header.base_offset < end:
                yield header, len(batch)

    def truncate_suffix(self, offset: Offset) -> None:
        self._check_open()
        assert offset >= self._start_offset, (offset, self._start_offset)
        while len(self._segments) > 1 and self._segments[-1].base_offset > offset:
            self._segments.pop()
        segment = self._segments[-1]
        segment.batches = [batch for batch in segment.batches if batch[0].base_offset < offset]
        segment.size_bytes = sum(len(batch) for _, batch in segment.batches)
        self._flushed_offset = min(self._flushed_offset, self.end_offset)

    def drop_prefix(self, offset: Offset) -> None:
        self._check_open()
        assert offset <= self._flushed_offset, (offset, self._flushed_offset)
        if offset == self.end_offset:
            self.roll()
        self._start_offset = max(self._start_offset, offset)
        last = self._segments[-1]
        self._segments = [s for s in self._segments if s is last or s.end_offset > self._start_offset]

    def maybe_roll(self, now_ms: int) -> bool:
        batches = self._segments[-1].batches
        if not batches:
            return False
        first_ms = batches[0][0].max_timestamp
        if now_ms - (first_ms if first_ms >= 0 else self._segments[-1].modified_ms) <= self.options.segment_ms:
            return False
        self.roll()
        return True

    def roll(self) -> None:
        self._check_open()
        if self._segments[-1].batches:
            self.flush()
            self._segments = [*self._segments, _Segment(self.end_offset)]

    def reset(self, offset: Offset) -> None:
        self._check_open()
        self._segments = [_Segment(offset)]
        self._start_offset = self._flushed_offset = offset

    def retention_start(
        self, now_ms: int, retention_ms: int = -1, retention_bytes: int = -1, keep_from: Offset | None = None
    ) -> Offset:
        self._check_open()
        keep_from = self._flushed_offset if keep_from is None else min(keep_from, self._flushed_offset)
        self.maybe_roll(now_ms)
        surplus_bytes = self.size_bytes - retention_bytes if retention_bytes >= 0 else 0
        return start_to_keep(
            self._segments, self._segments[-1], self._start_offset, keep_from, surplus_bytes, now_ms, retention_ms
        )

    def close(self, clean: bool = True) -> None:
        if clean and not self._is_closed:
            self.flush()
        self._is_closed = True

    def delete(self) -> None:
        self._is_closed = True
        self._start_offset = self._flushed_offset = self.end_offset
        self._segments = [_Segment(self._start_offset)]
