"""Heartbeat (12): keeps a member of a classic group alive. The answer tells the member whether it must join again."""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse | asyncio.Future[HeartbeatResponse]:
    beat = groups.HeartbeatRequest(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    return context.services.groups.ask(request.group_id, beat, groups.HeartbeatResponse, _response)


def _response(answer: groups.HeartbeatResponse | ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=answer if isinstance(answer, ErrorCode) else answer.error)
