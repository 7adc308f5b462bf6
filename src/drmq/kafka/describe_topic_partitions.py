"""DescribeTopicPartitions (75): topics and their partitions in the order of their names, page by page.

An empty list of topics asks for all. A page holds up to `response_partition_limit` partitions, and
never more than `PARTITIONS_MAX`; if something is left, the answer has a cursor, from which the next
request goes on, also in the middle of a topic. The cursor names what comes next, so topics that are
made or deleted between two pages do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence

from drmq.broker import Broker, Partition, StoppedPartition
from drmq.catalog import Topic
from drmq.kafka.context import Context
from drmq.kafka.operations import TOPIC_OPERATIONS
from drmq.model import ErrorCode
from drmq.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PARTITIONS_MAX = 2_000
"""Partitions on one page; bounds what one answer costs."""

_NO_LEADER = -1


def handle(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    broker = context.broker
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics} or broker.catalog.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        first = max(0, cursor.partition_index) if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, first)
            break
        topic = broker.catalog.topics.get(name)
        if topic is None:
            response.topics.append(DescribeTopicPartitionsResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
            continue
        slots = broker.partitions.slots(name)
        after = min(first + left, len(slots))
        response.topics.append(_describe(broker, topic, slots[first:after]))
        left -= max(0, after - first)
        if after < len(slots):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, after)
            break
    return response


def _describe(
    broker: Broker, topic: Topic, slots: Sequence[Partition | StoppedPartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(broker, slot) for slot in slots],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(broker: Broker, slot: Partition | StoppedPartition) -> DescribeTopicPartitionsResponsePartition:
    is_served = isinstance(slot, Partition)
    node = [int(broker.node_id)]
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if is_served else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=slot.index,
        leader_id=node[0] if is_served else _NO_LEADER,
        leader_epoch=slot.leader_epoch if isinstance(slot, Partition) else -1,
        replica_nodes=node,
        isr_nodes=node if is_served else [],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[] if is_served else node,
    )
