"""What producers have sent and a majority does not have yet is counted, and bounded: more stays in their sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from drmq.broker import BrokerOptions
from drmq.model import ErrorCode
from drmq.transport import Pause
from drmq.wire import ApiKey, write_request
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from support.batches import a_batch
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness

VALUE = b"x" * 1000
SIZE = len(a_batch([VALUE]))


@pytest.fixture
def harness() -> Iterator[Harness]:
    with Harness(options=BrokerOptions(uncommitted_bytes_max=4 * SIZE)) as made:
        made.create_topic("one")
        made.create_topic("two")
        yield made


@contextmanager
def nothing_commits(harness: Harness) -> Iterator[None]:
    """A stretch of time in which the disk, the only one there is to wait for, does not answer."""
    going_on = threading.Event()
    harness.broker.writer.run(harness.partition("one").log, going_on.wait)
    try:
        yield
    finally:
        going_on.set()


def produce(harness: Harness, line: KafkaHarness, topic: str) -> None:
    """Hand in a batch, and wait for nothing."""
    entry = ProduceRequestPartition(0, bytes(a_batch([VALUE])))
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[ProduceRequestTopic(topic, b"", [entry])])
    frame = bytearray(write_request(ApiKey.PRODUCE, 9, 1, "test", request))[4:]

    async def deliver() -> None:
        line.server.on_frame(line.connection, memoryview(frame))

    harness.run(deliver())


def uncommitted(harness: Harness) -> int:
    return harness.broker.partitions.uncommitted_bytes


def test_all_partitions_count_together_until_they_are_committed(harness: Harness) -> None:
    line = KafkaHarness(harness)
    with nothing_commits(harness):
        produce(harness, line, "one")
        produce(harness, line, "two")
        produce(harness, line, "two")
        assert uncommitted(harness) == 3 * SIZE
        assert not line.paper.paused
    harness.settle()
    assert uncommitted(harness) == 0
    assert line.answered() == 3


def test_past_the_limit_a_producer_is_not_read_until_half_is_committed(harness: Harness) -> None:
    line = KafkaHarness(harness)
    with nothing_commits(harness):
        for _ in range(4):
            produce(harness, line, "one")
        assert not line.paper.paused
        produce(harness, line, "two")
        assert line.paper.paused == [Pause.DISK]
        harness.run(asyncio.sleep(0.02))
        assert line.paper.paused == [Pause.DISK]
    harness.settle()
    harness.run(asyncio.sleep(0.02))
    assert line.paper.paused == []
    assert line.answered() == 5


def test_who_leads_no_longer_does_not_count(harness: Harness) -> None:
    line = KafkaHarness(harness)
    partition = harness.partition("one")
    with nothing_commits(harness):
        produce(harness, line, "one")
        produce(harness, line, "two")

        async def lose() -> None:
            partition._stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        harness.run(lose())
        assert uncommitted(harness) == SIZE
    harness.settle()
    assert uncommitted(harness) == 0


def test_what_the_disk_refuses_does_not_count(harness: Harness) -> None:
    line = KafkaHarness(harness)
    with harness.failing(harness.partition("one")):
        produce(harness, line, "one")
        assert uncommitted(harness) == 0
    produce(harness, line, "one")
    harness.settle()
    assert uncommitted(harness) == 0
    assert harness.partition("one").high_watermark == 1
