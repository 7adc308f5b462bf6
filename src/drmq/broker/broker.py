"""The broker: one node's partitions, topics and groups, put together and kept in order.

Starting: open the metadata log and replay it into the catalog; open every topic's logs; replay the
group shards; then serve. Stopping is the reverse: whoever serves clients stops first, then waiting
work ends, snapshots are saved, logs are closed and marked as clean.

In between, maintenance runs once in a while: retention, snapshots, expiry of offsets. A round that
fails is logged and the next one comes all the same.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from drmq.broker.clock import Clock, JumpDetector, SystemClock
from drmq.broker.coordinator import GroupCoordinator
from drmq.broker.logs import LogStore
from drmq.broker.machine import SNAPSHOT_NAME, KeyValue, MachineLog, StateUnreadable, encode_snapshot, load
from drmq.broker.options import BrokerOptions
from drmq.broker.partition import Partition
from drmq.broker.partitions import PartitionTable, StoppedPartition, log_options
from drmq.broker.topics import TopicService
from drmq.broker.writer_bridge import WriterBridge
from drmq.catalog import Catalog, Topic, TopicDefaults, decode_fact, effective, encode_fact
from drmq.groups import GroupOptions, GroupShard, record_from_bytes, record_to_bytes
from drmq.model import NodeId, Offset, TopicId
from drmq.model.names import CLUSTER_METADATA, CONSUMER_OFFSETS
from drmq.records import find_timestamp
from drmq.storage import Log, StorageError, Writer

log = logging.getLogger("drmq.broker")

T = TypeVar("T")

METADATA_TOPIC = Topic(TopicId(bytes(15) + b"\x01"), CLUSTER_METADATA, 1)
"""The topic of the metadata log. It stands outside the catalog, which is made from it."""

_OFFSET_EXPIRY_INTERVAL_S = 600.0
_BLOCKING_THREADS = 4
_OWN_SEGMENT_BYTES = 16 * 1024 * 1024


class Broker:
    """One node. Make it, `start` it on a running loop, `stop` it; in between it answers the API layer."""

    def __init__(
        self, node_id: NodeId, store: LogStore, options: BrokerOptions | None = None, clock: Clock | None = None
    ) -> None:
        self.node_id = node_id
        self.store = store
        self.options = options or BrokerOptions()
        self.clock = clock or SystemClock()
        self.advertised: tuple[str, int] = ("localhost", 0)
        """Where clients are told to connect; set once the listener is bound."""
        self._pool = ThreadPoolExecutor(_BLOCKING_THREADS, "drmq-blocking")
        self._bridge = WriterBridge(self._on_writer_crashed)
        self.writer = Writer(self._bridge)
        self.partitions = PartitionTable(store, self.writer, self._pool, self.clock)
        self.catalog = Catalog()
        self.groups = GroupCoordinator(_group_options(self.options), self.clock)
        self.topics: TopicService
        self._jumps = JumpDetector(self.clock)
        self._tasks: list[asyncio.Task[None]] = []
        self.on_fatal: Callable[[BaseException], None] = lambda error: None
        """Called when the node cannot go on; the server ends the process."""

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id

    # ---- starting -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open everything and begin to serve. Raises `StateUnreadable` and other `DrmqError`s."""
        try:
            await self._open()
        except BaseException:
            # Nothing was served, so nothing needs saving: let go of the threads and the directory.
            self.writer.stop()
            self._pool.shutdown()
            self.store.close()
            raise

    async def _open(self) -> None:
        self._bridge.attach(asyncio.get_running_loop(), self.partitions)
        self.partitions.on_recovered = self._on_partition_recovered
        metadata = self._open_metadata()
        defaults = TopicDefaults(
            max_message_bytes=self.options.message_bytes_max,
            retention_ms=self.options.retention_ms,
            retention_bytes=self.options.retention_bytes,
            segment_bytes=self.options.segment_bytes,
            segment_ms=self.options.segment_ms,
        )
        self.topics = TopicService(self.catalog, MachineLog(metadata), self.partitions, defaults, self.clock)
        self.topics.on_deleted = lambda topic: self.groups.forget_topics([topic.name])
        for topic in list(self.catalog.topics.values()):
            self.partitions.open(topic, self.topics.config_of(topic))
        self.writer.start()
        if CONSUMER_OFFSETS not in self.catalog.topics:
            await self.topics.create(
                CONSUMER_OFFSETS,
                self.new_topic_id(),
                self.options.offsets_topic_partitions,
                {"retention.ms": "-1", "segment.bytes": str(_OWN_SEGMENT_BYTES)},
                internal=True,
            )
        for slot in self.partitions.slots(CONSUMER_OFFSETS):
            if isinstance(slot, StoppedPartition):
                raise StateUnreadable(f"the state of consumer groups cannot be read: {slot.reason}")
            self.groups.add_shard(self._load_shard(slot), MachineLog(slot))
        # A crash may have come between a deletion and the moment when groups forget the topic.
        deleted = {topic.name for topic in self.catalog.purges_pending.values()}
        self.groups.forget_topics(deleted - self.catalog.topics.keys())
        await self.topics.finish_deletions()
        self._tasks = [
            asyncio.create_task(self._repeat(self.options.retention_check_interval_ms / 1000, self.maintain)),
            asyncio.create_task(self._repeat(_OFFSET_EXPIRY_INTERVAL_S, self._expire_offsets)),
        ]

    def _open_metadata(self) -> Partition:
        config = effective({}, TopicDefaults(retention_ms=-1, segment_bytes=_OWN_SEGMENT_BYTES))
        has_log = self.store.has_log(METADATA_TOPIC.name, METADATA_TOPIC.topic_id, 0)
        if not has_log and self.store.has_topics():
            raise StateUnreadable(
                f"{self.store.location} holds topics, but the metadata log that describes them is gone; "
                "restore internal/ from a backup, or start with an empty directory"
            )
        opener = self.store.open_log if has_log else self.store.create_log
        try:
            opened = opener(METADATA_TOPIC.name, METADATA_TOPIC.topic_id, 0, log_options(config))
            self.catalog = self._load_catalog(opened)
        except StorageError as error:
            raise StateUnreadable(f"the metadata log cannot be read: {error}") from error
        return self.partitions.adopt(METADATA_TOPIC, opened, config)

    def _load_catalog(self, metadata: Log) -> Catalog:
        catalog = Catalog()
        snapshots = self.store.snapshots(METADATA_TOPIC.name, METADATA_TOPIC.topic_id, 0)
        load(metadata, snapshots, lambda key, value: catalog.replay(decode_fact(value or b"{}")))
        return catalog

    def _load_shard(self, partition: Partition) -> GroupShard:
        shard = GroupShard(self.groups.options, _new_member_id)
        snapshots = self.store.snapshots(partition.topic, partition.topic_id, partition.index)
        load(partition.log, snapshots, lambda key, value: shard.replay(record_from_bytes(key, value)))
        return shard

    # ---- stopping -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End in order: background work, waiting answers, snapshots, logs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.groups.stop()
        for partition in self.partitions:
            try:
                await self.partitions.save_producers(partition, force=True)
            except (StorageError, OSError) as error:
                log.warning("no snapshot of the producers of %r: %s", partition, error)
        await self._save_machines(force=True)
        await asyncio.to_thread(self._close_logs)

    def _close_logs(self) -> None:
        for partition in self.partitions:
            try:
                self.writer.run(partition.log, partition.log.close).result()
            except (StorageError, OSError) as error:
                log.error("%r was not closed cleanly: %s", partition, error)
        self.writer.stop()
        self._pool.shutdown()
        self.store.close()

    def _on_writer_crashed(self, error: BaseException) -> None:
        log.critical("the writer thread died; the node stops", exc_info=error)
        self.on_fatal(error)

    # ---- maintenance ----------------------------------------------------------------------------

    async def _repeat(self, interval_s: float, function: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                result = function()
                if asyncio.iscoroutine(result):
                    await result
            except Exception:
                log.exception("a round of maintenance failed; the next one comes in %.0f s", interval_s)

    async def maintain(self) -> None:
        """One round of retention and snapshots over all partitions."""
        now_ms = self.clock.wall_ms()
        if self._jumps.has_jumped():
            log.warning("the clock was set to another time; nothing expires in this round of retention")
            return
        for partition in self.partitions:
            if partition.failure is not None or partition.topic == CLUSTER_METADATA:
                continue
            try:
                if partition.topic != CONSUMER_OFFSETS:
                    await self._retain(partition, now_ms)
                partition.producers.forget_idle(now_ms - self.options.producer_expiry_ms)
                await self.partitions.save_producers(partition)
            except (StorageError, OSError) as error:
                # Its topic was deleted in the meantime, or its disk fails: the others must not wait for it.
                log.warning("maintenance of %r failed: %s", partition, error)
        await self._save_machines()

    async def _retain(self, partition: Partition, now_ms: int) -> None:
        config, kept = partition.config, partition.log

        def apply() -> int:
            kept.maybe_roll(now_ms)
            return kept.apply_retention(now_ms, config.retention_ms, config.retention_bytes)

        if config.retention_ms < 0 and config.retention_bytes < 0:
            await self.partitions.on_writer(partition, lambda: kept.maybe_roll(now_ms))
            return
        # What retention removes cannot be walked any more to rebuild the producers' table.
        await self.partitions.save_producers(partition, force=len(partition.producers) > 0)
        freed = await self.partitions.on_writer(partition, apply)
        if freed:
            log.info("retention freed %d segments of %r; it starts at %d now", freed, partition, kept.start_offset)

    async def _save_machines(self, *, force: bool = False) -> None:
        """Snapshot state machines whose logs have grown, and drop what the snapshots cover."""
        if force or self.topics.machine.wants_snapshot:
            await self._save_machine(self.topics.machine, [encode_fact(fact) for fact in self.catalog.snapshot()])
        for shard in self.groups.shards:
            if force or shard.log.wants_snapshot:
                records = [record_to_bytes(record) for record in shard.shard.snapshot()]
                await self._save_machine(shard.log, records)

    async def _save_machine(self, machine: MachineLog, records: Sequence[KeyValue]) -> None:
        partition = machine.partition
        if partition.failure is not None:
            return
        offset = partition.next_offset
        snapshots = self.store.snapshots(partition.topic, partition.topic_id, partition.index)

        def save() -> None:
            if partition.log.end_offset < offset:
                return  # an append failed; the machine is about to be loaded anew
            # Flushed first: a snapshot of records that a crash can still undo would invent them.
            partition.log.flush()
            snapshots.save(SNAPSHOT_NAME, offset, encode_snapshot(records))
            # The log is kept from the older of the two snapshots on: should the newer one be damaged,
            # the older one and the log still amount to everything.
            partition.log.drop_prefix(min(snapshots.offsets(SNAPSHOT_NAME), default=Offset(0)))

        try:
            await self.partitions.on_writer(partition, save)
        except (StorageError, OSError) as error:
            log.warning("no snapshot of %r: %s", partition, error)
            return
        machine.on_snapshot_saved()

    def _expire_offsets(self) -> None:
        self.groups.expire_offsets()

    def _on_partition_recovered(self, partition: Partition) -> None:
        """A state machine's log lost its unwritten tail: the machine goes back to what the log holds."""
        if partition.topic == CONSUMER_OFFSETS:
            self.groups.shards[partition.index].restart(self._load_shard(partition), self.clock.monotonic_ms())
        elif partition.topic == CLUSTER_METADATA:
            self.catalog = self._load_catalog(partition.log)
            self.topics.restart(self.catalog)

    # ---- questions that need a look into the log ------------------------------------------------

    async def offset_at_time(self, partition: Partition, timestamp: int) -> tuple[Offset, int] | None:
        """Offset and time of the first visible record that is not older than `timestamp`."""
        searched, up_to = partition.log, partition.high_watermark

        def search() -> tuple[Offset, int] | None:
            batch = searched.batch_at_time(timestamp, up_to)
            if batch is None:
                return None
            found = find_timestamp(batch.data, timestamp, self.options.decompressed_bytes_max)
            if found is None or found[0] >= searched.start_offset:
                return found
            return searched.start_offset, found[1]

        return await self.blocking(search)

    async def max_time(self, partition: Partition) -> tuple[Offset, int] | None:
        """Offset and time of the newest record by timestamp."""
        searched, up_to = partition.log, partition.high_watermark

        def search() -> tuple[Offset, int] | None:
            latest = searched.latest_time()
            if latest.base_offset < 0:
                return None
            batch = searched.batch_at_time(latest.timestamp, up_to)
            if batch is None:
                return None
            return find_timestamp(batch.data, latest.timestamp, self.options.decompressed_bytes_max)

        return await self.blocking(search)

    async def delete_records(self, partition: Partition, before: Offset) -> Offset:
        """Remove the records below `before`, durably; the new start of the log."""
        await self.partitions.save_producers(partition, force=len(partition.producers) > 0)
        await self.partitions.on_writer(partition, lambda: partition.log.drop_prefix(before))
        return partition.log.start_offset

    async def blocking(self, function: Callable[[], T]) -> T:
        """Run something that may wait for the disk, on the small pool for such work."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def new_topic_id(self) -> TopicId:
        return TopicId(uuid.uuid4().bytes)


def _group_options(options: BrokerOptions) -> GroupOptions:
    return GroupOptions(
        session_timeout_ms_min=options.group_session_timeout_min_ms,
        session_timeout_ms_max=options.group_session_timeout_max_ms,
        initial_rebalance_delay_ms=options.group_initial_rebalance_delay_ms,
        group_size_max=options.group_size_max,
        offset_metadata_size_bytes_max=options.offset_metadata_bytes_max,
        offsets_retention_ms=options.offsets_retention_ms,
    )


def _new_member_id(client_id: str) -> str:
    return f"{client_id}-{secrets.token_hex(16)}"
