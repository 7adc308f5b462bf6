"""A segment: one append-only file of record batches, with a sparse index beside it.

The file is authoritative and the index is a hint (`index`). The last segment of a log is active: the writer thread
appends to it, and its index is in memory. All others are sealed and never change; their index is read from disk when it
is first needed, and rebuilt from the log file if it is missing or does not match. Files are opened when they are used,
so that a log with a thousand segments opens fast. Files and indexes that were not used for long are dropped again
(`file_pool`).

Always true between calls:

- base offsets are dense, the first is `base_offset`, and the batch after the last has `end_offset`;
- `synced_bytes <= flushed_bytes <= size_bytes`: what is durable in this file, what is durable in this file or the
  journal, and what was written; readers stay below `flushed_bytes`;
- every index entry points at the first byte of a batch.

A read costs one `pread`, whatever the number of batches: the index gives a position at or shortly before the wanted
batch, the read includes the rest of that interval, and both ends of the result are found in memory by walking at most
one interval.

Bytes are trusted if this process wrote them, or has checked their CRC since it opened the file. Only trusted bytes are
served by reads that may not block. All others need a blocking read, which checks them. So a flipped bit is found by the
first read that returns it, even if the kernel's readahead has put it into the page cache long before.

Rolling, retention and truncation involve many segments; they are in `segment_log`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct

from drmq.model import NO_TIMESTAMP, Offset
from drmq.records import HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, Buffer, read_header
from drmq.storage.epochs import EpochTable
from drmq.storage.errors import LogCorrupt
from drmq.storage.file_pool import FilePool
from drmq.storage.files import OpenFile
from drmq.storage.index import HEADER_SIZE as INDEX_HEADER_SIZE
from drmq.storage.index import SparseIndex, Summary, decode_body, decode_header, encode
from drmq.storage.log import LatestTime, StoredBatch
from drmq.storage.spans import Spans
from drmq.storage.walk import BadBatch, check, walk

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
_PREFIX = Struct(">qi")
_NO_OFFSET = Offset(-1)
_REBUILD_INTERVAL_BYTES = 4096


class Segment:
    """One log file and its index. The writer thread changes it; any thread reads it."""

    __slots__ = (
        "_checked",
        "_file",
        "_files",
        "_has_summary",
        "_pool",
        "base_offset",
        "end_offset",
        "epochs",
        "first_timestamp",
        "flushed_bytes",
        "index",
        "max_timestamp",
        "max_timestamp_offset",
        "path",
        "saved_bytes",
        "size_bytes",
        "synced_bytes",
        "trusted_from",
    )

    def __init__(self, pool: FilePool, directory: str, base_offset: Offset, interval_bytes: int) -> None:
        self._pool = pool
        self._files = pool.files
        self.path = f"{directory}/{base_offset:020d}{LOG_SUFFIX}"
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size_bytes = 0
        self.flushed_bytes = self.synced_bytes = 0
        self.saved_bytes = 0
        """How much of the active segment its index file covers (`save_checkpoint`)."""
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = _NO_OFFSET
        self.epochs = EpochTable()
        self.index: SparseIndex | None = SparseIndex(base_offset, interval_bytes)
        """None while the index of a sealed segment is not loaded. `load` returns it in any case."""
        self.trusted_from = 0
        self._checked = Spans()
        self._file = pool.file(self.path)
        self._has_summary = True

    @classmethod
    def sealed(
        cls, pool: FilePool, directory: str, base_offset: Offset, end_offset: Offset, size_bytes: int
    ) -> Segment:
        """A segment that was sealed before this process started; nothing of it is read yet."""
        segment = cls(pool, directory, base_offset, 0)
        segment.end_offset = end_offset
        segment.size_bytes = segment.flushed_bytes = segment.synced_bytes = segment.trusted_from = size_bytes
        segment.index, segment._has_summary = None, False
        return segment

    def as_sealed(self, end_offset: Offset, size_bytes: int) -> Segment:
        """The same segment, as if it were sealed and had this end."""
        segment = Segment.sealed(self._pool, self.path.rpartition("/")[0], self.base_offset, end_offset, size_bytes)
        segment._file = self._file
        return segment

    # Files

    @property
    def index_path(self) -> str:
        return self.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX

    @property
    def file(self) -> OpenFile:
        """The open log file; keep a reference to it while using its handle."""
        return self._file.get()

    def file_to_append(self) -> OpenFile:
        """The open log file, which stays open until `on_synced`."""
        return self._file.pin()

    def on_synced(self) -> None:
        """Note that all of the file, or a part of it, was synced."""
        if self.synced_bytes == self.size_bytes:
            self._file.unpin()

    def create(self) -> None:
        """Make the empty log file; not durable until the directory is synced."""
        # The index of an earlier file of this name would say something about other bytes.
        self.remove_index()
        # An earlier attempt that a full disk interrupted may have left bytes.
        file = self._file.create()
        self._files.truncate(file.handle, 0)

    def close(self) -> None:
        """Close the file, and drop the index of a sealed segment. Readers that use them are not disturbed."""
        self._file.release()
        self._pool.on_index_dropped(self)

    def modified_ms(self) -> int:
        """When the log file was last written to."""
        return self._files.status(self.path).modified_ms

    def newest_ms(self) -> int:
        """The time of the newest record or, if no record has a time, of the last write."""
        try:
            self.load_summary()
        except LogCorrupt:
            return self.modified_ms()
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms()

    def remove_files(self) -> None:
        """Remove both files; readers that have the log file open are not disturbed."""
        self.remove_index()
        if self._files.exists(self.path):
            self._files.remove(self.path)
        self.close()

    def remove_index(self) -> None:
        """Remove the index file; it can be built again."""
        if self._files.exists(self.index_path):
            self._files.remove(self.index_path)

    # What the writer and recovery do

    def note(self, header: BatchHeader, position: int) -> None:
        """Register a batch at `position`, the current end of the file."""
        offset, timestamp = header.base_offset, header.max_timestamp
        index = self.index
        assert index is not None, self.path
        if index.is_due(position):
            index.add(offset, position, self.max_timestamp)
        if position == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = offset
        if header.leader_epoch > self.epochs.latest:
            self.epochs = self.epochs.with_batches([(header.leader_epoch, offset)])
        self.end_offset = Offset(offset + header.last_offset_delta + 1)
        self.size_bytes = position + header.length + LENGTH_OVERHEAD

    def summary(self) -> Summary:
        """The summary for the index file."""
        return Summary(
            self.base_offset,
            self.end_offset,
            self.size_bytes,
            self.first_timestamp,
            self.max_timestamp,
            self.max_timestamp_offset,
        )

    def save_index(self) -> None:
        """Write the index file, without a sync: it is checked when it is read."""
        self._write_index(self.load())

    def _write_index(self, index: SparseIndex) -> None:
        file = OpenFile(self._files, self._files.open(self.index_path, create=True))
        content = encode(index, self.summary(), self.epochs)
        self._files.write(file.handle, (content,), 0)
        self._files.truncate(file.handle, len(content))

    def save_checkpoint(self, synced_offset: Offset) -> None:
        """Write an index file that covers the synced part of the active segment, which ends at `synced_offset`.

        After a crash, opening the log walks only what follows. Without a sync, as any index: if it is lost or damaged,
        more is walked.
        """
        synced = self.cut(self.synced_bytes, synced_offset)
        synced._write_index(synced.load())
        self.saved_bytes = self.synced_bytes

    def from_checkpoint(self, flushed_bytes: int) -> Segment | None:
        """This segment up to the last indexed batch below `flushed_bytes`, from an index file that may be older.

        None if there is no such batch, or no valid index file. What the index says about the log is not checked; the
        caller walks the log from there.
        """
        try:
            file = OpenFile(self._files, self._files.open(self.index_path))
        except FileNotFoundError:
            return None
        data = self._files.read(file.handle, self._files.size(file.handle), 0)
        header = decode_header(data)
        body = decode_body(header, data[INDEX_HEADER_SIZE:]) if header is not None else None
        if header is None or body is None or header.summary.base_offset != self.base_offset:
            return None
        index, epochs = body
        # Only what was flushed is known to be complete. A batch that begins there may be half of an unfinished write.
        entry = bisect_left(index.positions, flushed_bytes) - 1
        if entry < 1:
            return None
        summary = header.summary
        found = self.as_sealed(summary.end_offset, summary.size_bytes)
        found._take_summary(summary)
        found.index, found.epochs = index, epochs
        return found.cut(index.positions[entry], Offset(self.base_offset + index.offsets[entry]))

    def cut(self, position: int, end_offset: Offset) -> Segment:
        """A new segment object for the same file cut at `position`, where `end_offset` would begin."""
        index = self.load()
        result = Segment(self._pool, self.path.rpartition("/")[0], self.base_offset, index.interval_bytes)
        result._file = self._file
        result.index = index.cut(position)
        result.end_offset = end_offset
        result.size_bytes = position
        result.flushed_bytes = min(self.flushed_bytes, position)
        result.synced_bytes = min(self.synced_bytes, position)
        result.trusted_from = min(self.trusted_from, position)
        result._checked = self._checked
        result.epochs = self.epochs.without_suffix(end_offset)
        if position == 0:
            return result
        result.first_timestamp = self.first_timestamp
        if self.max_timestamp_offset < end_offset:
            result.max_timestamp, result.max_timestamp_offset = self.max_timestamp, self.max_timestamp_offset
            return result
        result.max_timestamp, result.max_timestamp_offset = self.latest_time(end_offset)
        return result

    # Loading the metadata of a sealed segment

    def load_summary(self) -> None:
        """Load the timestamps. Reads only the header of the index file if that is valid."""
        if self._has_summary:
            return
        try:
            file = OpenFile(self._files, self._files.open(self.index_path))
        except FileNotFoundError:
            self.rebuild()
            return
        header = decode_header(self._files.read(file.handle, INDEX_HEADER_SIZE, 0))
        if header is None or not self._fits(header.summary):
            self.rebuild()
            return
        self._take_summary(header.summary)

    def load(self) -> SparseIndex:
        """The index, from its file or, if that does not match the log, by walking the log.

        Callers use the returned object, because another thread may drop the segment's own reference to it.
        """
        index = self.index
        if index is None:
            index = self.load_index_file()
            if index is None:
                index = self.rebuild()
            self.index = index
            self._pool.on_index_loaded(self, index.size_bytes)
        return index

    def unload(self) -> None:
        """Drop the index of a sealed segment."""
        self.index = None

    def on_sealed(self) -> None:
        """Count the index, which was in use for appends until now, with those that may be dropped."""
        if self.index is not None:
            self._pool.on_index_loaded(self, self.index.size_bytes)

    def load_index_file(self) -> SparseIndex | None:
        """The index from its file, if that is valid and matches the log."""
        try:
            file = OpenFile(self._files, self._files.open(self.index_path))
        except FileNotFoundError:
            return None
        data = self._files.read(file.handle, self._files.size(file.handle), 0)
        header = decode_header(data)
        if header is None or not self._fits(header.summary):
            return None
        body = decode_body(header, data[INDEX_HEADER_SIZE:])
        if body is None:
            return None
        self._take_summary(header.summary)
        index, self.epochs = body
        return index

    def _fits(self, summary: Summary) -> bool:
        return (summary.base_offset, summary.end_offset, summary.size_bytes) == (
            self.base_offset,
            self.end_offset,
            self.size_bytes,
        )

    def _take_summary(self, summary: Summary) -> None:
        self.first_timestamp = summary.first_timestamp
        self.max_timestamp = summary.max_timestamp
        self.max_timestamp_offset = summary.max_timestamp_offset
        self._has_summary = True

    def rebuild(self) -> SparseIndex:
        """Rebuild the index of a sealed segment from its log file, checking every batch."""
        fresh = Segment(self._pool, self.path.rpartition("/")[0], self.base_offset, _REBUILD_INTERVAL_BYTES)
        file = self.file
        try:
            for position, header in walk(self._files, file.handle, 0, self.size_bytes, self.base_offset):
                fresh.note(header, position)
        except BadBatch as bad:
            raise self.corrupt(bad) from bad
        if fresh.end_offset != self.end_offset:
            problem = f"the batches up to offset {self.end_offset} are missing"
            raise self.corrupt(BadBatch(self.size_bytes, fresh.end_offset, problem))
        self.first_timestamp = fresh.first_timestamp
        self.max_timestamp = fresh.max_timestamp
        self.max_timestamp_offset = fresh.max_timestamp_offset
        self.epochs = fresh.epochs
        self._has_summary = True
        self._checked.add(0, self.size_bytes)
        index = fresh.load()
        with suppress(OSError):
            # Only a hint: if the disk is full, the next opening walks the log again.
            self._write_index(index)
        return index

    def corrupt(self, bad: BadBatch) -> LogCorrupt:
        """The error that names this file."""
        return LogCorrupt(self.path, bad.position, bad.offset, bad.problem)

    # Reading

    def read(self, offset: Offset, max_bytes: int, up_to: Offset, cached_only: bool) -> Buffer | None:
        """Whole batches from the one containing `offset`, which lies below `up_to`; see `Log.read`."""
        file = self._file.get_if_open() if cached_only else self.file
        index = self.index
        if file is None or index is None:
            if cached_only:
                return None
            file, index = self.file, self.load()
        readable = self.flushed_bytes
        begin = index.before_offset(offset)
        limit = min(index.after_offset(up_to, readable), readable)
        window = min(index.interval_bytes + max(max_bytes, HEADER_SIZE), limit - begin)
        data = self._fetch(file, window, begin, cached_only)
        start = self._find_start(data, begin, window, offset, index.interval_bytes)
        if start is None:
            if cached_only:
                return None
            raise self._shorter(offset, begin)
        end_max = min(start + max_bytes, len(data))
        position = max(index.before_position(begin + end_max, up_to) - begin, start)
        while position + HEADER_SIZE <= end_max:
            base, length = _PREFIX.unpack_from(data, position)
            after = position + length + LENGTH_OVERHEAD
            if base >= up_to or after > end_max:
                break
            if after < position + HEADER_SIZE:
                raise self.corrupt(BadBatch(begin + position, base, "no record batch begins here"))
            position = after
        if position == start:
            # Not even one batch fits: the first one is returned whatever its size.
            begin, size = begin + start, _PREFIX.unpack_from(data, start)[1] + LENGTH_OVERHEAD
            if begin + size > readable:
                raise self.corrupt(BadBatch(begin, offset, f"the batch says it has {size} bytes"))
            if start + size <= len(data):
                data = memoryview(data)[start : start + size]
            else:
                data = self._fetch(file, size, begin, cached_only)
            start, position = 0, size
            if len(data) < size:
                if cached_only:
                    return None
                raise self._shorter(offset, begin)
        result = data if start == 0 and position == len(data) else memoryview(data)[start:position]
        if begin + start < self.trusted_from or not cached_only:
            return self._checked_bytes(result, begin + start, offset, cached_only)
        return result

    def _fetch(self, file: OpenFile, size: int, position: int, cached_only: bool) -> Buffer:
        if cached_only:
            return self._files.read_cached(file.handle, size, position)
        return self._files.read(file.handle, size, position)

    def _find_start(self, data: Buffer, begin: int, window: int, offset: Offset, interval: int) -> int | None:
        """The position in `data` of the batch that contains `offset`; None if too little was read."""
        position, available = 0, len(data)
        if available < _PREFIX.size:
            return None
        base, length = _PREFIX.unpack_from(data, 0)
        if base > offset:
            raise self.corrupt(BadBatch(begin, offset, f"the batch begins with offset {base}"))
        while True:
            after = position + length + LENGTH_OVERHEAD
            if after < position + HEADER_SIZE:
                raise self.corrupt(BadBatch(begin + position, base, "no record batch begins here"))
            # A batch that begins one interval later has its own index entry, which is beyond `offset`.
            if after >= interval or after >= window:
                return position
            if after + _PREFIX.size > available:
                return None
            base, length = _PREFIX.unpack_from(data, after)
            if base > offset:
                return position
            position = after

    def _shorter(self, offset: Offset, position: int) -> LogCorrupt:
        return self.corrupt(BadBatch(position, offset, "the file is shorter than what was flushed to it"))

    def _checked_bytes(self, data: Buffer, position: int, offset: Offset, cached_only: bool) -> Buffer | None:
        """Verify bytes that may come from the disk. A read that may not block may not spend that time either."""
        end = position + len(data)
        if cached_only:
            return data if self._checked.covers(position, min(end, self.trusted_from)) else None
        try:
            check(data, position, offset)
        except BadBatch as bad:
            if bad.position <= position:
                raise self.corrupt(bad) from bad
            # The bytes before the damage are intact and may be returned; the next read reports the damage.
            data, end = memoryview(data)[: bad.position - position], bad.position
        if position < self.trusted_from:
            self._checked.add(position, end)
        return data

    def _walk(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Headers from the batch at `position` on."""
        file = self.file
        base = read_header(self._files.read(file.handle, HEADER_SIZE, position)).base_offset
        try:
            yield from walk(self._files, file.handle, position, end, base, verify=False)
        except BadBatch as bad:
            raise self.corrupt(bad) from bad

    def headers(self, offset: Offset, up_to: Offset) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from the one containing `offset`, up to the last below `up_to`."""
        index = self.load()
        end = self.size_bytes
        begin = index.before_offset(offset)
        if begin >= end:
            return
        for position, header in self._walk(begin, end):
            if header.base_offset >= up_to:
                return
            if header.next_offset > offset:
                yield position, header

    def find_time(self, timestamp: int, up_to: Offset) -> BatchHeader | None:
        """The header of the first batch below `up_to` with a record at or after `timestamp`."""
        index = self.load()
        if self.max_timestamp < timestamp or self.size_bytes == 0:
            return None
        for _, header in self._walk(index.before_time(timestamp), self.size_bytes):
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp >= timestamp:
                return header
        return None

    def latest_time(self, up_to: Offset) -> LatestTime:
        """The largest timestamp below `up_to`, and the first batch that has it. Appends may happen meanwhile."""
        index = self.load()
        last = Offset(up_to - 1)
        newest = index.time_before(last)
        for _, header in self._walk(index.before_offset(last), self.size_bytes):
            if header.base_offset >= up_to:
                break
            newest = max(newest, header.max_timestamp)
        found = self.find_time(newest, up_to)
        return LatestTime(newest, found.base_offset) if found is not None else LatestTime(NO_TIMESTAMP, _NO_OFFSET)

    def batch(self, header: BatchHeader) -> StoredBatch:
        """The batch that this header belongs to, verified."""
        data = self.read(header.base_offset, 1, header.next_offset, cached_only=False)
        assert data is not None, header
        return StoredBatch(header, data)
