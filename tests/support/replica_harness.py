"""One replica on a desk: real files or memory, the real writer worked by hand, and messages that go nowhere.

    desk = ReplicaHarness(FakeFiles())
    desk.partition.append(...)
    desk.work()

Nothing is written before `work`, and what a report means happens in `turn`, so that a test decides what comes when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, TypeVar, cast

from drmq.broker import DiskLogs, LogStore, MemoryLogs, Partition
from drmq.broker.partitions.derived_state import Machine
from drmq.broker.partitions.partition_table import PartitionTable
from drmq.broker.partitions.role_events import RoleEvents
from drmq.broker.replication.group_host import GroupHost
from drmq.broker.replication.learner_catch_up import LearnerCatchUp
from drmq.broker.replication.outgoing_snapshot import SnapshotCache
from drmq.broker.replication.recent_entries import RecentMemory
from drmq.broker.replication.replica import Replica
from drmq.catalog import Topic, TopicConfig, TopicDefaults, effective
from drmq.model import ErrorCode, GroupId, MemberId, NodeId, Offset, TopicId
from drmq.raft import Message, RaftOptions
from drmq.storage import DataDirectory, Log, StorageError, Writer
from drmq.testing.files import FakeFiles
from support.batches import a_batch

T = TypeVar("T")

TOPIC = Topic(TopicId(b"T" * 16), "orders", ())
SELF = MemberId(NodeId(1))


class OneMachine:
    """A registry in which every partition has the same state machine, or none."""

    def __init__(self, machine: Machine | None) -> None:
        self._machine = machine

    def machine_of(self, topic: Topic, index: int) -> Machine | None:
        return self._machine

    def is_readable(self, topic: str) -> bool:
        return True

    def on_opened(self, partition: Partition) -> None:
        return

    def on_removed(self, partition: Partition) -> None:
        return


class FrozenClock:
    """A time that tests set."""

    now_ms = 5_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class InlinePool(Executor):
    """Runs everything at once."""

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the future
            future.set_exception(error)
        return future


class ReplicaHarness:
    """A partition, its replica and its writer, and what was heard from them. Implements `replica.ReplicaHost`."""

    def __init__(
        self,
        files: FakeFiles | None = None,
        *,
        members: Iterable[int] = (SELF,),
        machine: Machine | None = None,
        is_old: bool = False,
        is_quick: bool = False,
        raft_options: RaftOptions | None = None,
        **configs: str,
    ) -> None:
        """A new replica, or with `is_old` the one whose files exist, if they were ever used.

        If it is alone, it leads when this returns. With `is_quick` the event loop receives the reports of the writer
        thread at once, while that thread is still in the middle of its cycle.
        """
        self.files = files
        self.clock = FrozenClock()
        self.store: LogStore = MemoryLogs()
        if files is not None:
            self.store = DiskLogs(DataDirectory("/data", NodeId(1), files=files), files)
        self.writer = Writer(self, sync_threads=1)
        self.raft_options = raft_options or RaftOptions()
        self.recent_memory = RecentMemory()
        self.catch_up = LearnerCatchUp(1 << 40, lambda: self.waited_s, self.call_later)
        self.random = Random(1)
        self.pool = InlinePool()
        self.sent: list[Message] = []
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.waited_s = 0.0
        self.announced: list[Partition] = []
        self.heard: list[tuple[str, ErrorCode]] = []
        self._calls: deque[Callable[[], object]] = deque()
        self._dirty: deque[Replica] = deque()
        self._is_quick = is_quick
        self._is_turning = False
        self.snapshot_cache = SnapshotCache(self.pool)
        self.table = PartitionTable(
            self.store,
            cast(GroupHost, self),
            self.writer,
            self.pool,
            self.snapshot_cache,
            self.clock,
            OneMachine(machine),
        )
        self.table.member = SELF
        # Nothing but what replicas wait for is in `later`.
        self.table.events = RoleEvents(lambda delay_s, function: None)
        config = a_config(configs)
        has_files = self.store.has_log(TOPIC.name, TOPIC.topic_id, 0)
        if is_old and has_files and self.table.was_used(TOPIC, 0):
            self.partition = self.table.open(TOPIC, 0, config)
        else:
            group = [MemberId(NodeId(member)) for member in members]
            self.partition = self.table.make(TOPIC, 0, config, group, over=has_files)
        self.table.publish(self.partition)
        self.work()

    @property
    def replica(self) -> Replica:
        return self.partition.replica

    @property
    def log(self) -> Log:
        return self.partition.log

    # ---- what happens when ----------------------------------------------------------------------

    def turn(self) -> None:
        """What the event loop would do now, without the disk."""
        self._is_turning = True
        while self._calls or self._dirty:
            if self._calls:
                self._calls.popleft()()
            else:
                self._dirty.popleft().pump()
        self._is_turning = False

    def work(self) -> None:
        """Let the disk, and everything that follows, happen."""
        self.turn()
        while self.writer.has_work:
            self.writer.run_cycle()
            self.turn()

    def wait(self) -> None:
        """Let the time pass for which something waits."""
        later, self.later = self.later, []
        self.waited_s += max((delay_s for delay_s, _ in later), default=0.0)
        for _, function in later:
            function()
        self.work()

    # ---- GroupHost ------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        partition.replica.start()

    def remove(self, partition: Partition) -> None:
        return

    def look_at(self, partition: Partition) -> None:
        return

    def announce(self, partition: Partition) -> None:
        self.announced.append(partition)

    def send(self, node_id: NodeId, group: GroupId, message: Message) -> None:
        self.sent.append(message)

    def mark_dirty(self, replica: Replica) -> None:
        if not replica.is_dirty:
            replica.is_dirty = True
            self._dirty.append(replica)

    def wake_others(self, replica: Replica) -> None:
        return

    def on_woken(self, replica: Replica) -> None:
        return

    def guard(self, replica: Replica, work: Callable[..., object], *arguments: object) -> None:
        work(*arguments)

    def call_on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        self._calls.append(lambda: function(*arguments))
        if self._is_quick and not self._is_turning:
            self.turn()

    def call_later(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None:
        self.later.append((delay_s, lambda: function(*arguments)))

    # ---- WriterEvents ---------------------------------------------------------------------------

    def on_written(self, results: list[tuple[Log, Offset]]) -> None:
        self.call_on_loop(self.table.on_written, results)

    def on_flushed(self, results: list[tuple[Log, Offset]]) -> None:
        self.call_on_loop(self.table.on_flushed, results)

    def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None:
        self.call_on_loop(self.table.on_failed, log, error, end_offset)

    def on_crashed(self, error: BaseException) -> None:
        raise error

    # ---- a client -------------------------------------------------------------------------------

    def append(self, *values: bytes, wants_written: bool = False) -> Offset:
        """Append a batch; returns the offset after it."""
        return self.partition.append(a_batch(values or (b"x",)), 5_000, wants_written=wants_written).next_offset

    def produce(self, *values: bytes) -> Offset:
        """Append a batch and let it become durable; returns the offset after it."""
        next_offset = self.append(*values)
        self.work()
        return next_offset

    def hear_durable(self, name: str, next_offset: Offset) -> None:
        self.partition.when_durable(next_offset, lambda error: self.heard.append((name, error)))

    def hear_written(self, name: str, next_offset: Offset) -> None:
        self.partition.when_written(next_offset, lambda error: self.heard.append((name, error)))


def a_config(settings: dict[str, str]) -> TopicConfig:
    return effective({name.replace("_", "."): value for name, value in settings.items()}, TopicDefaults())
