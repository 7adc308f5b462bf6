"""What is too old goes, after what it amounted to is written down; a crash on the way loses neither."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TypeVar

import pytest

from drmq.broker import BrokerOptions, GroupShardCoordinator, Partition
from drmq.broker.coordination.machine_log import MachineLog
from drmq.broker.maintenance.housekeeping import Maintenance
from drmq.broker.partitions.derived_state import (
    BASE_SNAPSHOT,
    STATE_SNAPSHOT,
    MachineState,
    encode_state,
    unpack_snapshot,
)
from drmq.broker.partitions.log_store import Snapshots
from drmq.groups import OffsetCommitRequest, OffsetToCommit
from drmq.model import ErrorCode, GroupId, LeaderEpoch, NodeId, Offset
from drmq.raft import EntryKind, LogIndex, SnapshotChunk, Term
from drmq.records import Record, encode_batch, stamp
from drmq.testing.files import FakeFiles, PowerCut
from support.batches import a_batch, a_header
from support.broker_harness import Harness
from support.harness_leader import Leader, receive
from support.polling import eventually
from support.replica_harness import SELF, TOPIC, ReplicaHarness
from unit.broker.partitions.test_derived_state import ListMachine
from unit.broker.replication.test_replica import GROUP, a_snapshot, chunks

T = TypeVar("T")

MONTH_MS = 30 * 86_400_000


def fill(harness: Harness, producer_id: int = 7, count: int = 6) -> Partition:
    """A partition with a segment per record: old ones that retention may remove."""
    harness.create_topic("orders", retention_ms="1000", segment_bytes="1024")
    for sequence in range(count):
        produce(harness, producer_id, sequence)
    return harness.partition("orders")


def produce(harness: Harness, producer_id: int, sequence: int) -> tuple[Offset, ErrorCode]:
    batch = a_batch(
        [b"x" * 900], producer_id=producer_id, epoch=0, sequence=sequence, timestamp_ms=harness.clock.wall_ms()
    )
    return harness.append("orders", batch)


def expire(harness: Harness) -> None:
    harness.advance(30_000)
    harness.run(harness.broker.maintain())


def bases(partition: Partition) -> list[Offset]:
    return partition.state.snapshots.offsets(BASE_SNAPSHOT)  # type: ignore[attr-defined,no-any-return]


# ---- retention -------------------------------------------------------------------------------------


def test_a_log_that_begins_later_has_a_base_there(harness: Harness) -> None:
    partition = fill(harness)
    expire(harness)
    start = partition.log.start_offset
    entries = partition.replica.entries
    assert start >= 5
    assert (entries.base.offset, partition.replica.ledger.base.offset) == (start, start)
    assert entries.base == partition.replica.ledger.base
    assert bases(partition) == [start]
    assert entries.next_offset(LogIndex(entries.base.index)) == start
    assert entries.snapshot.index == entries.base.index
    assert produce(harness, 7, 6) == (6, ErrorCode.NONE)


def test_retries_are_known_although_their_batches_are_gone(harness: Harness, files: FakeFiles) -> None:
    fill(harness)
    expire(harness)
    assert harness.partition("orders").start_offset >= 5
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        assert produce(again, 7, 3) == (3, ErrorCode.NONE)
        assert produce(again, 7, 6) == (6, ErrorCode.NONE)


def test_what_goes_later_builds_upon_the_base_before(harness: Harness, files: FakeFiles) -> None:
    """The producer's last batch went in the first round; the second round must not forget it."""
    partition = fill(harness, producer_id=7)
    expire(harness)
    first = partition.log.start_offset
    for sequence in range(6):
        produce(harness, 8, sequence)
    expire(harness)
    assert partition.log.start_offset > first
    harness.crash()
    with Harness(files.after_power_cut(2)) as again:
        assert produce(again, 7, 4) == (4, ErrorCode.NONE)


def test_idle_partitions_cost_a_round_nothing(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node has thousands of partitions, and most are idle: they must not each have a job on the writer thread."""
    harness.create_topic("orders", 3, retention_ms=str(MONTH_MS))
    harness.create_topic("empty", 3)
    harness.produce("orders", 0)
    harness.produce("orders", 1)
    table, jobs = harness.broker.partitions, []
    on_writer = table.on_writer

    def counted(partition: Partition, function: Callable[[], T]) -> Awaitable[T]:
        jobs.append((partition.topic, partition.index))
        return on_writer(partition, function)

    monkeypatch.setattr(table, "on_writer", counted)

    def looked_at() -> list[tuple[str, int]]:
        jobs.clear()
        harness.run(harness.broker.maintain())
        return list(jobs)

    assert looked_at() == [("orders", 0), ("orders", 1)]
    assert looked_at() == []
    harness.produce("orders", 1)
    assert looked_at() == [("orders", 1)]
    harness.run(harness.broker.topics.change_configs("orders", {"retention.bytes": "1000000"}))
    harness.run(harness.broker.assignments.settled())
    assert looked_at() == [("orders", 0), ("orders", 1)]
    harness.loop.ahead_s += 3_700  # also time for a round that nobody asked for
    assert set(looked_at()) == {("orders", 0), ("orders", 1)}


def test_a_round_over_many_partitions_lets_others_in(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get their turn in slices. A partition that is closed in such a turn is not looked at any more."""
    count = 40
    topic = harness.create_topic("orders", count)
    maintenance, table = harness.broker.maintenance, harness.broker.partitions
    is_due = maintenance._is_due
    looked_at: list[int] = []
    seen: list[int] = []

    def look_at(partition: Partition, now_ms: int) -> bool:
        if partition.topic == topic.name:
            looked_at.append(partition.index)
        harness.loop.ahead_s += 0.002
        return is_due(partition, now_ms)

    async def a_round() -> None:
        going_on = asyncio.ensure_future(harness.broker.maintain())
        while not going_on.done():
            seen.append(len(looked_at))
            if looked_at:
                table.withdraw(GroupId(topic.topic_id, count - 1))
            await asyncio.sleep(0)
        seen.append(len(looked_at))
        await going_on

    monkeypatch.setattr(maintenance, "_is_due", look_at)
    harness.run(a_round())
    assert max(after - before for before, after in pairwise(seen)) <= 5
    assert looked_at == list(range(count - 1))


def test_the_records_of_an_idle_partition_expire(harness: Harness) -> None:
    harness.create_topic("orders", retention_ms="100000")
    harness.produce("orders")
    for _ in range(30):
        harness.run(harness.broker.maintain())
        harness.advance(4_000)
    harness.run(harness.broker.maintain())
    assert harness.partition("orders").start_offset == 1


def test_nothing_goes_that_is_not_committed(harness: Harness) -> None:
    partition = fill(harness)
    partition.high_watermark = Offset(2)
    expire(harness)
    assert partition.log.start_offset <= 2
    partition.high_watermark = Offset(6)


def test_a_power_cut_at_any_step_of_retention_leaves_a_sound_log() -> None:
    starts = set()
    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        files = FakeFiles()
        harness = Harness(files)
        partition = fill(harness)
        harness.advance(30_000)
        files.crash_at = files.step + crash_at
        try:
            harness.run(harness.broker.maintain())
            finished = partition.log.start_offset > 0 and not files.is_off
        except PowerCut:
            pass
        harness.crash()
        with Harness(files.after_power_cut(crash_at)) as again:
            found = again.partition("orders")
            start = found.start_offset
            starts.add(start)
            assert found.high_watermark == 6
            assert found.replica.ledger.base.offset == found.log.start_offset
            stored = found.log.read(start, 1 << 20, Offset(6))
            assert stored or start == 6
            assert produce(again, 7, 2) == (2, ErrorCode.NONE)
            assert produce(again, 7, 6) == (6, ErrorCode.NONE)
    assert min(starts) == 0
    assert max(starts) >= 5
    assert crash_at > 5


def test_the_base_in_use_outlives_crashes_that_leave_newer_ones(harness: Harness, files: FakeFiles) -> None:
    """The node crashes twice between storing a base and recording it in the ledger."""
    fill(harness, producer_id=7)
    expire(harness)
    used = harness.partition("orders").replica.ledger.base.offset
    reached = [used]
    for life in range(2):
        for sequence in range(6):
            produce(harness, 8 + life, sequence)
        files.fail("write", errno.EIO, path_part="/ledger")
        # Each life begins at the same time of the day, so it has to last longer than the one before.
        harness.advance(100_000 * (life + 1))
        expire(harness)
        reached.append(max(bases(harness.partition("orders"))))
        harness.crash()
        files = files.after_kill()
        harness = Harness(files)
        partition = harness.partition("orders")
        assert partition.replica.ledger.base.offset == used
        assert used in bases(partition)
        meta = partition.replica.entries.snapshot
        assert partition.state.snapshot_bytes(meta) is not None
    assert reached == sorted(set(reached))
    with harness:
        harness.advance(300_000)
        expire(harness)
        assert harness.partition("orders").log.start_offset > used
    with Harness(files.after_kill()) as again:
        assert produce(again, 7, 4) == (4, ErrorCode.NONE)


def test_two_who_move_the_start_at_once_leave_the_base_that_the_ledger_names(harness: Harness) -> None:
    partition = fill(harness)
    maintenance = harness.broker.maintenance

    async def both() -> list[bool]:
        return await asyncio.gather(*(maintenance.drop_before(partition, Offset(start)) for start in (3, 5, 4)))

    assert harness.run(both()) == [True, True, False]
    assert partition.replica.ledger.base.offset == 5
    assert 5 in bases(partition)


class Busy:
    """A follower, and maintenance that waits for the pool or the writer while a leader's snapshot arrives."""

    def __init__(self, where: str, snapshot: list[SnapshotChunk], machine: ListMachine | None = None) -> None:
        self.files = FakeFiles()
        self.snapshot = snapshot
        self.desk = ReplicaHarness(self.files, members=GROUP, machine=machine)
        self.maintenance = Maintenance(self.desk.table, BrokerOptions(), self.desk.clock, self.snapshots)
        self.where = where
        self.desk.table.in_pool = self.in_pool  # type: ignore[method-assign]
        self.desk.table.on_writer = self.on_writer  # type: ignore[method-assign]

    @property
    def snapshots(self) -> Snapshots:
        return self.desk.store.snapshots(TOPIC.name, TOPIC.topic_id, 0)

    def on_snapshot(self) -> None:
        for chunk in self.snapshot:
            receive(self.desk, chunk)
            self.desk.work()

    async def in_pool(self, function: Callable[[], T]) -> T:
        if self.where == "before the pool":
            self.on_snapshot()
        result = function()
        if self.where == "behind the pool":
            self.on_snapshot()
        return result

    async def on_writer(self, partition: Partition, function: Callable[[], T]) -> T:
        if self.where == "before the writer":
            self.on_snapshot()
        done = self.desk.writer.run(partition.log, function)
        self.desk.work()
        if self.where == "behind the writer":
            self.on_snapshot()
        return done.result()


@pytest.mark.parametrize("where", ["before the pool", "behind the pool", "before the writer", "behind the writer"])
def test_a_base_that_a_leader_sent_meanwhile_stays(where: str) -> None:
    """It is what the ledger names: without it producers would be forgotten, and no other replica could be helped."""
    busy = Busy(where, chunks())
    leader = Leader(3, 1).batch(b"a").batch(b"b").batch(b"c")
    receive(busy.desk, leader.appends(1, commit=int(leader.last_index)))
    busy.desk.work()
    assert busy.desk.partition.high_watermark == 3
    assert not asyncio.run(busy.maintenance.drop_before(busy.desk.partition, Offset(2)))
    check_base(busy.desk)
    check_base(ReplicaHarness(busy.files.after_kill(), members=GROUP, is_old=True))


def check_base(desk: ReplicaHarness) -> None:
    meta, body = a_snapshot()
    assert (desk.log.start_offset, desk.replica.ledger.base.offset) == (41, 41)
    assert desk.replica.entries.snapshot == meta
    assert desk.partition.snapshot_bytes(meta) == body
    assert desk.partition.producers.find_repeat(a_header(7, 0, 3)) is not None


# ---- deleted records -------------------------------------------------------------------------------


def test_deleted_records_are_gone_at_once_and_freed_as_far_as_batches_allow(harness: Harness) -> None:
    harness.create_topic("orders")
    harness.produce("orders", values=[b"a", b"b"])
    harness.produce("orders", values=[b"c", b"d", b"e"])
    partition = harness.partition("orders")
    assert harness.run(harness.broker.services.lookups.delete_records(partition, Offset(3))) == 3
    assert partition.start_offset == 3

    def freed() -> Offset:
        harness.settle()
        return partition.log.start_offset

    eventually(freed, lambda start: start == 2, what="the first batch gone")
    assert partition.replica.entries.base.offset == 2


def test_deleted_records_stay_deleted_over_restarts(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders")
    harness.produce("orders", values=[b"a", b"b"])
    harness.produce("orders", values=[b"c", b"d", b"e"])
    harness.run(harness.broker.services.lookups.delete_records(harness.partition("orders"), Offset(3)))
    harness.crash()
    with Harness(files.after_power_cut(3)) as again:
        assert again.partition("orders").start_offset == 3
        assert again.partition("orders").high_watermark == 5
        again.run(again.broker.services.lookups.delete_records(again.partition("orders"), Offset(5)))
        again.settle()
        assert again.partition("orders").start_offset == 5
        assert again.produce("orders") == 5


def test_who_was_seen_before_any_time_was_noted_is_not_forgotten_when_the_clock_is_set_right(harness: Harness) -> None:
    """The clock is set back right after the first start, and set right before anything looks at the time."""
    harness.create_topic("orders")
    harness.clock.ahead_ms = -MONTH_MS
    produce(harness, 7, 0)
    harness.clock.ahead_ms = 0
    harness.run(harness.broker.maintenance.round([]))
    assert harness.partition("orders").producers.find_repeat(a_header(7, 0, 0)) is not None


def test_who_was_seen_while_the_clock_was_behind_is_not_forgotten_when_it_is_set_right(
    harness: Harness, files: FakeFiles
) -> None:
    """The node starts with a clock that is a month slow, and nothing uses the time before it is corrected."""
    maintenance = harness.broker.maintenance
    harness.create_topic("orders")
    produce(harness, 7, 0)
    harness.run(maintenance.round([]))
    harness.close()
    with Harness(files, clock_ahead_ms=-MONTH_MS) as again:
        produce(again, 8, 0)
        shard = again.broker.groups.shard_of("readers")
        assert isinstance(shard, GroupShardCoordinator)
        request = OffsetCommitRequest("readers", (OffsetToCommit("orders", 0, Offset(1)),))
        again.run(answer_to(again, shard, request))
        again.clock.ahead_ms = 0
        again.run(again.broker.maintenance.round([]))
        again.call(lambda: again.broker.groups.expire_offsets(again.broker.maintenance.expiry.now_ms()))
        again.settle()
        producers = again.partition("orders").producers
        assert [producers.find_repeat(a_header(number, 0, 0)) is not None for number in (7, 8)] == [True, True]
        assert [each.offset for each in shard.machine.replicated.offsets] == [1]


async def answer_to(harness: Harness, shard: GroupShardCoordinator, request: OffsetCommitRequest) -> object:
    answered = harness.loop.create_future()
    shard.submit(request, answered.set_result)
    return await answered


def test_the_producers_of_all_partitions_together_are_limited(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions with few keep them. Of the others, those that were seen last are kept."""
    monkeypatch.setattr("drmq.broker.maintenance.housekeeping.PRODUCERS_MAX", 12)
    for topic, count in (("few", 2), ("many", 9), ("most", 20)):
        harness.create_topic(topic)
        for producer_id in range(count):
            harness.append(topic, a_batch([b"x"], producer_id=producer_id, epoch=0, sequence=0))
    harness.run(harness.broker.maintain())
    assert [len(harness.partition(topic).producers) for topic in ("few", "many", "most")] == [2, 5, 5]
    most = harness.partition("most").producers
    assert [most.find_repeat(a_header(number, 0, 0)) is not None for number in (14, 15, 19)] == [False, True, True]


# ---- state machines --------------------------------------------------------------------------------


def make_topics(harness: Harness, *names: str) -> None:
    for name in names:
        harness.create_topic(name)


def save_metadata(harness: Harness) -> MachineLog:
    machine = harness.broker.metadata.log
    harness.run(harness.broker.maintenance.save_machine(machine))
    return machine


def test_a_machine_keeps_two_snapshots_and_the_log_behind_the_older(harness: Harness, files: FakeFiles) -> None:
    ends = []
    for name in ("a", "b", "c"):
        make_topics(harness, name)
        machine = save_metadata(harness)
        ends.append(machine.partition.high_watermark)
    state = machine.state
    assert state.snapshots.offsets(STATE_SNAPSHOT) == ends[1:]
    assert machine.partition.log.start_offset == ends[1] == machine.partition.replica.entries.base.offset
    assert machine.partition.replica.entries.snapshot.index > machine.partition.replica.entries.base.index
    make_topics(harness, "d")
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        assert {"a", "b", "c", "d"} <= again.broker.catalog.topics.keys()


def test_a_damaged_snapshot_of_a_machine_costs_nothing(harness: Harness, files: FakeFiles) -> None:
    for name in ("a", "b", "c"):
        make_topics(harness, name)
        machine = save_metadata(harness)
    newest = machine.state.snapshots.offsets(STATE_SNAPSHOT)[-1]
    path = f"{machine.partition.log.name}/{STATE_SNAPSHOT}-{newest:020d}.snapshot"
    harness.crash()
    disk = files.after_power_cut(1)
    disk.flip_bit(path, 100)
    with Harness(disk) as again:
        assert {"a", "b", "c"} <= again.broker.catalog.topics.keys()


def test_an_unchanged_machine_is_not_saved_again(harness: Harness) -> None:
    make_topics(harness, "a")
    machine = save_metadata(harness)
    saved = machine.state.snapshots.offsets(STATE_SNAPSHOT)
    harness.run(harness.broker.maintenance.save_machine(machine))
    assert machine.state.snapshots.offsets(STATE_SNAPSHOT) == saved


def test_the_snapshot_of_a_machine_says_where_it_belongs(harness: Harness) -> None:
    """A new replica takes it for the log up to there, so index, term and members must be the log's own."""
    make_topics(harness, "a")
    machine = save_metadata(harness)
    stored = machine.state.snapshots.load_latest(STATE_SNAPSHOT)
    assert stored is not None
    meta, body = unpack_snapshot(stored.payload)
    entries = machine.partition.replica.entries
    assert meta == entries.snapshot
    assert machine.partition.state.snapshot_bytes(meta) == body
    assert entries.next_offset(meta.index) == stored.offset == machine.partition.high_watermark
    assert entries.term_at(meta.index) == meta.term


def test_groups_survive_a_snapshot_and_a_crash(harness: Harness, files: FakeFiles) -> None:
    member_id, generation = harness.join("readers")
    shard = harness.broker.groups.shard_of("readers")
    assert isinstance(shard, GroupShardCoordinator)
    harness.run(harness.broker.maintenance.save_machine(shard.log))
    assert shard.log.state.snapshots.offsets(STATE_SNAPSHOT)
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        found = again.broker.groups.shard_of("readers")
        assert isinstance(found, GroupShardCoordinator)
        assert isinstance(found.log.partition.state, MachineState)
        assert found.log.leads
        from drmq.wire.messages.heartbeat import HeartbeatRequest

        assert again.ask(HeartbeatRequest("readers", generation, member_id), 3).error_code == 0


def test_the_log_of_a_machine_stays_in_proportion_to_its_state(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is saved soon after as much was written as its last snapshot had, and not before."""
    monkeypatch.setattr("drmq.broker.coordination.machine_log.SNAPSHOT_AFTER_BYTES", 20_000)
    shard = harness.broker.groups.shard_of("readers")
    assert isinstance(shard, GroupShardCoordinator)
    harness.create_topic("orders")
    machine, note = shard.log, "x" * 4_000

    async def commit(group_id: str, position: int) -> None:
        answered = harness.loop.create_future()
        request = OffsetCommitRequest(group_id, (OffsetToCommit("orders", 0, Offset(position), metadata=note),))
        shard.submit(request, answered.set_result)
        await answered

    groups = [f"readers-{index}" for index in range(40)]
    groups = [group_id for group_id in groups if harness.broker.groups.shard_of(group_id) is shard]
    sizes: list[int] = []
    written = saved = 0
    for index in range(60):
        before = machine.partition.log.end_offset
        harness.run(commit(groups[index % len(groups)], index))
        written += 4_000 * (machine.partition.log.end_offset - before)
        harness.advance(3_000)
        harness.run(asyncio.sleep(0.02))
        offsets = machine.state.snapshots.offsets(STATE_SNAPSHOT)
        if offsets and offsets[-1] != saved:
            saved = offsets[-1]
            sizes.append(written)
            written = 0
        stored = machine.state.snapshots.load_latest(STATE_SNAPSHOT)
        assert written <= max(20_000, 0 if stored is None else len(stored.payload)) + 4_000
    assert len(sizes) >= 2


def test_a_machine_that_is_never_at_rest_is_saved_too(harness: Harness, files: FakeFiles) -> None:
    """A commit is in progress whenever the round looks. Its effect is saved once it is committed."""
    shard = harness.broker.groups.shard_of("readers")
    assert isinstance(shard, GroupShardCoordinator)
    harness.create_topic("orders")

    async def commit_and_save(position: int) -> None:
        answered = harness.loop.create_future()
        shard.submit(
            OffsetCommitRequest("readers", (OffsetToCommit("orders", 0, Offset(position)),)), answered.set_result
        )
        await asyncio.sleep(0)  # requests are handled at the end of a turn of the loop
        assert shard.log.state.applied_offset > shard.log.partition.high_watermark
        await harness.broker.maintenance.save_machine(shard.log)
        await answered

    for position in (7, 8):
        harness.run(commit_and_save(position))
        assert shard.log.state.snapshots.offsets(STATE_SNAPSHOT)[-1] == shard.log.partition.high_watermark
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        found = again.broker.groups.shard_of("readers")
        assert isinstance(found, GroupShardCoordinator)
        assert [each.offset for each in found.machine.replicated.offsets] == [8]


def test_what_was_never_committed_is_not_in_a_snapshot(harness: Harness) -> None:
    """The disk refuses the commit that the snapshot would have contained."""
    shard = harness.broker.groups.shard_of("readers")
    assert isinstance(shard, GroupShardCoordinator)
    harness.create_topic("orders")
    partition = shard.log.partition

    async def commit_and_fail() -> None:
        shard.submit(OffsetCommitRequest("readers", (OffsetToCommit("orders", 0, Offset(7)),)), lambda answer: None)
        saving = asyncio.ensure_future(harness.broker.maintenance.save_machine(shard.log))
        await asyncio.sleep(0)
        partition.replica._fail("the disk is gone", is_final=True)
        await saving

    harness.run(commit_and_fail())
    assert shard.log.state.snapshots.offsets(STATE_SNAPSHOT) == []


@pytest.mark.parametrize("where", ["before the pool", "behind the pool", "before the writer", "behind the writer"])
def test_a_machines_snapshot_that_a_leader_sent_meanwhile_stays(where: str) -> None:
    meta, body = a_snapshot()[0], encode_state([(b"new", b"state")])
    busy = Busy(where, [SnapshotChunk(NodeId(2), SELF, Term(5), meta, 0, body, True)], ListMachine())
    batch = encode_batch([Record(Offset(0), 0, b"old", b"state")])
    stamp(memoryview(batch), Offset(0), LeaderEpoch(1))
    leader = Leader(3, 1).own(EntryKind.PAYLOAD, bytes(batch))
    receive(busy.desk, leader.appends(1, commit=int(leader.last_index)))
    busy.desk.work()
    assert busy.desk.partition.high_watermark == 1
    asyncio.run(busy.maintenance.save_machine(MachineLog(busy.desk.partition)))
    assert busy.desk.replica.entries.snapshot == meta
    assert busy.desk.partition.snapshot_bytes(meta) == body
    if where != "behind the writer":
        # What is older than the log is of no use, and would be in the place of something that is.
        assert busy.snapshots.offsets(STATE_SNAPSHOT) == [41]


def test_a_power_cut_at_any_step_of_a_machines_snapshot_loses_nothing() -> None:
    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        files = FakeFiles()
        harness = Harness(files)
        for name in ("a", "b"):
            make_topics(harness, name)
            save_metadata(harness)
        make_topics(harness, "c")
        files.crash_at = files.step + crash_at
        try:
            save_metadata(harness)
            finished = not files.is_off
        except PowerCut:
            pass
        harness.crash()
        for seed in range(2):
            with Harness(files.after_power_cut(seed)) as again:
                assert {"a", "b", "c"} <= again.broker.catalog.topics.keys()
    assert crash_at > 5
