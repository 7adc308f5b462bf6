"""The option `filter`: conditions that are applied where the records are read, before Spark sees a row.

    partition in (0, 1) and offset >= 90 and timestamp >= '2026-01-01' and key = 'DL'

Spark can push the conditions of a query down to a Python source, but only in batches, and Spark 4.3 keeps the pushed
conditions of one query and applies them to the next one on the same DataFrame, which then silently returns wrong
results. A condition in an option belongs to the DataFrame instead, also works in streams, and can use the key.
Comparisons are combined with `and`; there is no `or`.

Whole partitions and offset ranges are excluded when the tasks are planned. The other conditions are a mask over the
columns of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from drmq.spark.times import time_ms

INT64_MAX = 2**63 - 1
COLUMNS = ("topic", "partition", "offset", "timestamp", "key")
_GRAMMAR = "comparisons of topic, partition, offset, timestamp and key, combined with `and`"

_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z]+)|(?P<number>-?\d+)|'(?P<text>(?:[^']|'')*)'|(?P<sign><=|>=|[=<>(),]))")


@dataclass(frozen=True, slots=True)
class Filter:
    """The records that pass; None allows everything. Bounds are inclusive, times in milliseconds."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_max: int = INT64_MAX
    time_ms_min: int | None = None
    time_ms_max: int | None = None
    keys: frozenset[bytes] | None = None

    def allows(self, topic: str, partition: int) -> bool:
        """Whether a record of this partition can pass."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns that decide about single records. Offsets are filtered when tasks are planned."""
        by_time = self.time_ms_min is not None or self.time_ms_max is not None
        return (*(("timestamp",) if by_time else ()), *(("key",) if self.keys is not None else ()))

    def passing(self, batch: Any) -> Any:
        """The rows of an Arrow batch that pass. A null fails every comparison, as in SQL."""
        import pyarrow as pa
        import pyarrow.compute as pc

        masks = []
        moment = pa.timestamp("us", "UTC")
        if self.time_ms_min is not None:
            masks.append(pc.greater_equal(batch.column("timestamp"), pa.scalar(self.time_ms_min * 1000, moment)))
        if self.time_ms_max is not None:
            masks.append(pc.less_equal(batch.column("timestamp"), pa.scalar(self.time_ms_max * 1000 + 999, moment)))
        if self.keys is not None:
            masks.append(pc.is_in(batch.column("key"), value_set=pa.array(sorted(self.keys), pa.binary())))
        if not masks:
            return batch
        whole = masks[0]
        for mask in masks[1:]:
            whole = pc.and_(whole, mask)
        return batch.filter(whole)


EVERYTHING = Filter()


def parse_filter(text: str) -> Filter:
    """Parse a filter. Raises `ValueError` with what is allowed."""
    tokens = _tokens(text)
    found = EVERYTHING
    while True:
        found = _comparison(found, tokens)
        if not tokens:
            return found
        kind, word = tokens.pop(0)
        if kind != "word" or word.lower() != "and":
            raise ValueError(f"expected `and` before {word!r}; allowed are {_GRAMMAR}")


Token = tuple[str, str]


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[position:].strip()[:20]!r} is not valid; allowed are {_GRAMMAR}")
        value = match[match.lastgroup]
        found.append((match.lastgroup, value.replace("''", "'") if match.lastgroup == "text" else value))
        position = match.end()
    return found


def _take(tokens: list[Token], *kinds: str) -> str:
    if not tokens or tokens[0][0] not in kinds:
        shown = repr(tokens[0][1]) if tokens else "the end"
        raise ValueError(f"expected a {' or '.join(kinds)} instead of {shown}; allowed are {_GRAMMAR}")
    return tokens.pop(0)[1]


def _comparison(found: Filter, tokens: list[Token]) -> Filter:
    column = _take(tokens, "word").lower()
    if column not in COLUMNS:
        raise ValueError(f"`{column}` is not one of {', '.join(COLUMNS)}")
    if tokens and tokens[0][0] == "word" and tokens[0][1].lower() == "in":
        tokens.pop(0)
        return _narrowed(found, column, "in", _values(tokens))
    sign = _take(tokens, "sign")
    if sign not in ("=", "<", ">", "<=", ">="):
        raise ValueError(f"{sign!r} is not a comparison; allowed are =, <, >, <=, >= and `in (…)`")
    return _narrowed(found, column, sign, [_take(tokens, "number", "text")])


def _values(tokens: list[Token]) -> list[str]:
    if _take(tokens, "sign") != "(":
        raise ValueError("`in` must be followed by values in brackets")
    values = [_take(tokens, "number", "text")]
    while (sign := _take(tokens, "sign")) == ",":
        values.append(_take(tokens, "number", "text"))
    if sign != ")":
        raise ValueError("the values after `in` must end with a bracket")
    return values


def _narrowed(found: Filter, column: str, sign: str, values: list[str]) -> Filter:
    if column in ("topic", "key", "partition") and sign not in ("=", "in"):
        raise ValueError(f"`{column}` can be compared with = and `in` only")
    if column == "topic":
        return replace(found, topics=_meet(found.topics, frozenset(values)))
    if column == "key":
        return replace(found, keys=_meet(found.keys, frozenset(value.encode() for value in values)))
    if column == "partition":
        return replace(found, partitions=_meet(found.partitions, frozenset(_number(value) for value in values)))
    if sign == "in":
        raise ValueError(f"`{column}` can be compared with =, <, >, <= and >= only")
    if column == "offset":
        low, high = _bounds(sign, _number(values[0]))
        return replace(found, offset_min=max(found.offset_min, low), offset_max=min(found.offset_max, high))
    return _narrowed_time(found, sign, time_ms(values[0]))


def _narrowed_time(found: Filter, sign: str, moment_ms: int) -> Filter:
    low, high = _bounds(sign, moment_ms)
    if sign in ("=", ">", ">="):
        found = replace(found, time_ms_min=max(low, found.time_ms_min if found.time_ms_min is not None else low))
    if sign in ("=", "<", "<="):
        found = replace(found, time_ms_max=min(high, found.time_ms_max if found.time_ms_max is not None else high))
    return found


def _meet(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more


def _bounds(sign: str, value: int) -> tuple[int, int]:
    """The inclusive bounds of a comparison with a whole number."""
    make: dict[str, Callable[[int], tuple[int, int]]] = {
        "=": lambda n: (n, n),
        ">": lambda n: (n + 1, INT64_MAX),
        ">=": lambda n: (n, INT64_MAX),
        "<": lambda n: (0, n - 1),
        "<=": lambda n: (0, n),
    }
    return make[sign](value)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
