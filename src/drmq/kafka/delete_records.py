"""DeleteRecords (21): raise the log start offset of partitions; -1 deletes all records.

Records below the new start can no longer be read, at once and permanently. Disk space is freed later, one whole segment
at a time. An offset below the log start offset changes nothing and is not an error. The low watermark in the answer is
the new log start offset. A partition that the request names twice is refused, since the two entries may differ.
"""

from __future__ import annotations

from collections import Counter

from drmq.broker.services.lookups import Lookups
from drmq.kafka.concurrently import concurrently
from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.model import ApiError, ErrorCode
from drmq.storage import StorageError
from drmq.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)

_NO_LOW_WATERMARK = -1


async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    wanted = each_once(
        ((topic.name, topic.partitions) for topic in request.topics), lambda entry: entry.partition_index
    )
    named = Counter((topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions)
    topics = await concurrently(
        _delete_in_topic(context.services.lookups, name, entries, named) for name, entries in wanted.items()
    )
    return DeleteRecordsResponse(topics=topics)


async def _delete_in_topic(
    lookups: Lookups, topic: str, entries: list[DeleteRecordsRequestPartition], named: Counter[tuple[str, int]]
) -> DeleteRecordsResponseTopic:
    partitions = await concurrently(
        _delete(lookups, topic, entry, named[topic, entry.partition_index]) for entry in entries
    )
    return DeleteRecordsResponseTopic(topic, partitions)


async def _delete(
    lookups: Lookups, topic: str, entry: DeleteRecordsRequestPartition, count: int
) -> DeleteRecordsResponsePartition:
    try:
        if count > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{topic}-{entry.partition_index} is in the request {count} times; name it once",
            )
        start = await lookups.move_start(topic, entry.partition_index, entry.offset)
    except ApiError as error:
        code = error.code
    except (StorageError, OSError):
        code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        return DeleteRecordsResponsePartition(entry.partition_index, start)
    return DeleteRecordsResponsePartition(entry.partition_index, _NO_LOW_WATERMARK, code)
