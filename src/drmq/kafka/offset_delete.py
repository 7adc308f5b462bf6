"""OffsetDelete (47): delete the offsets that a group committed for some partitions.

A topic is refused while a member of the group is subscribed to it, because the member would soon commit again.
"""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.broker.services.cluster_view import check_partition
from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.model import ApiError, ErrorCode, TopicPartition
from drmq.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    context: Context, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | asyncio.Future[OffsetDeleteResponse]:
    partitions: list[TopicPartition] = []
    asked: list[OffsetDeleteResponsePartition] = []
    response = OffsetDeleteResponse()
    wanted = each_once(
        ((topic.name, topic.partitions) for topic in request.topics), lambda partition: partition.partition_index
    )
    for name, entries in wanted.items():
        answered = OffsetDeleteResponseTopic(name)
        response.topics.append(answered)
        for partition in entries:
            result = OffsetDeleteResponsePartition(partition.partition_index)
            answered.partitions.append(result)
            try:
                check_partition(context.services.cluster.catalog.topic(name), partition.partition_index)
            except ApiError as error:
                result.error_code = error.code
            else:
                partitions.append(TopicPartition(name, partition.partition_index))
                asked.append(result)

    def translate(answer: groups.OffsetDeleteResponse | ErrorCode) -> OffsetDeleteResponse:
        if isinstance(answer, ErrorCode):
            return OffsetDeleteResponse(error_code=answer)
        if answer.error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=answer.error)
        for result, deleted in zip(asked, answer.results, strict=True):
            result.error_code = deleted.error
        return response

    delete = groups.OffsetDeleteRequest(request.group_id, tuple(partitions))
    return context.services.groups.ask(request.group_id, delete, groups.OffsetDeleteResponse, translate)
