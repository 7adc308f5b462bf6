"""Topics as tables: what is read, from where to where, in how many tasks, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo

from drmq.model import TopicPartition

from .conftest import Topics

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def error_of(action: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        action()
    return str(raised.value)


def test_every_record_as_it_was_sent(topics: Topics) -> None:
    """All codecs, headers, null and empty keys and values, times: each column of each record."""
    topic = topics.create(retention_ms="-1")
    sent: list[tuple[Any, Any, Any, int]] = []
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": topics.bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(40):
            key = None if number % 5 == 0 else b"" if number % 5 == 1 else f"{codec}-{number}".encode()
            value = None if number % 7 == 0 else b"" if number % 7 == 1 else bytes([number]) * (number * 20)
            headers: Any = [("h", b"x"), ("h", None), ("ü", b"")] if number % 3 == 0 else None
            timestamp = 1_700_000_000_000 + len(sent)
            producer.produce(topic, value, key, 0, timestamp=timestamp, headers=headers)
            sent.append((key, value, headers, timestamp))
        assert producer.flush(90) == 0
    rows = topics.read(topic, includeHeaders=True).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(len(sent)))
    for row, (key, value, headers, timestamp) in zip(rows, sent, strict=True):
        assert (row.key, row.value) == (key, value)
        assert (None if row.headers is None else [(h.key, h.value) for h in row.headers]) == headers
        assert int(row.timestamp.replace(tzinfo=row.timestamp.tzinfo).timestamp() * 1000) == timestamp
        assert (row.topic, row.partition, row.timestampType) == (topic, 0, 0)


def test_broker_time_is_told_apart(topics: Topics) -> None:
    topic = topics.create(message_timestamp_type="LogAppendTime")
    topics.fill(topic, 3)
    assert [row.timestampType for row in topics.read(topic).collect()] == [1, 1, 1]


def test_several_topics_and_patterns(topics: Topics) -> None:
    one, two = topics.create(2), topics.create(3)
    topics.fill(one, 10, 2)
    topics.fill(two, 12, 3)
    both = topics.read(one, subscribe=f"{one},{two}")
    assert {(row.topic, row["count"]) for row in both.groupBy("topic").count().collect()} == {(one, 10), (two, 12)}
    assert topics.read(one, subscribePattern=f"{two[:-1]}.").count() == 22
    assert topics.numbers(two, assign=json.dumps({two: [0, 2]})) == [0, 2, 3, 5, 6, 8, 9, 11]


def test_an_empty_topic_has_no_rows(topics: Topics) -> None:
    assert topics.read(topics.create(2)).collect() == []


def test_between_two_offsets(topics: Topics) -> None:
    """In JSON, with -2 and -1 for the ends that there are."""
    topic = topics.create(2)
    topics.fill(topic, 20, 2)
    start = json.dumps({topic: {"0": 3, "1": -2}})
    end = json.dumps({topic: {"0": 6, "1": -1}})
    found = topics.read(topic, startingOffsets=start, endingOffsets=end).select("partition", "offset").collect()
    assert sorted((row.partition, row.offset) for row in found) == [
        (0, 3),
        (0, 4),
        (0, 5),
        *((1, i) for i in range(10)),
    ]


def test_the_past_by_time(topics: Topics) -> None:
    """A batch between two times: milliseconds, ISO text, and each partition by its own."""
    topic = topics.create()
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    first = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    for hour in range(24):
        producer.produce(topic, str(hour).encode(), timestamp=first + hour * 3_600_000)
    producer.flush()
    iso = {"startingTimestamp": "2026-01-01T10:00:00Z", "endingTimestamp": "2026-01-01T12:00:00Z"}
    assert topics.numbers(topic, **iso) == [10, 11]
    assert topics.numbers(topic, startingTimestamp=first + 1, endingTimestamp=first + 2 * 3_600_000) == [1]
    each = json.dumps({topic: {"0": first + 22 * 3_600_000}})
    assert topics.numbers(topic, startingOffsetsByTimestamp=each) == [22, 23]
    assert topics.numbers(topic, endingOffsetsByTimestamp=json.dumps({topic: {"0": first + 1}})) == [0]
    assert topics.numbers(topic, endingTimestamp="2030-01-01") == list(range(24))
    text = error_of(lambda: topics.numbers(topic, startingTimestamp="2030-01-01"))
    assert "no record of" in text
    assert "startingOffsetsByTimestampStrategy" in text
    late = {"startingTimestamp": "2030-01-01", "startingOffsetsByTimestampStrategy": "latest"}
    assert topics.numbers(topic, **late) == []


def test_more_tasks_than_partitions(topics: Topics) -> None:
    """Each record is read once, however the partitions are split."""
    topic = topics.create(2)
    topics.fill(topic, 1000, 2)
    halves = topics.read(topic, minPartitions=7)
    assert halves.rdd.getNumPartitions() == 7
    assert topics.numbers(topic, minPartitions=7) == list(range(1000))
    small = topics.read(topic, maxRecordsPerPartition=100)
    assert small.rdd.getNumPartitions() == 10
    assert topics.numbers(topic, maxRecordsPerPartition=100) == list(range(1000))


def test_small_fetches_read_everything(topics: Topics) -> None:
    """One batch at a time, many answers, the next request always on its way."""
    topic = topics.create()
    topics.fill(topic, 2000, **{"batch.num.messages": 50})
    assert topics.numbers(topic, fetchBytes=1) == list(range(2000))


def test_only_some_columns(topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, 5)
    frame = topics.read(topic, columns="offset, value")
    assert frame.columns == ["offset", "value"]
    assert [field.nullable for field in frame.schema] == [False, True]
    assert [(row.offset, row.value) for row in frame.collect()] == [(i, str(i).encode()) for i in range(5)]
    assert topics.read(topic, columns="headers").collect()[0].headers is None


def test_a_schema_of_ones_own_is_checked(topics: Topics) -> None:
    """Spark takes any schema for granted, and would read nonsense into it."""
    topic = topics.create()
    topics.fill(topic, 1)
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic}
    reader = topics.spark.read.format("drmq").options(**options)
    assert "`columns`" in error_of(lambda: reader.schema("value string").load().collect())
    typed = topics.spark.read.format("drmq").options(**options, columns="value").schema("value string")
    assert "`value` is string, but must be binary" in error_of(lambda: typed.load().collect())


def test_json_values(topics: Topics) -> None:
    """Parsed by a schema; what cannot be parsed is a row with a reason, and no other row is lost for it."""
    topic = topics.create()
    values = [
        b'{"name": "a", "n": 1, "tags": ["x", "y"], "at": {"lat": 1.5}, "more": 1}',
        b"{",
        None,
        b'{"name": 7}',
        b"null",
        b"{}\n{}",
        b'{"n": 2,\n "name": "\xc3\xbc"}',
        b'"text"',
        b'{"name": "\xff"}',
        b"",
    ]
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for value in values:
        producer.produce(topic, value)
    producer.flush()
    frame = topics.read(
        topic,
        valueFormat="json",
        valueSchema="name string, n int, tags array<string>, at struct<lat: double>",
        columns="value,offset,problem",
        errorColumn="problem",
    )
    rows = {row.offset: row for row in frame.collect()}
    assert len(rows) == len(values)
    first = rows[0].value
    assert (first.name, first.n, first.tags, first["at"].lat) == ("a", 1, ["x", "y"], 1.5)
    assert (rows[6].value.name, rows[6].value.n, rows[6].value.tags) == ("ü", 2, None)
    good = {0, 2, 4, 6}
    assert {offset for offset, row in rows.items() if row.problem is None} == good
    assert all(rows[offset].value is None for offset in rows.keys() - {0, 6})


def test_only_the_errors_of_json_values(topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, 3)
    frame = topics.read(topic, valueFormat="json", valueSchema="n int", columns="_error")
    assert all(row._error for row in frame.collect())


def test_dates_of_json_values(topics: Topics) -> None:
    """As everybody writes them; one that is none is a row with a reason."""
    topic = topics.create()
    values = [{"day": "2026-11-15", "more": [{"until": "2027-01-01"}]}, {"day": "15.11.2026"}, {"day": None}, {}]
    frame = topics.spark.createDataFrame([(json.dumps(value),) for value in values], "value string").coalesce(1)
    frame.write.format("drmq").options(**{"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}).mode(
        "append"
    ).save()
    read = topics.read(topic, valueFormat="json", valueSchema="day date, more array<struct<until: date>>")
    rows = read.selectExpr("cast(value.day AS string) d", "cast(value.more[0].until AS string) u", "_error", "offset")
    found = {row.offset: row for row in rows.collect()}
    assert [(found[offset].d, found[offset].u) for offset in range(4)] == [
        ("2026-11-15", "2027-01-01"),
        (None, None),
        (None, None),
        (None, None),
    ]
    assert [found[offset]._error is None for offset in range(4)] == [True, False, True, True]
    assert "15.11.2026" in found[1]._error


def test_a_filter_before_spark(topics: Topics) -> None:
    """Fewer tasks, fewer rows, and the same as a condition afterwards."""
    topic = topics.create(4)
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for number in range(400):
        stamp = 1_767_225_600_000 + number * 1000
        producer.produce(topic, str(number), f"k{number % 10}", number % 4, timestamp=stamp)
    producer.flush()
    some = topics.read(topic, filter="partition = 2 and offset >= 90 and offset < 95")
    assert some.rdd.getNumPartitions() == 1
    assert sorted(row.offset for row in some.collect()) == [90, 91, 92, 93, 94]
    wanted = [n for n in range(400) if n % 10 in (3, 7) and 100 <= n < 300]
    found = topics.numbers(
        topic,
        filter="key in ('k3', 'k7') and timestamp >= '2026-01-01T00:01:40Z' and timestamp < '2026-01-01T00:05:00Z'",
        columns="value",
    )
    assert found == wanted
    assert topics.numbers(topic, filter="topic = 'other'") == []
    text = error_of(lambda: topics.read(topic, filter="value = 'x'").count())
    assert "`value` is not one of topic, partition, offset, timestamp, key" in text


def test_why_conditions_of_the_query_are_not_pushed_down(topics: Topics) -> None:
    """Spark keeps what it pushed for one query and answers the next one on the same DataFrame with it.

    When this fails, Spark has been mended, and `pushFilters` can be offered.
    """

    # Local classes travel to the workers as they are; those of a test module could not be imported there.
    class Reader(DataSourceReader):
        only: int | None = None

        def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
            for condition in filters:
                if isinstance(condition, EqualTo):
                    self.only = condition.value
                yield condition

        def read(self, partition: Any) -> Iterator[tuple[int]]:
            return iter([(number,) for number in range(10) if self.only in (None, number)])

    class Probe(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushdown-probe"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    topics.spark.dataSource.register(Probe)
    topics.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = topics.spark.read.format("pushdown-probe").load()
        assert frame.count() == 10
        assert frame.where("n = 3").count() == 1
        assert frame.count() == 1, "the right answer is 10"
    finally:
        topics.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# ---- what is refused ---------------------------------------------------------------------------------


def test_wrong_options_are_named(topics: Topics) -> None:
    """Option, value and remedy reach the user through Spark."""
    topic = topics.create()
    text = error_of(lambda: topics.read(topic, subscrib="x", minPartitions="none").count())
    assert "`subscrib` is not an option; perhaps you meant `subscribe`" in text
    assert "`minPartitions` is 'none': allowed is a whole number above 0" in text


def test_a_topic_that_is_not_there(topics: Topics) -> None:
    text = error_of(lambda: topics.read("nowhere").count())
    assert "Topic `nowhere` does not exist" in text
    assert "drmq topic create nowhere" in text


def test_a_broker_that_is_not_there(topics: Topics) -> None:
    """Said at once: nobody waits a minute for a typing error."""
    text = error_of(lambda: topics.read("x", **{"kafka.bootstrap.servers": "127.0.0.1:1"}).count())
    assert "Cannot connect to 127.0.0.1:1" in text


def test_a_partition_that_is_not_named(topics: Topics) -> None:
    topic = topics.create(2)
    text = error_of(lambda: topics.read(topic, startingOffsets=json.dumps({topic: {"0": 0, "9": 0}})).count())
    assert f"does not contain {topic}-1" in text
    assert f"contains {topic}-9" in text
    text = error_of(lambda: topics.read(topic, assign=json.dumps({topic: [5]})).count())
    assert "`assign` contains partition 5" in text


def test_records_that_are_gone(topics: Topics) -> None:
    """By default the query fails and says what is missing; with `failOnDataLoss=false` it takes what is left."""
    topic = topics.create()
    topics.fill(topic, 20)
    with topics.admin() as admin:
        admin.topics.trim({TopicPartition(topic, 0): 12})
    start = json.dumps({topic: {"0": 5}})
    text = error_of(lambda: topics.numbers(topic, startingOffsets=start))
    assert "which has offsets from 12 to 20" in text
    assert topics.numbers(topic, startingOffsets=start, failOnDataLoss=False) == list(range(12, 20))
    assert topics.numbers(topic) == list(range(12, 20))


def test_records_that_go_between_planning_and_reading(topics: Topics) -> None:
    """The plan is made when the DataFrame is; what retention takes after that is noticed by the task."""
    topic = topics.create()
    topics.fill(topic, 20)
    strict, lenient = topics.read(topic), topics.read(topic, failOnDataLoss=False)
    strict.rdd.getNumPartitions()
    lenient.rdd.getNumPartitions()
    with topics.admin() as admin:
        admin.topics.trim({TopicPartition(topic, 0): 12})
    assert "were deleted before they were read" in error_of(strict.rdd.count)
    assert lenient.rdd.count() == 8
