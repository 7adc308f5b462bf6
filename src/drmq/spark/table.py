"""The table that a query sees: its columns, and record batches with these columns.

Spark compares the first Arrow batch of a task with the expected schema, column by column, and trusts all later ones.
Every batch is therefore built by the same code, from one plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from drmq.spark.errors import OptionsError
from drmq.spark.fetching import Fetched
from drmq.spark.filters import EVERYTHING, Filter
from drmq.spark.offsets import Range
from drmq.spark.options import COLUMNS, TableOptions

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string not null",
    "partition": "int not null",
    "offset": "bigint not null",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}

_READABLE = frozenset(
    {"string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal"}
    | {"date", "timestamp", "timestamp_ntz"}
)
"""The types of fields of a JSON value, in addition to structs and arrays of these."""

DECOMPRESSED_BYTES_MAX = 128 << 20
"""A batch that exceeds this size when decompressed is an attack or an accident, and fails the task."""


def ddl(options: TableOptions) -> str:
    """The schema in SQL, as Spark requests it.

    It is written as a struct type: Spark first tries to parse a type, and if that fails because of a mistake in
    `valueSchema`, it reports only that mistake.
    """
    return f"struct<{', '.join(f'`{name}`: {_type_of(name, options)}' for name in options.columns)}>"


def _type_of(name: str, options: TableOptions) -> str:
    if options.value_format == "json":
        if name == "value":
            # The comment appears in Spark's error message about a mistake.
            return f"struct</* the option valueSchema: */ {options.value_schema}>"
        if name == options.error_column:
            return "string"
    return _TYPES[name]


def check_user_schema(schema: Any, options: TableOptions) -> None:
    """Reject a schema given with `.schema(...)` that differs from ours: Spark does not check it.

    `schema` is what Spark planned with, which is our own unless the user gave one.
    """
    expected = options.columns
    if tuple(schema.names) == expected:
        if options.value_format == "json" and "value" in schema.names:
            _check_value_type(schema["value"].dataType)
        if options.value_format == "raw":
            wrong = [
                f"`{field.name}` is {field.dataType.simpleString()}, but must be {_plain(field.name)}"
                for field in schema
                if field.dataType.simpleString() != _plain(field.name)
            ]
            if wrong:
                raise OptionsError([f"The schema given with .schema(...): {problem}." for problem in wrong])
        return
    raise OptionsError(
        [
            f"The schema given with .schema(...) has the columns {', '.join(schema.names)}, but the table has "
            f"{', '.join(expected)}. Leave it out, and use the option `columns` to choose columns."
        ]
    )


def _check_value_type(value_type: Any) -> None:
    """Reject types that cannot be read from JSON here: in a task, each record would fail with the same reason."""
    if not hasattr(value_type, "fields"):
        raise OptionsError(
            [f"The schema given with .schema(...): `value` is {value_type.simpleString()}, but must be a struct."]
        )
    wrong = sorted({kind for field in value_type.fields for kind in _unreadable(field.dataType)})
    if wrong:
        raise OptionsError(
            [
                f"`valueSchema` contains {', '.join(wrong)}, which cannot be read from JSON here. Leave out such "
                "fields, or read `value` as bytes and parse it with Spark's `from_json`."
            ]
        )


def _unreadable(data_type: Any) -> Iterator[str]:
    """The types within this type that JSON values cannot be parsed as."""
    kind = data_type.typeName()
    if kind == "struct":
        for field in data_type.fields:
            yield from _unreadable(field.dataType)
    elif kind == "array":
        yield from _unreadable(data_type.elementType)
    elif kind not in _READABLE:
        yield data_type.simpleString()


def _plain(name: str) -> str:
    return _TYPES[name].removesuffix(" not null")


class TableShape:
    """Turns the bytes of a partition into batches of the table. Created in the worker that uses it."""

    def __init__(self, options: TableOptions, schema: Any, passing: Filter = EVERYTHING) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._options = options
        self._passing = passing
        self._arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self._is_json = options.value_format == "json" and bool(
            {"value", options.error_column}.intersection(options.columns)
        )
        # The raw columns to decode: the table's, those that only the filter needs, and the bytes of a value of which
        # only the error column is wanted.
        needed = (*passing.row_columns, *(("value",) if self._is_json else ()))
        names = [name for name in options.columns if name in COLUMNS]
        self._raw_names: Sequence[str] = [*names, *(name for name in needed if name not in names)]
        self._is_plain = not self._is_json and len(self._raw_names) == len(names)

    def batches(self, part: Range, fetched: Fetched) -> Iterator[Any]:
        """Arrow batches of the records of a response that are in the range."""
        from drmq.columnar import iter_columns
        from drmq.columnar.arrow import record_batch

        pieces = iter_columns(
            fetched.records,
            start_offset=min(fetched.position, part.end),
            end_offset=part.end,
            decompressed_size_max=DECOMPRESSED_BYTES_MAX,
            include_headers="headers" in self._raw_names,
            want_key="key" in self._raw_names,
            want_value="value" in self._raw_names,
            aborted=fetched.aborted,
        )
        for columns in pieces:
            if columns.row_count:
                batch = record_batch(columns, topic=part.topic, partition=part.partition, names=self._raw_names)
                if self._passing.row_columns:
                    batch = self._passing.passing(batch)
                if batch.num_rows:
                    yield batch if self._is_plain else self._shaped(batch)

    def _shaped(self, batch: Any) -> Any:
        """The batch with the columns of the table, with its value parsed if needed."""
        import pyarrow as pa

        from drmq.spark.json_values import parse

        made: dict[str, Any] = {}
        if self._is_json:
            made["value"], made[self._options.error_column] = parse(batch.column("value"), self._value_type())
        arrays = [made[name] if name in made else batch.column(name) for name in self._options.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    def _value_type(self) -> Any:
        import pyarrow as pa

        if "value" in self._options.columns:
            return self._arrow_schema.field("value").type
        # Only the error column is wanted, so any object is accepted.
        return pa.struct([])
