"""DescribeTopicPartitions (75): topics and their partitions, sorted by name, in pages.

An empty list of topics asks for all. A page has up to `response_partition_limit` partitions, and never more than
`PARTITIONS_MAX`. If partitions are left, the answer has a cursor at which the next request continues, also in the
middle of a topic. The cursor names the next topic and partition rather than a position in the list, so topics may be
created or deleted between two pages.

Like Metadata, the answer waits a little for the first leaders of topics that have just been created.
"""

from __future__ import annotations

from collections.abc import Awaitable

from drmq.broker.services.cluster_view import NO_LEADER, Look, PartitionView
from drmq.broker.services.gate import Operation, on_topic
from drmq.catalog import Topic
from drmq.kafka.context import Context
from drmq.kafka.first_leaders import when_led
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
"""Partitions on one page. Limits the cost of one answer."""


def handle(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse]:
    new, topics = context.broker.new_partitions, context.services.cluster.catalog.topics
    named = [topics[topic.name].topic_id for topic in request.topics if topic.name in topics]
    return when_led(new, named if request.topics else new.topics(), lambda: _answer(context, request))


def _answer(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    cluster = context.services.cluster
    cursor, look = request.cursor, cluster.look()
    topics = cluster.catalog.topics
    names = sorted({topic.name for topic in request.topics} or _seen(context))
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        first = max(0, cursor.partition_index) if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, first)
            break
        topic = topics.get(name)
        if topic is None:
            response.topics.append(DescribeTopicPartitionsResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
            continue
        after = min(first + left, topic.partition_count)
        response.topics.append(_describe(look, topic, range(first, after)))
        left -= max(0, after - first)
        if after < topic.partition_count:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, after)
            break
    return response


def _seen(context: Context) -> list[str]:
    """The topics that the client may describe."""
    names = context.services.cluster.catalog.topics
    return [name for name in names if context.may(on_topic(Operation.DESCRIBE, name))]


def _describe(look: Look, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(view) for view in look.partitions(topic, indexes)],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(view: PartitionView) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if view.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=view.partition,
        leader_id=view.leader,
        leader_epoch=view.leader_epoch,
        replica_nodes=list(view.replicas),
        isr_nodes=list(view.in_sync),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(view.offline),
    )
