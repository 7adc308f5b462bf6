"""DataFrames to topics: what arrives, where, and what is refused before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka.partitioner import murmur2
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException

from .conftest import QUERY_TIMEOUT_S, Topics


def written(topics: Topics, topic: str, count: int) -> list[Any]:
    """Every record of a topic, by a client that is not ours."""
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "none", "auto.offset.reset": "earliest"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count, 10)
        assert messages, f"{len(found)} of {count} records"
        found += messages
    assert consumer.consume(1, 0.3) == []
    consumer.close()
    return found


def save(frame: Any, topics: Topics, **options: Any) -> None:
    chosen = {"kafka.bootstrap.servers": topics.bootstrap, **options}
    frame.write.format("drmq").options(**chosen).mode("append").save()


def test_every_column_arrives(topics: Topics) -> None:
    """Key, value, headers and partition of each row; nulls too."""
    topic = topics.create(3)
    rows: list[tuple[Any, Any, Any, int]] = [
        (b"k1", b"v1", [("h", b"1"), ("h", None)], 2),
        (None, b"v2", None, 0),
        (b"k3", None, [], 1),
        (b"", b"", [("ü", b"\x00")], 2),
    ]
    schema = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int"
    save(topics.spark.createDataFrame(rows, schema).coalesce(1), topics, topic=topic)
    found = {
        (message.key(), message.value(), tuple(message.headers() or ()), message.partition())
        for message in written(topics, topic, 4)
    }
    assert found == {(key, value, tuple(headers or ()), partition) for key, value, headers, partition in rows}


def test_a_partition_for_each_row(topics: Topics) -> None:
    """Without headers too; a null leaves the choice to the key."""
    topic = topics.create(4)
    frame = topics.spark.range(40).selectExpr("cast(id as string) value", "cast(id % 3 as int) partition")
    save(frame, topics, topic=topic)
    assert all(int(message.value()) % 3 == message.partition() for message in written(topics, topic, 40))


def test_a_topic_for_each_row(topics: Topics) -> None:
    """A column `topic` routes; the option `topic` counts before it. Text becomes UTF-8; other columns are left out."""
    one, two, three = topics.create(), topics.create(), topics.create()
    frame = topics.spark.createDataFrame(
        [(one, "ä", 1), (two, "b", 2), (two, "c", 3)], "topic string, value string, n int"
    )
    save(frame, topics)
    assert [message.value() for message in written(topics, one, 1)] == ["ä".encode()]
    assert sorted(message.value() for message in written(topics, two, 2)) == [b"b", b"c"]
    save(frame, topics, topic=three)
    assert len(written(topics, three, 3)) == 3


def test_keys_go_where_kafka_sends_them(topics: Topics) -> None:
    """Java clients and we agree on the partition of a key, or a keyed topic written by both would be torn apart."""
    topic = topics.create(7)
    frame = topics.spark.range(500).selectExpr("concat('key-', id) key", "cast(id as string) value")
    save(frame, topics, topic=topic)
    for message in written(topics, topic, 500):
        assert message.partition() == (murmur2(message.key()) & 0x7FFFFFFF) % 7


def test_what_was_read_can_be_written(topics: Topics) -> None:
    """Topic to topic, with all columns of the source, in more than one chunk."""
    source, target = topics.create(2), topics.create(2)
    topics.fill(source, 5000, 2)
    save(topics.read(source, includeHeaders=True), topics, topic=target)
    assert topics.numbers(target) == list(range(5000))
    by_partition = topics.read(target).groupBy("partition").count().collect()
    assert sorted((row.partition, row["count"]) for row in by_partition) == [(0, 2500), (1, 2500)]


def test_a_stream_from_topic_to_topic(topics: Topics, tmp_path: Path) -> None:
    """Twice the same query with one checkpoint: each record once, if nothing fails."""
    source, target = topics.create(2), topics.create(2)
    for start in (0, 300):
        topics.fill(source, 300, 2, start=start)
        stream = topics.stream(source, maxOffsetsPerTrigger=100).selectExpr("value", "key")
        query = (
            stream.writeStream.format("drmq")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert topics.numbers(target) == list(range(600))


def test_complete_mode_writes_the_whole_result(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(), topics.create()
    topics.fill(source, 10)
    counted = topics.stream(source).groupBy("topic").count().selectExpr("to_json(struct(*)) value")
    query = (
        counted.writeStream.format("drmq")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert [json.loads(message.value()) for message in written(topics, target, 1)] == [{"topic": source, "count": 10}]


# ---- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("1 AS n", {"topic": "x"}, r"no column `value`, only n.*to_json\(struct\(\*\)\)"),
        ("'a' AS value", {}, "Set the option `topic`, or add a column `topic`"),
        (
            "1 AS value",
            {"topic": "x"},
            r"Column `value` is int, but must be string or binary. Convert it with `cast\(value AS string\)`",
        ),
        ("struct(1) AS value", {"topic": "x"}, r"Convert it with `to_json\(value\)`"),
        ("'a' AS value, '0' AS partition", {"topic": "x"}, "Column `partition` is string, but must be int"),
        ("'a' AS value, 'h' AS headers", {"topic": "x"}, "Column `headers` is string, but must be array"),
        ("'a' AS value", {"topic": "x", "subscribe": "y"}, "`subscribe` applies to reading only"),
        ("'a' AS value", {"topic": "x", "kafka.linger": "1"}, "librdkafka"),
        ("'a' AS value, cast(null AS string) AS topic", {}, "null in the column `topic`"),
        ("'a' AS value, 99 AS partition", {"topic": "EXISTS"}, "(?i)partition"),
    ],
)
def test_a_write_that_cannot_be_right(topics: Topics, columns: str, options: dict[str, str], words: str) -> None:
    """Named before anything is sent, or by the broker's client, with the remedy."""
    if options.get("topic") == "EXISTS":
        options = {**options, "topic": topics.create(), "timeoutMs": "20000"}
    frame = topics.spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException, match=f"(?s){words}"):
        save(frame, topics, **options)


def test_a_topic_cannot_be_overwritten(topics: Topics) -> None:
    frame = topics.spark.range(1).selectExpr("'a' AS value")
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": "x"}
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.write.format("drmq").options(**options).mode("overwrite").save()
    # Without a mode Spark itself refuses, and names the one to use.
    with pytest.raises(PySparkException, match="Append"):
        frame.write.format("drmq").options(**options).save()
