"""A disk that does not give a machine's records back: that replica fails as after any other refusal; it is no bug.

Damage lasts, so the copy is given up. An error may pass, so the replica begins again.
"""

from __future__ import annotations

import errno

import pytest

from drmq.broker import GroupShardCoordinator, StateUnreadable
from drmq.broker.cluster.metadata import Metadata
from drmq.broker.coordination.machine_log import MachineLog
from drmq.broker.partitions.derived_state import STATE_SNAPSHOT, KeyValue, encode_state, pack_snapshot
from drmq.catalog import BrokerRemoved, encode_fact
from drmq.groups import JoinGroupRequest, OffsetCommitRequest, OffsetToCommit, Protocol
from drmq.model import ErrorCode, LeaderEpoch, NodeId, Offset
from drmq.raft import (
    AppendAccepted,
    AppendRejected,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    LogIndex,
    Node,
    Role,
    SnapshotAnswer,
    SnapshotChunk,
    SnapshotMeta,
    Term,
)
from drmq.records import Record, encode_batch, stamp
from drmq.testing.files import FakeFiles
from support.broker_harness import Harness
from support.harness_leader import Leader, receive
from support.replica_harness import SELF, TOPIC, FrozenClock, ReplicaHarness
from unit.broker.partitions.test_derived_state import ListMachine
from unit.broker.replication.test_replica import GROUP, a_snapshot, chunks, lead, lead_with_quorum

BATCHES = 5
DAMAGED = 2
LOG = f"/data/topics/{TOPIC.name}.{TOPIC.topic_id.hex()}/0/{0:020}.log"
RECORDS: list[KeyValue] = [(b"k%d" % number, b"v" * 50) for number in range(BATCHES)]


class Machine(ListMachine):
    """Counts how often it was told to lead, to follow, and that it is what is committed."""

    def __init__(self) -> None:
        super().__init__()
        self.led = self.followed = self.applied = 0

    def on_lead(self) -> None:
        self.led += 1

    def on_follow(self) -> None:
        self.followed += 1

    def on_applied(self) -> None:
        self.applied += 1


class Scene:
    """A follower that has some batches of a machine, and does not know yet that they are committed."""

    def __init__(self, *, is_restarted: bool) -> None:
        self.leader = Leader(2, 1)
        for number, (key, value) in enumerate(RECORDS):
            batch = encode_batch([Record(Offset(0), 0, key, value)])
            stamp(memoryview(batch), Offset(number), LeaderEpoch(1))
            index = LogIndex(self.leader.last_index + 1)
            self.leader.log.append(Entry(index, index, Term(1), EntryKind.PAYLOAD, bytes(batch), len(batch)))
        self.machine = Machine()
        self.files = FakeFiles()
        self.desk = ReplicaHarness(self.files, members=GROUP, machine=self.machine)
        receive(self.desk, self.leader.appends(1))
        self.desk.work()
        if is_restarted:
            self.files = self.files.after_kill()
            self.desk = ReplicaHarness(self.files, members=GROUP, machine=self.machine, is_old=True)
        self.damaged: list[object] = []
        self.desk.table.on_damage = self.damaged.append
        assert self.machine.records == []

    def commit(self) -> None:
        receive(self.desk, self.leader.appends(int(self.leader.last_index), commit=int(self.leader.last_index)))
        self.desk.work()


# ---- what is committed cannot be read --------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True], ids=["written by this process", "read from the disk"])
@pytest.mark.parametrize("byte", [2, 7, 9, 16, 80], ids=["far offset", "near offset", "length", "magic", "records"])
def test_a_copy_that_rotted_is_given_up(byte: int, is_restarted: bool) -> None:
    scene = Scene(is_restarted=is_restarted)
    scene.files.flip_bit(LOG, len(scene.files.content(LOG)) // BATCHES * DAMAGED + byte)
    scene.files.drop_caches()
    scene.commit()
    assert scene.damaged == [scene.desk.partition]
    assert scene.machine.records == RECORDS[: len(scene.machine.records)]
    assert len(scene.machine.records) <= DAMAGED
    # It takes no part in its group until another copy has taken its place, and says what is wrong.
    scene.desk.wait()
    scene.commit()
    assert scene.desk.replica.node is None
    failure = scene.desk.partition.failure
    assert failure is not None
    assert "/0" in failure
    assert "offset" in failure
    assert "bug" not in failure


@pytest.mark.parametrize("fail_count", [1, 2, 6])
def test_after_an_error_of_the_disk_everything_is_replayed_once(fail_count: int) -> None:
    scene = Scene(is_restarted=True)
    scene.files.drop_caches()
    fault = scene.files.fail("read", errno.EIO, path_part=".log", fail_count=fail_count)
    for _ in range(fail_count + 1):
        scene.commit()
        assert scene.desk.partition.failure is None, "a follower takes part again as soon as it has begun again"
        scene.desk.wait()
    assert fault.fail_count == 0
    assert scene.machine.records == RECORDS
    assert scene.damaged == []


def test_a_leader_that_cannot_read_what_is_committed_does_not_decide() -> None:
    scene = Scene(is_restarted=True)
    partition = scene.desk.partition
    served: list[bool] = []
    scene.desk.table.on_role = lambda partition: served.append(partition.is_serving)
    scene.files.drop_caches()
    scene.files.fail("read", errno.EIO, path_part=".log")
    lead_with_quorum(scene.desk)
    assert True not in served
    assert (scene.machine.led, partition.is_leader) == (0, False)
    lead_with_quorum(scene.desk)
    assert scene.machine.records == RECORDS
    assert (scene.machine.led, partition.is_serving) == (1, True)


def test_a_snapshot_that_is_being_installed_mends_it() -> None:
    """Log and state are about to be replaced. To begin again in the middle of that would mix old and new."""
    scene = Scene(is_restarted=True)
    desk, before = scene.desk, node(scene.desk)
    scene.files.drop_caches()
    fault = scene.files.fail("read", errno.EIO, path_part=".log")
    meta = a_meta(40)
    desk.replica.receive(SnapshotChunk(NodeId(2), SELF, Term(5), meta, 0, encode_state([(b"new", b"")]), True))
    desk.replica.pump()
    # It is whole, and will be installed when consensus is asked the next time: before the failed read is dealt with.
    desk.call_on_loop(desk.replica.pump)
    desk.replica.receive(Heartbeat(NodeId(2), SELF, Term(5), scene.leader.last_index, 0))
    desk.replica.pump()
    assert fault.fail_count == 0
    assert not desk.partition.state.is_current
    desk.work()
    assert (desk.replica.node, desk.partition.failure) == (before, None)
    assert (desk.replica.entries.snapshot, desk.partition.high_watermark) == (meta, 40)
    assert scene.machine.records == [(b"new", b"")]
    assert desk.partition.state.is_current


def test_a_catalog_that_cannot_be_read_does_not_count_as_known() -> None:
    """A node that starts waits for what it must know of the cluster. That it is committed is not enough."""
    files = FakeFiles()
    metadata = Metadata(FrozenClock())
    leader = Leader(2, 1)
    batch = encode_batch([Record(Offset(0), 0, *encode_fact(BrokerRemoved(NodeId(7))))])
    stamp(memoryview(batch), Offset(0), LeaderEpoch(1))
    leader.own(EntryKind.PAYLOAD, bytes(batch))
    desk = ReplicaHarness(files, members=GROUP, machine=metadata.coordinator)
    receive(desk, leader.appends(1))
    desk.work()
    files = files.after_kill()
    desk = ReplicaHarness(files, members=GROUP, machine=metadata.coordinator, is_old=True)
    metadata.coordinator.attach(desk.partition)
    files.drop_caches()
    files.fail("read", errno.EIO, path_part=".log")
    receive(desk, leader.appends(int(leader.last_index), commit=int(leader.last_index)))
    desk.work()
    assert (desk.partition.high_watermark, metadata.applied_offset) == (1, 0)
    receive(desk, leader.appends(int(leader.last_index), commit=int(leader.last_index)))
    desk.work()
    assert metadata.applied_offset == 1


# ---- a leader goes back to what is committed -------------------------------------------------------


@pytest.mark.parametrize("broken", [".log", ".snapshot"])
@pytest.mark.parametrize("fail_count", [1, 2, 5])
def test_a_leader_that_cannot_take_its_decisions_back_at_once_does_so_later(broken: str, fail_count: int) -> None:
    """Its disk is full, and does not give back what was before."""
    files, machine = FakeFiles(), Machine()
    desk = ReplicaHarness(files, members=GROUP, machine=machine)
    damaged: list[object] = []
    desk.table.on_damage = damaged.append
    before, meta = [(b"old", b"state")], a_meta(40)
    receive(desk, SnapshotChunk(NodeId(2), SELF, Term(5), meta, 0, encode_state(before), True))
    desk.work()
    lead_with_quorum(desk)
    log = MachineLog(desk.partition)
    log.append([(b"committed", b"1")], 0)
    desk.work()
    receive(desk, AppendAccepted(NodeId(2), SELF, node(desk).term, node(desk).last_index))
    desk.work()
    assert (desk.partition.is_serving, desk.partition.high_watermark) == (True, 41)
    files.drop_caches()
    files.fail("write", errno.ENOSPC, path_part=".log")
    fault = files.fail("read", errno.EIO, path_part=broken, fail_count=fail_count)
    log.append([(b"refused", b"2")], 0)
    desk.work()
    assert machine.followed == 1
    for _ in range(fail_count):
        desk.wait()
        for _ in range(desk.raft_options.election_timeout_ticks * 2):
            desk.replica.tick()
        lead_with_quorum(desk)
        if desk.partition.is_serving:
            break
    assert fault.fail_count == 0
    assert machine.records == [*before, (b"committed", b"1")]
    assert (machine.led, machine.followed, desk.partition.is_serving) == (2, 1, True)
    assert damaged == []


def test_a_deposed_leader_that_cannot_take_its_decisions_back_takes_nothing_for_committed() -> None:
    """That all of it is committed by now looks so, at best: it says so when it has read what is."""
    files, machine = FakeFiles(), Machine()
    desk = ReplicaHarness(files, members=GROUP, machine=machine)
    receive(desk, SnapshotChunk(NodeId(2), SELF, Term(5), a_meta(40), 0, encode_state([(b"old", b"state")]), True))
    desk.work()
    lead_with_quorum(desk)
    log = MachineLog(desk.partition)
    for key in (b"first", b"second"):
        log.append([(key, b"")], 0)
    desk.work()
    term, last, applied = Term(node(desk).term + 1), node(desk).last_index, machine.applied
    files.drop_caches()
    files.fail("read", errno.EIO, path_part=".snapshot")
    desk.replica.receive(Heartbeat(NodeId(2), SELF, term, last, 0))
    desk.replica.pump()
    assert desk.partition.high_watermark == 42
    assert (machine.followed, machine.applied) == (1, applied)
    assert not desk.partition.state.is_current
    desk.work()
    receive(desk, Heartbeat(NodeId(2), SELF, term, last, 0))
    desk.work()
    assert machine.records == [(b"old", b"state"), (b"first", b""), (b"second", b"")]
    assert machine.applied == applied + 1


def test_word_of_a_state_that_has_been_loaded_since_fails_nobody() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP, machine=Machine())
    before = node(desk)
    desk.table.on_state_unreadable(desk.partition, "it was")
    desk.work()
    assert (desk.replica.node, desk.partition.failure) == (before, None)


def test_a_state_that_is_gone_is_damage_too() -> None:
    files, machine = FakeFiles(), Machine()
    desk = ReplicaHarness(files, members=GROUP, machine=machine)
    damaged: list[object] = []
    desk.table.on_damage = damaged.append
    receive(desk, SnapshotChunk(NodeId(2), SELF, Term(5), a_meta(40), 0, encode_state([(b"old", b"state")]), True))
    desk.work()
    lead_with_quorum(desk)
    MachineLog(desk.partition).append([(b"refused", b"2")], 0)
    files.flip_bit(f"{LOG.rsplit('/', 1)[0]}/{STATE_SNAPSHOT}-{40:020}.snapshot", 60)
    files.fail("write", errno.ENOSPC, path_part=".log")
    desk.work()
    assert machine.followed == 1
    assert damaged == [desk.partition]
    assert desk.replica.node is None
    assert "no intact snapshot" in str(desk.partition.failure)


def test_an_older_snapshot_that_does_not_reach_the_log_is_not_taken_for_all() -> None:
    """A leader's snapshot has taken the place of the log. If it is damaged, nothing tells of what was before."""
    scene = Scene(is_restarted=False)
    scene.commit()
    snapshots = scene.desk.store.snapshots(TOPIC.name, TOPIC.topic_id, 0)
    receive(scene.desk, SnapshotChunk(NodeId(2), SELF, Term(5), a_meta(40), 0, encode_state([(b"new", b"")]), True))
    scene.desk.work()
    snapshots.save(STATE_SNAPSHOT, Offset(2), pack_snapshot(a_meta(2), encode_state(RECORDS[:2])))
    scene.files.flip_bit(f"{LOG.rsplit('/', 1)[0]}/{STATE_SNAPSHOT}-{40:020}.snapshot", 60)
    with pytest.raises(StateUnreadable, match="starts at offset 40"):
        ReplicaHarness(scene.files.after_kill(), members=GROUP, machine=Machine(), is_old=True)


def a_meta(offset: int) -> SnapshotMeta:
    return SnapshotMeta(LogIndex(offset + 20), Term(4), Configuration.of(GROUP), offset.to_bytes(8, "big"))


def node(desk: ReplicaHarness) -> Node:
    assert desk.replica.node is not None
    return desk.replica.node


# ---- whoever waits ---------------------------------------------------------------------------------


def test_members_that_wait_are_answered_when_their_groups_cannot_be_read_back(
    harness: Harness, files: FakeFiles
) -> None:
    def commit(offset: int) -> OffsetCommitRequest:
        return OffsetCommitRequest("others", (OffsetToCommit("orders", 0, Offset(offset)),))

    harness.join("readers")
    shard = harness.broker.groups.shard_of("readers")
    assert isinstance(shard, GroupShardCoordinator)
    joined: list[object] = []
    committed: list[object] = []
    join = JoinGroupRequest("readers", "", "consumer", (Protocol("range", b""),), 10_000, 20_000)
    harness.call(lambda: shard.submit(join, joined.append))
    harness.call(lambda: shard.submit(commit(5), committed.append))
    harness.settle()
    assert (joined, len(committed)) == ([], 1)
    name = shard.log.partition.log.name
    files.drop_caches()
    files.fail("write", errno.ENOSPC, path_part=f"{name}/0")
    fault = files.fail("read", errno.EIO, path_part=f"{name}/0", fail_count=100)
    harness.call(lambda: shard.submit(commit(6), committed.append))
    harness.settle()
    assert fault.fail_count < 100
    assert joined == [ErrorCode.NOT_COORDINATOR]
    assert committed[1:] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert shard._timer is None
    files.forget_faults()
    for _ in range(100):
        harness.advance(1_000)
        if shard.log.leads:
            break
    assert shard.log.leads
    assert [each.offset for each in shard.machine.replicated.offsets] == [5]


# ---- a snapshot for a follower ---------------------------------------------------------------------


def test_a_leader_goes_on_leading_when_a_snapshot_cannot_be_read() -> None:
    """Node 4 begins with nothing, and the log begins later. It is served when the disk is in order again."""
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    for chunk in chunks():
        receive(desk, chunk)
        desk.work()
    lead(desk)
    receive(desk, AppendAccepted(NodeId(2), SELF, node(desk).term, node(desk).last_index))
    files.drop_caches()
    fault = files.fail("read", errno.EIO, path_part=".snapshot", fail_count=100)
    ask_for_a_snapshot(desk)
    assert fault.fail_count < 100
    assert node(desk).role is Role.LEADER
    assert parts_sent(desk) == []
    desk.produce(b"x")
    receive(desk, AppendAccepted(NodeId(2), SELF, node(desk).term, node(desk).last_index))
    assert desk.partition.high_watermark == 42
    files.forget_faults()
    ask_for_a_snapshot(desk)
    [part] = parts_sent(desk)
    assert (part.data, part.done) == (a_snapshot()[1], True)


def parts_sent(desk: ReplicaHarness) -> list[SnapshotChunk]:
    """Not offers, which have no bytes."""
    return [message for message in desk.sent if isinstance(message, SnapshotChunk) and message.data]


def ask_for_a_snapshot(desk: ReplicaHarness) -> None:
    """Node 4 answers heartbeats, has nothing of what it is asked about, and wants the snapshot that it is offered."""
    four, term = NodeId(4), node(desk).term
    desk.sent.clear()
    for _ in range(2):
        receive(desk, HeartbeatResponse(four, SELF, term, 0))
        desk.work()
    receive(desk, AppendRejected(four, SELF, term, a_snapshot()[0].index, LogIndex(0), Term(0)))
    desk.work()
    [offer] = [message for message in desk.sent if isinstance(message, SnapshotChunk)]
    receive(desk, SnapshotAnswer(four, SELF, term, offer.meta.snapshot_id, 0))
    desk.work()
