"""The replicas on this node, and creating, opening and removing their files.

Everything that may block runs on the writer thread or a small pool for replicas; the table itself is used on the event
loop. The writer's reports arrive here and are passed to the partition of the log.

A partition whose files cannot be opened (acknowledged bytes are damaged, or its directory is gone) is *stopped*: it
answers every request with the reason, and other partitions are not affected. It does not take part in its group: a
replica that lost what it promised would do harm there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol, TypeVar
from zlib import crc32

from drmq.broker.clock import Clock
from drmq.broker.partitions.commit_times import CommitTimes
from drmq.broker.partitions.derived_state import (
    INSTALL_SNAPSHOT,
    Machine,
    MachineState,
    MessageState,
    base_of,
    load_producers,
    unpack_snapshot,
)
from drmq.broker.partitions.log_store import LogStore
from drmq.broker.partitions.partition import Partition
from drmq.broker.partitions.producer_table import ProducerTable
from drmq.broker.partitions.role_events import RoleEvents
from drmq.broker.replication.entry_log import EntryLog
from drmq.broker.replication.group_host import GroupHost
from drmq.broker.replication.incoming_snapshot import IncomingSnapshot
from drmq.broker.replication.outgoing_snapshot import SnapshotCache
from drmq.broker.replication.replica import Replica
from drmq.catalog import METADATA_VERSION, TYPED_ENTRIES, Catalog, Topic, TopicConfig
from drmq.model import (
    ApiError,
    ErrorCode,
    GroupId,
    MemberId,
    NodeId,
    Offset,
    TopicId,
    incarnation_of,
    member_id,
    node_of,
)
from drmq.model.names import INTERNAL_PREFIX
from drmq.raft import NO_INDEX, NO_TERM, Configuration, Leadership, MembersChange, configuration_to_bytes
from drmq.storage import LedgerBase, LedgerLike, Log, LogCorrupt, LogOptions, StorageError, Writer
from drmq.telemetry.system_errors import in_words

log = logging.getLogger("drmq.broker")

T = TypeVar("T")
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class StoppedPartition:
    """A partition that cannot be served, and why."""

    topic: str
    index: int
    reason: str
    member: MemberId
    """The member id that this node would have had in the partition's group."""


Slot = Partition | StoppedPartition


class PartitionRegistry(Protocol):
    """What must know of each partition of an internal topic; `coordination.InternalTopics` is the real one."""

    def machine_of(self, topic: Topic, index: int) -> Machine | None:
        """The state machine of a partition that is about to be opened; None for a partition of messages."""

    def is_readable(self, topic: str) -> bool: ...

    def on_opened(self, partition: Partition) -> None: ...

    def on_removed(self, partition: Partition) -> None: ...


def log_options(config: TopicConfig, group: GroupId) -> LogOptions:
    """The log options of a partition that follow from its topic's settings."""
    jitter_ms = min(config.segment_jitter_ms, config.segment_ms - 1)
    return LogOptions(
        segment_bytes=config.segment_bytes,
        # Always the same for a partition, so that a restart does not change it.
        segment_ms=config.segment_ms - crc32(group.topic_id, group.partition) % (jitter_ms + 1),
        index_interval_bytes=config.index_interval_bytes,
    )


class PartitionTable:
    """The partitions on this node by topic name and by topic id. Implements `PartitionEvents`."""

    def __init__(
        self,
        store: LogStore,
        host: GroupHost,
        writer: Writer,
        pool: Executor,
        snapshot_cache: SnapshotCache,
        clock: Clock,
        internal_topics: PartitionRegistry,
    ) -> None:
        self.committed_catalog: Callable[[], Catalog] = Catalog
        """The committed catalog of the whole cluster; set by the broker."""
        self.on_role: Callable[[Partition], None] = lambda partition: None
        """Called when a partition's role, term, leader or readiness to serve has changed."""
        self.on_trimmed: Callable[[Partition], None] = lambda partition: None
        """Called when a partition has records to remove."""
        self.on_damage: Callable[[Partition], None] = lambda partition: None
        """Called when the content of a partition cannot be read back."""
        self.uncommitted_bytes = 0
        """Bytes that producers have sent to partitions led here and that a majority does not have yet."""
        self.produced_records = self.produced_bytes = 0
        """What producers have sent to partitions led here, since the start."""
        self.commit_times = CommitTimes()
        self.believed_ms = 0
        """The time of the last expiry."""
        self.events = RoleEvents(host.call_later)
        self._store = store
        self._host = host
        self._clock = clock
        self._writer = writer
        self._pool = pool
        self._snapshot_cache = snapshot_cache
        self._internal_topics = internal_topics
        self._by_name: dict[str, dict[int, Slot]] = {}
        self._by_id: dict[TopicId, dict[int, Slot]] = {}
        self._stopped: dict[TopicId, set[int]] = {}
        """The partitions of each topic that are stopped."""
        self._by_log: dict[Log, Partition] = {}

    # ---- lookup ---------------------------------------------------------------------------------

    def by_name(self, topic: str, index: int, *, reads_records: bool = True) -> Partition:
        """A partition for a client's request. Raises `ApiError` where it cannot be used, or not read, by clients."""
        slots = self._by_name.get(topic)
        slot = slots.get(index) if slots is not None else None
        if slot is None:
            known = self.committed_catalog().topics.get(topic)
            if known is None or not 0 <= index < known.partition_count:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is on other nodes")
        if reads_records and topic.startswith(INTERNAL_PREFIX):
            self._check_readable(topic)
        return _serving(slot)

    def by_id(self, topic_id: TopicId, index: int) -> Partition:
        slots = self._by_id.get(topic_id)
        slot = slots.get(index) if slots is not None else None
        if slot is None:
            known = self.committed_catalog().topics_by_id.get(topic_id)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id.hex()}")
            if not 0 <= index < known.partition_count:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index}")
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{known.name}-{index} is on other nodes")
        if slot.topic.startswith(INTERNAL_PREFIX):
            self._check_readable(slot.topic)
        return _serving(slot)

    def _check_readable(self, topic: str) -> None:
        if not self._internal_topics.is_readable(topic):
            raise ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{topic} holds internal state that clients cannot read"
            )

    def slots(self, topic_id: TopicId) -> Mapping[int, Slot]:
        """The partitions of a topic on this node, stopped ones included."""
        return self._by_id.get(topic_id, {})

    def stopped(self, topic_id: TopicId) -> Set[int]:
        """The partitions of a topic that are stopped on this node."""
        return self._stopped.get(topic_id, _NONE)

    def count_stopped(self) -> int:
        """The number of replicas on this node that are stopped."""
        return sum(map(len, self._stopped.values()))

    def __iter__(self) -> Iterator[Partition]:
        for slots in list(self._by_id.values()):
            for slot in list(slots.values()):
                if isinstance(slot, Partition):
                    yield slot

    # ---- creating and opening -------------------------------------------------------------------

    def make(
        self, topic: Topic, index: int, config: TopicConfig, members: Iterable[MemberId], *, over: bool = False
    ) -> Partition:
        """Create a replica with empty files, not yet part of its group. Blocks.

        `members` are the first members of its group; none for a replica that joins an existing group. `over` replaces
        files that were never used.
        """
        configuration = Configuration.of(members)
        base = LedgerBase(NO_INDEX, NO_TERM, Offset(0), configuration_to_bytes(configuration))
        if over:
            self._store.remove_partition(topic.name, topic.topic_id, index)
        made = self._store.create_log(
            topic.name, topic.topic_id, index, log_options(config, GroupId(topic.topic_id, index))
        )
        try:
            ledger = self._store.create_ledger(topic.name, topic.topic_id, index, base)
        except (StorageError, OSError):
            made.delete()
            raise
        return self._assemble(topic, index, config, made, ledger)

    def was_used(self, topic: Topic, index: int) -> bool:
        """Whether the files of a replica contain anything that must not be lost. Blocks."""
        return self._store.was_used(topic.name, topic.topic_id, index)

    def open(self, topic: Topic, index: int, config: TopicConfig) -> Partition:
        """Open the replica whose files exist. Blocks. Raises `StorageError` or `OSError` if it cannot be used."""
        name, topic_id = topic.name, topic.topic_id
        options = log_options(config, GroupId(topic_id, index))
        snapshots = self._store.snapshots(name, topic_id, index)
        install = snapshots.load_latest(INSTALL_SNAPSHOT)
        if install is None:
            opened = self._store.open_log(name, topic_id, index, options)
            ledger = self._store.open_ledger(name, topic_id, index)
            _check_together(opened, ledger)
            return self._assemble(topic, index, config, opened, ledger)
        # The node crashed while a snapshot replaced log and state. That is repeated from the beginning.
        meta, body = unpack_snapshot(install.payload)
        opened = self._store.reset_log(name, topic_id, index, options, install.offset)
        ledger = self._store.open_ledger(name, topic_id, index)
        ledger.reset(base_of(meta))
        state = self._state(topic, index, opened)
        state.finish_snapshot(meta, body)
        return self._assemble(topic, index, config, opened, ledger)

    def _state(self, topic: Topic, index: int, opened: Log) -> MachineState | MessageState:
        snapshots = self._store.snapshots(topic.name, topic.topic_id, index)
        machine = self._internal_topics.machine_of(topic, index)
        if machine is None:
            return MessageState(opened, snapshots, self.seen_ms)
        return MachineState(opened, snapshots, machine)

    def _assemble(self, topic: Topic, index: int, config: TopicConfig, opened: Log, ledger: LedgerLike) -> Partition:
        state = self._state(topic, index, opened)
        producers, snapshot = ProducerTable(), None
        if isinstance(state, MachineState):
            snapshot = state.load()
        else:
            producers = load_producers(opened, state.snapshots, opened.end_offset, self.seen_ms())
        partition = Partition(topic.name, topic.topic_id, index, opened, config, producers, state, self)
        entries = EntryLog(opened, ledger.base, ledger.entries, snapshot, self._host.recent_memory)
        incoming = IncomingSnapshot(opened.name, self._store.incoming(topic.name, topic.topic_id, index))
        incoming.load(entries.snapshot.index)
        member = self.member_in(topic, index)
        partition.replica = Replica(
            partition.group, member, entries, ledger, incoming, self._host, partition, self._snapshot_cache
        )
        if isinstance(state, MachineState):
            partition.high_watermark = partition.acked_offset = state.applied_offset
        return partition

    member: MemberId
    """This node's member id in groups that it was in from the start; set by the broker before anything is opened."""

    def member_in(self, topic: Topic, index: int) -> MemberId:
        """This node's member id in the group of a partition: a new one each time that it is given the partition."""
        node_id = node_of(self.member)
        arrival = topic.partitions[index].arrival(node_id) if index < topic.partition_count else 0
        return member_id(node_id, incarnation_of(self.member) + arrival)

    def publish(self, partition: Partition) -> None:
        """Serve a partition, and make it take part in its group."""
        self._internal_topics.on_opened(partition)
        self._put(partition.topic, partition.topic_id, partition.index, partition)
        self._by_log[partition.log] = partition
        self._host.add(partition)

    def rejoin(self, partition: Partition, preferred: NodeId) -> None:
        """Make a partition that was closed find its leader. `preferred` should lead it if no other node does."""
        self._host.rejoin(partition, preferred)

    def publish_stopped(self, topic: Topic, index: int, reason: str, *, may_repeat: bool = False) -> None:
        """Answer requests for a partition with the reason why it cannot be used.

        With `may_repeat`, the cause may concern all partitions and many attempts, so not each one is logged.
        """
        repeat = {"repeat_key": f"stopped partitions of {topic.name}"} if may_repeat else None
        log.error("partition %s-%d is stopped: %s", topic.name, index, reason, extra=repeat)
        self._put(
            topic.name, topic.topic_id, index, StoppedPartition(topic.name, index, reason, self.member_in(topic, index))
        )

    def _put(self, name: str, topic_id: TopicId, index: int, slot: Slot) -> None:
        slots = self._by_id.setdefault(topic_id, {})
        self._by_name[name] = slots
        slots[index] = slot
        if isinstance(slot, StoppedPartition):
            self._stopped.setdefault(topic_id, set()).add(index)
        elif topic_id in self._stopped:
            self._resume(GroupId(topic_id, index))

    def _resume(self, group: GroupId) -> None:
        stopped = self._stopped.get(group.topic_id, set())
        stopped.discard(group.partition)
        if not stopped:
            self._stopped.pop(group.topic_id, None)

    # ---- removing -------------------------------------------------------------------------------

    def withdraw(self, group: GroupId) -> Partition | None:
        """Stop serving a partition, and end all waiting on it."""
        slots = self._by_id.get(group.topic_id, {})
        slot = slots.pop(group.partition, None)
        self._resume(group)
        if slot is not None and not slots:
            del self._by_id[group.topic_id]
            if self._by_name.get(slot.topic) is slots:
                # Otherwise another topic has the name by now.
                del self._by_name[slot.topic]
        if not isinstance(slot, Partition):
            return None
        self._host.remove(slot)
        slot.close()
        self._internal_topics.on_removed(slot)
        return slot

    async def put_away(self, partition: Partition) -> None:
        """Close the files of a partition that was never served. They are kept."""

        def close() -> None:
            partition.replica.ledger.close()
            partition.log.close()

        await self.on_writer(partition, close)

    async def remove(self, partition: Partition) -> None:
        """Delete the files of a withdrawn partition."""

        def delete() -> None:
            partition.replica.ledger.close()
            partition.log.delete()

        try:
            await self.on_writer(partition, delete)
        finally:
            self._by_log.pop(partition.log, None)

    async def retire(self, partition: Partition) -> None:
        """Move the damaged files of a withdrawn partition out of the way."""

        def close() -> None:
            partition.replica.ledger.close()
            partition.log.close()
            self.set_aside(partition.topic, partition.topic_id, partition.index)

        await self.on_writer(partition, close)
        self._by_log.pop(partition.log, None)

    def set_aside(self, topic: str, topic_id: TopicId, index: int) -> None:
        """Make room for a new replica of a partition whose files are useless. Blocks."""
        kept = self._store.set_aside(topic, topic_id, index)
        log.warning(
            "the damaged copy of %s-%d is kept in %s; remove it when it is no longer needed", topic, index, kept
        )

    async def remove_files(self, topic: Topic, index: int) -> None:
        """Delete the files of a partition that is not open."""
        await self.in_pool(lambda: self._store.remove_partition(topic.name, topic.topic_id, index))

    async def remove_topic(self, topic_id: TopicId, name: str) -> None:
        """Delete the remaining files of a deleted topic."""
        await self.in_pool(lambda: self._store.remove_topic(name, topic_id))

    def set_config(self, topic: Topic, config: TopicConfig) -> None:
        """Apply new settings to a topic's partitions."""
        for slot in self._by_id.get(topic.topic_id, {}).values():
            if isinstance(slot, Partition):
                slot.config = config
                slot.log.options = log_options(config, slot.group)
                # Answer producers that wait for more replicas than are required now.
                self._host.guard(slot.replica, slot.update_acked)

    # ---- events of partitions -------------------------------------------------------------------

    @property
    def types_own_entries(self) -> bool:
        return self.committed_catalog().level(METADATA_VERSION) >= TYPED_ENTRIES

    def on_leadership_changed(self, partition: Partition) -> None:
        if partition.is_serving:
            self._host.look_at(partition)
            self._host.announce(partition)
        self.on_role(partition)

    def on_role_changing(self, partition: Partition, leadership: Leadership) -> None:
        self.events.on_role_changing(partition, leadership)

    def on_members_changed(self, partition: Partition, change: MembersChange) -> None:
        self.events.on_members_changed(partition, change)

    def on_truncating(self, partition: Partition, end_offset: Offset) -> None:
        self.events.on_truncating(partition, end_offset)

    def on_trim(self, partition: Partition, offset: Offset) -> None:
        self.on_trimmed(partition)

    def look_at(self, partition: Partition) -> None:
        """Check again which replicas of a partition that is led here are in sync."""
        self._host.look_at(partition)

    def on_damaged(self, partition: Partition) -> None:
        self.on_damage(partition)

    def on_state_unreadable(self, partition: Partition, reason: str) -> None:
        """Fail the replica later: the damage was found in the middle of its work, which is completed first."""
        replica = partition.replica
        self._host.call_on_loop(self._host.guard, replica, _fail_if_unreadable, partition, reason)

    def on_unknown_format(self, partition: Partition, reason: str) -> None:
        replica = partition.replica
        self._host.call_on_loop(self._host.guard, replica, replica.on_unknown_format, reason)

    def on_partition_failed(self, partition: Partition, reason: str) -> None:
        repeat = {"repeat_key": f"refused {partition!r}"}
        log.error("partition %s-%d refuses appends: %s", partition.topic, partition.index, reason, extra=repeat)

    # ---- reports of the writer, on the event loop -----------------------------------------------

    def on_written(self, reports: Sequence[tuple[Log, Offset]]) -> None:
        for written, end_offset in reports:
            partition = self._by_log.get(written)
            if partition is not None:
                self._host.guard(partition.replica, partition.on_written, end_offset)

    def on_flushed(self, reports: Sequence[tuple[Log, Offset]]) -> None:
        for flushed, flushed_offset in reports:
            partition = self._by_log.get(flushed)
            if partition is not None:
                self._host.guard(partition.replica, partition.on_flushed, flushed_offset)

    def on_failed(self, failed: Log, error: Exception, end_offset: Offset) -> None:
        partition = self._by_log.get(failed)
        if partition is not None:
            self._host.guard(partition.replica, partition.on_failed, in_words(error), end_offset)

    def seen_ms(self) -> int:
        """The time to record for a producer seen now. With a slow clock it would expire once the clock is corrected."""
        return max(self._clock.wall_ms(), self.believed_ms)

    # ---- threads --------------------------------------------------------------------------------

    async def on_writer(self, partition: Partition, function: Callable[[], T]) -> T:
        """Run a function on the writer thread, in order with the partition's appends."""
        return await asyncio.wrap_future(self._writer.run(partition.log, function))

    async def in_pool(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)


def _check_together(opened: Log, ledger: LedgerLike) -> None:
    """Check that a log and its ledger match: a crash leaves a prefix of the writes, nothing else."""
    base = ledger.base
    known = ledger.entries[-1].offset if ledger.entries else base.offset
    if opened.end_offset < known:
        raise LogCorrupt(
            opened.name, 0, opened.end_offset, f"it ends at {opened.end_offset}, but its ledger knows offset {known}"
        )
    if opened.start_offset > base.offset:
        raise LogCorrupt(
            opened.name, 0, opened.start_offset, f"its ledger says that it begins at {base.offset}, and that is gone"
        )
    if opened.start_offset < base.offset:
        # Interrupted between the two steps of removing the oldest records.
        opened.drop_prefix(Offset(base.offset))


def _fail_if_unreadable(partition: Partition, reason: str) -> None:
    replica = partition.replica
    if replica.node is None or partition.state.is_current:
        return  # It has failed already, for this or another reason, or has started again since.
    # The snapshot that is being installed replaces the state as well.
    if not replica.is_installing:
        partition.on_failed(reason, partition.log.end_offset)


def _serving(slot: Slot) -> Partition:
    if isinstance(slot, StoppedPartition):
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, slot.reason)
    return slot
