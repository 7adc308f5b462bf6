"""DeleteGroups (42): delete groups that have no members, with all their committed offsets.

Of share groups, the queues are removed too, before the answer.
"""

from __future__ import annotations

from drmq import groups
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse, DeleteGroupsResponseResult


async def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    def merge(answers: list[tuple[list[str], groups.DeleteGroupsResponse | ErrorCode]]) -> DeleteGroupsResponse:
        errors: dict[str, ErrorCode] = {}
        for group_ids, answer in answers:
            if isinstance(answer, ErrorCode):
                errors.update(dict.fromkeys(group_ids, answer))
            else:
                errors.update((each.group_id, each.error) for each in answer.results)
        names = dict.fromkeys(request.groups_names)
        return DeleteGroupsResponse(results=[DeleteGroupsResponseResult(name, errors[name]) for name in names])

    answer = context.services.groups.ask_together(
        request.groups_names, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, merge
    )
    response = answer if isinstance(answer, DeleteGroupsResponse) else await answer
    deleted = [result.group_id for result in response.results if result.error_code == ErrorCode.NONE]
    unfinished = await context.services.share_groups.deleted(deleted)
    for result in response.results:
        if result.group_id in unfinished:
            # It is marked and will be gone. A client that asks again waits for that again.
            result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response
