"""Columns as a `pyarrow.RecordBatch`, without copying, with the schema of Spark's Kafka source.

Names, order, types and nullability are those of that source, because Spark compares the first batch of a reader with
the announced schema, and because a job that works with one source should work with the other.

The functions import pyarrow themselves: it takes half a second and many megabytes, and a program that imports
`drmq.columnar` may not have it installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from drmq.columnar.columns import BytesColumn, Columns, HeadersColumn

if TYPE_CHECKING:
    import pyarrow

NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""All columns, in the order of Spark's Kafka source."""

_NEVER_NULL = {"topic", "partition", "offset"}


def schema(*, include_headers: bool = False, names: Sequence[str] | None = None) -> pyarrow.Schema:
    """The schema of the record batches; `names` selects columns and their order."""
    import pyarrow

    types = _types()
    return pyarrow.schema(
        [pyarrow.field(name, types[name], nullable=name not in _NEVER_NULL) for name in _chosen(include_headers, names)]
    )


def record_batch(
    columns: Columns, *, topic: str, partition: int, names: Sequence[str] | None = None
) -> pyarrow.RecordBatch:
    """A record batch that shares the memory of `columns`, which belong to this partition.

    `names` selects columns and their order; a column that was not decoded raises `ValueError`.
    """
    import pyarrow

    chosen = _chosen(columns.headers is not None, names)
    arrays = [_array(columns, name, topic, partition) for name in chosen]
    return pyarrow.RecordBatch.from_arrays(
        arrays, schema=schema(include_headers=columns.headers is not None, names=chosen)
    )


def _chosen(include_headers: bool, names: Sequence[str] | None) -> Sequence[str]:
    if names is None:
        return NAMES if include_headers else NAMES[:-1]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"no column {unknown[0]!r}: there are {', '.join(NAMES)}")
    return names


def _types() -> dict[str, Any]:
    import pyarrow

    header = pyarrow.struct([pyarrow.field("key", pyarrow.string()), pyarrow.field("value", pyarrow.binary())])
    return {
        "key": pyarrow.binary(),
        "value": pyarrow.binary(),
        "topic": pyarrow.string(),
        "partition": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "timestampType": pyarrow.int32(),
        "headers": pyarrow.list_(header),
    }


def _array(columns: Columns, name: str, topic: str, partition: int) -> pyarrow.Array:
    import pyarrow

    kind, count = _types()[name], columns.row_count
    if name == "topic":
        return pyarrow.repeat(pyarrow.scalar(topic, kind), count)
    if name == "partition":
        return pyarrow.repeat(pyarrow.scalar(partition, kind), count)
    if name == "offset":
        return _from_buffers(kind, count, [None, columns.offsets], 0)
    if name == "timestamp":
        return _from_buffers(
            kind, count, [columns.timestamp_validity, columns.timestamps], columns.timestamp_null_count
        )
    if name == "timestampType":
        return _from_buffers(kind, count, [None, columns.timestamp_types], 0)
    column = {"key": columns.key, "value": columns.value, "headers": columns.headers}[name]
    if column is None:
        raise ValueError(f"the column {name!r} was not decoded: ask `iter_columns` for it")
    if isinstance(column, HeadersColumn):
        return _headers(kind, count, column)
    return _bytes(kind, count, column)


def _bytes(kind: Any, count: int, column: BytesColumn) -> pyarrow.Array:
    return _from_buffers(kind, count, [column.validity, column.offsets, column.data], column.null_count)


def _headers(kind: Any, count: int, column: HeadersColumn) -> pyarrow.Array:
    import pyarrow

    header = kind.value_type
    fields = [
        _bytes(header.field("key").type, column.count, column.keys),
        _bytes(header.field("value").type, column.count, column.values),
    ]
    structs = pyarrow.Array.from_buffers(header, column.count, [None], null_count=0, children=fields)
    buffers = [_buffer(column.validity), _buffer(column.offsets)]
    return pyarrow.Array.from_buffers(kind, count, buffers, null_count=column.null_count, children=[structs])


def _from_buffers(kind: Any, count: int, views: list[memoryview | None], null_count: int) -> pyarrow.Array:
    import pyarrow

    return pyarrow.Array.from_buffers(kind, count, [_buffer(view) for view in views], null_count=null_count)


def _buffer(view: memoryview | None) -> pyarrow.Buffer | None:
    import pyarrow

    return None if view is None else pyarrow.py_buffer(view)
