"""What happens to real groups is in the log, with its cause."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import partial

import pytest

from drmq.model import NodeId
from drmq.testing.files import FakeFiles
from support.harness_leader import Leader, receive
from support.replica_harness import ReplicaHarness
from unit.broker.replication.test_group_host import ASLEEP_TICKS, OPTIONS, Room

A_WHILE_TICKS = 3 * OPTIONS.election_timeout_ticks


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room(4)
    yield made
    made.close()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "drmq.broker")
    return caplog


def last_election(log: pytest.LogCaptureFixture) -> str:
    """Who was the leader before the last election, and what the new one says why."""
    [*_, last] = re.findall(r"orders-0: this node is the leader now, in term \d+; (before: .*; cause: .*)", log.text)
    return str(last)


def test_a_leader_whose_node_is_down_is_the_cause(room: Room, log: pytest.LogCaptureFixture) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    assert last_election(log) == "before: no leader; cause: no leader was heard for an election timeout"
    before = room.leader
    room.remove(before.node_id)
    room.ticks(A_WHILE_TICKS)
    assert last_election(log) == f"before: node {before.node_id}; cause: the leader's node is down"


def test_a_leader_that_hands_over_is_the_cause(room: Room, log: pytest.LogCaptureFixture) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    target = NodeId(next(node for node in (1, 2, 3) if node != before.node_id))
    room.call(partial(before.partition.replica.transfer, target))
    room.ticks(ASLEEP_TICKS)
    assert last_election(log) == f"before: node {before.node_id}; cause: the leader handed over"
    term = room.leader.partition.leader_epoch
    assert f"orders-0: this node is no longer the leader: it handed over to node {target}, in term {term}" in log.text


def test_a_leader_that_has_started_again_is_the_cause(room: Room, log: pytest.LogCaptureFixture) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    others = [place for place in room.places[:3] if place is not before]
    for place in others:
        room.greet(place, before.node_id, b"first")
    room.call(partial(before.host.remove, before.partition))
    room.gone.add(before.node_id)
    for place in others:
        room.greet(place, before.node_id, b"second")
    room.ticks(A_WHILE_TICKS)
    assert last_election(log) == f"before: node {before.node_id}; cause: the leader's node has restarted"


def test_a_leader_whose_replica_has_ended_is_the_cause(room: Room, log: pytest.LogCaptureFixture) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    room.call(lambda: before.partition.replica.on_unknown_format("a test"))
    room.ticks(A_WHILE_TICKS)
    assert last_election(log) == f"before: node {before.node_id}; cause: the leader's replica has ended"


def test_a_preferred_replica_leads_after_a_start(room: Room, log: pytest.LogCaptureFixture) -> None:
    for place in room.places[:3]:
        room.call(partial(place.open_again, NodeId(3)))
    room.ticks(A_WHILE_TICKS)
    cause = "the group had no leader after a start, and this is its preferred replica"
    assert last_election(log) == f"before: no leader; cause: {cause}"


def test_the_first_and_the_only_replica_say_so(room: Room, log: pytest.LogCaptureFixture) -> None:
    room.make_group()
    room.call(lambda: room.place(2).partition.replica.campaign())
    room.ticks(ASLEEP_TICKS)
    assert last_election(log) == "before: no leader; cause: the group is new, and this is its first replica"
    ReplicaHarness(FakeFiles())
    assert last_election(log) == "before: no leader; cause: it is the only voter"


def test_a_follower_that_cuts_its_log_logs_and_counts_it(log: pytest.LogCaptureFixture) -> None:
    desk = ReplicaHarness(FakeFiles(), members=(1, 2, 3))
    old = Leader(2, 1).batch(b"kept").batch(b"lost", b"lost too")
    receive(desk, old.appends(1))
    desk.work()
    assert desk.table.events.truncations == 0
    receive(desk, Leader(3, 4, old.log[:2]).batch(b"new").appends(3))
    desk.work()
    assert desk.table.events.truncations == 1
    line = "orders-0: removes 2 records from offset 1 on, which were never committed: the leader has others or none"
    assert log.messages.count(line) == 1
