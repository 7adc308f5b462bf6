"""What is decided per batch: ranges, limits, dropped batches, and refusals that name the batch."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from drmq.columnar import Columns, decode, iter_columns
from drmq.columnar.outcome import Builder
from drmq.model import ErrorCode, Offset
from drmq.records import Codec, InvalidBatch, Record, compress, decompress, encode_batch
from support.columnar import (
    INT64_MAX,
    SIZE_MAX,
    all_rows,
    expected_rows,
    joined,
    marker,
    number,
    plain_record,
    rows_of,
    simple_batch,
    slices,
    with_body,
    with_field,
)


def pieces(data: bytes | bytearray, builder: type[Builder], **options: Any) -> Iterator[Columns]:
    defaults = {
        "start_offset": 0,
        "end_offset": INT64_MAX,
        "decompressed_size_max": SIZE_MAX,
        "include_headers": True,
    }
    return iter_columns(data, builder=builder, **(defaults | options))


def offsets(data: bytes | bytearray, builder: type[Builder], **options: Any) -> tuple[list[int], int]:
    rows, next_offset = all_rows(pieces(data, builder, **options))
    return [row.offset for row in rows], next_offset


def refusal(data: bytes | bytearray, builder: type[Builder], **options: Any) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as caught:
        list(pieces(data, builder, **options))
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
def test_columns_outlive_the_bytes_that_they_were_made_of(codec: Codec, builder: type[Builder]) -> None:
    """An answer is received into memory that the next one overwrites: no column may be a view of it."""
    records = [Record(Offset(i), i, b"key-%d" % i, bytes([i]) * 3000, ((f"h{i}", b"x" * i),)) for i in range(100)]
    data = bytearray(encode_batch(records, base_offset=Offset(0), codec=codec))
    expected, _ = all_rows(pieces(bytes(data), builder))
    found = list(pieces(data, builder, bytes_max=100_000))
    data[:] = bytes(len(data))
    assert all_rows(iter(found))[0] == expected
    assert [row.value for row in expected] == [record.value for record in records]


# ---- any batches -------------------------------------------------------------------------------------

contents = st.none() | st.binary(max_size=40) | st.just(b"abc" * 200)
header_lists = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=10)), max_size=3).map(tuple)
record_parts = st.lists(
    st.tuples(st.integers(1, 3), st.integers(-(2**61), 2**61), contents, contents, header_lists), max_size=6
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches one after the other: all codecs, gaps, empty ones, control batches, both kinds of time."""
    log, offset = bytearray(), draw(st.sampled_from([0, 5, 2**40]))
    for _ in range(draw(st.integers(0, 4))):
        base = offset + draw(st.integers(0, 3))
        records, at = [], base - 1
        for step, time, key, value, headers in draw(record_parts):
            at += step
            records.append(Record(Offset(at), time, key, value, headers))
        last = max(at, base) + draw(st.integers(0, 3))
        log += encode_batch(
            records,
            base_offset=Offset(base),
            codec=draw(st.sampled_from(list(Codec))),
            log_append_time_ms=draw(st.none() | st.integers(-1, 2**45)),
            control=draw(st.integers(0, 9)) == 0,
            last_offset_delta=last - base,
        )
        offset = last + 1
    return bytes(log)


@given(data=st.data(), log=logs())
def test_rows_are_those_of_the_records_package(builder: type[Builder], data: st.DataObject, log: bytes) -> None:
    """Whatever the log, the range and the limits: the rows are exactly what reading record by record gives."""
    known = [row.offset for row in expected_rows(log)] or [0]
    start = data.draw(st.integers(0, known[-1] + 2))
    end = data.draw(st.integers(start, known[-1] + 5) | st.just(INT64_MAX))
    rows_max = data.draw(st.integers(1, 6) | st.just(1000))
    bytes_max = data.draw(st.integers(1, 300) | st.just(100_000))
    got = list(pieces(log, builder, start_offset=start, end_offset=end, rows_max=rows_max, bytes_max=bytes_max))
    rows, next_offset = all_rows(got)
    assert rows == expected_rows(log, start, end)
    assert start <= next_offset <= end
    assert all(columns.row_count <= rows_max for columns in got)
    assert all(columns.row_count > 0 for columns in got[:-1])

    # The same by resuming, as somebody does who keeps nothing but an offset.
    again, at = [], start
    while True:
        one = decode(
            log,
            start_offset=at,
            end_offset=end,
            decompressed_size_max=SIZE_MAX,
            include_headers=True,
            rows_max=rows_max,
            bytes_max=bytes_max,
            builder=builder,
        )
        again += rows_of(one)
        if one.next_offset == at:
            break
        at = one.next_offset
    assert (again, at) == (rows, next_offset)


@given(log=logs(), cut=st.integers(1, 200))
def test_a_partial_tail_is_left(builder: type[Builder], log: bytes, cut: int) -> None:
    """A Fetch answer ends anywhere; what is whole is read, and the rest is for the next one."""
    head = log[: max(len(log) - cut, 0)]
    rows, next_offset = all_rows(pieces(head, builder))
    assert rows == expected_rows(head)
    rest, _ = all_rows(pieces(log, builder, start_offset=next_offset))
    assert rows + rest == expected_rows(log)


# ---- ranges and limits -------------------------------------------------------------------------------


def test_range_inside_a_batch(builder: type[Builder]) -> None:
    log = joined(simple_batch(10, 5), simple_batch(15, 5))
    assert offsets(log, builder, start_offset=12, end_offset=17) == ([12, 13, 14, 15, 16], 17)
    assert offsets(log, builder, start_offset=15, end_offset=15) == ([], 15)
    assert offsets(log, builder, start_offset=0, end_offset=10) == ([], 10)
    assert offsets(log, builder, start_offset=20, end_offset=30) == ([], 20)


def test_gaps_are_passed_over(builder: type[Builder]) -> None:
    """Compaction leaves gaps inside batches, empty batches, and missing ones; reading continues after them."""
    holey = encode_batch([Record(Offset(n), 0, None, b"v") for n in (2, 5)], last_offset_delta=9)
    empty = encode_batch([], base_offset=Offset(10), last_offset_delta=4)
    assert offsets(joined(holey, empty), builder) == ([2, 5], 15)
    assert offsets(joined(holey, empty), builder, end_offset=12) == ([2, 5], 12)
    assert offsets(empty, builder, start_offset=12) == ([], 15)
    assert offsets(joined(holey, simple_batch(100, 1)), builder, end_offset=50) == ([2, 5], 50)


def test_no_data(builder: type[Builder]) -> None:
    """There is a last piece even then, and it says that there was no progress."""
    for data in (b"", b"\x00" * 60, bytes(simple_batch(7))[:-1]):
        [columns] = pieces(data, builder, start_offset=7)
        assert (columns.row_count, columns.next_offset) == (0, 7)
        assert rows_of(columns) == []


def test_pieces_hold_their_limits(builder: type[Builder]) -> None:
    """Rows and bytes are bounded also inside one batch; only a row that is too large comes alone."""
    body = b"".join(plain_record(n, key=b"k" * 10, value=b"v" * 90) for n in range(10))
    batch = with_body(body, 10)
    assert slices(pieces(batch, builder, rows_max=4)) == [4, 4, 2]
    assert slices(pieces(batch, builder, rows_max=5)) == [5, 5]
    assert slices(pieces(batch, builder, bytes_max=300)) == [3, 3, 3, 1]
    assert slices(pieces(batch, builder, bytes_max=299)) == [2] * 5
    assert slices(pieces(batch, builder, bytes_max=1)) == [1] * 10
    assert slices(pieces(batch, builder, bytes_max=30, want_value=False)) == [3, 3, 3, 1]
    assert slices(pieces(batch, builder, bytes_max=1, want_value=False, want_key=False)) == [10]
    last = list(pieces(batch, builder, rows_max=4))
    assert [columns.next_offset for columns in last] == [4, 8, 10]


def test_headers_count_against_the_limit(builder: type[Builder]) -> None:
    """A header has a cost of its own, or a record could bring millions of empty ones; undone if it does not fit."""
    many: list[tuple[bytes | None, bytes | None]] = [(b"", b""), (b"", None)] * 10
    first = plain_record(0, value=None, headers=[(b"a", None), (b"b", b"x")])
    batch = with_body(first + plain_record(1, value=None, headers=many) + plain_record(2, value=None), 3)
    assert slices(pieces(batch, builder, bytes_max=100)) == [1, 1, 1]
    assert slices(pieces(batch, builder, bytes_max=200)) == [3]
    assert slices(pieces(batch, builder, bytes_max=100, include_headers=False)) == [3]
    rows, _ = all_rows(pieces(batch, builder, bytes_max=100))
    assert [row.headers for row in rows] == [(("a", None), ("b", b"x")), (("", b""), ("", None)) * 10, None]


def test_a_batch_is_decompressed_once(builder: type[Builder], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a piece ends in the middle of it."""
    calls: list[int] = []

    def counted(codec: int, data: Any, size_max: int) -> Any:
        calls.append(size_max)
        return decompress(codec, data, size_max)

    monkeypatch.setattr("drmq.columnar.walk.decompress", counted)
    assert slices(pieces(simple_batch(0, 100, Codec.ZSTD), builder, rows_max=7)) == [7] * 14 + [2]
    assert calls == [SIZE_MAX]


@pytest.mark.parametrize(
    "options",
    [
        {"start_offset": -1},
        {"start_offset": 5, "end_offset": 4},
        {"end_offset": 2**63},
        {"rows_max": 0},
        {"rows_max": 2**31},
        {"bytes_max": 0},
        {"bytes_max": 2**31},
        {"decompressed_size_max": -1},
        {"decompressed_size_max": 2**31},
    ],
)
def test_wrong_arguments_are_refused_at_the_call(builder: type[Builder], options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(options.values())))):
        pieces(b"", builder, **options)


def test_columns_not_asked_for(builder: type[Builder]) -> None:
    batch = simple_batch(0)
    none = next(pieces(batch, builder, want_key=False, want_value=False, include_headers=False))
    assert (none.key, none.value, none.headers, none.row_count) == (None, None, None, 3)
    assert next(pieces(batch, builder, want_key=False)).value is not None
    assert next(pieces(batch, builder, want_value=False)).key is not None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(builder: type[Builder], kind: Any) -> None:
    assert offsets(kind(bytes(simple_batch(0))), builder) == ([0, 1, 2], 3)
    shorts = memoryview(bytes(simple_batch(0)) + b"x" * (len(simple_batch(0)) % 2)).cast("h")
    assert offsets(shorts, builder)[0] == [0, 1, 2]  # type: ignore[arg-type]


def test_size_in_memory(builder: type[Builder]) -> None:
    """`nbytes` counts every run there is, once."""
    batch = with_body(plain_record(0, key=b"key", value=None, headers=[(b"name", b"content"), (b"n", None)]), 1)
    [columns] = pieces(batch, builder)
    fixed = 8 + 8 + 4
    key, value = 8 + 3, 8 + 1
    headers = 8 + (12 + 5) + (12 + 7 + 1)
    assert columns.nbytes == fixed + key + value + headers


# ---- what a reader must not see ----------------------------------------------------------------------


def test_control_batches_are_dropped(builder: type[Builder]) -> None:
    log = joined(simple_batch(0, 2), marker(2, 9, commit=True), simple_batch(3, 1), marker(4, 9, commit=False))
    assert offsets(log, builder) == ([0, 1, 3], 5)


def test_aborted_transactions_are_dropped(builder: type[Builder]) -> None:
    """From its first offset to its marker, and only of that producer, and only if the broker listed it."""
    log = joined(
        simple_batch(0, 2, producer_id=7),
        simple_batch(2, 2, producer_id=8),
        simple_batch(4, 1),
        marker(5, 7, commit=False),
        simple_batch(6, 1, producer_id=7),
        marker(7, 8, commit=True),
        marker(8, 7, commit=True),
    )
    assert offsets(log, builder) == ([0, 1, 2, 3, 4, 6], 9)
    assert offsets(log, builder, aborted=[(7, 0)]) == ([2, 3, 4, 6], 9)
    assert offsets(log, builder, aborted=[(8, 2)]) == ([0, 1, 4, 6], 9)
    assert offsets(log, builder, aborted=[(8, 2), (7, 0)]) == ([4, 6], 9)
    assert offsets(log, builder, aborted=[(99, 0)]) == ([0, 1, 2, 3, 4, 6], 9)
    assert offsets(log, builder, aborted=[(7, 6), (7, 0)]) == ([2, 3, 4], 9)


def test_aborts_before_the_range(builder: type[Builder]) -> None:
    """A marker ends a transaction also where it lies in what is skipped; so resuming gives the same."""
    log = joined(
        simple_batch(0, 2, producer_id=7),
        marker(2, 7, commit=False),
        simple_batch(3, 2, producer_id=7),
        marker(5, 7, commit=True),
    )
    assert offsets(log, builder, aborted=[(7, 0)]) == ([3, 4], 6)
    assert offsets(log, builder, aborted=[(7, 0)], start_offset=3) == ([3, 4], 6)
    assert offsets(log, builder, aborted=[(7, 0)], start_offset=4) == ([4], 6)


def test_only_an_abort_ends_an_aborted_transaction(builder: type[Builder]) -> None:
    """The broker's list decides: a commit in between, which is impossible, does not bring its records back."""
    log = joined(
        simple_batch(0, 1, producer_id=7),
        marker(1, 7, commit=True),
        simple_batch(2, 1, producer_id=7),
        marker(3, 7, commit=False),
        simple_batch(4, 1, producer_id=7),
    )
    assert offsets(log, builder, aborted=[(7, 0)]) == ([4], 5)


def test_not_transactional_is_never_aborted(builder: type[Builder]) -> None:
    """An idempotent producer's batches carry an id, and belong to no transaction."""
    plain = with_field(simple_batch(0, 2), "producer_id", 7)
    assert offsets(plain, builder, aborted=[(7, 0)]) == ([0, 1], 2)


def test_a_marker_without_a_type(builder: type[Builder]) -> None:
    for key in (None, b"\x00\x00\x00"):
        control = with_body(plain_record(0, key=key), 1, attributes=0x30, producer_id=7)
        assert offsets(control, builder) == ([], 1)
        assert "without a type" in str(refusal(control, builder, aborted=[(7, 0)]))


# ---- bytes that are not what they claim --------------------------------------------------------------


def test_checksum(builder: type[Builder]) -> None:
    """One flipped bit anywhere after the checksum is found, also in a batch that would be dropped."""
    for batch in (simple_batch(4), simple_batch(4, codec=Codec.LZ4), marker(4, 1, commit=True)):
        for place in (21, 30, len(batch) - 1):
            broken = bytearray(batch)
            broken[place] ^= 0x10
            error = refusal(joined(simple_batch(0), broken), builder)
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            assert str(error) == "the batch at offset 4 cannot be read: its checksum does not match"


def test_a_bad_batch_outside_the_range_does_not_matter(builder: type[Builder]) -> None:
    bad = simple_batch(0)
    bad[-1] ^= 1
    assert offsets(joined(bad, simple_batch(3)), builder, start_offset=3) == ([3, 4, 5], 6)
    bad = simple_batch(3)
    bad[-1] ^= 1
    assert offsets(joined(simple_batch(0), bad), builder, end_offset=3) == ([0, 1, 2], 3)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("record_count", -1, "-1 records"),
        ("last_offset_delta", -1, "last offset delta -1"),
        ("base_offset", INT64_MAX - 1, "do not fit into 64 bits"),
        ("record_count", 4, "record 4 of 4 ends in the middle of its numbers"),
        ("record_count", 2**31 - 1, "record 4 of 2147483647 ends in the middle of its numbers"),
        ("record_count", 2, "bytes follow the last of 2 records"),
        ("record_count", 0, "bytes follow the last of 0 records"),
        ("last_offset_delta", 1, "record 3 of 3 has offset delta 2 after 1, of 1"),
        ("attributes", 5, "unknown codec 5"),
        ("attributes", 1, "bad gzip data"),
        ("base_timestamp", INT64_MAX, "the time of record 2 of 3, 1 after 9223372036854775807, does not fit"),
    ],
)
def test_lying_headers(builder: type[Builder], name: str, value: int, reason: str) -> None:
    assert reason in str(refusal(with_field(simple_batch(0), name, value), builder))


def test_batches_that_go_backwards(builder: type[Builder]) -> None:
    """Base offsets are outside the checksum. A reader that followed them back would never end."""
    assert "the one before it ends at 3" in str(refusal(joined(simple_batch(0), simple_batch(2)), builder))


@pytest.mark.parametrize("field", ["magic", "length"])
def test_what_is_no_batch(builder: type[Builder], field: str) -> None:
    log = joined(simple_batch(0), with_field(simple_batch(3), field, 1))
    assert "no batch at position" in str(refusal(log, builder))


def test_good_pieces_come_before_the_error(builder: type[Builder]) -> None:
    bad = simple_batch(3)
    bad[-1] ^= 1
    found = pieces(joined(simple_batch(0), bad), builder, rows_max=2)
    assert next(found).row_count == 2
    with pytest.raises(InvalidBatch, match="offset 3"):
        next(found)


# ---- codecs, times and bombs -------------------------------------------------------------------------

PACKERS = {
    "none": (Codec.NONE, lambda body: body),
    "gzip": (Codec.GZIP, gzip.compress),
    "snappy raw": (Codec.SNAPPY, snappy.compress),
    "snappy xerial": (Codec.SNAPPY, lambda body: bytes(compress(Codec.SNAPPY, body))),
    "lz4": (Codec.LZ4, lambda body: lz4.frame.compress(body, block_linked=False)),
    "zstd": (Codec.ZSTD, zstandard.ZstdCompressor().compress),
}


@pytest.mark.parametrize("name", PACKERS)
def test_every_codec(builder: type[Builder], name: str) -> None:
    """As foreign libraries write it, over several blocks; snappy with and without the framing of xerial."""
    codec, pack = PACKERS[name]
    body = b"".join(plain_record(n, n, b"key-%d" % n, b"value" * 10 + bytes([n & 255])) for n in range(3000))
    packed = with_body(pack(body), 3000, attributes=int(codec))
    assert all_rows(pieces(packed, builder)) == (expected_rows(with_body(body, 3000)), 3000)


@pytest.mark.parametrize("name", [name for name in PACKERS if name != "none"])
def test_bombs(builder: type[Builder], name: str) -> None:
    """What decompresses beyond the limit raises, and never was in memory."""
    codec, pack = PACKERS[name]
    bomb = with_body(pack(bytes(50_000_000)), 1, attributes=int(codec))
    tracemalloc.start()
    try:
        refusal(bomb, builder, decompressed_size_max=1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


def test_promises_cost_nothing(builder: type[Builder]) -> None:
    """A batch that claims two billion records, or a record that claims as many headers, takes no memory for them."""
    for batch in (
        with_body(plain_record(0), 2**31 - 1),
        with_body(plain_record(0, rest=b"\x01\x01" + number(2**31 - 1) + b"\x00\x00"), 1),
        with_body(plain_record(0, rest=b"\x01\x01" + number(2**62) + b"\x00\x00"), 1),
    ):
        assert "ends in the middle of its numbers" in str(refusal(batch, builder))


def test_times(builder: type[Builder]) -> None:
    """Milliseconds become microseconds; the broker's time counts where it is set; what does not fit is null."""
    limit = INT64_MAX // 1000
    times = [0, -1, 1_700_000_000_123, limit, limit + 1, -limit, -limit - 1]
    records = [Record(Offset(n), time, None, None) for n, time in enumerate(times)]
    rows, _ = all_rows(pieces(encode_batch(records), builder))
    fits = [0, -1000, 1_700_000_000_123_000, limit * 1000, None, -limit * 1000, None]
    assert [row.microseconds for row in rows] == fits
    assert {row.timestamp_type for row in rows} == {0}
    rows, _ = all_rows(pieces(encode_batch(records, log_append_time_ms=77), builder))
    assert {(row.microseconds, row.timestamp_type) for row in rows} == {(77_000, 1)}


# ---- threads and imports -----------------------------------------------------------------------------


def test_threads(builder: type[Builder]) -> None:
    """Iterators of several threads over the same data do not disturb each other."""
    log = joined(*(simple_batch(base, 500, codec) for base, codec in zip(range(0, 2500, 500), Codec, strict=True)))
    expected = expected_rows(log)
    failed: list[int] = []

    def work(worker: int) -> None:
        for _ in range(5):
            if all_rows(pieces(log, builder, rows_max=100 + worker))[0] != expected:
                failed.append(worker)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_results_outlive_everything(builder: type[Builder]) -> None:
    """Columns own their memory: neither the data nor the iterator nor the builder is needed any more."""
    data = bytearray(simple_batch(0, 100))
    found = pieces(data, builder, rows_max=10)
    first = next(found)
    rest = list(found)
    del found
    data[:] = b"\xff" * len(data)
    expected = expected_rows(simple_batch(0, 100))
    assert rows_of(first) + all_rows(rest)[0] == expected


def test_importing_is_cheap() -> None:
    """A worker that only plans does not import pyarrow, and an installation without pyarrow works too."""
    code = "import sys, drmq.columnar, drmq.columnar.arrow; print([n for n in sys.modules if n in %r])"
    heavy = ("pyarrow", "numpy", "pandas", "pyspark", "cramjam", "asyncio")
    result = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
