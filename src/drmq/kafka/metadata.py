"""Metadata (3): the brokers, topics and partitions of the cluster, and the leader of each partition.

Topics are requested by name or, from v10, by id. An id counts, whatever the name beside it says: Java sends an empty
name. A topic that does not exist is created if both the client (versions before 4 always do) and the broker's settings
allow it, but never for an id. The answer waits until the topic exists, so the client does not have to ask again.
Likewise, it waits a little for the first leaders of a topic that has just been created
(`broker/cluster/new_partitions.py`). A topic that is named several times is described once. A partition whose log is
damaged has no leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from itertools import islice
from typing import cast

from drmq.broker.services.gate import Operation, on_topic
from drmq.catalog import Topic
from drmq.kafka.context import Context
from drmq.kafka.described_topic import describe, encoded
from drmq.kafka.first_leaders import WAIT_S, when_led
from drmq.kafka.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from drmq.model import NO_TOPIC_ID, ApiError, ErrorCode, TopicId
from drmq.model.names import check_not_internal, check_topic_name
from drmq.wire.codec import EncodedArray
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS
from drmq.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

_NULL_NAME_FROM = 12
_SLICE_TOPICS = 500
"""Topics that are described before other work on the event loop gets its turn: about 5 ms if all have changed."""


def handle(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    topics = context.services.cluster.catalog.topics
    if request.topics is None or (context.version == 0 and not request.topics):
        return _describe_all(context, request)
    wanted = list(dict.fromkeys(_wanted(entry) for entry in request.topics))
    missing = [name for name in wanted if isinstance(name, str) and name not in topics]
    if missing and request.allow_auto_topic_creation and context.broker.options.auto_create_topics:
        return _create_and_answer(context, request, wanted, missing)
    return when_led(
        context.broker.new_partitions,
        _ids(context, wanted),
        lambda: _named(context, request, (_find(context, topic) for topic in wanted)),
    )


async def _describe_all(context: Context, request: MetadataRequest) -> MetadataResponse:
    """Describe all topics, in slices: after a change of all leaders, to encode 10,000 topics takes 0.1 s."""
    new, cluster = context.broker.new_partitions, context.services.cluster
    if leaderless := new.topics():
        await new.wait(leaderless, WAIT_S)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_AUTHORIZED_OPERATIONS
    seen: list[bytes] = []
    rest = iter(list(cluster.catalog.topics))
    while names := list(islice(rest, _SLICE_TOPICS)):
        if seen:
            await asyncio.sleep(0)
        look, topics = cluster.look(), cluster.catalog.topics
        seen += [
            encoded(look, topics[name], context.version, operations)
            for name in names
            # A topic may be deleted between two slices.
            if name in topics and context.may(on_topic(Operation.DESCRIBE, name))
        ]
    described = EncodedArray(len(seen), b"".join(seen))
    return _response(context, request, cast("list[MetadataResponseTopic]", described))


async def _create_and_answer(
    context: Context, request: MetadataRequest, wanted: list[str | TopicId], missing: list[str]
) -> MetadataResponse:
    refusals: dict[str | TopicId, MetadataResponseTopic] = {}
    for name in missing:
        try:
            check_topic_name(name)
            check_not_internal(name)
            await context.services.topic_creation.auto_create(context.caller, name)
        except ApiError as error:
            code = ErrorCode.LEADER_NOT_AVAILABLE if error.code is ErrorCode.NOT_CONTROLLER else error.code
            refusals[name] = MetadataResponseTopic(error_code=code, name=name)
    await context.broker.new_partitions.wait(_ids(context, wanted), WAIT_S)
    return _named(context, request, (refusals.get(topic) or _find(context, topic) for topic in wanted))


def _wanted(entry: MetadataRequestTopic) -> str | TopicId:
    """The id of a topic if the request has one, otherwise its name."""
    if entry.topic_id != NO_TOPIC_ID or entry.name is None:
        return TopicId(entry.topic_id)
    return entry.name


def _known(context: Context, wanted: str | TopicId) -> Topic | None:
    catalog = context.services.cluster.catalog
    return catalog.topics.get(wanted) if isinstance(wanted, str) else catalog.topics_by_id.get(wanted)


def _ids(context: Context, wanted: list[str | TopicId]) -> list[TopicId]:
    """The ids of those topics that exist."""
    return [topic.topic_id for each in wanted if (topic := _known(context, each)) is not None]


def _find(context: Context, wanted: str | TopicId) -> MetadataResponseTopic:
    topic = _known(context, wanted)
    if topic is not None:
        return describe(context.services.cluster.look(), topic, context.version)
    if isinstance(wanted, str):
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=wanted)
    # v10 and v11 have ids, but their name field cannot be null.
    no_name = None if context.version >= _NULL_NAME_FROM else ""
    return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, no_name, wanted)


def _named(context: Context, request: MetadataRequest, topics: Iterable[MetadataResponseTopic]) -> MetadataResponse:
    described = list(topics)
    if request.include_topic_authorized_operations:
        for topic in described:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return _response(context, request, described)


def _response(context: Context, request: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    cluster = context.services.cluster
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(each.node_id, each.host, each.port, each.rack) for each in cluster.live_brokers()
        ],
        cluster_id=context.broker.cluster_id,
        controller_id=cluster.controller_id(),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
