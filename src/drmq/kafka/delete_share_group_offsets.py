"""DeleteShareGroupOffsets (92): let a share group without members forget topics.

A member that works on such a topic later begins as the settings of the group say.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.kafka.share_group_offsets import prepare
from drmq.model import ApiError
from drmq.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


async def handle(context: Context, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    try:
        await prepare(context, request.group_id, creates=False)
    except ApiError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    return DeleteShareGroupOffsetsResponse(responses=[await _forget(context, request.group_id, name) for name in names])


async def _forget(context: Context, group: str, name: str) -> DeleteShareGroupOffsetsResponseTopic:
    answered = DeleteShareGroupOffsetsResponseTopic(name)
    try:
        answered.topic_id = context.services.cluster.catalog.topic(name).topic_id
        await context.services.share_groups.remove_queues(group, context.services.cluster.catalog.topic(name).topic_id)
    except ApiError as error:
        answered.error_code, answered.error_message = error.code, error.message
    return answered
