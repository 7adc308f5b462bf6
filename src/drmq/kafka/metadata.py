"""Metadata (3): the brokers, topics and partitions of the cluster, and the leader of each partition.

Topics are requested by name, or from v12 by id alone. A topic that does not exist is created if both the client
(versions before 4 always do) and the broker's settings allow it. The answer waits until the topic exists, so the client
does not have to ask again. A topic that is named several times is described once. A partition whose log is damaged has
no leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from drmq.broker.services.cluster_view import NO_LEADER, ClusterView
from drmq.broker.services.gate import Operation, on_topic
from drmq.catalog import Topic
from drmq.kafka.context import Context
from drmq.kafka.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from drmq.model import NO_TOPIC_ID, ApiError, ErrorCode, TopicId
from drmq.model.names import check_not_internal, check_topic_name
from drmq.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_NULL_NAME_FROM = 12


def handle(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    cluster = context.services.cluster
    topics = cluster.catalog.topics
    wanted = request.topics
    if wanted is None or (context.version == 0 and not wanted):
        seen = (topic for name, topic in topics.items() if context.may(on_topic(Operation.DESCRIBE, name)))
        return _response(context, request, (describe(cluster, topic) for topic in seen))
    wanted = _distinct(wanted)
    missing = [entry.name for entry in wanted if entry.name is not None and entry.name not in topics]
    if missing and request.allow_auto_topic_creation and context.broker.options.auto_create_topics:
        return _create_and_answer(context, request, wanted, missing)
    return _response(context, request, (_find(context, entry) for entry in wanted))


async def _create_and_answer(
    context: Context, request: MetadataRequest, wanted: list[MetadataRequestTopic], missing: list[str]
) -> MetadataResponse:
    refusals: dict[str, ErrorCode] = {}
    for name in missing:
        try:
            check_topic_name(name)
            check_not_internal(name)
            await context.services.topic_creation.auto_create(context.caller, name)
        except ApiError as error:
            refusals[name] = ErrorCode.LEADER_NOT_AVAILABLE if error.code is ErrorCode.NOT_CONTROLLER else error.code
    return _response(
        context,
        request,
        (
            MetadataResponseTopic(error_code=refusals[entry.name], name=entry.name)
            if entry.name in refusals
            else _find(context, entry)
            for entry in wanted
        ),
    )


def _distinct(wanted: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Each topic once, identified by its name, or by its id if the request has no name for it."""
    return list({entry.topic_id if entry.name is None else entry.name: entry for entry in wanted}.values())


def _find(context: Context, entry: MetadataRequestTopic) -> MetadataResponseTopic:
    catalog = context.services.cluster.catalog
    if entry.name is not None:
        topic = catalog.topics.get(entry.name)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=entry.name)
    else:
        topic = catalog.topics_by_id.get(TopicId(entry.topic_id))
        if topic is None or entry.topic_id == NO_TOPIC_ID:
            # v10 and v11 have ids, but their name field cannot be null.
            no_name = None if context.version >= _NULL_NAME_FROM else ""
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, no_name, entry.topic_id)
    return describe(context.services.cluster, topic)


def describe(cluster: ClusterView, topic: Topic) -> MetadataResponseTopic:
    """Describe one topic in the protocol's form."""
    partitions = []
    for index in range(topic.partition_count):
        view = cluster.partition(topic, index)
        error = ErrorCode.LEADER_NOT_AVAILABLE if view.leader == NO_LEADER else ErrorCode.NONE
        partitions.append(
            MetadataResponsePartition(
                error, index, view.leader, view.leader_epoch, view.replicas, view.in_sync, view.offline
            )
        )
    return MetadataResponseTopic(0, topic.name, topic.topic_id, topic.is_internal, partitions)


def _response(context: Context, request: MetadataRequest, topics: Iterable[MetadataResponseTopic]) -> MetadataResponse:
    cluster = context.services.cluster
    described = list(topics)
    if request.include_topic_authorized_operations:
        for topic in described:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(each.node_id, each.host, each.port, each.rack) for each in cluster.live_brokers()
        ],
        cluster_id=context.broker.cluster_id,
        controller_id=cluster.controller_id(),
        topics=described,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
