"""FindCoordinator (10): which node looks after a group. On one node, this one.

There are no transactions and no share groups, so nobody coordinates those. A transactional producer is
told that it may not, which is the one answer that every client takes as final: librdkafka asks again
for ever after any other.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

_GROUP = 0
_TRANSACTION = 1


def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[_find(context, request.key_type, key) for key in request.coordinator_keys]
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
            key, -1, "", -1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not offered"
        )
    if key_type != _GROUP:
        return FindCoordinatorResponseCoordinator(
            key,
            -1,
            "",
            -1,
            ErrorCode.INVALID_REQUEST,
            f"no coordinator for key type {key_type}: only groups are offered",
        )
    if not key:
        return FindCoordinatorResponseCoordinator(key, -1, "", -1, ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    host, port = context.broker.advertised
    return FindCoordinatorResponseCoordinator(key, context.broker.node_id, host, port, ErrorCode.NONE, None)
