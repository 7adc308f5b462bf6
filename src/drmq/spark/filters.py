"""Conditions of a query that tell which offsets need not be read. Pure.

Only conditions that all must hold arrive here, one by one; an `OR` never does. What is not understood
is ignored: Spark applies every condition again to the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from drmq.model import TopicPartition

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Conditions:
    """What rows may come from; None allows everything. Offsets are inclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_max: int = _INT64_MAX - 1
    time_ms_min: int | None = None

    def allow(self, place: TopicPartition) -> bool:
        """Whether a row can come from this partition."""
        return (self.topics is None or place.topic in self.topics) and (
            self.partitions is None or place.partition in self.partitions
        )


ALL = Conditions()


def conditions(filters: Iterable[Any]) -> Conditions:
    """All that these filters of Spark's allow us to leave out."""
    found = ALL
    for condition in filters:
        column = ".".join(getattr(condition, "attribute", ()))
        found = _narrow(found, column, type(condition).__name__, condition)
    return found


def _narrow(found: Conditions, column: str, kind: str, condition: Any) -> Conditions:
    value = getattr(condition, "value", None)
    if column in ("topic", "partition"):
        values = {"EqualTo": (value,), "EqualNullSafe": (value,), "In": value}.get(kind)
        if values is None:
            return found
        allowed = frozenset(values)
        if column == "topic":
            return replace(found, topics=allowed if found.topics is None else found.topics & allowed)
        return replace(found, partitions=allowed if found.partitions is None else found.partitions & allowed)
    if column == "offset":
        return _narrow_offsets(found, kind, value)
    if (
        column == "timestamp"
        and isinstance(value, datetime)
        and kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo")
    ):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        time_ms = int(moment.timestamp() * 1000)
        return replace(found, time_ms_min=max(time_ms, found.time_ms_min or 0, 0))
    return found


def _narrow_offsets(found: Conditions, kind: str, value: Any) -> Conditions:
    if kind == "In":
        numbers = [number for number in value if isinstance(number, int)]
        low, high = (min(numbers), max(numbers)) if numbers else (1, 0)
    elif not isinstance(value, int):
        return found
    else:
        bounds = {
            "EqualTo": (value, value),
            "EqualNullSafe": (value, value),
            "GreaterThan": (value + 1, found.offset_max),
            "GreaterThanOrEqual": (value, found.offset_max),
            "LessThan": (found.offset_min, value - 1),
            "LessThanOrEqual": (found.offset_min, value),
        }
        low, high = bounds.get(kind, (found.offset_min, found.offset_max))
    return replace(found, offset_min=max(found.offset_min, low), offset_max=min(found.offset_max, high))
