"""The number of records in batches, as a broker counts what it sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.columnar.counting import count_records, pure_count
from drmq.columnar.implementation import IMPLEMENTATION
from drmq.model import Offset
from drmq.records import Record, encode_batch


def batch(count: int) -> bytes:
    return bytes(encode_batch([Record(Offset(number), 0, b"k", b"v" * number) for number in range(count)]))


def test_records_of_all_whole_batches_are_counted() -> None:
    data = batch(3) + batch(1) + batch(40)
    for count in (count_records, pure_count):
        assert count(data) == 44
        assert count(memoryview(data)) == 44
        assert count(b"") == 0
        assert count(data[:-1]) == 4, "the last batch is incomplete"


@pytest.mark.skipif(IMPLEMENTATION != "compiled", reason="the compiled decoder was not built")
@given(st.binary(max_size=400))
def test_any_bytes_give_the_same_count_in_both(data: bytes) -> None:
    assert count_records(data) == pure_count(data)
    assert count_records(batch(2) + data) == pure_count(batch(2) + data)
