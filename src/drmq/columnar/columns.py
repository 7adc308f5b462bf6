"""The result: columns as buffers in Arrow's layout, which pyarrow and numpy can use without conversion.

Numbers have the machine's byte order. A validity buffer is a bitmap, lowest bit first, in which a one means a value; it
is `None` if nothing is null, as Arrow allows. There is one more 32-bit offset than there are rows, and the first is 0.
All views are read-only and keep their memory alive.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from drmq.model import ErrorCode
from drmq.records import Buffer, InvalidBatch

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

BytesParts: TypeAlias = tuple[int, Buffer | None, Buffer, Buffer]
"""Null count, validity, offsets, data."""

HeadersParts: TypeAlias = tuple[int, Buffer | None, Buffer, int, BytesParts, BytesParts, bool]
"""Null count, validity, offsets, count, keys, values, and whether all keys are UTF-8."""

Parts: TypeAlias = tuple[
    int, Buffer, Buffer, int, Buffer | None, Buffer, BytesParts | None, BytesParts | None, HeadersParts | None
]
"""Row count, offsets, timestamps, their null count and validity, timestamp types, key, value, headers."""


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Arrow's `binary`, or `string` if the bytes are UTF-8."""

    null_count: int
    validity: memoryview | None
    offsets: memoryview
    data: memoryview

    @property
    def nbytes(self) -> int:
        return _size(self.validity) + self.offsets.nbytes + self.data.nbytes


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """Arrow's `list<struct<key: string, value: binary>>`: a null list if a record has no headers.

    Spark's own Kafka source returns null for records without headers, and jobs may test for it.
    """

    null_count: int
    validity: memoryview | None
    offsets: memoryview
    count: int
    """The number of headers of all rows together: the length of `keys` and of `values`."""
    keys: BytesColumn
    values: BytesColumn

    @property
    def nbytes(self) -> int:
        return _size(self.validity) + self.offsets.nbytes + self.keys.nbytes + self.values.nbytes


@dataclass(frozen=True, slots=True)
class Columns:
    """Some consecutive records of one partition, by column."""

    row_count: int
    next_offset: int
    """Where to continue reading: after the last row, and after records that were skipped behind it."""
    offsets: memoryview
    """64 bit."""
    timestamps: memoryview
    """64 bit, in microseconds since 1970. "No timestamp", in Kafka -1 ms, is -1000."""
    timestamp_null_count: int
    timestamp_validity: memoryview | None
    """Null means a time so far away that its microseconds do not fit into 64 bits."""
    timestamp_types: memoryview
    """32 bit: 0 if the producer set the time, 1 if the broker did."""
    key: BytesColumn | None
    """`None` if it was not requested; the same holds for `value` and `headers`."""
    value: BytesColumn | None
    headers: HeadersColumn | None

    @property
    def nbytes(self) -> int:
        """The size of the columns in memory."""
        fixed = self.offsets.nbytes + self.timestamps.nbytes + self.timestamp_types.nbytes
        varying = sum(column.nbytes for column in (self.key, self.value, self.headers) if column is not None)
        return fixed + _size(self.timestamp_validity) + varying


def _size(view: memoryview | None) -> int:
    return 0 if view is None else view.nbytes


def as_columns(parts: Parts, next_offset: int) -> Columns:
    """The columns made from the result of a builder."""
    row_count, offsets, timestamps, null_count, validity, types, key, value, headers = parts
    return Columns(
        row_count=row_count,
        next_offset=next_offset,
        offsets=_view(offsets),
        timestamps=_view(timestamps),
        timestamp_null_count=null_count,
        timestamp_validity=_view_or_none(validity),
        timestamp_types=_view(types),
        key=None if key is None else _bytes_column(key),
        value=None if value is None else _bytes_column(value),
        headers=None if headers is None else _headers_column(headers),
    )


def _view(buffer: Buffer) -> memoryview:
    return memoryview(buffer).toreadonly()


def _view_or_none(buffer: Buffer | None) -> memoryview | None:
    return None if buffer is None else _view(buffer)


def _bytes_column(parts: BytesParts) -> BytesColumn:
    null_count, validity, offsets, data = parts
    return BytesColumn(null_count, _view_or_none(validity), _view(offsets), _view(data))


def _headers_column(parts: HeadersParts) -> HeadersColumn:
    null_count, validity, offsets, count, keys, values, keys_are_utf8 = parts
    return HeadersColumn(
        null_count=null_count,
        validity=_view_or_none(validity),
        offsets=_view(offsets),
        count=count,
        keys=_bytes_column(keys if keys_are_utf8 else _with_valid_names(keys)),
        values=_bytes_column(values),
    )


def _with_valid_names(keys: BytesParts) -> BytesParts:
    """Convert header names to valid UTF-8 one by one, as `drmq.records` and Java clients do.

    A producer may send other bytes, and an Arrow string that is not UTF-8 makes its readers fail, or worse. This is
    rare enough for Python.
    """
    null_count, validity, offsets, data = keys
    view = memoryview(data)
    names = [
        str(view[start:end], "utf-8", "replace").encode() for start, end in pairwise(memoryview(offsets).cast("i"))
    ]
    if sum(map(len, names)) > INT32_MAX:
        # One byte may become three, so this happens only for a record of nearly a gigabyte.
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "names of headers that are not UTF-8 do not fit into 2 GiB")
    ends = array("i", [0])
    for name in names:
        ends.append(ends[-1] + len(name))
    return null_count, validity, ends.tobytes(), b"".join(names)
