"""The guide's page on Spark: examples as they stand there, and what it says that no other test shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from drmq.spark.filters import parse_filter

from .conftest import QUERY_TIMEOUT_S, Topics

PAGE = (Path(__file__).parents[2] / "docs/guide/spark.md").read_text()


def example(beginning: str) -> str:
    """The example of the page that begins like this; its broker is the one of the tests."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(beginning)]
    return str(found)


@pytest.fixture
def page_topics(topics: Topics) -> Iterator[Topics]:
    """The topics that the page uses by name, which exist for the time of one test."""
    for name in ("orders", "totals", "flights"):
        topics.create(4, name=name)
    yield topics
    with topics.admin() as admin:
        for name in ("orders", "totals", "flights"):
            admin.topics.delete(name)


def send(topics: Topics, topic: str, records: list[tuple[str | None, str]], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for key, value in records:
        producer.produce(topic, value, key, **more)
    assert producer.flush(30) == 0


# ---- examples ----------------------------------------------------------------------------------------


def test_the_examples_of_the_past_and_of_json(page_topics: Topics, spark: Any) -> None:
    """One day of a topic, and fields of values beside the reason why there are none."""
    for day in (13, 14, 15):
        moment = int(datetime(2026, 11, day, 12, tzinfo=UTC).timestamp() * 1000)
        send(page_topics, "orders", [(None, str(day))], partition=0, timestamp=moment)
    run: dict[str, Any] = {"spark": spark}
    exec(example("yesterday").replace("localhost:9092", page_topics.bootstrap), run)
    assert [bytes(row.value) for row in run["yesterday"].collect()] == [b"14"]

    exec(example("flights").replace("localhost:9092", page_topics.bootstrap), run)
    assert run["flights"].isStreaming
    assert run["flights"].dtypes == [("origin", "string"), ("dep_delay", "int"), ("_error", "string")]


def test_filter_and_columns_of_the_page() -> None:
    """The condition that the page shows is understood as it stands there."""
    (condition,) = re.findall(r"- `filter` = `(.*?)`", PAGE)
    parsed = parse_filter(condition)
    assert parsed.keys == frozenset({b"DL"})
    assert parsed.time_ms_min == int(datetime(2026, 11, 1, tzinfo=UTC).timestamp() * 1000)


# ---- claims ------------------------------------------------------------------------------------------


def test_a_batch_read_is_a_snapshot(topics: Topics) -> None:
    """Where it ends is decided when it is first used, and stays so."""
    topic = topics.create()
    topics.fill(topic, 10)
    frame = topics.read(topic)
    topics.fill(topic, 5, start=10)
    assert frame.count() == 15
    topics.fill(topic, 5, start=15)
    assert frame.count() == 15
    assert topics.read(topic).count() == 20


def test_spark_demands_the_mode_of_a_write(topics: Topics) -> None:
    """Without it Spark plans to refuse what is there, which a Python sink cannot do."""
    topic = topics.create()
    frame = topics.spark.createDataFrame([("a",)], "value string")
    writer = frame.write.format("drmq").options(**{"kafka.bootstrap.servers": topics.bootstrap, "topic": topic})
    with pytest.raises(PySparkException, match=r"(?i)mode|append"):
        writer.save()
    writer.mode("append").save()
    assert topics.read(topic).count() == 1


def test_the_error_is_above_the_last_line(topics: Topics) -> None:
    """Below all else that Spark says: which option, which value, what is wrong with it."""
    topic = topics.create()
    with pytest.raises(PySparkException) as raised:
        topics.read(topic, startingOffsets="newest").collect()
    lines = [line for line in str(raised.value).splitlines() if line.strip()]
    assert lines[-1].strip().startswith("SQLSTATE")
    assert "`startingOffsets` is 'newest'" in lines[-2]


def test_update_mode_through_for_each_batch(topics: Topics, tmp_path: Path) -> None:
    """The way out that the page names: each micro-batch of changed rows, written as a batch."""
    source, target = topics.create(), topics.create()
    topics.fill(source, 10)

    def write(frame: Any, batch_id: int) -> None:
        options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": target}
        frame.write.format("drmq").options(**options).mode("append").save()

    counted = topics.stream(source).groupBy("partition").count().selectExpr("cast(count as string) value")
    for total in (10, 25):
        query = (
            counted.writeStream.foreachBatch(write)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "update"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        assert topics.numbers(target)[-1] == total
        topics.fill(source, 15, start=10)
