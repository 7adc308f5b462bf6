"""JoinGroup (11): become a member of a classic group, or stay a member in its next generation.

The answer waits until the join phase of the rebalance ends, which may take as long as the longest rebalance timeout of
the members. From v4 a new member without an instance id first receives its member id and must join again with it.
Otherwise, a client that gave up and joined again would leave an unused member behind.
"""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_MEMBER_ID_REQUIRED_FROM = 4
_PROTOCOL_NULLABLE_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9


def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
    version = context.version
    # Not the request: it may be large, and the answer may take as long as a rebalance.
    member_id = request.member_id

    def translate(answer: groups.JoinGroupResponse | ErrorCode) -> JoinGroupResponse:
        if isinstance(answer, ErrorCode):
            answer = groups.JoinGroupResponse(answer, member_id)
        return _response(answer, version)

    join = groups.JoinGroupRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple(groups.Protocol(each.name, each.metadata) for each in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        instance_id=request.group_instance_id,
        client_id=context.caller.client_id,
        client_host=context.client_host,
        member_id_required=version >= _MEMBER_ID_REQUIRED_FROM,
        supports_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )
    return context.services.groups.ask(request.group_id, join, groups.JoinGroupResponse, translate, context.park)


def _response(answer: groups.JoinGroupResponse, version: int) -> JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and version < _PROTOCOL_NULLABLE_FROM:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata) for member in answer.members
        ],
    )
