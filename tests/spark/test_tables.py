"""Arrow batches: parsed JSON, filters, and columns, without a session."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drmq.spark.filters import Filter, parse_filter
from drmq.spark.json_values import parse

TYPE = pa.struct([("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.float64()))])

good = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "l": st.none() | st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "other": st.none() | st.booleans() | st.lists(st.integers(), max_size=2),
    },
)
hostile = st.sampled_from(
    [
        b"{}} {\"i\":1,\"v\":{}",
        b"{}}\n{\"i\":0,\"v\":{",
        b"{}]} {\"i\":1,\"v\":[{}",
        b"{}]}\n{\"i\":0,\"v\":[{",
        b"null]}{\"i\":0,\"v\":[null",
        b"{}],\"v\":[{}",
        b"{},{}",
        b"]",
        b"{",
        b"}",
        b"\"",
        b"{\"a\":",
        b"",
        b"[1,",
        b"1}",
        b"null}{\"i\":0,\"v\":null",
        b"{\"s\":\"\xff\"}",
        b"{\"a\":1e400}",
        b"{\"a\":\"text\"}",
        b"{} {}",
        b"\\",
        b"{\"s\":\"\n\"}",
    ]
)  # fmt: skip


def expected(value: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else {name: value.get(name) for name in ("a", "s", "l")}


@given(st.lists(good.map(lambda value: (True, value)) | (hostile | st.binary(max_size=12)).map(lambda b: (False, b))))
@example([(False, b'{}} {"i":1,"v":{}'), (True, {"a": 1})])
@example([(False, b'{}]} {"i":1,"v":[{}'), (True, {"a": 1})])
@example([(True, {"a": 1}), (False, b'"'), (True, {"a": 2}), (False, b'"'), (True, {"a": 3})])
def test_no_value_touches_another(rows: list[tuple[bool, Any]]) -> None:
    """Whatever stands beside it, a good value is parsed as if it stood alone, and a row is never lost."""
    values = [json.dumps(value).encode() if is_good else value for is_good, value in rows]
    parsed, reasons = parse(pa.array(values, pa.binary()), TYPE)
    assert len(parsed) == len(reasons) == len(rows)
    assert parsed.type == TYPE
    alone = [parse(pa.array([value], pa.binary()), TYPE) for value in values]
    for number, (is_good, value) in enumerate(rows):
        assert parsed[number].as_py() == alone[number][0][0].as_py()
        assert reasons[number].as_py() == alone[number][1][0].as_py()
        if is_good:
            assert reasons[number].as_py() is None
            assert parsed[number].as_py() == expected(value)


@pytest.mark.parametrize(
    "value", [b'{"a":1},"x":2', b'{"a":1},"v":{"a":2}', b'{"a":1},{"a":2}', b'{"a":1}{"a":2}', b"", b" "]
)
def test_one_value_and_nothing_else(value: bytes) -> None:
    """What goes on after its end, or does not begin, is no JSON, though its beginning may be."""
    parsed, reasons = parse(pa.array([value, b'{"a":3}'], pa.binary()), TYPE)
    assert parsed.to_pylist() == [None, {"a": 3, "s": None, "l": None}]
    assert reasons[0].as_py()
    assert reasons[1].as_py() is None


def test_tombstones_and_nulls_are_no_errors() -> None:
    parsed, reasons = parse(pa.array([None, b"null", b" null "], pa.binary()), TYPE)
    assert parsed.null_count == 3
    assert reasons.null_count == 3


def test_reasons_speak_of_the_value() -> None:
    """Neither our wrapper nor the row that it happened to be in shows."""
    _, reasons = parse(pa.array([b'{"a": 1}', b'{"a": "x"}', b"{", b"5"], pa.binary()), TYPE)
    assert reasons[0].as_py() is None
    assert "Column(/a)" in reasons[1].as_py()
    assert reasons[3].as_py() == "The value changed from object to number"
    assert all("row" not in reason.as_py() for reason in reasons[1:])


@given(
    st.lists(st.tuples(st.none() | st.sampled_from([b"a", b"b", b"c"]), st.none() | st.integers(-5, 30)), max_size=20),
    st.none() | st.frozensets(st.sampled_from([b"a", b"b"]), min_size=1),
    st.none() | st.integers(0, 20),
    st.none() | st.integers(0, 20),
)
def test_masks_are_the_comparisons(
    rows: list[tuple[bytes | None, int | None]], keys: frozenset[bytes] | None, low: int | None, high: int | None
) -> None:
    """Milliseconds against a column of microseconds; null passes nothing."""
    times = pa.array([None if ms is None else ms * 1000 + 7 for _, ms in rows], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array([key for key, _ in rows], pa.binary()), times], ["key", "timestamp"])
    found = Filter(keys=keys, time_ms_min=low, time_ms_max=high).passing(batch).column("key").to_pylist()
    wanted = [
        key
        for key, ms in rows
        if (keys is None or key in keys)
        and (low is None or (ms is not None and ms >= low))
        and (high is None or (ms is not None and ms <= high))
    ]
    assert found == wanted


def test_a_filter_without_rows_to_look_at_lets_all_pass() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], ["n"])
    assert parse_filter("partition = 2").passing(batch) is batch
