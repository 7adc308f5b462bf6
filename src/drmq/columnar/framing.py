"""Checks that the uncompressed records of a batch are records, without copying any of them.

A broker stores batches as they arrive. One whose checksum matches may still hold bytes that no consumer can read. The
compiled code reads the numbers of a record in a few nanoseconds, so a broker can check all of them. Python takes a
thousand times as long, more than all else that a broker does for a batch: without the compiled code, a broker does not
check records.

There are two implementations, as of the builders, with the same checks in the same order: `records_fault` in
`_decoder.c`, and `pure_fault`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from drmq.columnar import pure
from drmq.columnar.implementation import IMPLEMENTATION
from drmq.columnar.outcome import Added, Batch, Bounds, Outcome, Place, describe
from drmq.records import HEADER_SIZE, Buffer, read_header

Walk: TypeAlias = Callable[[Buffer], Added | None]

_INT64_MAX = 2**63 - 1
_NO_RECORD = Bounds(start_offset=_INT64_MAX, end_offset=_INT64_MAX, rows_max=1, bytes_max=1)


def pure_fault(batch: Buffer) -> Added | None:
    """What is wrong with the uncompressed records of a whole batch, as a builder reports it; None if nothing is."""
    body = memoryview(batch)[HEADER_SIZE:]
    added = pure.Builder(False, False, False).add(body, Place(), _fields(batch), _NO_RECORD)
    return None if added[0] == Outcome.FINISHED else added


def _fields(batch: Buffer) -> Batch:
    header = read_header(batch)
    # Offsets from 0 on, because a producer may send any base offset, and the broker replaces it.
    return Batch(header.record_count, 0, header.last_offset_delta, header.base_timestamp, False)


def _choose() -> Walk | None:
    if IMPLEMENTATION != "compiled":
        return None
    from drmq.columnar import _decoder

    # One that was built before this function existed still builds columns.
    walk: Walk | None = getattr(_decoder, "records_fault", None)
    return walk


COMPILED = _choose()
"""The compiled walk, which is fast enough for every batch that is produced; None if it was not built."""


def framing_fault(batch: Buffer, walk: Walk) -> str | None:
    """What is wrong with the records of an uncompressed batch whose header is valid; None if all can be read.

    Checks the size of each record and of its fields, its offset and its time, and that nothing follows the last one.
    """
    added = walk(batch)
    if added is None:
        return None
    outcome, position, done_count, last_delta, first, second = added
    return describe(outcome, _fields(batch), Place(position, done_count, last_delta), first, second)
