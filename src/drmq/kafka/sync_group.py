"""SyncGroup (14): the leader of a generation sends the assignments of all members; each member receives its own.

A member whose request arrives before the leader's waits for it. From v5 members also send the protocol that they
believe was chosen, and the answer repeats the chosen protocol.
"""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
    sync = groups.SyncGroupRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple(groups.MemberAssignment(each.member_id, each.assignment) for each in request.assignments),
    )
    return context.services.groups.ask(request.group_id, sync, groups.SyncGroupResponse, _response, context.park)


def _response(answer: groups.SyncGroupResponse | ErrorCode) -> SyncGroupResponse:
    if isinstance(answer, ErrorCode):
        return SyncGroupResponse(error_code=answer)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
