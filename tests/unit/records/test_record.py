"""Records: round trips, and a reader that answers any bytes with records or `InvalidBatch`."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import ErrorCode, LeaderEpoch, Offset, ProducerId
from drmq.records import (
    HEADER_SIZE,
    Codec,
    InvalidBatch,
    Record,
    check_batch,
    decode_batch,
    encode_batch,
    find_timestamp,
    iter_records,
    read_header,
    stamp_append_time,
)
from drmq.records.header import HEADER, stamp_crc

SIZE_MAX = 1_000_000
TIMES = st.integers(-1, 2**62)

fields = st.tuples(
    st.integers(0, 5),  # the gap before this record's offset
    TIMES,
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=4).map(tuple),
)


@st.composite
def record_lists(draw: st.DrawFn, *, dense: bool = False) -> tuple[Offset, list[Record]]:
    base_offset = Offset(draw(st.integers(0, 2**62)))
    offset, records = base_offset - 1, []
    for gap, timestamp, key, value, headers in draw(st.lists(fields, min_size=1, max_size=12)):
        offset += 1 if dense else 1 + gap
        records.append(Record(Offset(offset), timestamp, key, value, headers))
    return base_offset, records


def sample(count: int = 20) -> list[Record]:
    return [
        Record(Offset(number), 1_000 + 7 * number, b"k%d" % number, b"v" * number * 30, (("h", b"x"), ("n", None)))
        for number in range(count)
    ]


def raw_batch(body: bytes, count: int, last_offset_delta: int | None = None) -> bytearray:
    """A batch with a valid checksum over any `body`."""
    batch = encode_batch([Record(Offset(0), 1_000, None, None)])[:HEADER_SIZE] + body
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    header = read_header(batch)._replace(length=len(batch) - 12, record_count=count, last_offset_delta=delta)
    HEADER.pack_into(batch, 0, *header)
    stamp_crc(batch)
    return batch


def decode(batch: bytes | bytearray | memoryview) -> list[Record]:
    return decode_batch(batch, decompressed_size_max=SIZE_MAX)


@pytest.mark.parametrize("codec", Codec)
@given(made=record_lists())
def test_round_trip(codec: Codec, made: tuple[Offset, list[Record]]) -> None:
    base_offset, records = made
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    assert decode(batch) == records
    header = read_header(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.next_offset == records[-1].offset + 1


@given(made=record_lists(dense=True), codec=st.sampled_from(Codec))
def test_a_dense_batch_is_what_a_producer_may_send(made: tuple[Offset, list[Record]], codec: Codec) -> None:
    base_offset, records = made
    header = check_batch(encode_batch(records, base_offset=base_offset, codec=codec))
    assert header.record_count == len(records)


def test_the_bytes_of_one_record() -> None:
    """Worked out by hand from the format."""
    record = Record(Offset(3), 999, b"k", None, (("h", b"v"),))
    first = Record(Offset(0), 1000, None, b"")
    body = encode_batch([first, record])[HEADER_SIZE:]
    assert body == bytes(
        # length 6; attributes; time 0; offset 0; null; empty; no headers
        [12, 0, 0, 0, 1, 0, 0]
    ) + bytes(
        # length 11; attributes; time -1; offset 3; key; null; one header
        [22, 0, 1, 6, 2, ord("k"), 1, 2, 2, ord("h"), 2, ord("v")]
    )


def test_all_fields_of_the_header() -> None:
    batch = encode_batch(
        sample(2),
        leader_epoch=LeaderEpoch(4),
        producer_id=ProducerId(2**40),
        producer_epoch=3,
        base_sequence=2**31 - 1,
        log_append_time_ms=77,
        transactional=True,
        control=True,
    )
    header = read_header(batch)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch) == (4, 2**40, 3)
    assert header.base_sequence == 2**31 - 1
    assert header.attributes == 0x38
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 77)
    assert [record.timestamp for record in decode(batch)] == [77, 77]


def test_a_compacted_batch_keeps_its_range() -> None:
    records = [Record(Offset(104), 5, b"a", b"b")]
    batch = encode_batch(records, base_offset=Offset(100), last_offset_delta=9)
    assert read_header(batch).next_offset == 110
    assert decode(batch) == records
    for codec in Codec:
        empty = encode_batch([], base_offset=Offset(100), last_offset_delta=9, codec=codec)
        assert read_header(empty).next_offset == 110
        assert decode(empty) == []
        assert find_timestamp(empty, 0, SIZE_MAX) is None


@pytest.mark.parametrize("offsets", [[], [1, 1], [2, 1], [-1]])
def test_encoding_nonsense_is_a_bug(offsets: list[int]) -> None:
    with pytest.raises(AssertionError):
        encode_batch([Record(Offset(offset), 0, None, None) for offset in offsets])


def test_numbers_at_the_edge() -> None:
    records = [Record(Offset(0), 0, None, None), Record(Offset(2**31 - 1), 2**63 - 1, None, None)]
    assert decode(encode_batch(records)) == records
    records = [Record(Offset(2**63 - 1), -(2**63), None, None)]
    assert decode(encode_batch(records, base_offset=Offset(2**63 - 1))) == records


@pytest.mark.parametrize("codec", Codec)
def test_truncated_or_with_a_tail(codec: Codec) -> None:
    batch = encode_batch(sample(), codec=codec)
    for end in range(len(batch)):
        with pytest.raises(InvalidBatch):
            decode(batch[:end])
    for tail in (b"\x00", b"tail", batch):
        with pytest.raises(InvalidBatch):
            decode(batch + tail)


def test_records_truncated_under_a_good_checksum() -> None:
    """The checksum only says that these are the bytes the producer sent."""
    body = bytes(encode_batch(sample())[HEADER_SIZE:])
    for end in range(len(body)):
        with pytest.raises(InvalidBatch):
            decode(raw_batch(body[:end], 20))
    for tail in (b"\x00", body):
        with pytest.raises(InvalidBatch):
            decode(raw_batch(body + tail, 20))
    assert decode(raw_batch(body, 20)) == sample()


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 19, 21, 2**31 - 1])
def test_counts_are_not_trusted(count: int) -> None:
    body = bytes(encode_batch(sample())[HEADER_SIZE:])
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch) as caught:
            decode(raw_batch(body, count, last_offset_delta=2**31 - 1))
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


HUGE = [0xFE, 0xFF, 0xFF, 0xFF, 0x0F]  # 2**31 - 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([1], "record of -1"),
        ([0], "middle of a number"),
        ([0, 0, 0, 0, 0, 0, 0], "inside its own numbers"),
        ([14, 0, 0, 0, 1, 1, 0], "record of 7"),
        ([10, 0, 0, 0, 1, 1, 0], "longer than it says"),
        ([14, 0, 0, 0, 1, 1, 0, 0], "longer than it says"),
        ([12, 0, 0, 0, 3, 1, 0], "-2 bytes"),
        ([12, 0, 0, 0, 8, 1, 0], "4 bytes where"),
        ([12, 0, 0, 0, 1, 3, 0], "-2 bytes"),
        ([12, 0, 0, 0, 1, 1, 1], "-1 headers"),
        ([12, 0, 0, 0, 1, 1, 2], "middle of a number"),
        ([16, 0, 0, 0, 1, 1, 2, 1, 1], "header without a key"),
        ([20, 0, 0, 0, 1, 1, *HUGE], "middle of a number"),
        ([20, 0, 0, 0, *HUGE, 1, 0], "2147483647 bytes"),
        (HUGE, "record of 2147483647"),
        ([*[0xFF] * 10, 0], "more than 10 bytes"),
        ([30, 0, *[0xFF] * 9, 0x7F, 0, 1, 1, 0], "64 bits"),
        ([30, 0, 0, *[0xFE] * 9, 0x7F, 1, 1, 0], "offset delta"),
        ([12, 0, 0, 1, 1, 1, 0], "offset delta -1"),
        ([12, 0, 0, 2, 1, 1, 0], "offset delta 1"),
    ],
)
def test_bad_records(body: list[int], reason: str) -> None:
    with pytest.raises(InvalidBatch, match=reason):
        decode(raw_batch(bytes(body), 1))


def test_offsets_must_increase() -> None:
    record = bytes([12, 0, 0, 2, 1, 1, 0])
    with pytest.raises(InvalidBatch, match="offset delta 1 after 1"):
        decode(raw_batch(record * 2, 2))


def test_numbers_that_overflow() -> None:
    batch = encode_batch([Record(Offset(0), 2**63 - 1, None, None)])
    batch[HEADER_SIZE + 2] = 2  # a time delta of one
    stamp_crc(batch)
    with pytest.raises(InvalidBatch, match="64 bits"):
        decode(batch)
    batch = encode_batch(sample(2))
    batch[:8] = b"\x7f" + b"\xff" * 7  # outside the checksum
    with pytest.raises(InvalidBatch, match="64 bits"):
        decode(batch)


def test_a_header_name_that_is_not_text() -> None:
    """It is shown as well as can be, as Java clients do: one odd name must not hide a batch."""
    batch = encode_batch([Record(Offset(0), 0, None, None, (("ab", None),))])
    batch[-3] = 0xFF
    stamp_crc(batch)
    assert decode(batch)[0].headers == (("\ufffdb", None),)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    batch = encode_batch(sample())
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(attributes=codec))
    stamp_crc(batch)
    with pytest.raises(InvalidBatch) as caught:
        decode(batch)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompression_is_bounded(codec: Codec) -> None:
    batch = encode_batch([Record(Offset(0), 0, None, bytes(SIZE_MAX))], codec=codec)
    with pytest.raises(InvalidBatch):
        iter_records(batch, decompressed_size_max=SIZE_MAX)
    assert len(list(iter_records(batch, decompressed_size_max=SIZE_MAX + 20))) == 1


def test_iterating_is_lazy_but_opening_is_not() -> None:
    good = encode_batch(sample(2))
    bad = raw_batch(bytes(good[HEADER_SIZE:]) + b"\x01", 3)
    records = iter_records(bad, decompressed_size_max=SIZE_MAX)
    assert [next(records), next(records)] == sample(2)
    with pytest.raises(InvalidBatch):
        next(records)
    with pytest.raises(InvalidBatch):
        iter_records(good[:-1], decompressed_size_max=SIZE_MAX)


@pytest.mark.parametrize("codec", Codec)
def test_an_iterator_does_not_hold_the_buffer(codec: Codec) -> None:
    """The caller may reuse a network buffer while records from it are still being read."""
    batch = encode_batch(sample(), codec=codec)
    records = iter_records(batch, decompressed_size_max=SIZE_MAX)
    batch[:] = b"\xff" * 10_000
    assert list(records) == sample()


@given(made=record_lists(), target=TIMES, codec=st.sampled_from(Codec))
def test_find_timestamp_is_the_first_match(made: tuple[Offset, list[Record]], target: int, codec: Codec) -> None:
    base_offset, records = made
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    for wanted in [target, *(record.timestamp for record in records), records[0].timestamp + 1]:
        expected = next(((r.offset, r.timestamp) for r in records if r.timestamp >= wanted), None)
        assert find_timestamp(batch, wanted, SIZE_MAX) == expected


def test_find_timestamp_with_append_time() -> None:
    """All records have the same time, so the first one that is still there is found."""
    batch = encode_batch([Record(Offset(12), 9_999, None, None)], base_offset=Offset(10), last_offset_delta=5)
    stamp_append_time(batch, 500)
    assert find_timestamp(batch, 500, SIZE_MAX) == (12, 500)
    assert find_timestamp(batch, 501, SIZE_MAX) is None


def test_find_timestamp_on_a_bad_batch() -> None:
    with pytest.raises(InvalidBatch):
        find_timestamp(b"", 0, SIZE_MAX)
    with pytest.raises(InvalidBatch):
        find_timestamp(raw_batch(b"\x00", 1), 0, SIZE_MAX)


@pytest.mark.parametrize("codec", Codec)
def test_mutations(codec: Codec) -> None:
    """A mutated batch, its length and checksum repaired so that it gets past them: records or `InvalidBatch`."""
    original = bytes(encode_batch(sample(), codec=codec))
    rng = random.Random(int(codec))
    for _ in range(1500):
        batch = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            batch[rng.randrange(21, len(batch))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        stamp_crc(batch)
        with contextlib.suppress(InvalidBatch):
            records = decode(batch)
            offsets = [record.offset for record in records]
            assert offsets == sorted(set(offsets))
        with contextlib.suppress(InvalidBatch):
            find_timestamp(batch, 1_050, SIZE_MAX)


@given(body=st.binary(max_size=100), count=st.integers(-1, 20))
def test_garbage_records(body: bytes, count: int) -> None:
    with contextlib.suppress(InvalidBatch):
        assert len(decode(raw_batch(body, count, last_offset_delta=100))) == count
