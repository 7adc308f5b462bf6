"""SQL over topics: `select origin, count(*) from topic('flights') group by 1`.

Spark does not know `topic('name')`. Each call is replaced by a view of the topic. Its columns are the fields of the
JSON values, by a given schema or one that is inferred from a sample, and these columns of every record:

    _key string, _value string, _partition int, _offset bigint, _timestamp timestamp

A topic whose values are not JSON objects has a column `value` instead of fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drmq.client import Admin
from drmq.model import TopicPartition, topic_id_text
from drmq.records import InvalidBatch, iter_batches, iter_records
from drmq.spark.errors import OptionsError, SparkSideError
from drmq.spark.fetching import Fetcher
from drmq.spark.offsets import Range
from drmq.spark.table import DECOMPRESSED_BYTES_MAX

SAMPLE_RECORDS = 1_000
_SAMPLE_BYTES = 1 << 20

_TOKEN = re.compile(
    r"""(?P<skip>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/)
      | (?P<call>\btopic\s*\(\s*(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)")\s*\))""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Query:
    """A query with its topics replaced by views; `views` has the name of the view for each topic."""

    text: str
    views: Mapping[str, str]


def parse(text: str) -> Query:
    """Replace each `topic('name')` outside of strings and comments by the name of a view."""
    views: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        if match["call"] is None:
            return match[0]
        name = match["single"] if match["single"] is not None else match["double"]
        views.setdefault(name, f"`__topic_{len(views)}`")
        return views[name]

    return Query(_TOKEN.sub(replaced, text), views)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a topic that a query reads: half-open, for each partition."""

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    @property
    def count(self) -> int:
        return sum(max(0, self.end[place] - self.start[place]) for place in self.start)


def sample(bootstrap: str, bounds: Bounds, timeout_s: float) -> list[bytes]:
    """Some values of a topic: the same number from each partition, from its start and its end."""
    fetcher = Fetcher(
        bootstrap, client_id="drmq-sql", timeout_s=timeout_s, read_committed=True, fetch_bytes=_SAMPLE_BYTES
    )
    wanted = max(1, SAMPLE_RECORDS // (2 * max(1, len(bounds.start))))
    found: list[bytes] = []
    try:
        with Admin(bootstrap, timeout_s=timeout_s) as admin:
            ids = {name: admin.topics.describe(name).topic_id for name in {place.topic for place in bounds.start}}
        for place in sorted(bounds.start):
            start, end = bounds.start[place], bounds.end[place]
            middle = max(start, end - wanted)
            for low, high in ((start, min(start + wanted, middle)), (middle, end)):
                if low < high:
                    part = Range(place.topic, topic_id_text(ids[place.topic]), place.partition, low, high)
                    found += _values(fetcher, part)
    finally:
        fetcher.close()
    return found


def _values(fetcher: Fetcher, part: Range) -> list[bytes]:
    values = []
    for fetched in fetcher.read(part, fail_on_data_loss=False):
        for position, header in iter_batches(fetched.records):
            if header.is_control:
                continue
            batch = fetched.records[position : position + header.size]
            try:
                for record in iter_records(batch, decompressed_size_max=DECOMPRESSED_BYTES_MAX):
                    if part.start <= record.offset < part.end and record.value is not None:
                        values.append(record.value)
            except InvalidBatch as error:
                raise SparkSideError(f"A batch of {part.topic}-{part.partition} cannot be read: {error}") from None
    return values


def infer(values: Sequence[bytes]) -> str | None:
    """The fields of the values that are JSON objects, as DDL; None if there is no such value, or no field.

    A field that is a number in one value and a text in another is a text: Spark's parser can convert anything to text.
    """
    kind: _Kind = None
    for value in values:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            kind = _merged(kind, _kind_of(found))
    return _fields_ddl(kind, " ") if isinstance(kind, dict) and kind else None


_Kind = str | dict[str, Any] | list[Any] | None
"""What is known of a JSON value: the name of a type, fields by name, `[kind of the items]`, or None for only nulls."""


def _kind_of(value: Any) -> _Kind:
    if isinstance(value, dict):
        return {name: _kind_of(item) for name, item in value.items()}
    if isinstance(value, list):
        items: _Kind = None
        for item in value:
            items = _merged(items, _kind_of(item))
        return [items]
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -(2**63) <= value < 2**63 else "double"
    return "double" if isinstance(value, float) else "string"


def _merged(one: _Kind, other: _Kind) -> _Kind:
    """A type that fits both. The order does not matter."""
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merged(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    return "double" if {str(one), str(other)} == {"bigint", "double"} else "string"


def _ddl(kind: _Kind) -> str:
    if isinstance(kind, dict):
        return f"struct<{_fields_ddl(kind, ': ')}>" if kind else "string"
    if isinstance(kind, list):
        return f"array<{_ddl(kind[0])}>"
    return kind or "string"


def _fields_ddl(fields: Mapping[str, Any], separator: str) -> str:
    # SQL does not distinguish `Id` from `id`: the first one becomes a column, the other is only in `_value`.
    named: dict[str, str] = {}
    for name, kind in fields.items():
        if name and name.lower() not in named:
            named[name.lower()] = "`" + name.replace("`", "``") + "`" + separator + _ddl(kind)
    return ", ".join(named.values())


def create_view(
    spark: Any, view: str, topic: str, bootstrap: str, bounds: Bounds, *, schema: str | None, timeout_s: float
) -> None:
    """Create a temporary view of a topic."""
    from pyspark.sql import functions as f

    options = {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps({topic: sorted(place.partition for place in bounds.start)}),
        "startingOffsets": _offsets_json(topic, bounds.start),
        "endingOffsets": _offsets_json(topic, bounds.end),
        "columns": "key,value,partition,offset,timestamp",
        "minPartitions": str(2 * spark.sparkContext.defaultParallelism),
        "timeoutMs": str(int(timeout_s * 1000)),
    }
    raw = spark.read.format("drmq").options(**options).load()
    text = f.col("value").cast("string")
    common = [
        f.col("key").cast("string").alias("_key"),
        text.alias("_value"),
        f.col("partition").alias("_partition"),
        f.col("offset").alias("_offset"),
        f.col("timestamp").alias("_timestamp"),
    ]
    fields = _fields(bootstrap, bounds, schema, timeout_s)
    if fields is None:
        table = raw.select(text.alias("value"), *common)
    else:
        # PERMISSIVE: values that do not fit become null, as everywhere in Spark's JSON functions.
        parsed = raw.withColumn("parsed", f.from_json(text, fields))
        table = parsed.select("parsed.*", *common)
    table.createOrReplaceTempView(view.strip("`"))


def _offsets_json(topic: str, offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps({topic: {str(place.partition): offset for place, offset in sorted(offsets.items())}})


def _fields(bootstrap: str, bounds: Bounds, schema: str | None, timeout_s: float) -> Any:
    """The fields of a topic's values: given, or inferred from a sample; None if they are not JSON objects."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if schema is not None:
        try:
            return StructType.fromDDL(schema)
        except PySparkException as error:
            first_line = str(error).strip().splitlines()[0]
            raise OptionsError(
                [f"The schema {schema!r} is invalid: {first_line} A valid one is `origin string, delay int`."]
            ) from None
    inferred = infer(sample(bootstrap, bounds, timeout_s))
    return None if inferred is None else StructType.fromDDL(inferred)


def plain(value: Any) -> Any:
    """A value of a row as JSON-compatible data."""
    from datetime import date, datetime
    from decimal import Decimal

    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float | int | str | bool) or value is None:
        return value
    return str(value)
