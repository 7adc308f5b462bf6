"""OffsetForLeaderEpoch (23): the end offset of a leader epoch, so that a reader detects a truncated log (KIP-320).

For an epoch that the log does not have, the answer is about the last one before it. For readers, the current epoch ends
at the high watermark. An epoch that has not begun has no end: -1.
"""

from __future__ import annotations

from drmq.broker.services.lookups import Lookups
from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.model import ApiError, ErrorCode, LeaderEpoch
from drmq.storage import StorageError
from drmq.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)


async def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    asked = each_once(
        ((topic.topic, topic.partitions) for topic in request.topics),
        lambda entry: (entry.partition, entry.leader_epoch, entry.current_leader_epoch),
    )
    for name, entries in asked.items():
        answered = [await _answer(context.services.lookups, name, entry) for entry in entries]
        response.topics.append(OffsetForLeaderEpochResponseTopic(name, answered))
    return response


async def _answer(
    lookups: Lookups, topic: str, entry: OffsetForLeaderEpochRequestPartition
) -> OffsetForLeaderEpochResponsePartition:
    try:
        epoch, end_offset = await lookups.end_of_epoch(
            topic, entry.partition, LeaderEpoch(entry.leader_epoch), entry.current_leader_epoch
        )
    except ApiError as error:
        return OffsetForLeaderEpochResponsePartition(error.code, entry.partition)
    except (StorageError, OSError):
        return OffsetForLeaderEpochResponsePartition(ErrorCode.KAFKA_STORAGE_ERROR, entry.partition)
    return OffsetForLeaderEpochResponsePartition(ErrorCode.NONE, entry.partition, epoch, end_offset)
