"""The 61-byte header of a record batch (magic 2), which is all that a broker reads of a batch.

The records after the header stay opaque. The checksum (CRC-32C) covers everything from the attributes on, but neither
the base offset nor the leader epoch. So a broker can write these two into a received batch without reading or changing
any record.

    bytes   0-7   8-11    12-15   16     17-20  21-22  23-26   27-34  35-42  43-50  51-52  53-56  57-60
    field   base  length  leader  magic  crc    attri- last    base   max    prod.  prod.  base   record
            off.          epoch                 butes  delta   time   time   id     epoch  seq.   count

`length` counts the bytes after itself, so a batch is `length + 12` bytes long.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from drmq.model import NO_PRODUCER_ID, DrmqError, ErrorCode, LeaderEpoch, Offset, ProducerId

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
LENGTH_OVERHEAD = 12
"""Bytes of a batch that its length field does not count: base offset and the length itself."""

CRC_START = 21
MAGIC = 2
RECORD_SIZE_MIN = 7
"""The size of an empty record: length, attributes, two deltas, null key, null value, no headers."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

_RATIO_MAX = {1: 1_032, 2: 22, 3: 255, 4: 32_768}
"""By codec: how many times larger the decompressed data can be at most.

Deflate: a match of 258 bytes takes two bits at least. Snappy: 64 bytes take three. LZ4: a byte of a length counts 255.
Zstandard: a block of 128 KiB that repeats one byte takes four.
"""

_RECORDS_SIZE_MAX = 256 << 20
"""The records of a compressed batch have at most this size: about 38 million records. No producer has so many in memory
for one batch. Zstandard alone would allow a thousand times as many in a megabyte."""

_PREFIX = Struct(">qi")
_BASE_OFFSET = Struct(">q")
_LENGTH = Struct(">i")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_LAST_OFFSET_DELTA = _RECORD_COUNT = Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_MAX_TIMESTAMP_AT = 35
_RECORD_COUNT_AT = 57


class Codec(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class InvalidBatch(DrmqError):
    """A batch that must not be appended to a log, with the error code for its producer."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class BatchHeader(NamedTuple):
    """The header's fields, in wire order."""

    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes, header included."""
        return self.length + LENGTH_OVERHEAD

    @property
    def next_offset(self) -> Offset:
        """The offset of the record that follows this batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header that starts at `position`. The caller has checked that 61 bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def check_batch(batch: Buffer) -> BatchHeader:
    """Make every check that needs no decompression on the one batch that fills `batch`, and return its header.

    Raises `InvalidBatch`. Base offset and leader epoch are not checked: clients send different values there, and the
    broker overwrites both.
    """
    if len(batch) == 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "no batch at all")
    if len(batch) > _MAGIC_AT and batch[_MAGIC_AT] in (0, 1):
        # The magic has the same position in all formats, and an old message may be shorter than our header. Clients
        # retry CORRUPT_MESSAGE, so this case has a code that they do not retry, as in Kafka from Produce 3 on.
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"message format {batch[_MAGIC_AT]} was retired; send record batches (format 2)",
        )
    if len(batch) < HEADER_SIZE:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of {len(batch)} bytes is shorter than its header")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    if header.magic != MAGIC:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"unknown message format {header.magic}")
    if header.size != len(batch):
        # A corrupt batch may arrive intact at the next attempt. A client that sends two batches will do so again.
        two_batches = HEADER_SIZE <= header.size < len(batch)
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD if two_batches else ErrorCode.CORRUPT_MESSAGE,
            f"the batch says it has {header.size} bytes, but {len(batch)} came",
        )
    if crc32c(memoryview(batch)[CRC_START:]) != header.crc:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "the checksum does not match the batch")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records with last offset delta {header.last_offset_delta}: "
            "a producer's batch is dense and not empty",
        )
    if header.codec > Codec.ZSTD:
        raise InvalidBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {header.codec}")
    if header.record_count * RECORD_SIZE_MIN > _records_size_max(header.codec, len(batch) - HEADER_SIZE):
        # The count decides how many offsets the batch takes, so a false count would leave a gap in the log. The exact
        # count in a compressed batch is not known without decompression.
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records do not fit into {len(batch)} bytes with codec {header.codec}",
        )
    if header.attributes & CONTROL_BIT:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "only brokers write control batches")
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise InvalidBatch(ErrorCode.INVALID_TIMESTAMP, "only brokers set the log-append time")
    if header.producer_id != NO_PRODUCER_ID and min(header[9:12]) < 0:
        # Without a producer id, the other two have no meaning. Some clients send 0 there.
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"producer id {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}: "
            "none of them may be negative, except that the id is -1 for a producer without one",
        )
    return header


def _records_size_max(codec: int, size: int) -> int:
    """The most bytes that the records in `size` bytes can have."""
    return size if codec == Codec.NONE else min(size * _RATIO_MAX[codec], _RECORDS_SIZE_MAX)


def stamp(batch: bytearray | memoryview, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Write base offset and leader epoch, the two fields that the broker sets, into a batch in place."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Switch a batch to log-append time with the value `now_ms`. Changes two fields and the checksum, no record."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, now_ms)
    stamp_crc(batch)


def stamp_crc(batch: bytearray | memoryview) -> None:
    """Write the checksum of a batch that is otherwise complete."""
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))


def with_records(batch: Buffer, codec: Codec, packed: Buffer) -> bytearray:
    """A batch with the header of `batch`, and the same records as `codec` has packed them. Its checksum is its own."""
    out = bytearray(HEADER_SIZE + len(packed))
    out[:HEADER_SIZE] = memoryview(batch)[:HEADER_SIZE]
    out[HEADER_SIZE:] = packed
    (attributes,) = _ATTRIBUTES.unpack_from(out, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(out, _ATTRIBUTES_AT, attributes & ~CODEC_MASK | codec)
    _LENGTH.pack_into(out, _LENGTH_AT, len(out) - LENGTH_OVERHEAD)
    stamp_crc(out)
    return out


def cut_batch(batch: Buffer, begin: int, end: int, count: int, last_offset_delta: int) -> bytearray:
    """A batch with the header of the uncompressed `batch`, and `count` of its records: those from `begin` to `end`.

    The positions are in bytes. The offset of the last of these records is `last_offset_delta` above the base offset.
    """
    out = bytearray(HEADER_SIZE + end - begin)
    view = memoryview(batch)
    out[:HEADER_SIZE] = view[:HEADER_SIZE]
    out[HEADER_SIZE:] = view[begin:end]
    _LENGTH.pack_into(out, _LENGTH_AT, len(out) - LENGTH_OVERHEAD)
    _LAST_OFFSET_DELTA.pack_into(out, _LAST_OFFSET_DELTA_AT, last_offset_delta)
    _RECORD_COUNT.pack_into(out, _RECORD_COUNT_AT, count)
    stamp_crc(out)
    return out


def check_replicated_batch(batch: Buffer) -> BatchHeader:
    """The header of the one stamped batch that fills `batch`, received from another replica. Raises `InvalidBatch`."""
    if not batch_is_intact(batch):
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes that are no intact batch")
    return read_header(batch)


def batch_is_intact(batch: Buffer) -> bool:
    """Whether `batch` is exactly one batch of format 2 with a valid checksum. Control batches are accepted too."""
    if len(batch) < HEADER_SIZE:
        return False
    header = BatchHeader._make(HEADER.unpack_from(batch))
    return (
        header.magic == MAGIC
        and header.length + LENGTH_OVERHEAD == len(batch)
        and crc32c(memoryview(batch)[CRC_START:]) == header.crc
    )


def read_prefix(buffer: Buffer, position: int) -> tuple[Offset, int]:
    """Base offset and size in bytes of the batch at `position`: enough to find the next batch."""
    base_offset, length = _PREFIX.unpack_from(buffer, position)
    return base_offset, length + LENGTH_OVERHEAD


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch in `buffer`. Stops at a partial one; raises where there is no batch."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        if header.length < HEADER_SIZE - LENGTH_OVERHEAD or header.magic != MAGIC:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"no batch at position {position}")
        if position + header.size > end:
            return
        yield position, header
        position += header.size
