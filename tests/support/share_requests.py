"""Requests of members of a share group, as Kafka's clients send them, to a broker without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from drmq.catalog import Topic
from drmq.kafka.config_resources import ResourceType
from drmq.kafka.incremental_alter_configs import ConfigOperation
from drmq.leases import QueueKey
from drmq.leases.queue import Queue
from drmq.model import ErrorCode
from drmq.model.names import SHARE_GROUP_STATE
from drmq.records import Record, iter_batches, iter_records
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponseResource,
)
from drmq.wire.messages.share_fetch import (
    ShareAcknowledgementBatch,
    ShareFetchRequest,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
    ShareFetchResponse,
    ShareFetchResponsePartition,
)
from support.broker_harness import Harness

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

Acknowledged = tuple[int, int, int]
"""The first and the last offset, and the type."""


class ShareMember:
    """A member of a share group that works on one topic."""

    def __init__(self, harness: Harness, topic: Topic, group: str = "billing", member: str = "m1") -> None:
        self.harness = harness
        self.topic = topic
        self.group = group
        self.member = member
        self._epoch = 0
        if not harness.broker.leases.partition_count:
            harness.run(harness.broker.services.topic_creation.create_internal(SHARE_GROUP_STATE))

    def fetch(
        self, *acknowledged: Acknowledged, partition: int = 0, count: int = 100, renews: bool = False
    ) -> ShareFetchResponsePartition:
        """Settle, and take records: the answer for the partition."""
        batches = [ShareAcknowledgementBatch(first, last, [type_]) for first, last, type_ in acknowledged]
        parts = [ShareFetchRequestPartition(partition, batches)]
        topics = [ShareFetchRequestTopic(self.topic.topic_id, parts)]
        limits = (0, 0, 0, 0) if renews else (0, 1, 1 << 20, count)
        request = ShareFetchRequest(self.group, self.member, self._epoch, *limits, is_renew_ack=renews, topics=topics)
        answer: ShareFetchResponse = self.harness.ask(request)
        assert answer.error_code == 0, answer.error_message
        self._epoch += 1
        found = [part for topic in answer.responses for part in topic.partitions if part.partition_index == partition]
        return found[0] if found else ShareFetchResponsePartition(partition)

    def take(self, *acknowledged: Acknowledged, partition: int = 0, count: int = 100) -> list[tuple[int, int]]:
        """Settle, and take records: each offset with the number of its delivery."""
        got = self.fetch(*acknowledged, partition=partition, count=count)
        assert got.error_code == 0, got.error_message
        assert got.acknowledge_error_code == 0, got.acknowledge_error_message
        return [
            (offset, run.delivery_count)
            for run in got.acquired_records
            for offset in range(run.first_offset, run.last_offset + 1)
        ]

    def queue(self, partition: int = 0) -> Queue | None:
        leases = self.harness.broker.leases
        key = QueueKey(self.group, self.topic.topic_id, partition)
        return leases.shards[leases.index_of(key)].machine.queues.get(key)


def set_configs(
    harness: Harness, type_: ResourceType, name: str, changes: Mapping[str, str | None]
) -> IncrementalAlterConfigsResponseResource:
    """Set settings, or delete them for None; the result."""
    configs = [
        IncrementalAlterConfigsRequestConfig(
            key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value
        )
        for key, value in changes.items()
    ]
    [answer] = harness.ask(
        IncrementalAlterConfigsRequest([IncrementalAlterConfigsRequestResource(type_, name, configs)], False)
    ).responses
    found: IncrementalAlterConfigsResponseResource = answer
    return found


def set_group(harness: Harness, group: str = "billing", **changes: str | None) -> None:
    """Set settings of a group; a name has `_` for `.`."""
    named = {key.replace("_", "."): value for key, value in changes.items()}
    answer = set_configs(harness, ResourceType.GROUP, group, named)
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def until(harness: Harness, condition: Callable[[], bool]) -> None:
    """Let the broker work until a condition holds."""
    for _ in range(10_000):
        if condition():
            return
        harness.run(asyncio.sleep(0.001))
    raise AssertionError("it does not come true")


def records_in(harness: Harness, topic: str, partition: int = 0) -> list[Record]:
    """All records of a partition; none if it does not exist yet."""
    if topic not in harness.broker.catalog.topics:
        return []
    until(harness, lambda: harness.broker.partitions.slots(harness.broker.catalog.topic(topic).topic_id) != {})
    found = harness.partition(topic, partition)
    data = bytes(found.log.read(found.start_offset, 1 << 24, found.high_watermark) or b"")
    return [
        record
        for position, header in iter_batches(data)
        for record in iter_records(data[position : position + header.size], decompressed_size_max=1 << 24)
    ]
