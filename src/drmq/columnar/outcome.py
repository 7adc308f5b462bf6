"""The values that the walk and a builder exchange, so that both builders report errors in the same words.

A builder never raises for bad bytes. It returns an `Outcome` with two numbers, and `describe` makes the sentence. So
the compiled builder need not format text, and cannot word an error differently.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from drmq.columnar.columns import Parts
from drmq.records import Buffer

INTERFACE = 2
"""Increased when the builder interface changes: a compiled builder with another number is not used."""

HEADER_COST = 8
"""What a header counts against `bytes_max` in addition to its bytes: its two offsets. Without it, a record with a
million empty headers would count as nothing."""


class Outcome(IntEnum):
    """Why a builder stopped reading a batch. The compiled builder uses the numbers."""

    FINISHED = 0
    FULL = 1
    PAST_END = 2
    NUMBER_CUT_OFF = 3
    NUMBER_TOO_LONG = 4
    RECORD_SIZE = 5
    OFFSET_DELTA = 6
    TIMESTAMP = 7
    FIELD_SIZE = 8
    HEADER_COUNT = 9
    HEADER_KEY_NULL = 10
    RECORD_NOT_USED_UP = 11
    BYTES_FOLLOW = 12


class Place(NamedTuple):
    """How far the records of a batch have been read."""

    position: int = 0
    done_count: int = 0
    last_delta: int = -1


class Batch(NamedTuple):
    """The fields of a batch header that are needed to read its records."""

    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    is_log_append_time: bool
    """If true, `base_timestamp` is the time of every record."""


class Bounds(NamedTuple):
    """Which records are requested, and the limits of one piece."""

    start_offset: int
    end_offset: int
    rows_max: int
    bytes_max: int
    bytes_expected: int = 0
    """The likely size of the values of a piece, if known. Used to allocate memory in advance; not a limit."""


Added: TypeAlias = tuple[int, int, int, int, int, int]
"""An `Outcome`, the three numbers of a `Place`, and two numbers for `describe`."""


class Builder(Protocol):
    """Collects rows. Created for one piece, used by one thread, and discarded after `finish` or an error."""

    def __init__(self, want_key: bool, want_value: bool, include_headers: bool, /) -> None: ...

    @property
    def row_count(self) -> int: ...

    def add(self, body: Buffer, place: Place, batch: Batch, bounds: Bounds, /) -> Added:
        """Continue to read the uncompressed records `body` at `place`, and add those within the bounds."""

    def finish(self) -> Parts:
        """Return the columns."""


def describe(outcome: int, batch: Batch, place: Place, first: int, second: int) -> str:
    """An error as the first part of a sentence: the caller adds the batch."""
    which = f"record {place.done_count + 1} of {batch.record_count}"
    if outcome == Outcome.NUMBER_CUT_OFF:
        return f"{which} ends in the middle of its numbers"
    if outcome == Outcome.NUMBER_TOO_LONG:
        return f"{which} has a number of more than 64 bits"
    if outcome == Outcome.RECORD_SIZE:
        return f"{which} is {first} bytes long where {second} are left"
    if outcome == Outcome.OFFSET_DELTA:
        return f"{which} has offset delta {first} after {second}, of {batch.last_offset_delta}"
    if outcome == Outcome.TIMESTAMP:
        return f"the time of {which}, {first} after {batch.base_timestamp}, does not fit into 64 bits"
    if outcome == Outcome.FIELD_SIZE:
        return f"{which} has a field of {first} bytes where {second} are left"
    if outcome == Outcome.HEADER_COUNT:
        return f"{which} has {first} headers"
    if outcome == Outcome.HEADER_KEY_NULL:
        return f"{which} has a header without a key"
    if outcome == Outcome.RECORD_NOT_USED_UP:
        return f"{which} has {first} bytes behind its last header"
    assert outcome == Outcome.BYTES_FOLLOW, (outcome, first, second)
    return f"{first} bytes follow the last of {batch.record_count} records"
