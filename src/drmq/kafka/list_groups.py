"""ListGroups (16): all groups, from every shard, filtered by state (from v4) and type (from v5)."""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.broker import Broker, GroupShardCoordinator
from drmq.kafka.context import Context
from drmq.kafka.group_requests import ask_all
from drmq.model import ErrorCode
from drmq.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup


def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse | asyncio.Future[ListGroupsResponse]:
    question = groups.ListGroupsRequest(tuple(request.states_filter), tuple(request.types_filter))
    questions = [(shard, question) for shard in _in_charge_of(context.broker)]
    return ask_all(questions, groups.ListGroupsResponse, _merge)


def _in_charge_of(broker: Broker) -> list[GroupShardCoordinator]:
    """The shards that nobody else lists: this node leads them, or did last, and cannot because its disk fails."""
    leaders, node_id = broker.host.leaders, broker.node_id
    return [
        shard
        for shard in broker.groups.shards.values()
        if shard.log.leads or (found := leaders.get(shard.log.partition.group)) is None or found.leader == node_id
    ]


def _merge(answers: list[groups.ListGroupsResponse | ErrorCode]) -> ListGroupsResponse:
    """One list of all, with the error of any shard that could not answer: the list is then not complete."""
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
