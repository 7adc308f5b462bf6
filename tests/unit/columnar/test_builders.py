"""The two builders against each other and against `drmq.records`, on good bytes and on bad ones."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drmq.columnar.columns import as_columns
from drmq.columnar.outcome import INTERFACE, Batch, Bounds, Builder, Outcome, Place
from drmq.records import InvalidBatch, decode_batch
from support.columnar import (
    INT64_MAX,
    SIZE_MAX,
    Row,
    damaged,
    field,
    number,
    plain_record,
    row_of,
    rows_of,
    simple_batch,
    with_body,
)

EVERYTHING = Bounds(0, INT64_MAX, 1000, 2**30)


def batch_of(count: int, **fields: Any) -> Batch:
    defaults = {
        "record_count": count,
        "base_offset": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": 1_000,
        "is_log_append_time": False,
    }
    return Batch(**(defaults | fields))


def outcome_of(builder: type[Builder], body: bytes, batch: Batch, bounds: Bounds = EVERYTHING) -> tuple[Any, ...]:
    """What a builder says of a body, with the rows it made of it."""
    one = builder(True, True, True)
    added = one.add(body, Place(), batch, bounds)
    return (*added, rows_of(as_columns(one.finish(), 0)) if added[0] <= Outcome.PAST_END else None)


# ---- each fault by hand ------------------------------------------------------------------------------

A_NUMBER_OF_65_BITS = b"\xff" * 9 + b"\x02"

FAULTS: dict[str, tuple[bytes, Outcome, tuple[int, int]]] = {
    "no byte at all": (b"", Outcome.NUMBER_CUT_OFF, (0, 0)),
    "length cut off": (b"\x80", Outcome.NUMBER_CUT_OFF, (0, 0)),
    "length of 65 bits": (A_NUMBER_OF_65_BITS, Outcome.NUMBER_TOO_LONG, (0, 0)),
    "length of ten bytes, cut off": (b"\x80" * 9, Outcome.NUMBER_CUT_OFF, (0, 0)),
    "length without an end": (b"\x80" * 40, Outcome.NUMBER_TOO_LONG, (0, 0)),
    "negative length": (number(-1) + b"x", Outcome.RECORD_SIZE, (-1, 1)),
    "most negative length": (number(-(2**63)), Outcome.RECORD_SIZE, (-(2**63), 0)),
    "length beyond the body": (number(5) + b"\x00" * 4, Outcome.RECORD_SIZE, (5, 4)),
    "largest length": (number(INT64_MAX) + b"\x00" * 4, Outcome.RECORD_SIZE, (INT64_MAX, 4)),
    "empty record": (number(0), Outcome.NUMBER_CUT_OFF, (0, 0)),
    "only attributes": (number(1) + b"\x00", Outcome.NUMBER_CUT_OFF, (0, 0)),
    "time cut off": (number(2) + b"\x00\x80\x00", Outcome.NUMBER_CUT_OFF, (0, 0)),
    "no offset": (number(2) + b"\x00\x00", Outcome.NUMBER_CUT_OFF, (0, 0)),
    "offset before the batch": (plain_record(-1), Outcome.OFFSET_DELTA, (-1, -1)),
    "offset behind the batch": (plain_record(1), Outcome.OFFSET_DELTA, (1, -1)),
    "time too late": (plain_record(0, INT64_MAX), Outcome.TIMESTAMP, (INT64_MAX, 0)),
    "key cut off": (plain_record(rest=b"\x80"), Outcome.NUMBER_CUT_OFF, (0, 0)),
    "key of -2 bytes": (plain_record(rest=number(-2)), Outcome.FIELD_SIZE, (-2, 0)),
    "key beyond the record": (plain_record(rest=number(3) + b"ab"), Outcome.FIELD_SIZE, (3, 2)),
    "largest key": (plain_record(rest=number(INT64_MAX) + b"ab"), Outcome.FIELD_SIZE, (INT64_MAX, 2)),
    "no value": (plain_record(rest=field(b"key")), Outcome.NUMBER_CUT_OFF, (0, 0)),
    "value beyond the record": (plain_record(rest=field(None) + number(1)), Outcome.FIELD_SIZE, (1, 0)),
    "no header count": (plain_record(rest=field(None) * 2), Outcome.NUMBER_CUT_OFF, (0, 0)),
    "negative header count": (plain_record(rest=field(None) * 2 + number(-1)), Outcome.HEADER_COUNT, (-1, 0)),
    "a header less": (plain_record(rest=field(None) * 2 + number(1)), Outcome.NUMBER_CUT_OFF, (0, 0)),
    "a header without key": (plain_record(headers=[(None, b"x")]), Outcome.HEADER_KEY_NULL, (0, 0)),
    "a header without value": (
        plain_record(rest=field(None) * 2 + number(1) + field(b"h")),
        Outcome.NUMBER_CUT_OFF,
        (0, 0),
    ),
    "header value beyond the record": (
        plain_record(rest=field(None) * 2 + number(1) + field(b"h") + number(9) + b"x"),
        Outcome.FIELD_SIZE,
        (9, 1),
    ),
    "bytes behind the headers": (
        plain_record(rest=field(None) * 2 + number(0) + b"xyz"),
        Outcome.RECORD_NOT_USED_UP,
        (3, 0),
    ),
    "bytes behind the record": (plain_record() + b"xy", Outcome.BYTES_FOLLOW, (2, 0)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(builder: type[Builder], name: str) -> None:
    """Each kind of bad bytes has its outcome, with the numbers that explain it; nothing is read beyond the end."""
    body, outcome, detail = FAULTS[name]
    added = builder(True, True, True).add(body, Place(), batch_of(1), EVERYTHING)
    assert (added[0], added[4:]) == (outcome, detail)
    with pytest.raises(InvalidBatch):
        decode_batch(with_body(body, 1), decompressed_size_max=0)


def test_where_a_fault_is(builder: type[Builder]) -> None:
    """The place is that of the bad record: how many bytes and records were good, and the last good offset."""
    good = plain_record(0) + plain_record(1)
    added = builder(True, True, True).add(good + plain_record(1), Place(), batch_of(5), EVERYTHING)
    assert added == (Outcome.OFFSET_DELTA, len(good), 2, 1, 1, 1)


def test_every_outcome_is_tested() -> None:
    tested = {outcome for _, outcome, _ in FAULTS.values()}
    assert tested == set(Outcome) - {Outcome.FINISHED, Outcome.FULL, Outcome.PAST_END}


def test_numbers_may_be_longer_than_they_need(builder: type[Builder]) -> None:
    """Ten bytes for a zero are legal, if odd; so are the largest numbers."""
    zero = b"\x80" * 9 + b"\x00"
    content = b"\x00" + zero + zero + zero + zero + zero
    body = number(len(content)) + content
    [row] = outcome_of(builder, body, batch_of(1))[-1]
    assert (row.offset, row.key, row.value, row.headers) == (0, b"", b"", None)
    [row] = outcome_of(builder, plain_record(0, -(2**63)), batch_of(1, base_timestamp=2**62))[-1]
    assert row.microseconds is None


def test_a_broken_promise_in_a_skipped_record(builder: type[Builder]) -> None:
    """Records before the range are checked like all others: whether a batch is valid does not depend on the reader."""
    body = plain_record(0, rest=b"\x05") + plain_record(1)
    bounds = EVERYTHING._replace(start_offset=1)
    assert builder(True, True, True).add(body, Place(), batch_of(2), bounds)[0] == Outcome.FIELD_SIZE


# ---- any bytes ---------------------------------------------------------------------------------------

record_parts = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=150),
        st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)
bodies = record_parts.map(lambda records: b"".join(plain_record(n, *parts) for n, parts in enumerate(records)))
edit_lists = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2000), st.integers(0, 255) | st.sampled_from([0, 1, 127, 128, 255])),
    max_size=4,
)


@given(
    body=bodies,
    edits=edit_lists,
    count=st.integers(0, 13),
    start=st.integers(0, 12),
    length=st.integers(0, 12),
    rows_max=st.integers(1, 13),
    bytes_max=st.integers(1, 1000),
    base_timestamp=st.sampled_from([0, -1, 1_700_000_000_000, INT64_MAX, -INT64_MAX - 1]),
    is_log_append_time=st.booleans(),
)
@example(b"", [], 0, 0, 12, 13, 1, 0, False)
def test_twins(
    both: tuple[type[Builder], type[Builder]],
    body: bytes,
    edits: list[tuple[int, int, int]],
    count: int,
    start: int,
    length: int,
    rows_max: int,
    bytes_max: int,
    base_timestamp: int,
    is_log_append_time: bool,
) -> None:
    """Same outcome, same place, same numbers, same rows, on any bytes; at every step if it takes several."""
    body = damaged(body, edits)
    batch = batch_of(
        count,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=base_timestamp,
        is_log_append_time=is_log_append_time,
    )
    bounds = Bounds(start, start + length, rows_max, bytes_max)
    place = Place()
    while True:
        pure, compiled = (kind(True, True, True) for kind in both)
        added = pure.add(body, place, batch, bounds)
        assert compiled.add(body, place, batch, bounds) == added
        if added[0] > Outcome.PAST_END:
            break
        assert compiled.row_count == pure.row_count
        expected, found = pure.finish(), compiled.finish()
        assert as_columns(found, 0) == as_columns(expected, 0)
        assert found[-1] is not None
        assert expected[-1] is not None
        assert found[-1][-1] == expected[-1][-1], "whether all names are UTF-8"
        if added[0] != Outcome.FULL:
            break
        assert added[1] > place.position
        place = Place(*added[1:4])


@given(body=bodies, edits=edit_lists, count=st.integers(1, 12), is_log_append_time=st.booleans())
def test_they_accept_what_the_records_package_accepts(
    builder: type[Builder], body: bytes, edits: list[tuple[int, int, int]], count: int, is_log_append_time: bool
) -> None:
    """And find the same in it. The one difference: a number of more than 64 bits is refused here even if unused."""
    body = damaged(body, edits)
    batch = with_body(body, count, attributes=8 if is_log_append_time else 0)
    try:
        records = decode_batch(batch, decompressed_size_max=SIZE_MAX)
        expected: list[Row] | None = [row_of(record, is_log_append_time) for record in records]
    except InvalidBatch:
        expected = None
    found = outcome_of(builder, body, batch_of(count, is_log_append_time=is_log_append_time))
    if found[0] != Outcome.NUMBER_TOO_LONG:
        assert found[-1] == expected


@given(names=st.lists(st.binary(max_size=6) | st.text(max_size=3).map(str.encode), min_size=1, max_size=5))
@example([b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf5"])
@example([b"\xc3", b"\xa9"])
def test_names_of_headers_become_utf8(both: tuple[type[Builder], type[Builder]], names: list[bytes]) -> None:
    """Each name separately, like Java and `drmq.records`; two halves of a character do not make one."""
    body = plain_record(headers=[(name, None) for name in names])
    for builder in both:
        [row] = outcome_of(builder, body, batch_of(1))[-1]
        assert row.headers == tuple((name.decode("utf-8", "replace"), None) for name in names)
    parts = [builder(True, True, True) for builder in both]
    flags = []
    for one in parts:
        one.add(body, Place(), batch_of(1), EVERYTHING)
        headers = one.finish()[-1]
        assert headers is not None
        flags.append(headers[-1])
    assert flags[0] == flags[1] == all(_is_utf8(name) for name in names)


def test_a_bad_name_that_did_not_fit_leaves_no_trace(builder: type[Builder]) -> None:
    """What was undone because the piece is full does not cost the piece a repair."""
    good, bad = (
        plain_record(0, headers=[(b"good", None)]),
        plain_record(1, headers=[(b"\xff", None), (b"x" * 90, None)]),
    )
    one = builder(True, True, True)
    assert one.add(good + bad, Place(), batch_of(2), EVERYTHING._replace(bytes_max=60))[0] == Outcome.FULL
    headers = one.finish()[-1]
    assert headers is not None
    assert headers[-1]


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_every_two_bytes_of_utf8(both: tuple[type[Builder], type[Builder]]) -> None:
    """All leads with all second bytes, cut off and completed: the borders of UTF-8 are where Python has them."""
    _, compiled = both
    for lead in range(0x80, 0x100):
        for second in range(0x100):
            for tail in (b"", b"\x80", b"\x80\x80", b"\x80\xbf\xbf"):
                name = bytes([lead, second]) + tail
                one = compiled(False, False, True)
                one.add(plain_record(headers=[(name, None)]), Place(), batch_of(1), EVERYTHING)
                headers = one.finish()[-1]
                assert headers is not None
                assert headers[-1] == _is_utf8(name), name


# ---- the compiled builder as an object ---------------------------------------------------------------


def test_same_interface(both: tuple[type[Builder], type[Builder]]) -> None:
    pure, compiled = both
    assert inspect.getmodule(compiled) is not None
    assert getattr(inspect.getmodule(compiled), "INTERFACE") == INTERFACE  # noqa: B009, mypy knows no such attribute
    for name in ("add", "finish", "row_count"):
        assert hasattr(pure(True, True, True), name)
        assert hasattr(compiled(True, True, True), name)


def test_a_compiled_builder_is_used_up(both: tuple[type[Builder], type[Builder]]) -> None:
    """Its memory was handed over, so it refuses further calls."""
    one = both[1](True, True, True)
    one.finish()
    with pytest.raises(RuntimeError, match="finished"):
        one.finish()
    with pytest.raises(RuntimeError, match="finished"):
        one.add(b"", Place(), batch_of(1), EVERYTHING)


@pytest.mark.parametrize(
    "arguments",
    [
        (b"", Place(1), batch_of(1), EVERYTHING),
        (b"", Place(-1), batch_of(1), EVERYTHING),
        (b"", Place(), batch_of(1), EVERYTHING._replace(bytes_max=-1)),
        ("text", Place(), batch_of(1), EVERYTHING),
        (b"", None, batch_of(1), EVERYTHING),
        (b"", Place(2**63), batch_of(1), EVERYTHING),
        (b"", Place(), batch_of(2**64), EVERYTHING),
        (memoryview(b"abcdef")[::2], Place(), batch_of(1), EVERYTHING),
    ],
)
def test_wrong_arguments(both: tuple[type[Builder], type[Builder]], arguments: tuple[Any, ...]) -> None:
    """Whatever it is called with, it raises and does not crash."""
    with pytest.raises((ValueError, TypeError, OverflowError, BufferError)):
        both[1](True, True, True).add(*arguments)


def test_extreme_numbers(both: tuple[type[Builder], type[Builder]]) -> None:
    """Headers that the walk would never pass on do no harm: no overflow, no memory for promises."""
    body = b"".join(plain_record(n) for n in range(3))
    for count in (-1, 0, 3, INT64_MAX):
        for base in (-INT64_MAX - 1, -1, INT64_MAX):
            for last in (-1, 2, INT64_MAX):
                for limit in (-INT64_MAX - 1, 0, INT64_MAX):
                    batch = Batch(count, base, last, INT64_MAX, True)
                    both[1](True, True, True).add(body, Place(), batch, Bounds(-1, limit, limit, INT64_MAX))
                    both[1](True, True, True).add(body, Place(0, count, INT64_MAX), batch, EVERYTHING)


def test_one_builder_in_two_threads(both: tuple[type[Builder], type[Builder]]) -> None:
    """It runs without the GIL, so a second thread is turned away rather than let in."""
    body = b"".join(plain_record(n, value=b"v" * 50) for n in range(200_000))
    batch = batch_of(200_000)
    bounds = EVERYTHING._replace(rows_max=10**6)
    one = both[1](True, True, True)
    results: list[object] = []
    ready = threading.Barrier(4)

    def work() -> None:
        ready.wait()
        try:
            results.append(one.add(body, Place(), batch, bounds)[0])
        except RuntimeError as error:
            results.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    succeeded = results.count(Outcome.FINISHED)
    assert succeeded >= 1
    assert results.count("the builder is used by another thread") == 4 - succeeded
    assert one.row_count == succeeded * 200_000


def test_a_body_that_is_a_slice(builder: type[Builder]) -> None:
    """A view into a larger buffer is read from its own beginning to its own end."""
    batch = simple_batch(0)
    view = memoryview(bytes(batch) + b"\xff" * 50)[61 : len(batch)]
    added = builder(True, True, True).add(view, Place(), batch_of(3), EVERYTHING)
    assert added[:4] == (Outcome.FINISHED, len(view), 3, 2)
