"""DescribeGroups (15): state, members and assignments of classic groups.

Each group is described once, however often it is named. A group that does not exist is described as `Dead`. From v6 it
also gets GROUP_ID_NOT_FOUND and a message. Older versions of this API do not have that code, so there the group is
`Dead` without an error.
"""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.kafka.context import Context
from drmq.kafka.operations import GROUP_OPERATIONS
from drmq.model import ErrorCode
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS
from drmq.wire.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
)

_NOT_FOUND_FROM = 6


def handle(
    context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | asyncio.Future[DescribeGroupsResponse]:

    def merge(answers: list[tuple[list[str], groups.DescribeGroupsResponse | ErrorCode]]) -> DescribeGroupsResponse:
        found: dict[str, DescribeGroupsResponseGroup] = {}
        for group_ids, answer in answers:
            if isinstance(answer, ErrorCode):
                found.update((each, DescribeGroupsResponseGroup(answer, group_id=each)) for each in group_ids)
            else:
                found.update((each.group_id, _described(each, context.version)) for each in answer.groups)
        if request.include_authorized_operations:
            for group in found.values():
                group.authorized_operations = (
                    GROUP_OPERATIONS if group.error_code == ErrorCode.NONE else NO_AUTHORIZED_OPERATIONS
                )
        return DescribeGroupsResponse(groups=[found[group_id] for group_id in dict.fromkeys(request.groups)])

    return context.services.groups.ask_together(
        request.groups, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse, merge
    )


def _described(group: groups.DescribedGroup, version: int) -> DescribeGroupsResponseGroup:
    error, text = group.error, None
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        if version >= _NOT_FOUND_FROM:
            text = f"there is no group {group.group_id!r}"
        else:
            error = ErrorCode.NONE
    return DescribeGroupsResponseGroup(
        error_code=error,
        error_message=text,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribeGroupsResponseMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
            for member in group.members
        ],
    )
