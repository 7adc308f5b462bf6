"""Topics as streams: ends, limits, growth, replays, topics that change, and what others see of the progress."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException, StreamingQueryException

from drmq.model import TopicPartition
from drmq.spark.offsets import from_json

from .conftest import QUERY_TIMEOUT_S, Collected, Topics

Collect = Callable[..., Collected]


def failure_of(collected: Collected) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        collected.query.awaitTermination(QUERY_TIMEOUT_S)
    return str(raised.value)


def values(stream: Any) -> Any:
    return stream.selectExpr("cast(value as string) value", "partition", "offset")


def test_available_now_ends_and_goes_on_where_it_was(topics: Topics, collect: Collect) -> None:
    """Everything that was there at the start, once; a second run reads what came since, a third one nothing."""
    topic = topics.create(3)
    topics.fill(topic, 100, 3)
    assert collect(values(topics.stream(topic))).finish().numbers == list(range(100))
    topics.fill(topic, 50, 3, start=100)
    assert collect(values(topics.stream(topic))).finish().numbers == list(range(100, 150))
    assert collect(values(topics.stream(topic))).finish().rows == []


def test_the_limit_of_rows_holds(topics: Topics, collect: Collect) -> None:
    """Also under `availableNow`; and no partition waits for another."""
    topic = topics.create(3)
    topics.fill(topic, 100, 3)
    found = collect(values(topics.stream(topic, maxOffsetsPerTrigger=30))).finish()
    assert found.sizes == [30, 30, 30, 10]
    assert found.numbers == list(range(100))
    assert {row.partition for row in found.batches[0]} == {0, 1, 2}


def test_the_limit_of_bytes_holds(topics: Topics, collect: Collect) -> None:
    """By the average size on the broker's disk: equal records give equal batches, a little apart."""
    topic = topics.create()
    topics.fill(topic, 100, **{"linger.ms": 0, "batch.num.messages": 1})
    with topics.admin() as admin:
        size = max(log_dir.sizes[TopicPartition(topic, 0)] for log_dir in admin.log_dirs())
    found = collect(values(topics.stream(topic, maxBytesPerTrigger=size // 4))).finish()
    assert found.numbers == list(range(100))
    assert max(found.sizes) <= 25
    assert len(found.sizes) in (4, 5)


def test_the_limit_of_bytes_holds_where_records_become_larger(topics: Topics, collect: Collect) -> None:
    """By the average alone, a micro-batch of the large ones would have several times the limit."""
    topic, limit = topics.create(), 200_000
    topics.fill(topic, 300, **{"linger.ms": 0, "batch.num.messages": 1})
    producer = Producer({"bootstrap.servers": topics.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(300, 360):
        producer.produce(topic, str(number).rjust(20_000).encode())
        producer.poll(0)
    assert producer.flush(90) == 0
    found = collect(values(topics.stream(topic, maxBytesPerTrigger=limit))).finish()
    assert found.numbers == list(range(360))
    batches = [sum(len(row.value) for row in rows) for rows in found.batches.values()]
    assert max(batches) <= limit
    # And not far below it: small records are not read one by one for fear of the large ones.
    assert len(found.sizes) <= 25


def test_a_running_stream_sees_new_records_and_new_partitions(topics: Topics, collect: Collect) -> None:
    """A partition that is added while the query runs is read from its beginning, without a restart."""
    topic = topics.create(1)
    topics.fill(topic, 10)
    found = collect(values(topics.stream(topic)), available_now=False)
    found.wait_until(lambda: found.numbers == list(range(10)))
    with topics.admin() as admin:
        admin.topics.add_partitions(topic, 3)
    topics.fill(topic, 20, 3, start=10)
    found.wait_until(lambda: found.numbers == list(range(30)))
    assert {row.partition for row in found.rows} == {0, 1, 2}


def test_a_pattern_finds_topics_that_are_created_later(topics: Topics, collect: Collect) -> None:
    prefix = topics.create()
    topics.fill(prefix, 5)
    found = collect(values(topics.stream(prefix, subscribePattern=f"{prefix}.*")), available_now=False)
    found.wait_until(lambda: len(found.rows) == 5)
    later = topics.create(name=f"{prefix}-later")
    topics.fill(later, 5, start=5)
    found.wait_until(lambda: found.numbers == list(range(10)))


def test_latest_begins_at_the_end(topics: Topics, collect: Collect) -> None:
    topic = topics.create()
    topics.fill(topic, 10)
    found = collect(values(topics.stream(topic, startingOffsets="latest")), available_now=False)
    found.wait_until(lambda: found.query.lastProgress is not None)
    topics.fill(topic, 5, start=10)
    found.wait_until(lambda: found.numbers == list(range(10, 15)))


def test_a_stream_begins_at_a_time(topics: Topics, collect: Collect) -> None:
    """For all partitions, or for each its own; where no record is that new, at the end if so asked."""
    topic = topics.create(2, retention_ms="-1")
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for number in range(20):
        producer.produce(topic, str(number), partition=number % 2, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(90) == 0
    since = topics.stream(topic, startingTimestamp="2023-11-14T22:13:35Z")
    assert collect(values(since), checkpoint="since").finish().numbers == list(range(15, 20))
    times = json.dumps({topic: {"0": 1_700_000_016_000, "1": 1_800_000_000_000}})
    options = {"startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "latest"}
    assert collect(values(topics.stream(topic, **options)), checkpoint="each").finish().numbers == [16, 18]


def test_a_batch_that_runs_again_reads_the_same(topics: Topics, collect: Collect, tmp_path: Path) -> None:
    """Without its mark of completion, the last batch is planned from the logged offsets alone.

    By then there are more records and more partitions, and neither may show.
    """
    topic = topics.create(2)
    topics.fill(topic, 40, 2)
    first = collect(values(topics.stream(topic, maxOffsetsPerTrigger=15, minPartitions=5))).finish()
    last = max(first.batches)
    (tmp_path / "checkpoint" / "commits" / str(last)).unlink()
    for leftover in (tmp_path / "checkpoint" / "commits").glob(f".{last}*"):
        leftover.unlink()
    topics.fill(topic, 20, 2, start=40)
    with topics.admin() as admin:
        admin.topics.add_partitions(topic, 3)
    again = collect(values(topics.stream(topic, maxOffsetsPerTrigger=15, minPartitions=5))).finish()
    assert sorted(again.batches[last]) == sorted(first.batches[last])
    rest = [int(row.value) for batch_id, rows in again.batches.items() if batch_id != last for row in rows]
    assert sorted(rest) == list(range(40, 60))


def test_a_first_batch_that_runs_again_misses_what_was_deleted(
    topics: Topics, collect: Collect, tmp_path: Path
) -> None:
    """Where it began is not in Spark's log. It must not begin later the second time, without a word about the rest."""
    topic = topics.create()
    topics.fill(topic, 10)
    assert collect(values(topics.stream(topic))).finish().sizes == [10]
    commits = tmp_path / "checkpoint" / "commits"
    for leftover in [commits / "0", *commits.glob(".0*")]:
        leftover.unlink()
    with topics.admin() as admin:
        admin.topics.trim({TopicPartition(topic, 0): 6})
    assert "Offsets 0 to 5" in failure_of(collect(values(topics.stream(topic))))


def test_an_idle_stream_logs_nothing(topics: Topics, collect: Collect, tmp_path: Path) -> None:
    """Positions with nothing new are the same text, or Spark would run an empty batch each time."""
    topic = topics.create(3)
    topics.fill(topic, 9, 3)
    found = collect(values(topics.stream(topic)), available_now=False)
    found.wait_until(lambda: len(found.rows) == 9)
    time.sleep(2)
    assert list(found.batches) == [0]
    logged = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    assert from_json(json.loads(logged)).offsets == {TopicPartition(topic, p): 3 for p in range(3)}


def test_a_wait_for_more(topics: Topics, collect: Collect) -> None:
    """`minOffsetsPerTrigger` holds a batch back until there is enough, or the delay is over."""
    topic = topics.create()
    topics.fill(topic, 20)
    options = {"minOffsetsPerTrigger": 15, "maxTriggerDelay": "1h"}
    found = collect(values(topics.stream(topic, **options)), available_now=False)
    found.wait_until(lambda: len(found.rows) == 20)
    topics.fill(topic, 10, start=20)
    time.sleep(2)
    assert found.sizes == [20]
    # In one batch: fifteen of the twenty would be enough.
    topics.fill(topic, 10, start=30, **{"linger.ms": 5000})
    found.wait_until(lambda: found.sizes == [20, 20])


def test_once_does_not_wait_for_more(topics: Topics, collect: Collect) -> None:
    topic = topics.create()
    topics.fill(topic, 20)
    found = collect(values(topics.stream(topic, minOffsetsPerTrigger=1000)), once=True).finish()
    assert found.sizes == [20]


def test_a_delay_that_is_over(topics: Topics, collect: Collect) -> None:
    topic = topics.create()
    topics.fill(topic, 20)
    options = {"minOffsetsPerTrigger": 1000, "maxTriggerDelay": "1s"}
    found = collect(values(topics.stream(topic, **options)), available_now=False)
    found.wait_until(lambda: found.sizes == [20])


# ---- what others see ---------------------------------------------------------------------------------


def test_the_lag_of_a_query_is_visible(topics: Topics, collect: Collect) -> None:
    """`groupId` publishes progress, also that of the last batch of an `availableNow` run, and never joins the group."""
    topic = topics.create(2)
    topics.fill(topic, 20, 2)
    collect(values(topics.stream(topic, groupId=f"{topic}-group", maxOffsetsPerTrigger=8))).finish()
    topics.fill(topic, 4, 2, start=20)
    with topics.admin() as admin:
        committed = admin.groups.offsets(f"{topic}-group")
        assert {place.partition: at.offset for place, at in committed.items()} == {0: 10, 1: 10}
        assert admin.groups.describe(f"{topic}-group").members == ()


def test_progress_names_the_end_of_the_topic(topics: Topics, collect: Collect) -> None:
    """Spark's own progress shows how far the query is behind."""
    topic = topics.create()
    topics.fill(topic, 30)
    found = collect(values(topics.stream(topic, maxOffsetsPerTrigger=10))).finish()
    source = found.query.recentProgress[0].sources[0]
    assert from_json(json.loads(source.endOffset)).offsets == {TopicPartition(topic, 0): 10}
    assert from_json(json.loads(source.latestOffset)).offsets == {TopicPartition(topic, 0): 30}


# ---- topics that change ------------------------------------------------------------------------------


def recreate(topics: Topics, topic: str) -> None:
    with topics.admin() as admin:
        admin.topics.delete(topic)
    topics.create(1, name=topic)


def test_a_recreated_topic_fails_the_query(topics: Topics, collect: Collect) -> None:
    """Even one that is longer by now than what was read: offsets alone would not show it."""
    topic = topics.create()
    topics.fill(topic, 10)
    collect(values(topics.stream(topic))).finish()
    recreate(topics, topic)
    topics.fill(topic, 30)
    text = failure_of(collect(values(topics.stream(topic))))
    assert "was deleted and created again" in text
    assert "onTopicRecreated" in text


def test_a_recreated_topic_is_read_from_its_beginning(topics: Topics, collect: Collect) -> None:
    topic = topics.create()
    topics.fill(topic, 10)
    collect(values(topics.stream(topic))).finish()
    recreate(topics, topic)
    topics.fill(topic, 5, start=100)
    options = {"onTopicRecreated": "earliest"}
    assert collect(values(topics.stream(topic, **options))).finish().numbers == list(range(100, 105))
    topics.fill(topic, 5, start=105)
    assert collect(values(topics.stream(topic, **options))).finish().numbers == list(range(105, 110))


def test_a_topic_that_is_recreated_in_the_middle_of_a_batch(topics: Topics, collect: Collect, tmp_path: Path) -> None:
    """The batch is logged and cannot be read any more. The option that the error names gets the query over it."""
    topic = topics.create()
    topics.fill(topic, 10)
    collect(values(topics.stream(topic))).finish()
    commits = tmp_path / "checkpoint" / "commits"
    for leftover in [commits / "0", *commits.glob(".0*")]:
        leftover.unlink()
    with topics.admin() as admin:
        admin.topics.delete(topic)
    topics.create(name=topic)
    topics.fill(topic, 3, start=10)
    assert "`onTopicRecreated` to earliest" in failure_of(collect(values(topics.stream(topic))))
    found = collect(values(topics.stream(topic, onTopicRecreated="earliest"))).finish()
    assert found.numbers == [10, 11, 12]


def test_a_deleted_topic(topics: Topics, collect: Collect) -> None:
    """Fails the query, or is left out with `failOnDataLoss=false` while others are read on."""
    gone, stays = topics.create(), topics.create()
    both = f"{gone},{stays}"
    topics.fill(gone, 5)
    topics.fill(stays, 5, start=5)
    collect(values(topics.stream("", subscribe=both))).finish()
    with topics.admin() as admin:
        admin.topics.delete(gone)
    topics.fill(stays, 5, start=10)
    assert f"Topic `{gone}` does not exist" in failure_of(collect(values(topics.stream("", subscribe=both))))
    pattern = {"subscribePattern": f"{gone}|{stays}", "failOnDataLoss": False}
    found = collect(values(topics.stream("", **pattern))).finish()
    assert found.numbers == list(range(10, 15))


def test_records_that_were_deleted_before_they_were_read(topics: Topics, collect: Collect) -> None:
    topic = topics.create()
    topics.fill(topic, 5)
    collect(values(topics.stream(topic))).finish()
    topics.fill(topic, 20, start=5)
    with topics.admin() as admin:
        admin.topics.trim({TopicPartition(topic, 0): 15})
    text = failure_of(collect(values(topics.stream(topic))))
    assert "Offsets 5 to 14" in text
    assert "failOnDataLoss" in text
    found = collect(values(topics.stream(topic, failOnDataLoss=False))).finish()
    assert found.numbers == list(range(15, 25))


# ---- what is refused ---------------------------------------------------------------------------------


def test_a_stream_has_no_end(topics: Topics, collect: Collect) -> None:
    topic = topics.create()
    with pytest.raises(PySparkException, match="applies to batches only; a stream has no end"):
        collect(values(topics.stream(topic, endingOffsets="latest"))).finish()


def test_update_mode_says_what_to_do(topics: Topics, tmp_path: Path) -> None:
    """Spark refuses it for every Python sink, in the first batch; the text names the mode."""
    topic, out = topics.create(), topics.create()
    topics.fill(topic, 5)
    counted = topics.stream(topic).groupBy("partition").count().selectExpr("cast(count as string) value")
    query = (
        counted.writeStream.format("drmq")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", out)
        .option("checkpointLocation", str(tmp_path / "update"))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="update"):
        query.awaitTermination(QUERY_TIMEOUT_S)
