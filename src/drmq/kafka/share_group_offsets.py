"""What the requests about the offsets of share groups have in common: they go to the coordinator of the group."""

from __future__ import annotations

from drmq import groups
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode


async def prepare(context: Context, group: str, *, creates: bool) -> None:
    """Check that this node coordinates a group, and that its queues may be changed. Raises `ApiError`."""
    context.services.leases.shards.check_enabled()
    request = groups.PrepareShareGroupRequest(group, creates, context.client_host)
    answer = context.services.groups.ask(group, request, groups.PrepareShareGroupResponse, _error_of)
    error = answer if isinstance(answer, ApiError) or answer is None else await answer
    if error is not None:
        raise error


def _error_of(answer: groups.PrepareShareGroupResponse | ErrorCode) -> ApiError | None:
    if isinstance(answer, ErrorCode):
        return ApiError(answer, "this node does not coordinate the group, or cannot now")
    return None if answer.error is ErrorCode.NONE else ApiError(answer.error, answer.error_message or "")
