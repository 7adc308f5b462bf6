"""DeleteGroups (42): delete groups that have no members, with all their committed offsets."""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse, DeleteGroupsResponseResult


def handle(
    context: Context, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | asyncio.Future[DeleteGroupsResponse]:

    def merge(answers: list[tuple[list[str], groups.DeleteGroupsResponse | ErrorCode]]) -> DeleteGroupsResponse:
        errors: dict[str, ErrorCode] = {}
        for group_ids, answer in answers:
            if isinstance(answer, ErrorCode):
                errors.update(dict.fromkeys(group_ids, answer))
            else:
                errors.update((each.group_id, each.error) for each in answer.results)
        names = dict.fromkeys(request.groups_names)
        return DeleteGroupsResponse(results=[DeleteGroupsResponseResult(name, errors[name]) for name in names])

    return context.services.groups.ask_together(
        request.groups_names, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, merge
    )
