from drmq.columnar.columns import Parts
from drmq.columnar.outcome import Added, Batch, Bounds, Place
from drmq.records import Buffer

INTERFACE: int

class Builder:
    def __init__(self, want_key: bool, want_value: bool, include_headers: bool, /) -> None: ...
    @property
    def row_count(self) -> int: ...
    def add(self, body: Buffer, place: Place, batch: Batch, bounds: Bounds, /) -> Added: ...
    def finish(self) -> Parts: ...

def records_fault(batch: Buffer, /) -> Added | None:
    """What is wrong with the uncompressed records of a whole batch, as `Builder.add` reports it; None if nothing is."""

def first_at_time(
    body: Buffer, record_count: int, last_offset_delta: int, base_timestamp: int, wanted: int, /
) -> tuple[int, int, int] | None:
    """The first of the uncompressed records with a time of `wanted` or later.

    An outcome, and for `FINISHED` offset delta and time; otherwise the number of records before the fault, and a
    detail. None if no record has such a time.
    """

def count_records(batches: Buffer, /) -> int:
    """The number of records in whole batches, by their headers."""
