"""ShareGroupDescribe (77): the members of share groups and what is assigned to them."""

from __future__ import annotations

import asyncio
from typing import Any

from drmq import groups
from drmq.groups.messages import DescribedShareGroup, DescribedShareMember
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseAssignment,
    ShareGroupDescribeResponseGroup,
    ShareGroupDescribeResponseMember,
    ShareGroupDescribeResponseTopic,
)

_ASSIGNOR = "simple"


def handle(
    context: Context, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse | asyncio.Future[ShareGroupDescribeResponse]:
    def merge(answers: list[tuple[list[str], Any]]) -> ShareGroupDescribeResponse:
        described = []
        for names, answer in answers:
            if isinstance(answer, ErrorCode):
                described += [ShareGroupDescribeResponseGroup(error_code=answer, group_id=name) for name in names]
            else:
                described += [_group(context, group) for group in answer.groups]
        return ShareGroupDescribeResponse(groups=described)

    return context.services.groups.ask_together(
        request.group_ids, groups.DescribeShareGroupsRequest, groups.DescribeShareGroupsResponse, merge
    )


def _group(context: Context, group: DescribedShareGroup) -> ShareGroupDescribeResponseGroup:
    text = None if group.error is ErrorCode.NONE else f"there is no share group {group.group_id}"
    return ShareGroupDescribeResponseGroup(
        error_code=group.error,
        error_message=text,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=_ASSIGNOR,
        members=[_member(context, member) for member in group.members],
    )


def _member(context: Context, member: DescribedShareMember) -> ShareGroupDescribeResponseMember:
    topics = context.services.cluster.catalog.topics_by_id
    return ShareGroupDescribeResponseMember(
        member.member_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        list(member.topics),
        ShareGroupDescribeResponseAssignment(
            [
                ShareGroupDescribeResponseTopic(topic_id, topics[topic_id].name, list(partitions))
                for topic_id, partitions in member.assignment
                if topic_id in topics
            ]
        ),
    )
