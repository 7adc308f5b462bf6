"""The batch header: each refusal with its code, and stamps that leave the batch valid."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from drmq.model import ErrorCode, LeaderEpoch, Offset, ProducerId
from drmq.records import (
    HEADER_SIZE,
    Codec,
    InvalidBatch,
    Record,
    batch_is_intact,
    check_batch,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
    read_prefix,
    stamp,
    stamp_append_time,
)
from drmq.records.header import HEADER, stamp_crc

RECORDS = [Record(Offset(number), 1_000 + number, b"key", b"value") for number in range(3)]


def batch_with(field: str, value: int) -> bytearray:
    """A good batch with one header field changed, and its checksum right again."""
    batch = encode_batch(RECORDS)
    HEADER.pack_into(batch, 0, *(read_header(batch)._asdict() | {field: value}).values())
    stamp_crc(batch)
    return batch


def refusal(batch: bytes | bytearray | memoryview) -> ErrorCode:
    with pytest.raises(InvalidBatch) as caught:
        check_batch(batch)
    return caught.value.code


def test_fields_of_a_batch() -> None:
    batch = encode_batch(
        RECORDS,
        leader_epoch=LeaderEpoch(7),
        producer_id=ProducerId(9),
        producer_epoch=2,
        base_sequence=11,
        codec=Codec.ZSTD,
        transactional=True,
    )
    header = check_batch(batch)
    assert header == read_header(b"some bytes" + batch, 10)
    assert header.size == len(batch)
    assert header.next_offset == 3
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 11)
    assert (header.record_count, header.last_offset_delta) == (3, 2)
    assert header.codec == Codec.ZSTD
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert read_prefix(b"xx" + batch, 2) == (0, len(batch))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_checked(kind: Callable[[bytearray], bytes]) -> None:
    assert check_batch(kind(encode_batch(RECORDS))).record_count == 3
    assert batch_is_intact(kind(encode_batch(RECORDS)))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_for_good(magic: int) -> None:
    """Kafka answers INVALID_RECORD to Produce 3+, and an old message may be shorter than a batch header."""
    for value in (b"", bytes(100)):
        builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1000)
        builder.append(0, timestamp=1, key=None, value=value)
        assert refusal(bytes(builder.build())) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [-1, 3, 127])
def test_unknown_format(magic: int) -> None:
    assert refusal(batch_with("magic", magic)) is ErrorCode.CORRUPT_MESSAGE


def test_nothing_sent() -> None:
    assert refusal(b"") is ErrorCode.INVALID_RECORD


def test_truncated_anywhere() -> None:
    batch = encode_batch(RECORDS)
    for end in range(1, len(batch)):
        assert refusal(batch[:end]) is ErrorCode.CORRUPT_MESSAGE
        assert not batch_is_intact(batch[:end])


def test_a_second_batch_or_a_tail_is_refused_for_good() -> None:
    batch = encode_batch(RECORDS)
    for tail in (b"\x00", batch, bytes(100)):
        assert refusal(batch + tail) is ErrorCode.INVALID_RECORD
        assert not batch_is_intact(batch + tail)


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48, 2**31 - 1])
def test_nonsense_length(length: int) -> None:
    assert refusal(batch_with("length", length)) is ErrorCode.CORRUPT_MESSAGE


def test_every_bit_under_the_checksum_counts() -> None:
    """Any flipped bit from the attributes on is corruption, before any field is believed."""
    batch = encode_batch(RECORDS)
    for position in range(17, len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[position] ^= 1 << bit
            assert refusal(flipped) is ErrorCode.CORRUPT_MESSAGE
            assert not batch_is_intact(flipped)


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("record_count", 0, ErrorCode.INVALID_RECORD),
        ("record_count", -1, ErrorCode.INVALID_RECORD),
        ("record_count", 2, ErrorCode.INVALID_RECORD),
        ("record_count", 2**31 - 1, ErrorCode.INVALID_RECORD),
        ("last_offset_delta", -1, ErrorCode.INVALID_RECORD),
        ("last_offset_delta", 3, ErrorCode.INVALID_RECORD),
        ("attributes", 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("attributes", 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("attributes", 7, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("attributes", 0x20, ErrorCode.INVALID_RECORD),
        ("attributes", 0x08, ErrorCode.INVALID_TIMESTAMP),
        ("producer_id", 5, ErrorCode.INVALID_RECORD),
    ],
)
def test_refusals(field: str, value: int, code: ErrorCode) -> None:
    assert refusal(batch_with(field, value)) is code


def test_a_count_that_cannot_fit() -> None:
    """A consistent lie about the count would take that many offsets: a hole in the log."""
    batch = encode_batch([Record(Offset(0), 0, None, None)])
    assert len(batch) == HEADER_SIZE + 7
    assert check_batch(batch).record_count == 1
    for count in (2, 2**31 - 1):
        HEADER.pack_into(batch, 0, *read_header(batch)._replace(record_count=count, last_offset_delta=count - 1))
        stamp_crc(batch)
        assert refusal(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_compressed_batch_claims_no_more_than_its_bytes_can_hold(codec: Codec) -> None:
    """Records that are as small and as alike as possible pass. A count of 2^31 - 1 would use up as many offsets."""
    dense = encode_batch([Record(Offset(index), 0, None, None) for index in range(100_000)], codec=codec)
    assert check_batch(dense).record_count == 100_000
    small = encode_batch(RECORDS, codec=codec)
    for batch, count in ((dense, 2**31 - 1), (small, 2**31 - 1), (small, 40_000_000)):
        HEADER.pack_into(batch, 0, *read_header(batch)._replace(record_count=count, last_offset_delta=count - 1))
        stamp_crc(batch)
        assert refusal(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("producer", "is_taken"),
    [
        ((-1, -1, -1), True),
        ((-1, 0, 0), True),
        ((5, 0, 0), True),
        ((0, 0, 2**31 - 1), True),
        ((5, -1, 0), False),
        ((5, 0, -1), False),
        ((5, -1, -1), False),
        ((-2, -1, -1), False),
    ],
)
def test_the_fields_of_a_producer_belong_together(producer: tuple[int, int, int], is_taken: bool) -> None:
    """kafkajs and Sarama send no producer id with epoch or sequence 0, and Kafka takes that."""
    batch = encode_batch(RECORDS)
    producer_id, producer_epoch, base_sequence = producer
    header = read_header(batch)._replace(
        producer_id=ProducerId(producer_id), producer_epoch=producer_epoch, base_sequence=base_sequence
    )
    HEADER.pack_into(batch, 0, *header)
    stamp_crc(batch)
    if is_taken:
        assert check_batch(batch).producer_id == producer_id
    else:
        assert refusal(batch) is ErrorCode.INVALID_RECORD


def test_unused_attribute_bits_pass() -> None:
    """Bits 6 to 14 belong to later versions of Kafka, which define them so that brokers may ignore them."""
    assert check_batch(batch_with("attributes", 0x7FC0)).attributes == 0x7FC0


@given(st.binary(max_size=200))
def test_garbage(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        check_batch(data)
    assert not batch_is_intact(data)


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_stamp_leaves_the_checksum_alone(base_offset: int, leader_epoch: int) -> None:
    batch = encode_batch(RECORDS[:1], codec=Codec.GZIP)
    before = bytes(batch)
    stamp(memoryview(batch), Offset(base_offset), LeaderEpoch(leader_epoch))
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch) == (base_offset, leader_epoch)
    assert batch[16:] == before[16:]
    assert [record.offset for record in decode_batch(batch, decompressed_size_max=100)] == [base_offset]


@pytest.mark.parametrize("codec", Codec)
def test_append_time_is_the_time_of_every_record(codec: Codec) -> None:
    batch = encode_batch(RECORDS, codec=codec, transactional=True)
    before = read_header(batch)
    records_before = batch[HEADER_SIZE:]
    stamp_append_time(memoryview(batch), 5_000)
    assert batch_is_intact(batch)
    header = read_header(batch)
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.codec == codec
    assert header == before._replace(attributes=header.attributes, max_timestamp=5_000, crc=header.crc)
    assert batch[HEADER_SIZE:] == records_before
    assert [record.timestamp for record in decode_batch(batch, decompressed_size_max=1000)] == [5_000] * 3


def test_iter_batches() -> None:
    batches = [encode_batch(RECORDS[:count], base_offset=Offset(0), codec=codec) for count in (1, 3) for codec in Codec]
    control = encode_batch(RECORDS[:1], control=True)
    buffer = b"".join([*batches, control])
    found = list(iter_batches(memoryview(buffer)))
    assert [buffer[position : position + header.size] for position, header in found] == [*batches, control]
    assert list(iter_batches(b"")) == []


def test_iter_batches_stops_at_a_partial_one() -> None:
    """A read by size usually ends inside a batch, wherever."""
    batch = bytes(encode_batch(RECORDS))
    for end in range(len(batch)):
        assert [position for position, _ in iter_batches(batch + batch[:end])] == [0]


def test_iter_batches_raises_at_nonsense() -> None:
    good = encode_batch(RECORDS)
    for bad in (batch_with("length", 48), batch_with("length", -12), batch_with("magic", 1), bytearray(100)):
        walk = iter_batches(good + bad)
        assert next(walk)[0] == 0
        with pytest.raises(InvalidBatch, match=f"position {len(good)}"):
            next(walk)


@given(st.lists(st.sampled_from([b"\x00", b"\xff", b"\x02", bytes(encode_batch(RECORDS))])))
def test_iter_batches_on_garbage(parts: list[bytes]) -> None:
    buffer = b"".join(parts)
    position = 0
    try:
        for start, header in iter_batches(buffer):
            assert start == position
            position += header.size
    except InvalidBatch:
        pass
    assert position <= len(buffer)


def test_prefix_layout() -> None:
    assert read_prefix(struct.pack(">qi", 42, 100), 0) == (42, 112)
