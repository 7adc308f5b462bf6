"""Decoding batches on the threads of the gateway, within a limit of memory for all of them.

A batch of a kilobyte can have records of megabytes, and it is decompressed as a whole. So one batch at a time is
decompressed here, whatever the number of threads, and only some of its records are kept when the next one begins. Who
needs more of them decodes the batch again: that costs processor time of the reader, where keeping it would cost memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from drmq.client.leases.batch import Cells, HeaderCells
from drmq.columnar import Columns, iter_columns
from drmq.model import Offset
from drmq.records import Buffer, Record, iter_records

T = TypeVar("T")

DECOMPRESSED_BYTES_MAX: Final = 64 * 1_048_576
"""Of one batch. A batch with more cannot be shown."""
_PIECE_BYTES: Final = 1_048_576
_PIECE_ROWS: Final = 1_000
_INT64_MAX: Final = 2**63 - 1

_one_at_a_time = threading.Lock()
"""Of the process, because its memory is what is limited. Held for the time that one batch takes, never for a client."""


def first_records(batch: Buffer, start: int, *, rows_max: int, bytes_max: int) -> tuple[list[Record], int]:
    """The first records of a batch from `start` on, and the offset after them. One that is too large comes alone.

    Raises `InvalidBatch`.
    """
    with _one_at_a_time:
        columns = next(_pieces(batch, start, _INT64_MAX, rows_max, bytes_max))
        return list(_rows(_exact(batch), columns)), columns.next_offset


def each_record(batch: Buffer, start: int, end: int, use: Callable[[Record], T]) -> list[T]:
    """What `use` makes of each record from `start` to `end`. Raises `InvalidBatch`."""
    with _one_at_a_time:
        pieces = _pieces(batch, start, end, _PIECE_ROWS, _PIECE_BYTES)
        exact = _exact(batch)
        return [use(record) for columns in pieces for record in _rows(exact, columns)]


def _pieces(batch: Buffer, start: int, end: int, rows_max: int, bytes_max: int) -> Iterator[Columns]:
    return iter_columns(
        batch,
        start_offset=start,
        end_offset=end,
        decompressed_size_max=DECOMPRESSED_BYTES_MAX,
        include_headers=True,
        rows_max=rows_max,
        bytes_max=bytes_max,
    )


def _exact(batch: Buffer) -> Iterator[Record]:
    """The records of a batch, parsed one by one when the first of them is asked for."""
    yield from iter_records(batch, decompressed_size_max=DECOMPRESSED_BYTES_MAX)


def _rows(exact: Iterator[Record], columns: Columns) -> Iterator[Record]:
    assert columns.key is not None
    assert columns.value is not None
    assert columns.headers is not None
    keys, values, headers = Cells(columns.key), Cells(columns.value), HeaderCells(columns.headers)
    offsets, timestamps = columns.offsets.cast("B").cast("q"), columns.timestamps.cast("B").cast("q")
    for row in range(columns.row_count):
        offset, timestamp = Offset(offsets[row]), timestamps[row] // 1_000
        if not timestamp and columns.timestamp_null_count:
            # The microseconds do not fit into 64 bits, so the columns have no time. `exact` goes through the batch
            # once, whatever the number of such records, and keeps none of them.
            timestamp = next(each.timestamp for each in exact if each.offset == offset)
        yield Record(offset, timestamp, keys[row], values[row], headers[row])
