"""Columns as rows, records as rows, and bodies written by hand: what the tests of `drmq.columnar` compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from drmq.columnar import BytesColumn, Columns, HeadersColumn
from drmq.model import Offset, ProducerId
from drmq.records import Codec, Record, decode_batch, encode_batch, iter_batches, read_header
from drmq.records.header import HEADER, HEADER_SIZE, stamp_crc

SIZE_MAX = 10_000_000
INT64_MAX = 2**63 - 1

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """One record as a table shows it."""

    offset: int
    microseconds: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


def rows_of(columns: Columns) -> list[Row]:
    """The rows of `columns`, after checking that all runs of bytes are as Arrow wants them."""
    count = columns.row_count
    offsets, times, types = (
        _numbers(columns.offsets, "q"),
        _numbers(columns.timestamps, "q"),
        _numbers(columns.timestamp_types, "i"),
    )
    assert len(offsets) == len(times) == len(types) == count
    assert all(earlier < later for earlier, later in pairwise(offsets))
    valid = _valid(columns.timestamp_validity, count, columns.timestamp_null_count)
    keys = [None] * count if columns.key is None else _values(columns.key, count)
    values = [None] * count if columns.value is None else _values(columns.value, count)
    headers: Sequence[Headers | None] = [None] * count
    if columns.headers is not None:
        headers = _headers(columns.headers, count)
    known_times = [time if is_valid else None for time, is_valid in zip(times, valid, strict=True)]
    return [Row(*parts) for parts in zip(offsets, known_times, types, keys, values, headers, strict=True)]


def all_rows(pieces: Iterable[Columns]) -> tuple[list[Row], int]:
    """The rows of all pieces, and where the last one says to continue."""
    rows: list[Row] = []
    next_offset = -1
    for columns in pieces:
        piece = rows_of(columns)
        assert columns.next_offset >= next_offset
        if piece:
            assert piece[0].offset >= next_offset
            assert piece[-1].offset < columns.next_offset
        rows += piece
        next_offset = columns.next_offset
    return rows, next_offset


def expected_rows(data: bytes | bytearray, start_offset: int = 0, end_offset: int = INT64_MAX) -> list[Row]:
    """What `drmq.records` finds in all batches of `data` but control batches, as rows."""
    rows = []
    for position, header in iter_batches(data):
        if header.is_control:
            continue
        for record in decode_batch(data[position : position + header.size], decompressed_size_max=SIZE_MAX):
            if start_offset <= record.offset < end_offset:
                rows.append(row_of(record, header.is_log_append_time))
    return rows


def row_of(record: Record, is_log_append_time: bool = False) -> Row:
    microseconds: int | None = record.timestamp * 1000
    if not -INT64_MAX - 1 <= record.timestamp * 1000 <= INT64_MAX:
        microseconds = None
    headers = record.headers or None
    return Row(record.offset, microseconds, int(is_log_append_time), record.key, record.value, headers)


def _numbers(view: memoryview, kind: str) -> list[int]:
    assert view.readonly
    assert view.format == "B"
    return list(memoryview(bytes(view)).cast(kind)) if len(view) else []  # type: ignore[call-overload]


def _valid(validity: memoryview | None, count: int, null_count: int) -> list[bool]:
    if validity is None:
        assert null_count == 0
        return [True] * count
    assert len(validity) == (count + 7) // 8
    bits = [bool(validity[index >> 3] >> (index & 7) & 1) for index in range(len(validity) * 8)]
    assert not any(bits[count:])
    assert bits[:count].count(False) == null_count > 0
    return bits[:count]


def _values(column: BytesColumn, count: int) -> list[bytes | None]:
    ends = _numbers(column.offsets, "i")
    assert len(ends) == count + 1
    assert ends[0] == 0
    assert ends[-1] == len(column.data)
    valid = _valid(column.validity, count, column.null_count)
    values = []
    for (start, end), is_valid in zip(pairwise(ends), valid, strict=True):
        assert start <= end
        assert is_valid or start == end
        values.append(bytes(column.data[start:end]) if is_valid else None)
    return values


def _headers(column: HeadersColumn, count: int) -> list[Headers | None]:
    ends = _numbers(column.offsets, "i")
    assert len(ends) == count + 1
    assert ends[0] == 0
    assert ends[-1] == column.count
    keys, values = _values(column.keys, column.count), _values(column.values, column.count)
    assert column.keys.null_count == 0
    pairs = [(str(key or b"", "utf-8"), value) for key, value in zip(keys, values, strict=True)]
    valid = _valid(column.validity, count, column.null_count)
    lists = []
    for (start, end), is_valid in zip(pairwise(ends), valid, strict=True):
        assert is_valid == (start < end)
        lists.append(tuple(pairs[start:end]) if is_valid else None)
    return lists


# ---- batches by hand ---------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """A zigzag varint, of any size."""
    zigzag = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def field(content: bytes | None) -> bytes:
    return number(-1) if content is None else number(len(content)) + content


def plain_record(
    offset_delta: int = 0,
    time_delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: Sequence[tuple[bytes | None, bytes | None]] = (),
    *,
    rest: bytes | None = None,
) -> bytes:
    """A record as it stands in a body; `rest` replaces everything behind the two deltas."""
    if rest is None:
        parts = [field(part) for header in headers for part in header]
        rest = field(key) + field(value) + number(len(headers)) + b"".join(parts)
    content = b"\x00" + number(time_delta) + number(offset_delta) + rest
    return number(len(content)) + content


def with_body(body: bytes, count: int, **fields: int) -> bytearray:
    """A batch with this body and as many records as claimed, whole and with its checksum right."""
    batch = bytearray(HEADER_SIZE) + body
    values = {
        "base_offset": 0,
        "length": len(batch) - 12,
        "leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": max(count - 1, 0),
        "base_timestamp": 1_000,
        "max_timestamp": 1_000,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": count,
    }
    HEADER.pack_into(batch, 0, *(values | fields).values())
    stamp_crc(batch)
    return batch


def with_field(batch: bytearray, name: str, value: int) -> bytearray:
    """The batch with one field of its header changed, and its checksum right again."""
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *(read_header(batch)._asdict() | {name: value}).values())
    stamp_crc(changed)
    return changed


def simple_batch(base_offset: int, count: int = 3, codec: Codec = Codec.NONE, producer_id: int = -1) -> bytearray:
    """A batch of small records; of a transaction if it has a producer."""
    records = [Record(Offset(base_offset + index), 1_000 + index, b"k", b"v%d" % index) for index in range(count)]
    return encode_batch(
        records,
        base_offset=Offset(base_offset),
        codec=codec,
        producer_id=ProducerId(producer_id),
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytearray:
    """The control batch that ends a transaction."""
    key = b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00")
    return encode_batch(
        [Record(Offset(offset), 5, key, b"\x00\x00\x00\x00\x00\x00")],
        base_offset=Offset(offset),
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def joined(*batches: bytes | bytearray) -> bytes:
    return b"".join(map(bytes, batches))


def damaged(body: bytes, edits: Iterable[tuple[int, int, int]]) -> bytes:
    """`body` with bytes replaced, removed or inserted, at places that wrap around."""
    out = bytearray(body)
    for kind, place, byte in edits:
        at = place % (len(out) + 1)
        if kind == 0:
            out[at : at + 1] = bytes([byte])
        elif kind == 1:
            del out[at : at + 1 + byte % 4]
        else:
            out[at:at] = bytes([byte])
    return bytes(out)


def slices(pieces: Iterator[Columns]) -> list[int]:
    """How many rows each piece has."""
    return [columns.row_count for columns in pieces]
