"""OffsetForLeaderEpoch (23): where a leader epoch ended, so that a reader notices a log that was cut (KIP-320).

An epoch that the log does not know is answered with the one before it. The epoch under way ends, for
a reader, at the high watermark. An epoch that has not begun has no end: -1.
"""

from __future__ import annotations

from drmq.broker import Broker, Partition
from drmq.kafka.context import Context
from drmq.kafka.epochs import check_leader_epoch
from drmq.kafka.topics import each_once
from drmq.model import NO_LEADER_EPOCH, ApiError, ErrorCode, LeaderEpoch, Offset
from drmq.storage import StorageError
from drmq.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)

_NO_END = (NO_LEADER_EPOCH, Offset(-1))


async def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    asked = each_once(
        ((topic.topic, topic.partitions) for topic in request.topics),
        lambda entry: (entry.partition, entry.leader_epoch, entry.current_leader_epoch),
    )
    for name, entries in asked.items():
        answered = [await _answer(context.broker, name, entry) for entry in entries]
        response.topics.append(OffsetForLeaderEpochResponseTopic(name, answered))
    return response


async def _answer(
    broker: Broker, topic: str, entry: OffsetForLeaderEpochRequestPartition
) -> OffsetForLeaderEpochResponsePartition:
    try:
        partition = broker.partitions.by_name(topic, entry.partition)
        partition.check_readable()
        check_leader_epoch(partition, entry.current_leader_epoch)
        epoch, end_offset = await _end_of(broker, partition, LeaderEpoch(entry.leader_epoch))
    except ApiError as error:
        return OffsetForLeaderEpochResponsePartition(error.code, entry.partition)
    except (StorageError, OSError):
        return OffsetForLeaderEpochResponsePartition(ErrorCode.KAFKA_STORAGE_ERROR, entry.partition)
    return OffsetForLeaderEpochResponsePartition(ErrorCode.NONE, entry.partition, epoch, end_offset)


async def _end_of(broker: Broker, partition: Partition, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
    if epoch < 0 or epoch > partition.leader_epoch:
        return _NO_END
    visible = partition.high_watermark
    if epoch == partition.leader_epoch:
        return epoch, visible
    # The epochs of sealed segments may have to be read from their index files.
    found, end_offset = await broker.blocking(lambda: partition.log.end_of_epoch(epoch))
    return found, min(end_offset, visible)
