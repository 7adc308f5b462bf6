"""Bytes that a producer sends as records: all that a reader could not read is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.columnar.framing import COMPILED, Walk, framing_fault, pure_fault
from drmq.model import Offset
from drmq.records import InvalidBatch, Record, decode_batch, encode_batch, read_header
from drmq.records.header import HEADER, HEADER_SIZE, stamp_crc
from support.columnar import INT64_MAX, SIZE_MAX

RECORDS = [
    Record(Offset(0), 1_000, None, None),
    Record(Offset(1), 999, b"key", b"value" * 100, (("name", None), ("", b"\x00"))),
    Record(Offset(2), 1_000_000, b"", b""),
]


def with_bytes(body: bytes, count: int = 3) -> bytearray:
    """A batch with a valid header and checksum, and any bytes for its records."""
    batch = encode_batch(RECORDS)[:HEADER_SIZE] + body
    header = read_header(batch)._replace(length=len(batch) - 12, record_count=count, last_offset_delta=count - 1)
    HEADER.pack_into(batch, 0, *header)
    stamp_crc(batch)
    return batch


def fault_of(batch: bytearray, walk: Walk) -> str | None:
    return framing_fault(memoryview(batch), walk)


@pytest.fixture(params=["pure", "compiled"], scope="session")
def walk(request: pytest.FixtureRequest) -> Walk:
    chosen = pure_fault if request.param == "pure" else COMPILED
    return chosen or pytest.skip("the compiled decoder was not built")


def test_records_of_any_shape_pass(walk: Walk) -> None:
    assert fault_of(encode_batch(RECORDS), walk) is None
    # A client may send any base offset. Stored, it could make the last offset too large.
    assert (
        fault_of(encode_batch([replace(RECORDS[0], offset=Offset(INT64_MAX))], base_offset=Offset(INT64_MAX)), walk)
        is None
    )


@pytest.mark.parametrize("body", [b"no records at all, but text, of some length", bytes(100), b"\xff" * 100])
def test_bytes_that_are_no_records_are_found(walk: Walk, body: bytes) -> None:
    assert fault_of(with_bytes(body), walk) is not None


def test_the_fault_is_named(walk: Walk) -> None:
    body = bytes(encode_batch(RECORDS)[HEADER_SIZE:])
    assert fault_of(with_bytes(body), walk) is None
    assert fault_of(with_bytes(body + b"tail"), walk) == "4 bytes follow the last of 3 records"
    assert fault_of(with_bytes(body, count=4), walk) == "record 4 of 4 ends in the middle of its numbers"
    assert fault_of(with_bytes(body, count=2), walk) is not None


@given(st.data())
def test_what_passes_can_be_read_and_what_can_be_read_passes(data: st.DataObject) -> None:
    body = bytearray(encode_batch(RECORDS)[HEADER_SIZE:])
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] = data.draw(st.integers(0, 255))
    batch = with_bytes(bytes(body))
    pure = fault_of(batch, pure_fault)
    if COMPILED is not None:
        assert fault_of(batch, COMPILED) == pure
    try:
        decode_batch(batch, decompressed_size_max=SIZE_MAX)
    except InvalidBatch:
        assert pure is not None
    else:
        assert pure is None
