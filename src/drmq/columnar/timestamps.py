"""Finds a record by its time without creating an object for each, and without holding the interpreter lock.

A few kilobytes can hold forty million compressed records. To read them in Python takes a minute, during which the event
loop of the process gets only a part of its time. The compiled code takes less than a second, beside the event loop.
Without it, the records are read in Python (`drmq.records`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from drmq.columnar.implementation import IMPLEMENTATION
from drmq.columnar.outcome import Outcome
from drmq.model import ErrorCode, Offset
from drmq.records import HEADER_SIZE, Buffer, InvalidBatch, batch_is_intact, decompress, read_header
from drmq.records import find_timestamp as find_in_python

Search: TypeAlias = Callable[[Buffer, int, int, int, int], tuple[int, int, int] | None]

_INT64_MAX = 2**63 - 1


def _choose() -> Search | None:
    if IMPLEMENTATION != "compiled":
        return None
    from drmq.columnar import _decoder

    # One that was built before this function existed still builds columns.
    search: Search | None = getattr(_decoder, "first_at_time", None)
    return search


COMPILED = _choose()
"""The compiled search; None if it was not built."""


def find_timestamp(batch: Buffer, timestamp: int, decompressed_size_max: int) -> tuple[Offset, int] | None:
    """Offset and time of the first record in `batch` whose time is `timestamp` or later. Raises `InvalidBatch`."""
    if COMPILED is None:
        return find_in_python(batch, timestamp, decompressed_size_max)
    if not batch_is_intact(batch):
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "not one whole batch with a matching checksum")
    header = read_header(batch)
    if header.record_count < 0 or not 0 <= header.last_offset_delta <= _INT64_MAX - header.base_offset:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"{header.record_count} records from {header.base_offset} on")
    if header.is_log_append_time:
        # All records have this time, so the first one is found without reading any.
        is_found = header.record_count > 0 and header.max_timestamp >= timestamp
        return (header.base_offset, header.max_timestamp) if is_found else None
    body = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], decompressed_size_max)
    found = COMPILED(body, header.record_count, header.last_offset_delta, header.base_timestamp, timestamp)
    if found is None:
        return None
    outcome, first, second = found
    if outcome != Outcome.FINISHED:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"record {first + 1} of {header.record_count} cannot be read")
    return Offset(header.base_offset + first), second
