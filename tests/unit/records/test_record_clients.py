"""Batches against the record code of kafka-python and aiokafka, in both directions and every codec."""

from __future__ import annotations

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaMemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaMemoryRecords

from drmq.model import LeaderEpoch, Offset, ProducerId
from drmq.records import Codec, Record, check_batch, decode_batch, encode_batch, iter_batches, stamp, stamp_append_time

# aiokafka has each class twice: compiled, and in Python for where it could not be compiled.
READERS = {
    "kafka-python": kafka_records.DefaultRecordBatch,
    "aiokafka": aiokafka_records.DefaultRecordBatch,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchPy,
}
BUILDERS = {
    "kafka-python": kafka_records.DefaultRecordBatchBuilder,
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchBuilderPy,
}
SIZE_MAX = 1_000_000

record_lists = st.lists(
    st.tuples(
        st.integers(0, 2**48),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        # aiokafka's compiled builder does not take a null header value.
        st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=20)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=10,
).map(lambda rows: [Record(Offset(offset), *row) for offset, row in enumerate(rows)])


def seen_by(reader: Any, batch: bytes | bytearray) -> list[Record]:
    theirs = reader(bytes(batch))
    assert theirs.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", READERS)
@given(records=record_lists)
def test_they_read_us(name: str, codec: Codec, records: list[Record]) -> None:
    batch = encode_batch(
        records,
        leader_epoch=LeaderEpoch(3),
        codec=codec,
        producer_id=ProducerId(77),
        producer_epoch=5,
        base_sequence=6,
        transactional=True,
    )
    assert seen_by(READERS[name], batch) == records
    theirs, ours = READERS[name](bytes(batch)), check_batch(batch)
    assert (theirs.magic, theirs.crc, theirs.attributes) == (ours.magic, ours.crc, ours.attributes)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (77, 5, 6)
    assert (theirs.first_timestamp, theirs.max_timestamp) == (ours.base_timestamp, ours.max_timestamp)
    assert theirs.next_offset == ours.next_offset == len(records)
    assert theirs.is_transactional
    assert not theirs.is_control_batch


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", BUILDERS)
@given(records=record_lists)
def test_we_read_them(name: str, codec: Codec, records: list[Record]) -> None:
    builder = BUILDERS[name](
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=77,
        producer_epoch=5,
        base_sequence=6,
        batch_size=SIZE_MAX,
    )
    for r in records:
        builder.append(r.offset, timestamp=r.timestamp, key=r.key, value=r.value, headers=list(r.headers))
    batch = bytes(builder.build())
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 6)
    assert header.record_count == len(records)
    assert header.is_transactional
    assert decode_batch(batch, decompressed_size_max=SIZE_MAX) == records
    if header.codec == Codec.NONE:
        # Down to the byte, where there is only one way to write it. Base offset and leader
        # epoch are the broker's to set.
        ours = encode_batch(records, producer_id=ProducerId(77), producer_epoch=5, base_sequence=6, transactional=True)
        assert ours[16:] == batch[16:]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("codec", Codec)
def test_they_read_what_a_broker_stamped(name: str, codec: Codec) -> None:
    batch = encode_batch([Record(Offset(n), n, b"k", b"v" * 100, (("h", None),)) for n in range(50)], codec=codec)
    stamp(batch, Offset(2**40), LeaderEpoch(9))
    stamp_append_time(batch, 123_456)
    expected = [Record(Offset(2**40 + n), 123_456, b"k", b"v" * 100, (("h", None),)) for n in range(50)]
    assert seen_by(READERS[name], batch) == expected
    assert READERS[name](bytes(batch)).timestamp_type == 1


@pytest.mark.parametrize("splitter", [KafkaMemoryRecords, AiokafkaMemoryRecords])
def test_they_find_the_same_batches(splitter: Any) -> None:
    """The walk over a fetched buffer whose last batch is cut off."""
    parts = [
        encode_batch([Record(Offset(base + n), n, None, b"v") for n in range(3)], base_offset=Offset(base), codec=codec)
        for base, codec in zip(range(0, 15, 3), Codec, strict=True)
    ]
    buffer = bytes(b"".join(parts))[:-1]
    theirs, found = splitter(buffer), []
    while theirs.has_next():
        found.append(theirs.next_batch().base_offset)
    assert found == [header.base_offset for _, header in iter_batches(buffer)] == [0, 3, 6, 9]
