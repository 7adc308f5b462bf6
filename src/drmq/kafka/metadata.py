"""Metadata (3): which brokers, topics and partitions there are, and who leads what.

Topics are asked for by name, or from v12 by id alone. A name that is not there is created when the
client allows it (versions before 4 imply that) and the broker is set to; the answer waits until the
topic exists, so that no client has to ask twice. A partition whose log is damaged has no leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from drmq.broker import Broker, Partition
from drmq.catalog import Topic
from drmq.kafka.context import Context
from drmq.kafka.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from drmq.model import NO_TOPIC_ID, ApiError, ErrorCode, TopicId
from drmq.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_NO_LEADER = -1


def handle(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    broker = context.broker
    wanted = request.topics
    if wanted is None or (context.version == 0 and not wanted):
        everything = (describe(broker, topic) for topic in broker.catalog.topics.values())
        return _response(broker, request, everything)
    missing = [entry.name for entry in wanted if entry.name is not None and entry.name not in broker.catalog.topics]
    if missing and request.allow_auto_topic_creation and broker.options.auto_create_topics:
        return _create_and_answer(broker, request, wanted, missing)
    return _response(broker, request, (_find(broker, entry) for entry in wanted))


async def _create_and_answer(
    broker: Broker, request: MetadataRequest, wanted: list[MetadataRequestTopic], missing: list[str]
) -> MetadataResponse:
    refusals: dict[str, ErrorCode] = {}
    for name in dict.fromkeys(missing):
        try:
            await broker.topics.create(name, broker.new_topic_id(), broker.options.num_partitions, {})
        except ApiError as error:
            # Someone else may have created it in the meantime, which is as good.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                refusals[name] = error.code
    return _response(
        broker,
        request,
        (
            MetadataResponseTopic(error_code=refusals[entry.name], name=entry.name)
            if entry.name in refusals
            else _find(broker, entry)
            for entry in wanted
        ),
    )


def _find(broker: Broker, entry: MetadataRequestTopic) -> MetadataResponseTopic:
    if entry.name is not None:
        topic = broker.catalog.topics.get(entry.name)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=entry.name)
    else:
        topic = broker.catalog.topics_by_id.get(TopicId(entry.topic_id))
        if topic is None or entry.topic_id == NO_TOPIC_ID:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=entry.topic_id)
    return describe(broker, topic)


def describe(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    """One topic as the protocol describes it."""
    node = [int(broker.node_id)]
    partitions = []
    if not broker.partitions.slots(topic.name):
        # It is being created: its partitions appear once that is durable. Clients ask again.
        return MetadataResponseTopic(ErrorCode.LEADER_NOT_AVAILABLE, topic.name, topic.topic_id, topic.is_internal)
    for slot in broker.partitions.slots(topic.name):
        if isinstance(slot, Partition):
            partitions.append(MetadataResponsePartition(0, slot.index, node[0], slot.leader_epoch, node, node, []))
        else:
            partitions.append(
                MetadataResponsePartition(ErrorCode.LEADER_NOT_AVAILABLE, slot.index, _NO_LEADER, -1, node, [], node)
            )
    return MetadataResponseTopic(0, topic.name, topic.topic_id, topic.is_internal, partitions)


def _response(broker: Broker, request: MetadataRequest, topics: Iterable[MetadataResponseTopic]) -> MetadataResponse:
    host, port = broker.advertised
    described = list(topics)
    if request.include_topic_authorized_operations:
        for topic in described:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(broker.node_id, host, port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=described,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
