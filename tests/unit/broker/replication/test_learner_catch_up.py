"""The queue of copies: which learners are in it, what a turn costs, and which entries must be read from the disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drmq.broker.replication.learner_catch_up import LearnerCatchUp
from drmq.broker.replication.replica import Replica
from drmq.model import NodeId
from drmq.raft import AppendAccepted, AppendRejected, AppendRequest, LogIndex, Term
from drmq.testing.files import FakeFiles
from support.harness_leader import receive
from support.replica_harness import SELF, ReplicaHarness

LEARNER = NodeId(2)


class Rival(Replica):
    """Another replica in the row, which counts its turns."""

    def __init__(self) -> None:
        self.turns = 0

    def take_turn(self, learner: NodeId) -> None:
        self.turns += 1


def test_a_copy_that_must_come_from_the_disk_comes() -> None:
    """Each part is read on another thread if it is not in memory at its turn, and is sent before the next turn."""
    files = FakeFiles()
    desk = ReplicaHarness(files)
    for _ in range(3):
        desk.produce(b"v" * 700_000)
    desk = ReplicaHarness(files.after_kill(), is_old=True)
    desk.replica.change_members([SELF], [LEARNER], "a test")
    desk.work()
    node = desk.replica.node
    assert node is not None
    sent: list[LogIndex] = []
    rival = Rival()
    for _ in range(60):
        if not rival.turns:
            desk.catch_up.ask(rival, LEARNER)
        desk.wait()
        if rival.turns:
            # In a long row, what was read for one is gone when all others have had their turns.
            rival.turns = 0
            assert desk.files is not None
            desk.files.drop_caches()
        for message in list(desk.sent):
            if not isinstance(message, AppendRequest):
                continue
            if message.previous_index > node.progress()[LEARNER].match:
                rejected = AppendRejected(LEARNER, SELF, node.term, message.previous_index, LogIndex(0), Term(0))
                receive(desk, rejected)
            elif message.entries:
                sent += [entry.index for entry in message.entries]
                receive(desk, AppendAccepted(LEARNER, SELF, node.term, message.entries[-1].index))
        desk.sent.clear()
        desk.work()
    assert sent == list(range(1, node.last_index + 1))
    assert len(desk.catch_up) == 0


def test_whoever_asks_twice_waits_once_and_an_exception_stops_nobody() -> None:
    """The queue continues after a turn that failed; a free turn is followed by the next at once."""
    calls: list[tuple[float, Callable[[], object]]] = []
    now = [100.0]

    class Broken(Rival):
        def take_turn(self, learner: NodeId) -> None:
            raise AssertionError("wrong code")

    turns = LearnerCatchUp(10, lambda: now[0], lambda delay_s, function, *arguments: calls.append((delay_s, function)))
    broken, rival = Broken(), Rival()
    turns.ask(broken, LEARNER)
    turns.ask(rival, LEARNER)
    turns.ask(rival, LEARNER)
    assert len(turns) == 2
    assert [delay_s for delay_s, _ in calls] == [0.0], "one call is under way, however many wait"
    with pytest.raises(AssertionError):
        calls.pop()[1]()
    turns.on_sent(broken, LEARNER, 50)
    calls.pop()[1]()
    assert rival.turns == 0, "what was sent meanwhile is to be paid for first"
    assert [delay_s for delay_s, _ in calls] == [5.0]
    now[0] += 5.0
    calls.pop()[1]()
    assert (rival.turns, len(turns), calls) == (1, 0, [])


class Row:
    """A row with a clock and a timer of its own, a kilobyte a second; one kilobyte is sent, and one replica waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[..., object]]] = []
        self.rival = Rival()
        self.turns = LearnerCatchUp(1_000, lambda: self.now, self._call_later)
        self.turns.on_sent(self.rival, LEARNER, 1_000)
        self.turns.ask(self.rival, LEARNER)

    def _call_later(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None:
        self.calls.append((delay_s, function))

    def fire(self, now: float) -> None:
        """The timer's time has come, and this is what the clock says."""
        self.now = now
        self.calls.pop(0)[1]()


def test_a_timer_that_is_a_little_early_is_not_set_again_and_again() -> None:
    row = Row()
    assert [delay_s for delay_s, _ in row.calls] == [1.0]
    row.fire(0.999_999)
    assert (row.rival.turns, len(row.turns), row.calls) == (1, 0, [])


def test_a_turn_waits_for_what_was_sent_meanwhile() -> None:
    row = Row()
    row.turns.on_sent(row.rival, LEARNER, 2_000)
    row.fire(1.0)
    assert row.rival.turns == 0
    assert [delay_s for delay_s, _ in row.calls] == [2.0]
    row.fire(3.0)
    assert row.rival.turns == 1


def test_a_row_goes_on_after_a_read_whoever_has_sent_something_meanwhile() -> None:
    """A replica reads for one of its followers, and sends what it has to another, before the read is done."""
    row = Row()
    row.fire(1.0)
    row.turns.on_reading(row.rival)
    row.turns.ask(Rival(), LEARNER)
    row.turns.on_sent(row.rival, LEARNER, 1_000)
    assert row.calls == []
    row.turns.on_read(row.rival)
    assert [delay_s for delay_s, _ in row.calls] == [1.0]


def test_each_learner_has_its_own_rate() -> None:
    row = Row()
    row.turns.rate_of = lambda replica, member: 500 if replica is row.rival else 2_000
    row.fire(1.0)
    row.turns.on_sent(row.rival, LEARNER, 1_000)
    row.turns.ask(Rival(), LEARNER)
    assert [delay_s for delay_s, _ in row.calls] == [2.0]
    row.turns.on_sent(Rival(), LEARNER, 1_000)
    row.fire(3.0)
    assert [delay_s for delay_s, _ in row.calls] == [0.5]


def test_a_new_rate_counts_at_once() -> None:
    """A megabyte at a byte per second would take days, and its timer cannot be taken back."""
    row = Row()
    row.turns.rate_of = lambda replica, member: 1
    row.turns.on_sent(row.rival, LEARNER, 1_000_000)
    row.fire(1.0)
    [(delay_s, stale)] = row.calls
    assert delay_s == 1_000_000
    row.turns.rate_of = lambda replica, member: 1_000
    row.turns.on_rates_changed()
    row.calls.remove((delay_s, stale))
    assert [delay_s for delay_s, _ in row.calls] == [0.0]
    row.fire(1.0)
    assert row.rival.turns == 1
    row.turns.on_sent(row.rival, LEARNER, 1_000)
    row.turns.ask(row.rival, LEARNER)
    stale()
    assert row.rival.turns == 1, "the old timer grants no turn"
    row.fire(2.0)
    assert row.rival.turns == 2
