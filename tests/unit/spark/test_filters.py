"""Conditions leave out what no row can come from, and never more. Filters here are shaped as Spark's are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from drmq.model import TopicPartition
from drmq.spark.filters import ALL, conditions


@dataclass
class Filter:
    """Spark's filters are dataclasses of a column's path and a value; the class says which comparison."""

    attribute: tuple[str, ...]
    value: Any


EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In, StringContains = (
    type(name, (Filter,), {})
    for name in ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In", "StringContains")
)

COMPARISONS = {
    EqualTo: lambda left, right: left == right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
}

on_offset = st.builds(
    lambda kind, value: kind(("offset",), value), st.sampled_from(list(COMPARISONS)), st.integers(-5, 60)
)


@given(st.lists(on_offset, max_size=4), st.integers(0, 50))
def test_a_row_that_passes_is_read(filters: list[Any], offset: int) -> None:
    """For offsets the conditions are exact: what is read is what passes."""
    found = conditions(filters)
    passes = all(COMPARISONS[type(condition)](offset, condition.value) for condition in filters)
    assert passes == (found.offset_min <= offset <= found.offset_max)


def test_topics_and_partitions() -> None:
    found = conditions([EqualTo(("topic",), "a"), In(("partition",), (1, 2)), In(("partition",), (2, 3))])
    assert found.allow(TopicPartition("a", 2))
    assert not found.allow(TopicPartition("a", 1))
    assert not found.allow(TopicPartition("b", 2))


def test_times_bound_the_beginning_only() -> None:
    """Behind a record that is too new there may be an older one, so the end cannot be told by time."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert conditions([GreaterThan(("timestamp",), moment)]).time_ms_min == 1_767_225_600_000
    assert conditions([LessThan(("timestamp",), moment)]) == ALL


def test_what_is_not_understood_is_ignored() -> None:
    assert conditions([StringContains(("topic",), "a"), EqualTo(("value", "origin"), "JFK"), object()]) == ALL
    assert conditions([EqualTo(("offset",), "text")]) == ALL
