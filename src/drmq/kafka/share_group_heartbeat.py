"""ShareGroupHeartbeat (76): a member of a share group joins, reports, or leaves; the answer may assign partitions."""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.groups.messages import ShareAssignment
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode
from drmq.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatResponseAssignment,
    ShareGroupHeartbeatResponseTopic,
)


def handle(
    context: Context, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | asyncio.Future[ShareGroupHeartbeatResponse]:
    try:
        context.services.leases.shards.check_enabled()
    except ApiError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    topics = request.subscribed_topic_names
    beat = groups.ShareHeartbeatRequest(
        request.group_id,
        request.member_id,
        request.member_epoch,
        None if topics is None else tuple(topics),
        context.caller.client_id,
        context.client_host,
        request.rack_id,
    )
    return context.services.groups.ask(request.group_id, beat, groups.ShareHeartbeatResponse, _response)


def _response(answer: groups.ShareHeartbeatResponse | ErrorCode) -> ShareGroupHeartbeatResponse:
    if isinstance(answer, ErrorCode):
        return ShareGroupHeartbeatResponse(error_code=answer)
    return ShareGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.error_message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _assignment(assignment: ShareAssignment) -> ShareGroupHeartbeatResponseAssignment:
    return ShareGroupHeartbeatResponseAssignment(
        [ShareGroupHeartbeatResponseTopic(topic_id, list(partitions)) for topic_id, partitions in assignment]
    )
