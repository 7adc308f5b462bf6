"""AlterShareGroupOffsets (91): let a share group without members begin again at offsets.

What is leased, waits for a retry or for its dead letter in such a partition is forgotten. A group that does not exist
is created, so that a tool can say where it begins before its first member comes.
"""

from __future__ import annotations

from drmq.broker.services.cluster_view import check_partition
from drmq.catalog import Topic
from drmq.kafka.context import Context
from drmq.kafka.share_group_offsets import prepare
from drmq.kafka.topics import each_once
from drmq.model import NO_TOPIC_ID, ApiError
from drmq.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


async def handle(context: Context, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    try:
        await prepare(context, request.group_id, creates=True)
    except ApiError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    named = ((topic.topic_name, topic.partitions) for topic in request.topics)
    asked = each_once(named, lambda partition: partition.partition_index)
    responses = []
    for name, partitions in asked.items():
        topic = context.services.cluster.catalog.topics.get(name)
        results = [await _restart(context, request.group_id, name, topic, each) for each in partitions]
        topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
        responses.append(AlterShareGroupOffsetsResponseTopic(name, topic_id, results))
    return AlterShareGroupOffsetsResponse(responses=responses)


async def _restart(
    context: Context, group: str, name: str, topic: Topic | None, wanted: AlterShareGroupOffsetsRequestPartition
) -> AlterShareGroupOffsetsResponsePartition:
    index = wanted.partition_index
    try:
        found = context.services.cluster.catalog.topic(name) if topic is None else topic
        check_partition(found, index)
        await context.services.share_groups.restart(
            group, found.topic_id, index, wanted.start_offset, context.client_host
        )
    except ApiError as error:
        return AlterShareGroupOffsetsResponsePartition(index, error.code, error.message)
    return AlterShareGroupOffsetsResponsePartition(index)
