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
