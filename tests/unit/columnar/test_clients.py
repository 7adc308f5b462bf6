"""Batches as kafka-python and aiokafka write them, and rows as they read them."""

from __future__ import annotations

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.columnar import decode
from drmq.columnar.outcome import Builder
from drmq.model import LeaderEpoch, Offset
from drmq.records import Codec, stamp, stamp_append_time
from support.columnar import SIZE_MAX, Row, rows_of

WRITERS = {
    "kafka-python": kafka_records.DefaultRecordBatchBuilder,
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
}
READERS = {
    "kafka-python": kafka_records.DefaultRecordBatch,
    "aiokafka": aiokafka_records.DefaultRecordBatch,
}

record_lists = st.lists(
    st.tuples(
        st.integers(0, 2**48),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        # aiokafka's compiled builder does not take a null header value.
        st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=20)), max_size=3),
    ),
    min_size=1,
    max_size=10,
)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", WRITERS)
@given(records=record_lists, base=st.sampled_from([0, 1000, 2**40]), append_time=st.none() | st.integers(0, 2**45))
def test_what_they_write_and_read(
    builder: type[Builder], name: str, codec: Codec, records: list[Any], base: int, append_time: int | None
) -> None:
    """We show what their own reader shows, after a broker has stamped the batch."""
    writer = WRITERS[name](
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000_000,
    )
    for index, (timestamp, key, value, headers) in enumerate(records):
        writer.append(index, timestamp=timestamp, key=key, value=value, headers=headers)
    batch = bytearray(writer.build())
    stamp(batch, Offset(base), LeaderEpoch(4))
    if append_time is not None:
        stamp_append_time(batch, append_time)
    columns = decode(
        batch,
        start_offset=base,
        end_offset=base + 100,
        decompressed_size_max=SIZE_MAX,
        include_headers=True,
        builder=builder,
    )
    theirs = [
        Row(r.offset, r.timestamp * 1000, r.timestamp_type, r.key, r.value, tuple(r.headers) or None)
        for r in READERS[name](bytes(batch))
    ]
    assert rows_of(columns) == theirs
    assert columns.next_offset == base + len(records)
