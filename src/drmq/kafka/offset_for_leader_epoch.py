"""OffsetForLeaderEpoch (23): where a leader epoch ended, so that a reader notices a log that was cut (KIP-320).

An epoch that the log does not know is answered with the one before it. The epoch under way ends, for
a reader, at the high watermark. An epoch that has not begun has no end: -1.
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
