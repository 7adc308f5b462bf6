"""FindCoordinator (10): the coordinator of a group, which is the leader of the group's `__consumer_offsets` partition.

That topic is created when it is first needed, because before that there may be fewer nodes than it should have
replicas.

There are no transactions, so these have no coordinators. A transactional producer gets
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is the only answer that every client treats as final: after any other,
librdkafka asks again forever.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress

from drmq.broker.services.cluster_view import NO_LEADER
from drmq.kafka.context import Context
from drmq.kafka.first_leaders import WAIT_S, when_led
from drmq.model import ApiError, ErrorCode, NodeId
from drmq.model.names import CONSUMER_OFFSETS
from drmq.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

_GROUP = 0
_TRANSACTION = 1


def handle(
    context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    if request.key_type != _GROUP:
        return _answer(context, request)
    topic = context.services.cluster.catalog.topics.get(CONSUMER_OFFSETS)
    if topic is None:
        return _create_and_answer(context, request)
    return when_led(context.broker.new_partitions, (topic.topic_id,), lambda: _answer(context, request))


async def _create_and_answer(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    with suppress(ApiError):
        await context.services.topic_creation.create_internal(CONSUMER_OFFSETS)
    topic = context.services.cluster.catalog.topics.get(CONSUMER_OFFSETS)
    if topic is not None:
        await context.broker.new_partitions.wait((topic.topic_id,), WAIT_S)
    return _answer(context, request)


def _answer(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[_find(context, request.key_type, key) for key in dict.fromkeys(request.coordinator_keys)]
        )
    found = _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: Context, key_type: int, key: str) -> FindCoordinatorResponseCoordinator:
    if key_type == _TRANSACTION:
        return FindCoordinatorResponseCoordinator(
            key, -1, "", -1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported"
        )
    if key_type != _GROUP:
        return FindCoordinatorResponseCoordinator(
            key,
            -1,
            "",
            -1,
            ErrorCode.INVALID_REQUEST,
            f"there is no coordinator for key type {key_type}: only groups (0) are supported",
        )
    if not key:
        return FindCoordinatorResponseCoordinator(key, -1, "", -1, ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    cluster = context.services.cluster
    topic = cluster.catalog.topics.get(CONSUMER_OFFSETS)
    view = None if topic is None else cluster.partition(topic, context.broker.groups.index_of(key))
    if view is None or view.leader == NO_LEADER:
        text = "the coordinator of this group is being elected; try again"
        return FindCoordinatorResponseCoordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    leader = cluster.catalog.brokers[NodeId(view.leader)]
    return FindCoordinatorResponseCoordinator(key, leader.node_id, leader.host, leader.port, ErrorCode.NONE, None)
