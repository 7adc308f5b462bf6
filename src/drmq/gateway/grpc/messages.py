"""Records as messages of gRPC."""

from __future__ import annotations

from collections.abc import Iterable

from drmq.client.leases import LeasedBatch
from drmq.client.leases.batch import Cells, HeaderCells
from drmq.columnar import Columns
from drmq.v1.records_pb2 import Record

_OVERHEAD_BYTES = 64


def fill(target: Record, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Fill in the contents of a record. Returns about how many bytes it has."""
    size = _OVERHEAD_BYTES
    if key is not None:
        target.key = key
        size += len(key)
    if value is not None:
        target.value = value
        size += len(value)
    for name, content in headers:
        target.headers.add(name=name, value=content)
        size += len(name) + len(content or b"") + 8
    return size


def leased_record(target: Record, batch: LeasedBatch, row: int) -> int:
    """Fill in a record that was leased. Returns about how many bytes it has."""
    target.partition = batch.partition
    target.offset = batch.offsets[row]
    target.timestamp_ms = batch.timestamp_ms(row)
    return fill(target, batch.key(row), batch.value(row), batch.headers(row))


def records_of(partition: int, columns: Columns) -> list[Record]:
    """All records of columns that have keys, values and headers."""
    assert columns.key is not None
    assert columns.value is not None
    assert columns.headers is not None
    keys, values, headers = Cells(columns.key), Cells(columns.value), HeaderCells(columns.headers)
    offsets, timestamps = columns.offsets.cast("B").cast("q"), columns.timestamps.cast("B").cast("q")
    found = []
    for row in range(columns.row_count):
        record = Record(partition=partition, offset=offsets[row], timestamp_ms=timestamps[row] // 1000)
        fill(record, keys[row], values[row], headers[row])
        found.append(record)
    return found
