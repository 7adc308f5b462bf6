"""A snapshot on its way to followers: its file is read once, not by the event loop, and not held longer than needed."""

from __future__ import annotations

import errno

import pytest

from drmq.broker.partitions.derived_state import encode_state
from drmq.broker.replication.entry_log import encode_trim
from drmq.broker.replication.learner_catch_up import LearnerCatchUp
from drmq.broker.replication.outgoing_snapshot import IDLE_S, SnapshotCache
from drmq.model import NodeId, Offset
from drmq.raft import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Configuration,
    Heartbeat,
    HeartbeatResponse,
    LogIndex,
    Node,
    ProgressState,
    RaftOptions,
    Role,
    SnapshotAnswer,
    SnapshotChunk,
    SnapshotMeta,
    Term,
)
from drmq.testing.files import FakeFiles
from support.harness_leader import receive
from support.held_pool import HeldPool
from support.replica_harness import SELF, ReplicaHarness
from unit.broker.partitions.test_derived_state import ListMachine
from unit.broker.replication.test_replica import lead

VOTERS = (1, 2, 3, 4)
LEARNER = NodeId(5)
META = SnapshotMeta(
    LogIndex(60), Term(4), Configuration.of([NodeId(voter) for voter in VOTERS]), encode_trim(Offset(40))
)
STATE = encode_state([(b"key %d" % number, b"value") for number in range(100)])
PART_BYTES = 500
PARTS = -(-len(STATE) // PART_BYTES)


class CountingFiles(FakeFiles):
    """Counts how often a snapshot is opened to be read."""

    snapshots_read = 0

    def open(self, path: str, *, create: bool = False) -> int:
        if path.endswith(".snapshot") and not create:
            self.snapshots_read += 1
        return super().open(path, create=create)


class LeadingDesk(ReplicaHarness):
    """A leader whose log begins after a snapshot, and whose cache the test works by hand."""

    def __init__(self) -> None:
        self.counting = CountingFiles()
        options = RaftOptions(snapshot_chunk_bytes_max=PART_BYTES)
        super().__init__(self.counting, members=VOTERS, machine=ListMachine(), raft_options=options)
        receive(self, SnapshotChunk(NodeId(2), SELF, Term(5), META, 0, STATE, True))
        self.work()
        lead(self)
        receive(self, AppendAccepted(NodeId(2), SELF, self.node.term, self.node.last_index))
        self.work()
        self.snapshot_cache.pool = self.held = HeldPool()
        self.counting.snapshots_read = 0

    @property
    def node(self) -> Node:
        assert self.replica.node is not None
        return self.replica.node

    def ask(self, follower: int) -> None:
        """A follower that has nothing answers, is offered the snapshot, and wants it."""
        sender, term = NodeId(follower), self.node.term
        for _ in range(2):
            receive(self, HeartbeatResponse(sender, SELF, term, 0))
            self.work()
        receive(self, AppendRejected(sender, SELF, term, META.index, LogIndex(0), Term(0)))
        self.work()
        self.answer(follower, 0)

    def answer(self, follower: int, received: int) -> None:
        receive(self, SnapshotAnswer(NodeId(follower), SELF, self.node.term, META.snapshot_id, received))
        self.work()

    def parts_to(self, follower: int) -> list[SnapshotChunk]:
        """Not offers, which have no bytes."""
        return [
            message
            for message in self.sent
            if isinstance(message, SnapshotChunk) and message.target == follower and message.data
        ]

    def read(self) -> None:
        self.held.run()
        self.work()


def test_the_file_is_read_once_for_all_parts_and_all_followers() -> None:
    desk = LeadingDesk()
    desk.ask(3)
    desk.ask(4)
    desk.read()
    for follower in (3, 4):
        for _ in range(PARTS - 1):
            last = desk.parts_to(follower)[-1]
            desk.answer(follower, last.offset + len(last.data))
        assert b"".join(bytes(part.data) for part in desk.parts_to(follower)) == STATE
        assert [part.done for part in desk.parts_to(follower)] == [False] * (PARTS - 1) + [True]
    assert desk.counting.snapshots_read == 1
    assert desk.snapshot_cache.held_bytes == len(STATE)


def test_a_part_that_is_lost_is_sent_again_without_a_read() -> None:
    desk = LeadingDesk()
    desk.ask(3)
    desk.read()
    for _ in range(desk.raft_options.snapshot_resend_ticks + 1):
        for voter in VOTERS[1:]:
            receive(desk, HeartbeatResponse(NodeId(voter), SELF, desk.node.term, 0))
        desk.replica.tick()
        desk.work()
    desk.answer(3, 0)
    assert [part.offset for part in desk.parts_to(3)] == [0, 0]
    assert desk.counting.snapshots_read == 1


def test_the_event_loop_goes_on_while_the_file_is_read() -> None:
    desk = LeadingDesk()
    desk.ask(3)
    assert (desk.counting.snapshots_read, desk.parts_to(3), len(desk.held)) == (0, [], 1)
    desk.sent.clear()
    for _ in range(desk.raft_options.heartbeat_ticks):
        desk.replica.tick()
        desk.turn()
    assert {message.target for message in desk.sent if isinstance(message, Heartbeat)} == {2, 3, 4}
    desk.read()
    assert [(part.offset, bytes(part.data)) for part in desk.parts_to(3)] == [(0, STATE[:PART_BYTES])]


def test_what_is_sent_is_let_go_when_the_last_follower_has_it() -> None:
    desk = LeadingDesk()
    desk.ask(3)
    desk.ask(4)
    desk.read()
    for follower, held_bytes in ((3, len(STATE)), (4, 0)):
        receive(desk, AppendAccepted(NodeId(follower), SELF, desk.node.term, META.index))
        desk.work()
        assert desk.snapshot_cache.held_bytes == held_bytes


@pytest.mark.parametrize("ends", ["deposed", "stopped", "replaced", "failed"])
@pytest.mark.parametrize("is_read", [True, False])
def test_what_is_sent_is_let_go_when(ends: str, is_read: bool) -> None:
    """And a read that ends only then is not kept."""
    desk = LeadingDesk()
    desk.ask(3)
    if is_read:
        desk.read()
        assert desk.snapshot_cache.held_bytes == len(STATE)
    if ends == "deposed":
        receive(desk, Heartbeat(NodeId(2), SELF, Term(desk.node.term + 1), LogIndex(0), 0))
    elif ends == "stopped":
        desk.partition.close()
    elif ends == "replaced":
        newer = SnapshotMeta(LogIndex(61), desk.node.term, META.configuration, encode_trim(Offset(40)))
        desk.replica.entries.on_rebased(desk.replica.entries.base, newer)
        desk.mark_dirty(desk.replica)
    else:
        desk.counting.fail("write", errno.ENOSPC, path_part=".log")
        desk.append(b"x")
    desk.work()
    assert desk.snapshot_cache.held_bytes == 0
    parts = len(desk.parts_to(3))
    desk.read()
    assert (desk.snapshot_cache.held_bytes, len(desk.parts_to(3)), len(desk.held)) == (0, parts, 0)


def test_what_nobody_asks_for_is_let_go_after_a_while_and_read_again_when_somebody_does() -> None:
    desk = LeadingDesk()
    desk.ask(3)
    desk.read()
    [(delay_s, _)] = desk.later
    assert delay_s == IDLE_S
    desk.answer(3, PART_BYTES)
    desk.wait()
    assert desk.snapshot_cache.held_bytes == len(STATE), "it was asked for in that time"
    desk.wait()
    assert desk.snapshot_cache.held_bytes == 0
    desk.answer(3, 2 * PART_BYTES)
    desk.read()
    assert [part.offset for part in desk.parts_to(3)] == [0, PART_BYTES, 2 * PART_BYTES]
    assert desk.counting.snapshots_read == 2


def test_a_bug_in_a_read_is_no_error_of_the_disk() -> None:
    desk = LeadingDesk()
    desk.ask(3)
    desk.partition.state.snapshots = None  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        desk.read()


# ---- the cache -------------------------------------------------------------------------------------


def test_leaders_read_one_after_the_other_and_not_while_the_cache_is_full() -> None:
    cache = SnapshotCache(HeldPool(), bytes_max=len(STATE))
    desks = [LeadingDesk() for _ in range(3)]
    for desk in desks:
        desk.replica._outgoing._cache = cache
    held = HeldPool()
    cache.pool = held
    for desk in desks:
        desk.ask(3)
    assert len(held) == 1, "one at a time"
    held.run()
    desks[0].work()
    assert (cache.held_bytes, len(held)) == (len(STATE), 0)
    assert [len(desk.parts_to(3)) for desk in desks] == [1, 0, 0]
    desks[1].partition.close()
    receive(desks[0], AppendAccepted(NodeId(3), SELF, desks[0].node.term, META.index))
    desks[0].work()
    held.run()
    desks[2].work()
    assert (cache.held_bytes, [len(desk.parts_to(3)) for desk in desks]) == (len(STATE), [1, 0, 1])
    assert desks[2].node.role is Role.LEADER


# ---- learners --------------------------------------------------------------------------------------


class SlowDesk(LeadingDesk):
    """With a rate for copies at which each part of a snapshot takes a second, and node 5 as a learner."""

    def __init__(self) -> None:
        super().__init__()
        self.catch_up = LearnerCatchUp(PART_BYTES, lambda: self.waited_s, self.call_later)
        self._commit()
        self.replica.change_members([NodeId(voter) for voter in VOTERS], [LEARNER], "a test")
        self.work()
        self._commit()
        self.wait()
        *_, probe = (each for each in self.sent if isinstance(each, AppendRequest) and each.target == LEARNER)
        receive(self, AppendRejected(LEARNER, SELF, self.node.term, probe.previous_index, LogIndex(0), Term(0)))
        self.wait()  # what the probe has cost, and one more turn, in which its leader finds that it needs a snapshot
        assert (self.later, self.node.progress()[LEARNER].state) == ([], ProgressState.SNAPSHOT)

    def _commit(self) -> None:
        for voter in (2, 3):
            receive(self, AppendAccepted(NodeId(voter), SELF, self.node.term, self.node.last_index))
        self.work()

    def wait_for_turns(self) -> None:
        """Let pass what waits for the row, and not what looks for idle snapshots."""
        turns = [call for call in self.later if call[0] < IDLE_S]
        others = [call for call in self.later if call[0] >= IDLE_S]
        self.later = turns
        self.wait()
        self.later += others


def test_the_parts_for_a_learner_take_turns_at_the_rate_of_copies() -> None:
    desk = SlowDesk()
    desk.answer(LEARNER, 0)
    desk.read()
    assert desk.parts_to(LEARNER) == [], "it has asked for a turn"
    for part in range(3):
        desk.wait_for_turns()
        assert [each.offset for each in desk.parts_to(LEARNER)] == [PART_BYTES * each for each in range(part + 1)]
        desk.answer(LEARNER, PART_BYTES * (part + 1))
        assert len(desk.catch_up) == 1
        assert min(delay_s for delay_s, _ in desk.later) == pytest.approx(1.0), "what was sent is to be paid for first"
    assert desk.counting.snapshots_read == 1


def test_the_parts_for_a_voter_wait_for_no_turn_and_cost_the_copies_nothing() -> None:
    desk = SlowDesk()
    desk.ask(4)
    desk.read()
    assert [part.offset for part in desk.parts_to(4)] == [0]
    desk.answer(LEARNER, 0)
    assert len(desk.catch_up) == 1
    assert min(delay_s for delay_s, _ in desk.later) == 0.0


def test_a_turn_that_comes_when_the_snapshot_was_let_go_sends_nothing() -> None:
    desk = SlowDesk()
    desk.answer(LEARNER, 0)
    desk.read()
    receive(desk, Heartbeat(NodeId(2), SELF, Term(desk.node.term + 1), LogIndex(0), 0))
    desk.work()
    desk.wait_for_turns()
    assert (desk.parts_to(LEARNER), len(desk.catch_up), desk.snapshot_cache.held_bytes) == ([], 0, 0)
