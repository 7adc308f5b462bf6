"""The records inside a batch: encoding them, and reading them where the header is not enough.

The records follow the header, one after the other, all compressed together or not at all. Every number in them is a
zigzag varint. Times and offsets are relative to those in the header:

    record   length, attributes (1 byte, unused), time delta, offset delta, key, value, header count, headers
    key      length (-1 is null), bytes; so are a value and a header's value
    header   key length, key (UTF-8), value

The reader trusts no number. A count only ends a loop, and a length must fit into the bytes that are left. So time and
memory are bounded by the size of the data, which in turn is bounded by the size of the batch and by
`decompressed_size_max`. A record takes at least seven bytes and a `Record` object more than a hundred, so code that can
work on one record at a time should use `iter_records`.

For all records that the reader returns: offsets increase and lie within the header's range, and offsets and times fit
into 64 bits. Any other input raises `InvalidBatch`, and no other exception.

Checks that a broker does without looking inside are in `header`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from drmq.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ErrorCode, LeaderEpoch, Offset, ProducerId
from drmq.records.compression import compress, decompress
from drmq.records.header import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
    InvalidBatch,
    batch_is_intact,
    read_header,
    stamp_crc,
)

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_VARINT_SIZE_MAX = 10

Body: TypeAlias = bytes | memoryview
"""The uncompressed records of a batch, in memory that no other code writes to."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a partition, with its absolute offset and its time in milliseconds."""

    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: Offset = Offset(0),  # noqa: B008, a NewType is the int itself
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    log_append_time_ms: int | None = None,
    transactional: bool = False,
    control: bool = False,
    last_offset_delta: int | None = None,
) -> bytearray:
    """One batch of `records`, whose offsets must increase from `base_offset` or later.

    With `log_append_time_ms`, that is the time of every record, whatever the record itself says. The batch ends with
    its last record unless `last_offset_delta` says otherwise: a batch that lost records to compaction keeps its offset
    range and may even be empty.
    """
    body = bytearray()
    base_timestamp = max_timestamp = NO_TIMESTAMP
    count, delta = 0, -1
    for record in records:
        if count == 0:
            base_timestamp = max_timestamp = record.timestamp
        assert record.offset - base_offset > delta, (record.offset, base_offset, delta)
        delta = record.offset - base_offset
        max_timestamp = max(max_timestamp, record.timestamp)
        _write_record(body, record, record.timestamp - base_timestamp, delta)
        count += 1
    if last_offset_delta is None:
        last_offset_delta = delta
    assert last_offset_delta >= max(delta, 0), (last_offset_delta, delta)

    attributes = int(codec)
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT

    batch = bytearray(HEADER_SIZE)
    batch += compress(codec, body)
    header = BatchHeader(
        base_offset=base_offset,
        length=len(batch) - LENGTH_OVERHEAD,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    HEADER.pack_into(batch, 0, *header)
    stamp_crc(batch)
    return batch


def decode_batch(batch: Buffer, *, decompressed_size_max: int) -> list[Record]:
    """All records of the one batch that fills `batch`. Works for control batches too."""
    return list(iter_records(batch, decompressed_size_max=decompressed_size_max))


def iter_records(batch: Buffer, *, decompressed_size_max: int) -> Iterator[Record]:
    """The records of `batch`, parsed one by one.

    Header, checksum and decompression errors are raised by this call; an error in a record is raised when it is
    reached.
    """
    return sized_records(batch, decompressed_size_max=decompressed_size_max)[1]


def sized_records(batch: Buffer, *, decompressed_size_max: int) -> tuple[int, Iterator[Record]]:
    """How many bytes the records of `batch` decompress to, 0 if they are not compressed, and `iter_records`."""
    header, body = _open(batch, decompressed_size_max)
    return 0 if header.codec == Codec.NONE else len(body), _records(header, body)


def find_timestamp(batch: Buffer, timestamp: int, decompressed_size_max: int) -> tuple[Offset, int] | None:
    """Offset and time of the first record in `batch` whose time is `timestamp` or later.

    Reads the records, not the header's maximum, which the caller has already used to choose the batch.
    """
    header, body = _open(batch, decompressed_size_max)
    for offset, record_timestamp, _, _ in _frames(header, body):
        if record_timestamp >= timestamp:
            return offset, record_timestamp
    return None


def _corrupt(reason: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, reason)


def _open(batch: Buffer, decompressed_size_max: int) -> tuple[BatchHeader, Body]:
    """Header and plain records of an intact batch."""
    # Compared with the parsing, the checksum costs almost nothing. Without it, a failing disk would show up as wrong
    # records instead of an error.
    if not batch_is_intact(batch):
        raise _corrupt("not one whole batch with a matching checksum")
    header = read_header(batch)
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise _corrupt(f"{header.record_count} records with last offset delta {header.last_offset_delta}")
    if header.base_offset + header.last_offset_delta > _INT64_MAX:
        raise _corrupt(f"offsets from {header.base_offset} on do not fit into 64 bits")
    packed = memoryview(batch)[HEADER_SIZE:]
    if header.codec == Codec.NONE:
        # A copy, so that an iterator that is not finished neither sees changes in the caller's buffer nor prevents its
        # owner from resizing it.
        return header, bytes(packed)
    return header, memoryview(decompress(header.codec, packed, decompressed_size_max))


def _frames(header: BatchHeader, body: Body) -> Iterator[tuple[Offset, int, int, int]]:
    """Offset and time of each record, and where in `body` its key starts and the record ends."""
    position, last_delta = 0, -1
    for _ in range(header.record_count):
        size, position = _read_varint(body, position)
        end = position + size
        if size < 0 or end > len(body):
            raise _corrupt(f"a record of {size} bytes where {len(body) - position} are left")
        time_delta, position = _read_varint(body, position + 1)  # after the attributes
        offset_delta, position = _read_varint(body, position)
        if position > end:
            raise _corrupt("a record ends inside its own numbers")
        if not last_delta < offset_delta <= header.last_offset_delta:
            raise _corrupt(f"offset delta {offset_delta} after {last_delta}, of {header.last_offset_delta}")
        last_delta = offset_delta
        timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + time_delta
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise _corrupt(f"time {timestamp} does not fit into 64 bits")
        yield Offset(header.base_offset + offset_delta), timestamp, position, end
        position = end
    if position != len(body):
        raise _corrupt(f"{len(body) - position} bytes follow the last of {header.record_count} records")


def _records(header: BatchHeader, body: Body) -> Iterator[Record]:
    for offset, timestamp, start, end in _frames(header, body):
        key, position = _read_nullable(body, start, end)
        value, position = _read_nullable(body, position, end)
        header_count, position = _read_varint(body, position)
        if header_count < 0:
            raise _corrupt(f"{header_count} headers")
        # A loop, not a comprehension over the claimed count: each pass consumes at least two bytes or raises, so a
        # false count costs nothing.
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(header_count):
            name, position = _read_nullable(body, position, end)
            if name is None:
                raise _corrupt("a header without a key")
            content, position = _read_nullable(body, position, end)
            # As Java clients do. A producer may send a name that is not UTF-8, and one such name must not make the
            # whole batch unreadable for an operator who looks for the cause.
            headers.append((name.decode("utf-8", "replace"), content))
        if position != end:
            raise _corrupt(f"a record is {position - end} bytes longer than it says")
        yield Record(offset, timestamp, key, value, tuple(headers))


def _read_nullable(body: Body, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(body, position)
    if size == -1:
        return None, position
    if size < 0 or position + size > end:
        raise _corrupt(f"{size} bytes where {end - position} are left in the record")
    return bytes(body[position : position + size]), position + size


def _read_varint(body: Body, position: int) -> tuple[int, int]:
    """The zigzag number at `position`, and the position after it, which is at most the end of `body`.

    Ten bytes hold 70 bits, so the caller must check the range of the number.
    """
    try:
        byte = body[position]
        position += 1
        if byte < 0x80:  # nearly always: a small delta, a short key
            return (byte >> 1) ^ -(byte & 1), position
        value, shift = byte & 0x7F, 7
        for at in range(position, position + _VARINT_SIZE_MAX - 1):
            byte = body[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), at + 1
            shift += 7
    except IndexError:
        raise _corrupt("the records end in the middle of a number") from None
    raise _corrupt(f"a number of more than {_VARINT_SIZE_MAX} bytes")


def _write_record(body: bytearray, record: Record, time_delta: int, offset_delta: int) -> None:
    content = bytearray(1)  # the attributes
    _write_varint(content, time_delta)
    _write_varint(content, offset_delta)
    _write_nullable(content, record.key)
    _write_nullable(content, record.value)
    _write_varint(content, len(record.headers))
    for name, value in record.headers:
        _write_nullable(content, name.encode())
        _write_nullable(content, value)
    _write_varint(body, len(content))
    body += content


def _write_nullable(content: bytearray, value: bytes | None) -> None:
    if value is None:
        content.append(0x01)  # -1 in zigzag
    else:
        _write_varint(content, len(value))
        content += value


def _write_varint(content: bytearray, number: int) -> None:
    assert _INT64_MIN <= number <= _INT64_MAX, number
    zigzag = (number << 1) ^ (number >> 63)
    while zigzag > 0x7F:
        content.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    content.append(zigzag)
