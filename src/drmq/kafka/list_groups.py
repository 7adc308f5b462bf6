"""ListGroups (16): all groups, from every shard, filtered by state (from v4) and type (from v5)."""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.broker.services.gate import Operation, on_group
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup


def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse | asyncio.Future[ListGroupsResponse]:
    question = groups.ListGroupsRequest(tuple(request.states_filter), tuple(request.types_filter))

    def merge(answers: list[groups.ListGroupsResponse | ErrorCode]) -> ListGroupsResponse:
        response = _merge(answers)
        response.groups = [each for each in response.groups if context.may(on_group(Operation.DESCRIBE, each.group_id))]
        return response

    return context.services.groups.ask_all(question, groups.ListGroupsResponse, merge)


def _merge(answers: list[groups.ListGroupsResponse | ErrorCode]) -> ListGroupsResponse:
    """Merge the lists of all shards. If a shard failed, the response has its error, because the list is incomplete."""
    response = ListGroupsResponse()
    for answer in answers:
        if isinstance(answer, ErrorCode):
            response.error_code = answer
            continue
        response.error_code = response.error_code or answer.error
        response.groups += [
            ListGroupsResponseGroup(each.group_id, each.protocol_type, each.state, each.group_type)
            for each in answer.groups
        ]
    response.groups.sort(key=lambda group: group.group_id)
    return response
