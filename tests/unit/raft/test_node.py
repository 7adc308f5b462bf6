"""The door: what a `Ready` holds and when, refusals that change nothing, and peers that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from drmq.model import NodeId
from drmq.raft import (
    AppendAccepted,
    AppendRequest,
    Cause,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    LogIndex,
    MembersChange,
    MemoryStorage,
    Node,
    NotCaughtUp,
    PreVoteResponse,
    ProtocolError,
    RaftOptions,
    Role,
    SnapshotAnswer,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReceiving,
    Term,
    TimeoutNow,
    TooManyReads,
    TooMuchUncommitted,
    VoteRequest,
    VoteResponse,
    configuration_to_bytes,
)

from .nodes import FOUR, ME, OPTIONS, THREE, TWO, Driver, append, entries, entry, storage


def test_proposals_between_two_readies_travel_together() -> None:
    """One message per follower carries all that was proposed since the last `Ready`."""
    driver = Driver(storage()).lead()
    driver.receive(AppendAccepted(TWO, ME, Term(1), LogIndex(1)), AppendAccepted(THREE, ME, Term(1), LogIndex(1)))
    for payload in (b"a", b"b", b"c"):
        driver.node.propose([payload])
    requests = [message for message in driver.node.take_ready().messages if isinstance(message, AppendRequest)]
    assert [len(request.entries) for request in requests] == [3, 3]


def test_messages_wait_for_earlier_writes_too() -> None:
    """An answer in a `Ready` that has nothing to persist itself still waits for those before it."""
    driver = Driver(storage(term=1))
    driver.node.receive(append(0, 0, entries([1])))
    first = driver.node.take_ready()
    driver.node.receive(append(0, 0, entries([1])))
    second = driver.node.take_ready()
    assert not second.persists
    assert second.messages == ()
    assert second.messages_after_persist == (AppendAccepted(ME, TWO, Term(1), LogIndex(1)),)
    driver.disk.write(first)
    driver.node.on_persisted(second.number)
    driver.node.receive(append(0, 0, entries([1])))
    assert driver.node.take_ready().messages == (AppendAccepted(ME, TWO, Term(1), LogIndex(1)),)


def test_heartbeats_are_answered_while_the_disk_is_busy() -> None:
    """An answer that promises no entries does not wait for them; one in a new term waits for that term."""
    driver = Driver(storage(term=1))
    driver.node.receive(append(0, 0, entries([1])))
    driver.node.take_ready()
    driver.node.receive(Heartbeat(TWO, ME, Term(1), LogIndex(0), 0))
    assert driver.node.take_ready().messages == (HeartbeatResponse(ME, TWO, Term(1), 0),)
    driver.node.receive(Heartbeat(THREE, ME, Term(2), LogIndex(0), 0))
    ready = driver.node.take_ready()
    assert (ready.messages, ready.messages_after_persist) == ((), (HeartbeatResponse(ME, THREE, Term(2), 0),))


def test_reports_come_in_order() -> None:
    """A report of what was never handed out, or older than the last, is a bug in the driver."""
    driver = Driver(storage()).lead()
    with pytest.raises(AssertionError):
        driver.node.on_persisted(10**6)
    with pytest.raises(AssertionError):
        driver.node.on_persisted(0)


def test_refused_proposals_change_nothing() -> None:
    """Too much uncommitted: nothing of the call is appended."""
    driver = Driver(storage(), RaftOptions(uncommitted_bytes_max=10, uncommitted_entries_max=3)).lead()
    driver.node.propose([bytes(8)])
    for too_much in ([bytes(3)], [b"", b"", b""]):
        last = driver.node.last_index
        with pytest.raises(TooMuchUncommitted):
            driver.node.propose(too_much)
        assert driver.node.last_index == last
    driver.node.propose([bytes(2)])


def test_reads_are_bounded() -> None:
    """Beyond the limit a read is refused at once."""
    driver = Driver(storage(), RaftOptions(read_requests_max=2)).lead()
    driver.node.read_index(1)
    driver.node.read_index(2)
    with pytest.raises(TooManyReads):
        driver.node.read_index(3)


def test_reads_are_given_back_at_the_end_of_a_reign() -> None:
    """A read that waits for confirmation is refused when it will not come."""
    driver = Driver(storage()).lead()
    driver.receive(AppendAccepted(TWO, ME, Term(1), LogIndex(1)))
    driver.node.read_index("waiting")
    driver.work()
    driver.receive(Heartbeat(TWO, ME, Term(5), LogIndex(0), 0))
    assert [context for ready in driver.readies for context in ready.reads_refused] == ["waiting"]


@pytest.mark.parametrize(
    "message",
    [
        append(0, 0, [entry(2, 1)]),
        append(0, 0, [entry(1, 1), entry(3, 1)]),
        append(0, 0, [entry(1, 2)]),
        append(3, 2, [entry(4, 1)], term=2),
        Heartbeat(TWO, THREE, Term(1), LogIndex(0), 0),
        Heartbeat(ME, ME, Term(1), LogIndex(0), 0),
    ],
)
def test_wrong_messages_are_refused_before_anything_changes(message: AppendRequest | Heartbeat) -> None:
    """What no peer of ours sends is a protocol error, and leaves no trace."""
    driver = Driver(storage())
    with pytest.raises(ProtocolError):
        driver.node.receive(message)
    assert (driver.node.term, driver.node.has_ready) == (0, False)


def test_wrong_configuration_is_refused_before_anything_changes() -> None:
    """A configuration entry that cannot be read is a protocol error, not a half-done append."""
    driver = Driver(storage(term=1))
    with pytest.raises(ProtocolError):
        driver.node.receive(append(0, 0, [entry(1, 1), entry(2, 1, b"?", EntryKind.CONFIGURATION)]))
    assert (driver.node.last_index, driver.node.has_ready) == (0, False)


class ColdStorage(MemoryStorage):
    """Storage whose entries are not in memory until they were fetched."""

    cold = False

    def entries(self, start: LogIndex, end: LogIndex, size_bytes_max: int, count_max: int) -> Sequence[Entry]:
        return () if self.cold else super().entries(start, end, size_bytes_max, count_max)


def test_entries_that_are_not_at_hand_are_sent_later() -> None:
    """The leader waits for the driver to fetch cold entries, without blocking or spinning."""
    disk = ColdStorage(SnapshotMeta(LogIndex(0), Term(0), Configuration.of([1, 2, 3])))
    disk.append(entries([1] * 5))
    disk.hard_state = storage(terms=[1]).hard_state
    driver = Driver(disk).lead()
    disk.cold = True
    driver.receive(AppendAccepted(TWO, ME, Term(2), LogIndex(2)))
    assert not any(isinstance(m, AppendRequest) and m.target == TWO for m in driver.sent)
    disk.cold = False
    driver.node.on_entries_read()
    driver.work()
    (request,) = [m for m in driver.sent if isinstance(m, AppendRequest) and m.target == TWO]
    assert request.previous_index == 2


def test_idle_nodes_want_nothing() -> None:
    """Without messages and timeouts there is no `Ready` to take."""
    driver = Driver(storage())
    assert not driver.node.has_ready
    driver.lead()
    assert not driver.node.has_ready
    assert driver.node.role is Role.LEADER


def test_snapshot_meta_is_of_its_index() -> None:
    """A snapshot records the term and the configuration that hold at its index, not the latest."""
    driver = Driver(storage(voters=1))
    driver.node.campaign()
    driver.work()
    driver.node.propose([b"a"])
    driver.work()
    driver.node.propose_configuration([ME], [TWO])
    driver.work()
    assert driver.node.snapshot_meta(LogIndex(2), b"42") == SnapshotMeta(
        LogIndex(2), Term(1), Configuration.of([1]), b"42"
    )
    assert driver.node.snapshot_meta(LogIndex(3)).configuration == Configuration.of([1], [2])


def test_a_kept_part_of_a_snapshot_is_resumed() -> None:
    """What the driver kept over a restart is asked for no more, and the driver's own note of it is left alone."""
    meta = SnapshotMeta(LogIndex(9), Term(1), Configuration.of([1, 2, 3]))
    kept = SnapshotReceiving(TWO, meta, 100)
    node = Node(ME, storage(), Random(0), receiving=kept)
    node.receive(SnapshotChunk(TWO, ME, Term(1), meta, 0, b"", False))
    ready = node.take_ready()
    assert ready.messages_after_persist == (SnapshotAnswer(ME, TWO, Term(1), meta.snapshot_id, 100),)
    node.receive(SnapshotChunk(TWO, ME, Term(1), meta, 100, b"rest", True))
    assert [(chunk.offset, chunk.done) for chunk in node.take_ready().chunks_to_save] == [(100, True)]
    assert (kept.received, kept.complete) == (100, False)


def test_options_are_checked() -> None:
    """Limits that could never work are refused."""
    for bad in (
        {"heartbeat_ticks": 0},
        {"heartbeat_ticks": 10, "election_timeout_ticks": 10},
        {"append_bytes_max": 0},
        {"in_flight_bytes_max": 10, "append_bytes_max": 11},
        {"promotion_lag_max": -1},
    ):
        with pytest.raises(ValueError, match="must"):
            RaftOptions(**bad)


# Learners that take turns


def with_learner() -> Driver:
    """A leader of one voter with ten entries of 400 kB, and a learner that wants them."""
    driver = Driver(storage(voters=1), learners_take_turns=True)
    driver.node.campaign()
    driver.work()
    driver.node.propose([bytes(400_000)] * 10)
    driver.work()
    driver.node.propose_configuration([ME], [FOUR])
    driver.work()
    return driver


def copied(driver: Driver) -> list[tuple[int, int]]:
    """From where to where each append with entries went, since this was last asked."""
    requests = [message for message in driver.sent if isinstance(message, AppendRequest) and message.entries]
    driver.sent.clear()
    return [(request.entries[0].first, request.entries[-1].index) for request in requests]


def give_turn(driver: Driver) -> list[tuple[int, int]]:
    driver.node.give_turn(FOUR)
    driver.work()
    return copied(driver)


def accept(driver: Driver, match: int) -> list[tuple[int, int]]:
    driver.receive(AppendAccepted(FOUR, ME, driver.node.term, LogIndex(match)))
    return copied(driver)


def test_a_learner_gets_one_message_a_turn() -> None:
    """It is asked for once, whatever the learner answers meanwhile, and nothing counts as sent that was not."""
    driver = with_learner()
    assert [ready.turns_wanted for ready in driver.readies if ready.turns_wanted] == [(FOUR,)]
    assert copied(driver) == []
    for _ in range(6):
        driver.receive(HeartbeatResponse(FOUR, ME, driver.node.term, 0))
        assert not any(isinstance(message, AppendRequest) for message in driver.sent)
    assert len([ready for ready in driver.readies if ready.turns_wanted]) == 1
    assert give_turn(driver) == [(12, 12)]
    assert give_turn(driver) == [], "a turn that nobody asked for"
    assert accept(driver, 1) == []
    assert give_turn(driver) == [(2, 3)]
    assert give_turn(driver) == [(4, 5)], "it asks for the next turn when it has used one, not when it is answered"
    assert driver.node.progress()[FOUR].in_flight_messages == 2


def test_a_turn_that_cannot_be_used_is_over() -> None:
    """A learner with nothing to send when its turn comes does not keep the turn for later."""
    driver = with_learner()
    assert give_turn(driver) == [(12, 12)]
    assert accept(driver, 1) == []
    # It has got the rest on another way, before its turn.
    assert accept(driver, 12) == []
    assert give_turn(driver) == []
    driver.node.propose([b"x"])
    driver.work()
    assert copied(driver) == []
    assert give_turn(driver) == [(13, 13)]


def test_voters_take_no_turns() -> None:
    """A follower that keeps up does not wait for turns, nor does a learner once it is a voter."""
    driver = with_learner()
    give_turn(driver)
    accept(driver, 12)
    driver.node.propose_configuration([ME, FOUR])
    driver.work()
    copied(driver)
    driver.node.propose([b"x"])
    driver.work()
    assert copied(driver) == [(14, 14)]


def test_a_turn_of_an_earlier_reign_is_harmless() -> None:
    """The driver may grant a turn that was requested long ago."""
    driver = with_learner()
    driver.receive(Heartbeat(TWO, ME, Term(driver.node.term + 1), LogIndex(0), 0))
    assert give_turn(driver) == []


# ---- learners that are nearly there --------------------------------------------------------------


def led_with_learner() -> Driver:
    """A leader of three whose learner, node 4, has all of its log."""
    disk = MemoryStorage(SnapshotMeta(LogIndex(0), Term(0), Configuration.of([ME, TWO, THREE], [FOUR])))
    driver = Driver(disk).lead()
    everyone_accepts(driver, TWO, THREE, FOUR)
    return driver


def everyone_accepts(driver: Driver, *peers: NodeId) -> None:
    driver.receive(*(AppendAccepted(peer, ME, Term(1), driver.node.last_index) for peer in peers))


def test_a_learner_that_lacks_what_the_log_has_dropped_is_refused_in_order() -> None:
    """Retention may drop what it is about to confirm. What cannot be read is no reason to fail."""
    driver = led_with_learner()
    for _ in range(10):
        driver.node.propose([b"x"])
        driver.work()
    everyone_accepts(driver, TWO, THREE)
    meta = driver.node.snapshot_meta(LogIndex(8))
    driver.disk.compact(meta, LogIndex(9))
    with pytest.raises(NotCaughtUp):
        driver.node.propose_configuration([ME, TWO, THREE, FOUR])


def test_a_learner_is_promoted_though_the_leaders_own_disk_is_behind() -> None:
    driver = led_with_learner()
    for _ in range(4):
        driver.node.propose([b"x"])
        driver.work()
    everyone_accepts(driver, TWO, THREE)
    driver.node.propose([b"y"])
    driver.node.take_ready()  # on its way to the leader's disk, and on that of the others
    for peer in (TWO, THREE):
        driver.node.receive(AppendAccepted(peer, ME, Term(1), driver.node.last_index))
    driver.node.receive(AppendAccepted(FOUR, ME, Term(1), LogIndex(driver.node.durable_index - 1)))
    assert driver.node.durable_index < driver.node.commit_index
    driver.node.propose_configuration([ME, TWO, THREE, FOUR])
    assert driver.node.configuration.is_joint


def last_cause(driver: Driver) -> tuple[Role, Cause, NodeId | None]:
    """What the last change of role said."""
    last = [ready.leadership for ready in driver.readies if ready.leadership is not None][-1]
    return last.role, last.cause, last.caused_by


def test_a_new_leader_says_why_it_campaigned() -> None:
    """By a timeout, because the driver had reason to, or because the leader asked for it."""
    waited = Driver(storage())
    while waited.node.role is not Role.PRE_CANDIDATE:
        waited.tick()
    assert last_cause(elected(waited)) == (Role.LEADER, Cause.TIMEOUT, None)
    told = Driver(storage(term=1))
    told.receive(Heartbeat(TWO, ME, Term(1), LogIndex(0), 0))
    told.node.on_leader_lost(0, Cause.LEADER_RESTARTED)
    while told.node.role is not Role.PRE_CANDIDATE:
        told.tick()
    assert last_cause(elected(told)) == (Role.LEADER, Cause.LEADER_RESTARTED, None)
    hastened = Driver(storage())
    hastened.node.hasten_election(Cause.PREFERRED)
    while hastened.node.role is not Role.PRE_CANDIDATE:
        hastened.tick()
    assert last_cause(elected(hastened)) == (Role.LEADER, Cause.PREFERRED, None)
    asked = Driver(storage(term=1))
    asked.receive(TimeoutNow(TWO, ME, Term(1)))
    assert last_cause(elected(asked)) == (Role.LEADER, Cause.HANDED_OVER, None)


def test_a_cause_is_forgotten_with_the_next_leader() -> None:
    """A loss that another node's election has mended is not the cause of a later one."""
    driver = Driver(storage(term=1))
    driver.receive(Heartbeat(TWO, ME, Term(1), LogIndex(0), 0))
    driver.node.on_leader_lost(0, Cause.LEADER_DOWN)
    driver.receive(Heartbeat(THREE, ME, Term(2), LogIndex(0), 0))
    while driver.node.role is not Role.PRE_CANDIDATE:
        driver.tick()
    assert last_cause(elected(driver)) == (Role.LEADER, Cause.TIMEOUT, None)


def test_a_former_leader_says_why_it_is_one() -> None:
    """It handed over, did not hear a majority, has no vote any more, or heard of a later term."""
    deposed = Driver(storage()).lead()
    deposed.receive(HeartbeatResponse(THREE, ME, Term(5), 0), Heartbeat(TWO, ME, Term(5), LogIndex(0), 0))
    assert last_cause(deposed) == (Role.FOLLOWER, Cause.LATER_TERM, THREE)
    handed = Driver(storage()).lead()
    handed.receive(AppendAccepted(TWO, ME, Term(1), LogIndex(1)))
    handed.node.transfer_leadership(TWO)
    handed.receive(VoteRequest(TWO, ME, Term(2), LogIndex(1), Term(1), True))
    assert last_cause(handed) == (Role.FOLLOWER, Cause.HANDED_OVER, TWO)
    deaf = Driver(storage()).lead()
    deaf.tick(3 * OPTIONS.election_timeout_ticks)
    causes = [ready.leadership for ready in deaf.readies if ready.leadership is not None]
    assert Cause.NO_QUORUM in {leadership.cause for leadership in causes if leadership.role is not Role.LEADER}
    removed = Driver(storage()).lead()
    removed.receive(AppendAccepted(TWO, ME, Term(1), LogIndex(1)), AppendAccepted(THREE, ME, Term(1), LogIndex(1)))
    removed.node.propose_configuration([TWO, THREE])
    removed.work()
    for index in (2, 3):
        removed.receive(*(AppendAccepted(peer, ME, Term(1), LogIndex(index)) for peer in (TWO, THREE)))
    assert last_cause(removed) == (Role.FOLLOWER, Cause.NO_VOTE, None)


def elected(driver: Driver) -> Driver:
    """Give a campaigning node the votes of the others."""
    driver.work()
    term = driver.node.term
    if driver.node.role is Role.PRE_CANDIDATE:
        driver.receive(PreVoteResponse(TWO, ME, term, Term(term + 1), True))
    driver.receive(VoteResponse(TWO, ME, driver.node.term, True))
    return driver


# What became of changes of members


def changes_of(driver: Driver) -> list[MembersChange]:
    return [change for ready in driver.readies for change in ready.members_changes]


def test_a_change_of_members_is_reported_once_it_is_committed() -> None:
    """By the leader, with the members before it and the reason, and not for the joint configuration on the way."""
    driver = led_with_learner()
    before = Configuration.of([ME, TWO, THREE], [FOUR])
    driver.node.propose_configuration([ME, TWO, FOUR], [], "a reason")
    driver.work()
    assert changes_of(driver) == []
    everyone_accepts(driver, TWO, THREE, FOUR)
    assert (driver.node.change_in_progress, changes_of(driver)) == (True, [])
    everyone_accepts(driver, TWO, FOUR)
    after = Configuration.of([ME, TWO, FOUR])
    assert changes_of(driver) == [MembersChange(before, after, Term(1), "a reason")]
    driver.node.propose([b"x"])
    driver.work()
    everyone_accepts(driver, TWO, FOUR)
    assert len(changes_of(driver)) == 1


def test_a_change_that_ends_a_leadership_is_reported_too() -> None:
    """A leader that is no longer a voter steps down at the same moment."""
    driver = led_with_learner()
    driver.node.propose_configuration([TWO, THREE], [], "a reason")
    driver.work()
    everyone_accepts(driver, TWO, THREE)
    everyone_accepts(driver, TWO, THREE)
    assert driver.node.role is Role.FOLLOWER
    assert [change.after for change in changes_of(driver)] == [Configuration.of([TWO, THREE])]


def test_a_change_that_an_earlier_leader_began_is_reported_without_a_reason() -> None:
    """The next leader finishes it. What the log had before is not reported again after a start."""
    joint = Configuration.of([ME, TWO, FOUR], [], [ME, TWO, THREE])
    disk = storage(terms=[1])
    disk.append([entry(2, 1, configuration_to_bytes(joint), EntryKind.CONFIGURATION)])
    driver = Driver(disk).lead()
    everyone_accepts_in(driver, TWO, THREE, FOUR)
    everyone_accepts_in(driver, TWO, FOUR)
    before, after = Configuration.of([ME, TWO, THREE], [FOUR]), Configuration.of([ME, TWO, FOUR])
    assert changes_of(driver) == [MembersChange(before, after, Term(2), "")]
    again = Driver(disk).lead()
    everyone_accepts_in(again, TWO, FOUR)
    assert again.node.commit_index == again.node.last_index
    assert changes_of(again) == []


def test_a_change_that_a_follower_received_is_reported_if_it_becomes_the_leader() -> None:
    """The leader before it may have ended before it knew that the change is committed."""
    before, after = Configuration.of([ME, TWO, THREE]), Configuration.of([ME, TWO, THREE], [FOUR])
    driver = Driver(storage(terms=[1]))
    driver.receive(append(1, 1, [entry(2, 1, configuration_to_bytes(after), EntryKind.CONFIGURATION)], commit=1))
    driver.lead()
    everyone_accepts_in(driver, TWO, THREE)
    assert changes_of(driver) == [MembersChange(before, after, Term(2), "")]


def everyone_accepts_in(driver: Driver, *peers: NodeId) -> None:
    node = driver.node
    driver.receive(*(AppendAccepted(peer, ME, node.term, node.last_index) for peer in peers))
