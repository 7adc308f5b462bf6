"""CreateTopics (19): create topics, each with counts or with an explicit assignment of replicas.

-1 stands for the default number of partitions or replicas. The default is three replicas, or as many as there are
brokers if there are fewer. An explicit assignment names the nodes of each partition. A topic that the request names
twice is refused, since the two entries may differ. From v5 the answer describes the created topic. The request's
timeout is ignored: the answer is sent when the topics are committed and have leaders.
"""

from __future__ import annotations

from collections import Counter

from drmq.broker import Broker
from drmq.catalog import Topic
from drmq.kafka.concurrently import concurrently
from drmq.kafka.config_entries import topic_entries
from drmq.kafka.config_resources import check_distinct
from drmq.kafka.context import Context
from drmq.model import NO_TOPIC_ID, ApiError, ErrorCode, NodeId
from drmq.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
)

_DEFAULT = -1


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}.values()
    created = await concurrently(
        _create(context.broker, topic, counts[topic.name], validate_only=request.validate_only) for topic in topics
    )
    return CreateTopicsResponse(topics=created)


async def _create(
    broker: Broker, wanted: CreateTopicsRequestTopic, count: int, *, validate_only: bool
) -> CreateTopicsResponseTopic:
    try:
        if count > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} is in the request {count} times; name it once"
            )
        check_distinct((config.name for config in wanted.configs), "settings")
        topic = await broker.topics.create(
            wanted.name,
            broker.new_topic_id(),
            _partition_count(broker, wanted),
            {config.name: config.value for config in wanted.configs},
            replication_factor=wanted.replication_factor,
            replicas=_replicas(wanted),
            validate_only=validate_only,
        )
    except ApiError as error:
        return CreateTopicsResponseTopic(wanted.name, error_code=error.code, error_message=error.message)
    return _created(broker, topic, exists=not validate_only)


def _partition_count(broker: Broker, wanted: CreateTopicsRequestTopic) -> int:
    """The number of partitions to create. Raises `ApiError` for an invalid assignment of replicas."""
    if not wanted.assignments:
        return broker.options.num_partitions if wanted.num_partitions == _DEFAULT else wanted.num_partitions
    if wanted.num_partitions != _DEFAULT or wanted.replication_factor != _DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "with an assignment of replicas, partition count and replication factor must both be -1",
        )
    indexes = sorted(each.partition_index for each in wanted.assignments)
    if indexes != list(range(len(indexes))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assignment must name the partitions 0, 1, 2, ... once each"
        )
    return len(indexes)


def _replicas(wanted: CreateTopicsRequestTopic) -> list[list[NodeId]] | None:
    """The nodes of each partition, if the request has an assignment."""
    if not wanted.assignments:
        return None
    in_order = sorted(wanted.assignments, key=lambda each: each.partition_index)
    return [[NodeId(node_id) for node_id in each.broker_ids] for each in in_order]


def _created(broker: Broker, topic: Topic, *, exists: bool) -> CreateTopicsResponseTopic:
    return CreateTopicsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id if exists else NO_TOPIC_ID,
        num_partitions=topic.partition_count,
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreateTopicsResponseConfig(entry.name, entry.value, entry.read_only, entry.source, is_sensitive=False)
            for entry in topic_entries(broker, topic)
        ],
    )
