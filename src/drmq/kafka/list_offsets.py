"""ListOffsets (2): the first offset, the last offset, or the first offset at or after a given time.

Negative timestamps have a special meaning: -1 is the end, -2 the start, -3 the record with the largest timestamp, -4
the start of the data on local disk, -5 the end of the data in remote storage. There is no remote storage, so all data
is local. The end is the high watermark: records above it are not visible to any client.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.model import ApiError, ErrorCode
from drmq.records import InvalidBatch
from drmq.storage import StorageError
from drmq.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)


async def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked = each_once(
        ((topic.name, topic.partitions) for topic in request.topics),
        lambda entry: (entry.partition_index, entry.timestamp, entry.current_leader_epoch),
    )
    topics = []
    for name, entries in asked.items():
        answered = [await _answer(context, name, entry) for entry in entries]
        topics.append(ListOffsetsResponseTopic(name, answered))
    return ListOffsetsResponse(topics=topics)


async def _answer(context: Context, topic: str, entry: ListOffsetsRequestPartition) -> ListOffsetsResponsePartition:
    index = entry.partition_index
    try:
        offset, timestamp, epoch = await context.services.lookups.find_offset(
            topic, index, entry.timestamp, entry.current_leader_epoch, context.caller.address
        )
    except ApiError as error:
        return ListOffsetsResponsePartition(index, error.code)
    except (StorageError, InvalidBatch, OSError):
        return ListOffsetsResponsePartition(index, ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsResponsePartition(index, 0, timestamp, offset, epoch)
