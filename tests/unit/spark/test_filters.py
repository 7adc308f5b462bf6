"""The option `filter`: what is understood, what is refused, and that bounds are exact."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.spark.filters import EVERYTHING, Filter, parse_filter

COMPARISONS = {
    "=": lambda left, right: left == right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
}


@given(st.lists(st.tuples(st.sampled_from(sorted(COMPARISONS)), st.integers(-5, 60)), min_size=1, max_size=4))
def test_bounds_of_offsets_and_times_are_exact(comparisons: list[tuple[str, int]]) -> None:
    """Whatever is combined: a number passes the bounds exactly if it passes every comparison."""
    by_offset = parse_filter(" AND ".join(f"offset {sign} {value}" for sign, value in comparisons))
    times = [(sign, abs(value)) for sign, value in comparisons]
    by_time = parse_filter(" and ".join(f"timestamp{sign}{value}" for sign, value in times))
    for number in range(60):
        passes = all(COMPARISONS[sign](number, value) for sign, value in comparisons)
        assert passes == (by_offset.offset_min <= number <= by_offset.offset_max)
        passes = all(COMPARISONS[sign](number, value) for sign, value in times)
        low, high = by_time.time_ms_min, by_time.time_ms_max
        assert passes == ((low is None or number >= low) and (high is None or number <= high))


def test_sets_meet() -> None:
    found = parse_filter(
        "topic in ('a', 'it''s') and partition in (1,2) and partition = 2 and key = 'DL' and topic='a'"
    )
    assert found == Filter(topics=frozenset({"a"}), partitions=frozenset({2}), keys=frozenset({b"DL"}))
    assert found.allows("a", 2)
    assert not found.allows("a", 1)
    assert not found.allows("b", 2)
    assert found.row_columns == ("key",)
    assert EVERYTHING.allows("x", 7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a word instead of the end"),
        ("offset", "expected a sign instead of the end"),
        ("offset >= 5 or offset = 1", "expected `and` before 'or'"),
        ("value = 'x'", "`value` is not one of"),
        ("offset = 'many'", "not a whole number"),
        ("key > 'a'", "= and `in` only"),
        ("offset in (1)", "=, <, >, <= and >= only"),
        ("partition in 1", "expected a sign instead of"),
        ("partition in (1", "expected a sign instead of"),
        ("timestamp > 'noon'", "milliseconds since 1970"),
        ("offset ! 5", "is not valid"),
        ("offset ( 5", "is not a comparison"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_filter(text)
    assert words in str(raised.value)


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["offset", "and", "=", "5", "'a'", "in", "(", ")"])).map(" ".join)
)
def test_any_text_is_understood_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_filter(text), Filter)
