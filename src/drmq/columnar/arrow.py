"""Pieces as pyarrow record batches, in the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drmq.columnar import Columns

NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def schema(include_headers: bool, names: Sequence[str] | None = None) -> Any:
    """The Arrow schema of `record_batch`."""
    import pyarrow as pa

    fields = {
        "key": pa.field("key", pa.binary()),
        "value": pa.field("value", pa.binary()),
        "topic": pa.field("topic", pa.string(), nullable=False),
        "partition": pa.field("partition", pa.int32(), nullable=False),
        "offset": pa.field("offset", pa.int64(), nullable=False),
        "timestamp": pa.field("timestamp", pa.timestamp("us", "UTC")),
        "timestampType": pa.field("timestampType", pa.int32()),
        "headers": pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
    wanted = names if names is not None else NAMES if include_headers else NAMES[:-1]
    return pa.schema([fields[name] for name in wanted])


def record_batch(columns: Columns, *, topic: str, partition: int, names: Sequence[str] | None = None) -> Any:
    """The piece with the columns that `names` picks, in their order."""
    import pyarrow as pa

    count = columns.row_count
    form = schema(columns.headers_list is not None, names)
    headers = [
        None if row is None else [{"key": key, "value": value} for key, value in row]
        for row in columns.headers_list or []
    ]
    values: dict[str, Any] = {
        "key": columns.key_list,
        "value": columns.value_list,
        "topic": [topic] * count,
        "partition": [partition] * count,
        "offset": columns.offset_list,
        "timestamp": columns.timestamp_list,
        "timestampType": columns.timestamp_type_list,
        "headers": headers,
    }
    arrays = [pa.array(values[column.name], column.type) for column in form]
    return pa.RecordBatch.from_arrays(arrays, schema=form)
