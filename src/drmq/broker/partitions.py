"""The partitions that this node leads, and the making and unmaking of their logs.

Everything that may block runs on the writer thread or a small pool; the table itself belongs to the
event loop. The writer's reports arrive here and go to the partition whose log they are about.

A partition whose log cannot be opened (acknowledged bytes are damaged, or its directory is gone) is
*stopped*: it answers every request with the reason, its neighbours go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from drmq.broker.clock import Clock
from drmq.broker.logs import LogStore, Snapshots
from drmq.broker.partition import Partition
from drmq.broker.producers import ProducerTable
from drmq.catalog import Topic, TopicConfig
from drmq.model import ApiError, ErrorCode, Offset, TopicId
from drmq.storage import Log, LogOptions, StorageError, Writer

log = logging.getLogger("drmq.broker")

T = TypeVar("T")
PRODUCERS_SNAPSHOT = "producers"
PRODUCERS_SNAPSHOT_AFTER_BYTES = 64 * 1024 * 1024
"""Log since the last snapshot of the producers' table that makes a new one worth its write."""


@dataclass(frozen=True, slots=True)
class StoppedPartition:
    """A partition that cannot be served, and why."""

    topic: str
    index: int
    reason: str


Slot = Partition | StoppedPartition


def log_options(config: TopicConfig) -> LogOptions:
    """What a topic's settings mean to its logs."""
    return LogOptions(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
    )


def load_producers(log: Log, snapshots: Snapshots, end: Offset, now_ms: int) -> ProducerTable:
    """The producers' table as of `end`, the log's end: the newest snapshot, and the headers after it.

    When those batches came is not written down, so their producers count as seen now.
    """
    # A snapshot beyond the end tells of batches that were lost. It goes before others take their offsets.
    snapshots.remove_after(PRODUCERS_SNAPSHOT, end)
    snapshot = snapshots.load_latest(PRODUCERS_SNAPSHOT, not_after=end)
    table = ProducerTable() if snapshot is None else ProducerTable.from_bytes(snapshot.payload)
    start = log.start_offset if snapshot is None else max(snapshot.offset, log.start_offset)
    for header, _ in log.headers(start, end):
        if header.base_offset >= start:
            table.apply(header, now_ms)
    return table


class PartitionTable:
    """Partitions by topic name and by topic id."""

    def __init__(self, store: LogStore, writer: Writer, pool: Executor, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._writer = writer
        self._pool = pool
        self._by_name: dict[str, list[Slot]] = {}
        self._by_id: dict[TopicId, list[Slot]] = {}
        self._by_log: dict[Log, Partition] = {}
        self._saved: dict[Partition, tuple[int, int]] = {}
        """Per partition, bytes written and offset reached when its producers were last saved."""
        self._recoveries: set[asyncio.Task[None]] = set()
        """Held, because an event loop alone does not keep a task alive."""
        self.on_recovered: Callable[[Partition], None] = lambda partition: None
        """Called when a partition goes on after a failed append, so that a state machine on it can reload."""

    # ---- looking up -----------------------------------------------------------------------------

    def by_name(self, topic: str, index: int) -> Partition:
        slots = self._by_name.get(topic)
        if slots is None or not 0 <= index < len(slots):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        return _serving(slots[index])

    def by_id(self, topic_id: TopicId, index: int) -> Partition:
        slots = self._by_id.get(topic_id)
        if slots is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id.hex()}")
        if not 0 <= index < len(slots):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index}")
        return _serving(slots[index])

    def slots(self, topic: str) -> Sequence[Slot]:
        """All partitions of a topic in order, stopped ones included; empty for an unknown topic."""
        return self._by_name.get(topic, ())

    def __iter__(self) -> Iterator[Partition]:
        for slots in list(self._by_id.values()):
            for slot in slots:
                if isinstance(slot, Partition):
                    yield slot

    # ---- making and unmaking --------------------------------------------------------------------

    async def create(self, topic: Topic, first_index: int, config: TopicConfig) -> list[Partition]:
        """New partitions of a topic from `first_index` on, with empty logs, not yet visible to anyone."""
        options = log_options(config)

        def make_logs() -> list[Log]:
            made: list[Log] = []
            try:
                for index in range(first_index, topic.partition_count):
                    made.append(self._store.create_log(topic.name, topic.topic_id, index, options))
            except (StorageError, OSError):
                self._delete_logs(topic, first_index, made)
                raise
            return made

        logs = await self._in_pool(make_logs)
        return [
            Partition(topic.name, topic.topic_id, index, made, self._writer, config, ProducerTable())
            for index, made in enumerate(logs, first_index)
        ]

    def open(self, topic: Topic, config: TopicConfig) -> None:
        """Open the logs of a topic and publish its partitions. Blocks; used before the broker serves."""
        slots: list[Slot] = []
        for index in range(topic.partition_count):
            try:
                slots.append(self._open_one(topic, index, config))
            except (StorageError, OSError) as error:
                log.error("partition %s-%d is stopped: %s", topic.name, index, error)
                slots.append(StoppedPartition(topic.name, index, str(error)))
        self._publish_slots(topic, slots)

    def _open_one(self, topic: Topic, index: int, config: TopicConfig) -> Partition:
        opened = self._store.open_log(topic.name, topic.topic_id, index, log_options(config))
        snapshots = self._store.snapshots(topic.name, topic.topic_id, index)
        producers = load_producers(opened, snapshots, opened.end_offset, self._clock.wall_ms())
        return Partition(topic.name, topic.topic_id, index, opened, self._writer, config, producers)

    def adopt(self, topic: Topic, opened: Log, config: TopicConfig) -> Partition:
        """Serve a one-partition topic from a log that is open already."""
        partition = Partition(topic.name, topic.topic_id, 0, opened, self._writer, config, ProducerTable())
        self._publish_slots(topic, [partition])
        return partition

    def publish(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        """Make new partitions visible, behind those that the topic already has."""
        self._publish_slots(topic, [*self._by_id.get(topic.topic_id, []), *partitions])

    def _publish_slots(self, topic: Topic, slots: list[Slot]) -> None:
        self._by_name[topic.name] = self._by_id[topic.topic_id] = slots
        for slot in slots:
            if isinstance(slot, Partition):
                self._by_log[slot.log] = slot

    def withdraw(self, topic: Topic) -> list[Partition]:
        """Make a deleted topic's partitions invisible and end all waiting on them."""
        slots = self._by_id.pop(topic.topic_id, [])
        if self._by_name.get(topic.name) is slots:
            del self._by_name[topic.name]
        partitions = [slot for slot in slots if isinstance(slot, Partition)]
        for partition in partitions:
            partition.close()
        return partitions

    async def remove(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        """Delete the logs of a withdrawn topic and whatever its directory still holds."""
        for partition in partitions:
            await self.on_writer(partition, partition.log.delete)
            self._by_log.pop(partition.log, None)
            self._saved.pop(partition, None)
        await self._in_pool(lambda: self._store.remove_topic(topic.name, topic.topic_id))

    async def discard(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        """Undo `create`: nobody has seen these partitions."""
        first_index = partitions[0].index
        logs = [partition.log for partition in partitions]
        await self._in_pool(lambda: self._delete_logs(topic, first_index, logs))

    def _delete_logs(self, topic: Topic, first_index: int, logs: Sequence[Log]) -> None:
        """Remove new logs again, as far as the disk lets us: they are empty and nobody knows them."""
        try:
            for made in logs:
                made.delete()
            if first_index == 0:
                self._store.remove_topic(topic.name, topic.topic_id)
        except (StorageError, OSError) as error:
            log.warning("files of topic %s, which was not created, are still there: %s", topic.name, error)

    def set_config(self, topic: Topic, config: TopicConfig) -> None:
        """Let new settings take effect on a topic's partitions."""
        for slot in self._by_id.get(topic.topic_id, []):
            if isinstance(slot, Partition):
                slot.config = config
                slot.log.options = log_options(config)

    # ---- what the writer reports, on the event loop ---------------------------------------------

    def on_written(self, reports: Sequence[tuple[Log, Offset]]) -> None:
        for written, end_offset in reports:
            partition = self._by_log.get(written)
            if partition is not None:
                partition.on_written(end_offset)

    def on_flushed(self, reports: Sequence[tuple[Log, Offset]]) -> None:
        for flushed, flushed_offset in reports:
            partition = self._by_log.get(flushed)
            if partition is not None:
                partition.on_flushed(flushed_offset)

    def on_failed(self, failed: Log, error: Exception, end_offset: Offset) -> None:
        partition = self._by_log.get(failed)
        if partition is None:
            return
        # On a full disk every attempt of every producer comes this way.
        repeat = {"repeat_key": f"refused {partition!r}"}
        log.error("partition %s-%d refuses appends: %s", partition.topic, partition.index, error, extra=repeat)
        first_failure = partition.failure is None
        partition.on_failed(str(error), end_offset)
        if first_failure and not failed.is_fenced:
            task = asyncio.ensure_future(self._recover(partition))
            self._recoveries.add(task)
            task.add_done_callback(self._recoveries.discard)

    async def _recover(self, partition: Partition) -> None:
        """After a failed append, begin again from what the log really holds."""
        snapshots = self._store.snapshots(partition.topic, partition.topic_id, partition.index)

        def reload() -> ProducerTable:
            # On the writer thread, so behind every append that was queued on void offsets.
            partition.log.flush()
            return load_producers(partition.log, snapshots, partition.log.end_offset, self._clock.wall_ms())

        try:
            producers = await self.on_writer(partition, reload)
        except (StorageError, OSError) as error:
            partition.on_failed(str(error), partition.high_watermark)
            return
        self._writer.resume(partition.log)
        partition.recover(producers)
        partition.on_flushed(partition.log.flushed_offset)
        try:
            self.on_recovered(partition)
        except Exception as error:
            # Whoever lives on this log could not go back to what it holds, so nothing may build on it.
            log.exception("partition %s-%d stays closed to appends", partition.topic, partition.index)
            partition.on_failed(str(error), partition.high_watermark)
        else:
            repeat = {"repeat_key": f"recovered {partition!r}"}
            log.info("partition %s-%d takes appends again", partition.topic, partition.index, extra=repeat)

    # ---- snapshots of the producers' tables -----------------------------------------------------

    async def save_producers(self, partition: Partition, *, force: bool = False) -> None:
        """Save the producers' table if enough was written since the last time, so that a start stays quick."""
        saved_bytes, saved_offset = self._saved.get(partition, (0, -1))
        written = partition.committed_bytes
        if not force and written - saved_bytes < PRODUCERS_SNAPSHOT_AFTER_BYTES:
            return
        if partition.failure is not None or saved_offset == partition.next_offset:
            return
        payload, offset = partition.producers.to_bytes(), partition.next_offset
        snapshots = self._store.snapshots(partition.topic, partition.topic_id, partition.index)

        def save() -> bool:
            # On the writer thread, so after the batches that the table speaks of, unless their append failed.
            if partition.log.end_offset < offset:
                return False
            # Flushed first: a crash that took those batches would make this snapshot void, and what an
            # older one rests on may be removed next, by retention or on request.
            partition.log.flush()
            snapshots.save(PRODUCERS_SNAPSHOT, offset, payload)
            return True

        if await self.on_writer(partition, save):
            self._saved[partition] = (written, offset)

    # ---- threads --------------------------------------------------------------------------------

    async def on_writer(self, partition: Partition, function: Callable[[], T]) -> T:
        """Run something on the writer thread, in order with the partition's appends."""
        return await asyncio.wrap_future(self._writer.run(partition.log, function))

    async def _in_pool(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)


def _serving(slot: Slot) -> Partition:
    if isinstance(slot, StoppedPartition):
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, slot.reason)
    return slot
