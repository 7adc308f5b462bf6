"""ListOffsets (2): the first, the last, or the first offset at or after a time.

Negative timestamps are questions: -1 the end, -2 the start, -3 the record with the largest timestamp,
-4 the start of what is on local disk, -5 the end of what is in remote storage. Without remote storage
everything is local. "The end" is the high watermark: what lies beyond is not there for anyone.

With an offset goes the epoch of the leader that wrote the batch there, not of the one that answers: a reader that
begins at that offset has it checked after every change of leaders (KIP-320), and would not notice, with a larger one,
that its place in the log was written anew. Where no batch is yet, the leader that answers will write it.
"""

from __future__ import annotations

from drmq.broker import Broker, Partition, durable
from drmq.kafka.context import Context
from drmq.kafka.epochs import check_leader_epoch
from drmq.kafka.topics import each_once
from drmq.model import NO_LEADER_EPOCH, ApiError, ErrorCode, LeaderEpoch, Offset
from drmq.records import InvalidBatch
from drmq.storage import StorageError
from drmq.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_NOTHING = (-1, -1)


async def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked = each_once(
        ((topic.name, topic.partitions) for topic in request.topics),
        lambda entry: (entry.partition_index, entry.timestamp, entry.current_leader_epoch),
    )
    topics = []
    for name, entries in asked.items():
        answered = [await _answer(context.broker, name, entry) for entry in entries]
        topics.append(ListOffsetsResponseTopic(name, answered))
    return ListOffsetsResponse(topics=topics)


async def _answer(broker: Broker, topic: str, entry: ListOffsetsRequestPartition) -> ListOffsetsResponsePartition:
    try:
        partition = broker.partitions.by_name(topic, entry.partition_index)
        check_leader_epoch(partition, entry.current_leader_epoch)
        partition.check_readable()
        offset, timestamp = await _find(broker, partition, entry.timestamp)
        epoch = await _epoch_at(broker, partition, entry.timestamp, offset)
    except ApiError as error:
        return ListOffsetsResponsePartition(entry.partition_index, error.code)
    except (StorageError, InvalidBatch, OSError):
        return ListOffsetsResponsePartition(entry.partition_index, ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsResponsePartition(entry.partition_index, 0, timestamp, offset, epoch)


async def _find(broker: Broker, partition: Partition, timestamp: int) -> tuple[int, int]:
    if timestamp == LATEST:
        # Everything that was acknowledged before the question came is below the answer.
        await durable(partition.confirm_leadership, "the end of the log")
        return partition.high_watermark, -1
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return partition.start_offset, -1
    if timestamp == LATEST_TIERED:
        return _NOTHING
    if timestamp == MAX_TIMESTAMP:
        return await broker.max_time(partition) or _NOTHING
    if timestamp < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"timestamp {timestamp} is neither a time nor a known question")
    return await broker.offset_at_time(partition, timestamp) or _NOTHING


async def _epoch_at(broker: Broker, partition: Partition, timestamp: int, offset: int) -> LeaderEpoch:
    """Who wrote what is at the offset that was found, if any was."""
    if offset < 0:
        return NO_LEADER_EPOCH
    log = partition.log
    if timestamp == LATEST or offset >= log.end_offset:
        return partition.leader_epoch
    # The epochs of sealed segments may have to be read from their index files. Where retention is quicker, what was
    # found is gone: the answer is -1 then, and the reader hears of it when it fetches.
    return await broker.blocking(lambda: log.epoch_at(Offset(offset)))
