"""A broker that is killed while a query reads or writes: the query goes on, and no record is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import drmq.testing
from drmq.client import NewTopic
from drmq.model import topic_id_text
from drmq.records import iter_batches
from drmq.spark.fetching import Fetcher
from drmq.spark.offsets import Range
from support.processes import BrokerProcess

from .conftest import QUERY_TIMEOUT_S, Collected, Topics

COUNT = 20_000


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as started:
        yield started


@pytest.fixture
def own_topics(spark: Any, process: BrokerProcess) -> Topics:
    return Topics(spark, process.bootstrap, "crash")


def start_after(process: BrokerProcess, delay_s: float) -> threading.Thread:
    """Start a dead broker again after a while, beside whatever the test does."""

    def run() -> None:
        time.sleep(delay_s)
        process.start().wait_ready()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_killed_while_a_stream_reads(
    own_topics: Topics, process: BrokerProcess, collect: Callable[..., Collected]
) -> None:
    """Planner and workers wait for the broker and find it again; every record arrives once."""
    topic = own_topics.create(2)
    own_topics.fill(topic, COUNT, 2)
    stream = own_topics.stream(topic, maxOffsetsPerTrigger=COUNT // 10).selectExpr("cast(value as string) value")
    found = collect(stream, available_now=False)
    found.wait_until(lambda: len(found.rows) >= COUNT // 5)
    process.kill()
    time.sleep(1.0)
    process.start().wait_ready()
    found.wait_until(lambda: len(found.rows) >= COUNT)
    assert found.numbers == list(range(COUNT))


def test_killed_in_the_middle_of_a_task(own_topics: Topics, process: BrokerProcess) -> None:
    """With an answer half worked on and the next request on its way: the task goes on where it was."""
    topic = own_topics.create(1)
    own_topics.fill(topic, COUNT, **{"batch.num.messages": 20})
    with own_topics.admin() as admin:
        topic_id = topic_id_text(admin.topics.describe(topic).topic_id)
    fetcher = Fetcher(own_topics.bootstrap, client_id="test", timeout_s=30, read_committed=True, fetch_bytes=1)
    offsets: list[int] = []
    answers = fetcher.read(Range(topic, topic_id, 0, 0, COUNT), fail_on_data_loss=True)
    crash: threading.Thread | None = None
    for number, fetched in enumerate(answers):
        if number == 10:
            process.kill()
            crash = start_after(process, 1.0)
        for _, header in iter_batches(fetched.records):
            offsets += range(header.base_offset, header.base_offset + header.last_offset_delta + 1)
    fetcher.close()
    assert crash is not None
    crash.join()
    assert offsets == list(range(COUNT))


def test_killed_while_a_stream_writes(own_topics: Topics, process: BrokerProcess, tmp_path: Path) -> None:
    """At least once: all records are there; those that Spark had to send again may be there twice."""
    source, target = own_topics.create(2), own_topics.create(2)
    own_topics.fill(source, COUNT, 2)
    stream = own_topics.stream(source, maxOffsetsPerTrigger=COUNT // 20).select("key", "value")
    query = (
        stream.writeStream.format("drmq")
        .option("kafka.bootstrap.servers", own_topics.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_for_rows(query, COUNT // 5)
        process.kill()
        crash = start_after(process, 1.0)
        wait_for_rows(query, COUNT)
        crash.join()
    finally:
        query.stop()
    found = own_topics.numbers(target)
    assert set(found) == set(range(COUNT))


def test_leaders_move_while_a_stream_goes_from_topic_to_topic(spark: Any, tmp_path: Path) -> None:
    """A cluster of three: the leader of a partition dies, comes back, and the next one is stopped in order."""
    count = 6_000
    with drmq.testing.cluster(nodes=3) as nodes:
        topics = Topics(spark, nodes.bootstrap_servers, "moves")
        source, target = "moves-source", "moves-target"
        with topics.admin() as admin:
            for name in (source, target):
                admin.topics.create(NewTopic(name, partitions=2, replication_factor=3))
        topics.fill(source, count // 2, 2)
        query = (
            topics.stream(source, maxOffsetsPerTrigger=count // 6)
            .select("value")
            .writeStream.format("drmq")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            wait_for_rows(query, count // 6)
            first = nodes.leader(source, 0)
            nodes.kill(first)
            topics.fill(source, count // 2, 2, start=count // 2)
            wait_for_rows(query, count // 2)
            nodes.start(first)
            nodes.stop_node(nodes.leader(source, 1))
            wait_for_rows(query, count)
        finally:
            query.stop()
        assert set(topics.numbers(target)) == set(range(count))


def wait_for_rows(query: Any, count: int) -> None:
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while sum(progress.numInputRows for progress in query.recentProgress) < count:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.1)
