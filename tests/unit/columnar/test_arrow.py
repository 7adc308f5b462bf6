"""Columns as Arrow: valid, without a copy, and in the shape of Spark's Kafka source."""

from __future__ import annotations

import gc
from datetime import UTC, datetime

import pytest

from drmq.columnar import decode, iter_columns
from drmq.columnar.arrow import NAMES, record_batch, schema
from drmq.columnar.outcome import Builder
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch
from support.columnar import INT64_MAX, SIZE_MAX, plain_record, simple_batch, with_body

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow comes with drmq[spark]")

RECORDS = [
    Record(Offset(0), 1_700_000_000_123, b"k", b"v", (("a", b"1"), ("größe", None))),
    Record(Offset(1), -1, None, b"", ()),
    Record(Offset(4), INT64_MAX // 2, b"", None, (("", b""),)),
]


def test_schema() -> None:
    """Spark refuses a first batch whose order, types or nullability differ from these."""
    assert str(schema(include_headers=True)).splitlines()[:8] == [
        "key: binary",
        "value: binary",
        "topic: string not null",
        "partition: int32 not null",
        "offset: int64 not null",
        "timestamp: timestamp[us, tz=UTC]",
        "timestampType: int32",
        "headers: list<item: struct<key: string, value: binary>>",
    ]
    assert schema().names == list(NAMES[:-1])
    assert schema(names=["offset", "key"]).names == ["offset", "key"]


@pytest.mark.parametrize("codec", Codec)
def test_content(builder: type[Builder], codec: Codec) -> None:
    columns = decode(
        encode_batch(RECORDS, codec=codec),
        start_offset=0,
        end_offset=10,
        decompressed_size_max=SIZE_MAX,
        include_headers=True,
        builder=builder,
    )
    batch = record_batch(columns, topic="orders", partition=3)
    batch.validate(full=True)
    assert batch.schema.equals(schema(include_headers=True))
    same = {"topic": "orders", "partition": 3, "timestampType": 0}
    assert batch.to_pylist() == [
        same
        | {
            "key": b"k",
            "value": b"v",
            "offset": 0,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
            "headers": [{"key": "a", "value": b"1"}, {"key": "größe", "value": None}],
        },
        same
        | {
            "key": None,
            "value": b"",
            "offset": 1,
            "timestamp": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
            "headers": None,
        },
        same | {"key": b"", "value": None, "offset": 4, "timestamp": None, "headers": [{"key": "", "value": b""}]},
    ]


def test_no_rows(builder: type[Builder]) -> None:
    for include_headers in (False, True):
        columns = decode(
            b"",
            start_offset=5,
            end_offset=10,
            decompressed_size_max=0,
            include_headers=include_headers,
            builder=builder,
        )
        batch = record_batch(columns, topic="t", partition=0)
        batch.validate(full=True)
        assert (batch.num_rows, batch.schema) == (0, schema(include_headers=include_headers))


def test_names_that_are_not_utf8_are_safe(builder: type[Builder]) -> None:
    """Arrow trusts a string to be UTF-8, and a producer may have sent anything."""
    batch = with_body(plain_record(headers=[(b"\xff\xfe", b"x"), (b"ok", None)]), 1)
    columns = decode(
        batch, start_offset=0, end_offset=1, decompressed_size_max=0, include_headers=True, builder=builder
    )
    arrow = record_batch(columns, topic="t", partition=0)
    arrow.validate(full=True)
    assert arrow["headers"].to_pylist() == [[{"key": "\ufffd\ufffd", "value": b"x"}, {"key": "ok", "value": None}]]


def test_nothing_is_copied(builder: type[Builder]) -> None:
    columns = decode(simple_batch(0, 1000), start_offset=0, end_offset=10_000, decompressed_size_max=0, builder=builder)
    batch = record_batch(columns, topic="t", partition=0)
    assert columns.value is not None
    assert batch["value"].buffers()[2].address == pyarrow.py_buffer(columns.value.data).address
    assert batch["offset"].buffers()[1].address == pyarrow.py_buffer(columns.offsets).address


def test_batches_outlive_their_columns(builder: type[Builder]) -> None:
    """Spark holds a batch while the next one is made; many are made, so freed memory would be reused."""
    log = simple_batch(0, 5000)
    batches = [
        record_batch(columns, topic="t", partition=0)
        for columns in iter_columns(
            log, start_offset=0, end_offset=10_000, decompressed_size_max=0, rows_max=50, builder=builder
        )
    ]
    gc.collect()
    table = pyarrow.Table.from_batches(batches)
    table.validate(full=True)
    assert table["offset"].to_pylist() == list(range(5000))
    assert table["value"].to_pylist() == [b"v%d" % n for n in range(5000)]


def test_columns_are_picked(builder: type[Builder]) -> None:
    columns = decode(
        simple_batch(0),
        start_offset=0,
        end_offset=3,
        decompressed_size_max=0,
        want_key=False,
        builder=builder,
    )
    batch = record_batch(columns, topic="t", partition=0, names=["value", "offset"])
    assert batch.to_pydict() == {"value": [b"v0", b"v1", b"v2"], "offset": [0, 1, 2]}
    for name in ("key", "headers"):
        with pytest.raises(ValueError, match=f"'{name}' was not decoded"):
            record_batch(columns, topic="t", partition=0, names=[name])
    with pytest.raises(ValueError, match="no column 'keys': there are key, value"):
        record_batch(columns, topic="t", partition=0, names=["keys"])
