"""LeaveGroup (13): remove members at once, instead of when their sessions expire.

Up to v2 a request names one member, and its result is the error code of the response. From v3 it names several members,
each with its own result. An administrator may then remove a static member by its instance id alone.
"""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMember

_MEMBER_LIST_FROM = 3


def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse | asyncio.Future[LeaveGroupResponse]:
    has_list = context.version >= _MEMBER_LIST_FROM
    if has_list:
        members = tuple(
            groups.LeavingMember(each.member_id, each.group_instance_id, each.reason) for each in request.members
        )
    else:
        members = (groups.LeavingMember(request.member_id),)
    leave = groups.LeaveGroupRequest(request.group_id, members)
    return context.services.groups.ask(
        request.group_id, leave, groups.LeaveGroupResponse, _list_response if has_list else _single_response
    )


def _list_response(answer: groups.LeaveGroupResponse | ErrorCode) -> LeaveGroupResponse:
    if isinstance(answer, ErrorCode):
        return LeaveGroupResponse(error_code=answer)
    members = [LeaveGroupResponseMember(each.member_id, each.instance_id, each.error) for each in answer.members]
    return LeaveGroupResponse(error_code=answer.error, members=members)


def _single_response(answer: groups.LeaveGroupResponse | ErrorCode) -> LeaveGroupResponse:
    if isinstance(answer, ErrorCode):
        return LeaveGroupResponse(error_code=answer)
    own_error = answer.members[0].error if answer.members else ErrorCode.NONE
    return LeaveGroupResponse(error_code=answer.error or own_error)
