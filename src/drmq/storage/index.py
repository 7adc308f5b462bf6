"""The sparse index of a segment: for about every 4 KiB of log, the position where a batch begins.

Each entry has three columns: a batch's base offset, its position in the file, and the largest timestamp of all batches
*before* it in the segment. The last column never decreases. So one binary search finds an offset, a position or a time,
and a walk of at most `interval_bytes` from there finds the batch. One file serves all three lookups.

The rule that bounds the walk: the first batch of a segment has an entry, and so has every batch that begins
`interval_bytes` or more after the last entry. Hence all batches between two entries begin within `interval_bytes` of
the first.

The index is only a hint. It is written when a segment is sealed, without a sync, and read when it is first needed. It
has checksums and contains the log file's size and offsets. If anything does not match, it is rebuilt from the log
(`segment`).

File: a header with the segment's summary (everything that retention needs, so that it reads nothing else), the leader
epochs of the segment's batches, and the columns. Numbers are little-endian.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from drmq.model import NO_TIMESTAMP, LeaderEpoch, Offset
from drmq.storage.epochs import EpochStart, EpochTable

_MAGIC = b"DMQI"
_VERSION = 1
_HEADER = Struct("<4sHHqqqqqqIIII")
"""Magic, version, zero, then `Summary` in order, interval, entries, epochs, checksum of the rest of the file."""
_CHECKSUM = Struct("<I")
HEADER_SIZE = _HEADER.size + _CHECKSUM.size
_EPOCH = Struct("<iq")
_ENTRY_SIZE = 4 + 4 + 8


class Summary(NamedTuple):
    """What retention and time lookup need to know about a segment without opening its log file."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: Offset


class SparseIndex:
    """The three columns. Only the writer adds entries; readers on other threads see a growing prefix.

    `positions` grows last, so an entry that is counted by `positions` is complete.
    """

    __slots__ = ("base_offset", "interval_bytes", "offsets", "positions", "times")

    def __init__(self, base_offset: Offset, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offsets = array("I")  # relative to base_offset
        self.positions = array("I")
        self.times = array("q")

    def __len__(self) -> int:
        return len(self.positions)

    def add(self, offset: Offset, position: int, time_before: int) -> None:
        """Add an entry for the batch with base offset `offset`."""
        self.offsets.append(offset - self.base_offset)
        self.times.append(time_before)
        self.positions.append(position)

    @property
    def size_bytes(self) -> int:
        """The size of the columns in memory."""
        return len(self.positions) * _ENTRY_SIZE

    def is_due(self, position: int) -> bool:
        """Whether a batch at `position` must have an entry."""
        return not self.positions or position - self.positions[-1] >= self.interval_bytes

    def before_offset(self, offset: Offset) -> int:
        """The position of the last entry at or below `offset`; 0 if there is none."""
        entry = bisect_right(self.offsets, offset - self.base_offset, 0, len(self.positions))
        return self.positions[entry - 1] if entry else 0

    def time_before(self, offset: Offset) -> int:
        """The largest time of all batches before the last entry at or below `offset`."""
        entry = bisect_right(self.offsets, offset - self.base_offset, 0, len(self.positions))
        return self.times[entry - 1] if entry else NO_TIMESTAMP

    def after_offset(self, offset: Offset, default: int) -> int:
        """The position of the first entry at or above `offset`."""
        count = len(self.positions)
        entry = bisect_left(self.offsets, offset - self.base_offset, 0, count)
        return self.positions[entry] if entry < count else default

    def before_position(self, position: int, offset: Offset) -> int:
        """The largest entry position that is at most `position` and whose offset is at most `offset`."""
        entry = bisect_right(self.positions, position)
        relative = offset - self.base_offset
        if entry and self.offsets[entry - 1] > relative:
            entry = bisect_right(self.offsets, relative, 0, entry)
        return self.positions[entry - 1] if entry else 0

    def before_time(self, timestamp: int) -> int:
        """A position before which every batch is older than `timestamp`, at most one interval before the batch."""
        entry = bisect_left(self.times, timestamp, 0, len(self.positions))
        return self.positions[entry - 1] if entry else 0

    def cut(self, size_bytes: int) -> SparseIndex:
        """A copy with only the entries of batches that begin before `size_bytes`."""
        result = SparseIndex(self.base_offset, self.interval_bytes)
        count = bisect_left(self.positions, size_bytes)
        result.offsets = self.offsets[:count]
        result.times = self.times[:count]
        result.positions = self.positions[:count]
        return result


def encode(index: SparseIndex, summary: Summary, epochs: EpochTable) -> bytes:
    """The index file of a segment."""
    columns = [index.offsets, index.positions, index.times]
    if sys.byteorder == "big":
        columns = [array(column.typecode, column) for column in columns]
        for column in columns:
            column.byteswap()
    body = b"".join([*(_EPOCH.pack(*entry) for entry in epochs), *(column.tobytes() for column in columns)])
    header = _HEADER.pack(_MAGIC, _VERSION, 0, *summary, index.interval_bytes, len(index), len(epochs), crc32c(body))
    return header + _CHECKSUM.pack(crc32c(header)) + body


class IndexHeader(NamedTuple):
    """The fixed part of an index file."""

    summary: Summary
    interval_bytes: int
    entry_count: int
    epoch_count: int
    body_crc: int

    @property
    def body_size(self) -> int:
        return self.epoch_count * _EPOCH.size + self.entry_count * _ENTRY_SIZE


def decode_header(data: bytes) -> IndexHeader | None:
    """The fixed part, or None if these are not the first bytes of a valid index file."""
    if len(data) < HEADER_SIZE:
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    if crc32c(memoryview(data)[: _HEADER.size]) != checksum:
        return None
    magic, version, _, *fields = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        return None
    return IndexHeader(Summary(*fields[:6]), *fields[6:])


def decode_body(header: IndexHeader, body: bytes) -> tuple[SparseIndex, EpochTable] | None:
    """Columns and epochs, or None if the bytes are damaged."""
    if len(body) != header.body_size or crc32c(body) != header.body_crc:
        return None
    epochs_end = header.epoch_count * _EPOCH.size
    epochs = EpochTable(
        EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in _EPOCH.iter_unpack(body[:epochs_end])
    )
    index = SparseIndex(header.summary.base_offset, header.interval_bytes)
    position, count = epochs_end, header.entry_count
    for column in (index.offsets, index.positions, index.times):
        end = position + count * column.itemsize
        column.frombytes(body[position:end])
        if sys.byteorder == "big":
            column.byteswap()
        position = end
    return index, epochs
