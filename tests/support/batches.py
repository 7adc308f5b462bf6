"""Record batches for tests, as a producer sends them."""

from __future__ import annotations

from collections.abc import Sequence

from drmq.model import Offset, ProducerId
from drmq.records import BatchHeader, Record, encode_batch, read_header


def a_batch(
    values: Sequence[bytes] = (b"x",),
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp_ms: int = 1_000,
) -> memoryview:
    """A batch with these values; with a producer's numbers if they are given."""
    records = [Record(Offset(index), timestamp_ms, None, value) for index, value in enumerate(values)]
    return memoryview(
        encode_batch(records, producer_id=ProducerId(producer_id), producer_epoch=epoch, base_sequence=sequence)
    )


def a_header(producer_id: int, epoch: int, sequence: int, *, count: int = 1, base_offset: int = 0) -> BatchHeader:
    """The header of such a batch, at an offset of the log."""
    header = read_header(a_batch([b"x"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence))
    return header._replace(base_offset=Offset(base_offset))
