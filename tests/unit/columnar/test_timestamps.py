"""A record is found by its time, in compiled code as in Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.columnar import timestamps
from drmq.columnar.timestamps import find_timestamp
from drmq.model import Offset
from drmq.records import Codec, InvalidBatch, Record, encode_batch
from drmq.records import find_timestamp as find_in_python
from drmq.records.header import HEADER_SIZE, stamp_crc
from support.columnar import SIZE_MAX

TIMES = st.lists(st.integers(0, 2_000), min_size=1, max_size=30)


def batch_of(times: list[int], codec: Codec = Codec.NONE, append_time_ms: int | None = None) -> bytearray:
    records = [Record(Offset(7 + index), time, b"k", b"v" * (index % 5)) for index, time in enumerate(times)]
    return encode_batch(records, base_offset=Offset(7), codec=codec, log_append_time_ms=append_time_ms)


@given(TIMES, st.integers(-1, 2_100), st.sampled_from(list(Codec)), st.one_of(st.none(), st.integers(0, 2_000)))
def test_both_find_the_same(times: list[int], wanted: int, codec: Codec, append_time_ms: int | None) -> None:
    batch = batch_of(times, codec, append_time_ms)
    assert find_timestamp(batch, wanted, SIZE_MAX) == find_in_python(batch, wanted, SIZE_MAX)


@given(TIMES, st.integers(0, 2_000), st.integers(0, 10_000), st.integers(0, 255))
def test_both_refuse_the_same(times: list[int], wanted: int, place: int, byte: int) -> None:
    batch = batch_of(times)
    batch[HEADER_SIZE + place % (len(batch) - HEADER_SIZE)] = byte
    stamp_crc(batch)
    try:
        expected = find_in_python(batch, wanted, SIZE_MAX)
    except InvalidBatch:
        with pytest.raises(InvalidBatch):
            find_timestamp(batch, wanted, SIZE_MAX)
    else:
        assert find_timestamp(batch, wanted, SIZE_MAX) == expected


def test_too_much_and_nonsense_are_refused() -> None:
    with pytest.raises(InvalidBatch):
        find_timestamp(batch_of([1] * 1_000, Codec.ZSTD), 1, 100)
    broken = batch_of([1])
    broken[-1] ^= 1
    with pytest.raises(InvalidBatch):
        find_timestamp(broken, 1, SIZE_MAX)


def test_without_the_compiled_code_python_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "COMPILED", None)
    assert find_timestamp(batch_of([5, 6]), 6, SIZE_MAX) == (8, 6)
