"""Lookups in the log of a partition: offsets by time, the end of a leader epoch, and the start of the log.

Only a leader that knows what is committed answers. Operations that may wait for the disk run on the thread pool for
clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from drmq.broker.durability import durable
from drmq.broker.partitions.partition import Partition
from drmq.broker.partitions.partition_table import PartitionTable
from drmq.broker.partitions.producer_table import Producer
from drmq.broker.services.fair_queue import FairQueue
from drmq.columnar.timestamps import find_timestamp
from drmq.model import NO_LEADER_EPOCH, ApiError, ErrorCode, LeaderEpoch, Offset
from drmq.model.names import check_not_internal
from drmq.records import Buffer, Codec, read_header
from drmq.storage import StoredBatch

T = TypeVar("T")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
"""Special timestamps: the end, the start, the record with the largest timestamp, the start of the data on local disk,
the end of the data in remote storage."""
HIGH_WATERMARK = Offset(-1)
"""As the offset of `move_start`: remove all records."""
_SEARCHES_MAX = 3
"""Searches by time at once. They share the threads with reads that wait for the disk, and leave one for these."""
_SEARCHES_PER_CALLER_MAX = 2
_FALSE_MAX = 16
"""Batches without a record as new as their header says, after which a search ends with the next one, looked at or not.
Each may take a second. Nothing that was asked for is before that batch."""
_NOTHING = (Offset(-1), -1)
_NO_END = (NO_LEADER_EPOCH, Offset(-1))


class Blocking(Protocol):
    """Runs a function for a client that may wait for the disk."""

    def __call__(self, function: Callable[[], T]) -> Awaitable[T]: ...


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Raise `ApiError` if the client's leader epoch is older or newer than ours (KIP-320); -1 is not checked."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return
    if epoch < partition.leader_epoch:
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {epoch} has ended, the current one is {partition.leader_epoch}; refresh the metadata",
        )
    raise ApiError(
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"leader epoch {epoch} is newer than {partition.leader_epoch}, the newest that this node knows; try again",
    )


class Lookups:
    """Looks into the logs of partitions that this node leads."""

    def __init__(
        self,
        partitions: PartitionTable,
        blocking: Blocking,
        decompressing: asyncio.Lock,
        decompressed_bytes_max: int,
    ) -> None:
        self._partitions = partitions
        self._blocking = blocking
        self._decompressed_bytes_max = decompressed_bytes_max
        self._searches = FairQueue(_SEARCHES_MAX, _SEARCHES_PER_CALLER_MAX)
        self._decompressing = decompressing
        """Held while a batch is decompressed: `decompressed_bytes_max` is the limit of the node, not of each search."""

    # ---- offsets by time ------------------------------------------------------------------------

    async def find_offset(
        self, topic: str, index: int, timestamp: int, current_leader_epoch: int = NO_LEADER_EPOCH, caller: str = ""
    ) -> tuple[Offset, int, LeaderEpoch]:
        """Find the offset for a timestamp or special timestamp; returns offset, time and epoch, each -1 for nothing.

        Callers, by their addresses, take turns.

        The epoch is that of the leader that wrote the batch at the offset, not that of the current leader. A reader
        that starts at the offset has this epoch checked after every change of the leader (KIP-320). With a larger one
        it would not detect that its position in the log was overwritten. If there is no batch at the offset yet, the
        epoch is that of the current leader, which will write it. Raises `ApiError`, and the errors of storage and
        records.
        """
        partition = self._partitions.by_name(topic, index)
        check_leader_epoch(partition, current_leader_epoch)
        partition.check_readable()
        offset, found_ms = await self._find(partition, timestamp, caller)
        return offset, found_ms, await self._epoch_at(partition, timestamp, offset)

    async def _find(self, partition: Partition, timestamp: int, caller: str) -> tuple[Offset, int]:
        if timestamp == LATEST:
            # Ensures that every record that was acknowledged before this request is below the returned offset.
            await durable(partition.confirm_leadership, "the end of the log")
            return partition.high_watermark, -1
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return partition.start_offset, -1
        if timestamp == LATEST_TIERED:
            return _NOTHING
        if timestamp == MAX_TIMESTAMP:
            return await self._searches.run(caller, lambda: self.max_time(partition)) or _NOTHING
        if timestamp < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"timestamp {timestamp} is neither a time nor a known special timestamp"
            )
        return await self._searches.run(caller, lambda: self.offset_at_time(partition, timestamp)) or _NOTHING

    async def _epoch_at(self, partition: Partition, timestamp: int, offset: Offset) -> LeaderEpoch:
        """The epoch of the leader that wrote the batch at `offset`; -1 if no offset was found."""
        if offset < 0:
            return NO_LEADER_EPOCH
        log = partition.log
        if timestamp == LATEST or offset >= log.end_offset:
            return partition.leader_epoch
        # The epochs of sealed segments may have to be read from their index files. If retention has removed the batch
        # in the meantime, the epoch is -1, and the reader gets an error when it fetches.
        return await self._blocking(lambda: log.epoch_at(offset))

    async def offset_at_time(self, partition: Partition, timestamp: int) -> tuple[Offset, int] | None:
        """Offset and time of the first visible record at or after `timestamp`."""
        searched, up_to, start = partition.log, partition.high_watermark, partition.start_offset
        after = start
        for _ in range(_FALSE_MAX):
            batch = await self._blocking(partial(searched.batch_at_time, timestamp, up_to, after))
            if batch is None:
                return None
            # The header has the time of its producer, which no record need have. Then a later batch may have one.
            found = await self._find_in(batch.data, timestamp)
            if found is not None:
                return max(start, found[0]), found[1]
            after = batch.header.next_offset
        batch = await self._blocking(partial(searched.batch_at_time, timestamp, up_to, after))
        return None if batch is None else (batch.header.base_offset, timestamp)

    async def _find_in(self, batch: Buffer, timestamp: int) -> tuple[Offset, int] | None:
        """The first record of a batch at or after `timestamp`."""

        def find() -> tuple[Offset, int] | None:
            return find_timestamp(batch, timestamp, self._decompressed_bytes_max)

        if read_header(batch).codec == Codec.NONE:
            return await self._blocking(find)
        async with self._decompressing:
            return await self._blocking(find)

    async def max_time(self, partition: Partition) -> tuple[Offset, int] | None:
        """Offset and time of the record with the largest timestamp."""
        searched, up_to = partition.log, partition.high_watermark

        def search() -> tuple[StoredBatch, int] | None:
            latest = searched.latest_time(up_to)
            if latest.base_offset < 0:
                return None
            batch = searched.batch_at_time(latest.timestamp, up_to)
            return None if batch is None else (batch, latest.timestamp)

        found = await self._blocking(search)
        if found is None:
            return None
        batch, timestamp = found
        # If no record has the time that the header of the batch claims, the claim is the answer. To find the largest
        # time of all records, every batch would have to be read.
        return await self._find_in(batch.data, timestamp) or (batch.header.base_offset, timestamp)

    # ---- epochs ---------------------------------------------------------------------------------

    async def end_of_epoch(
        self, topic: str, index: int, epoch: LeaderEpoch, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> tuple[LeaderEpoch, Offset]:
        """The epoch, or the last one before it that the log has, and its end offset; both -1 if it has not begun.

        For readers, the current epoch ends at the high watermark.
        """
        partition = self._partitions.by_name(topic, index)
        partition.check_readable()
        check_leader_epoch(partition, current_leader_epoch)
        if epoch < 0 or epoch > partition.leader_epoch:
            return _NO_END
        visible = partition.high_watermark
        if epoch == partition.leader_epoch:
            return epoch, visible
        # The epochs of sealed segments may have to be read from their index files.
        found, end_offset = await self._blocking(lambda: partition.log.end_of_epoch(epoch))
        return found, min(end_offset, visible)

    # ---- producers ------------------------------------------------------------------------------

    def producers(self, topic: str, index: int) -> Mapping[int, Producer]:
        """The idempotent producers that this replica of a partition remembers, by id. Raises `ApiError`."""
        partition = self._partitions.by_name(topic, index)
        if partition.failure is not None or not partition.state.is_current:
            reason = partition.failure or f"the producers of {topic}-{index} are being read again"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        return partition.producers.by_id

    # ---- the start of a log ---------------------------------------------------------------------

    async def move_start(self, topic: str, index: int, before: int) -> Offset:
        """Remove the records below `before`, or all for `HIGH_WATERMARK`; returns the new log start offset.

        An offset below the log start offset changes nothing and is not an error. Raises `ApiError`.
        """
        check_not_internal(topic)
        partition = self._partitions.by_name(topic, index)
        partition.check_serving()
        visible = partition.high_watermark
        if before == HIGH_WATERMARK:
            before = visible
        if not 0 <= before <= visible:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {before} is not within 0 and {visible}, the high watermark"
            )
        if before <= partition.start_offset:
            return partition.start_offset
        return await self.delete_records(partition, Offset(before))

    async def delete_records(self, partition: Partition, before: Offset) -> Offset:
        """Remove the records below `before` on all replicas; returns the new log start offset. Raises `ApiError`."""
        await durable(lambda done: partition.trim(before, done), f"the deletion of records of {partition!r}")
        return partition.start_offset
