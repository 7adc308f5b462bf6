"""Replicas of a node that has started: their groups do not wait for them awake, and the preferred one leads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from drmq.model import ErrorCode, NodeId
from unit.broker.replication.test_group_host import ASLEEP_TICKS, OPTIONS, Room


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room(4)
    yield made
    made.close()


@pytest.mark.parametrize("is_preferred", [True, False])
def test_a_group_sleeps_without_a_replica_that_is_not_open_and_is_woken_by_it(room: Room, is_preferred: bool) -> None:
    """A node that starts with many replicas opens them one after the other. The leaders do not wait for them awake."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    away = room.place(next(node for node in (1, 2, 3) if node != leader.node_id))
    partition = away.partition
    room.greet(leader, away.node_id, b"first")
    room.call(lambda: away.host.remove(partition))
    room.greet(leader, away.node_id, b"second")
    assert room.produce(leader) == [ErrorCode.NONE]
    room.ticks(ASLEEP_TICKS)
    assert leader.is_asleep
    assert leader.partition.in_sync == tuple(node for node in (1, 2, 3) if node != away.node_id)
    preferred = away.node_id if is_preferred else leader.node_id
    epoch = leader.partition.leader_epoch

    def open_again() -> None:
        away.host._unclaimed.clear()  # With many partitions, messages are kept for some of them only.
        away.host.add(partition)
        away.host.rejoin(partition, preferred)

    room.call(open_again)
    room.ticks(2 * OPTIONS.heartbeat_ticks)
    assert leader.partition.in_sync == (1, 2, 3)
    assert partition.high_watermark == leader.partition.high_watermark
    assert leader.partition.leader_epoch == epoch, "no election was needed"
    room.ticks(ASLEEP_TICKS)
    assert leader.is_asleep


def test_no_group_sleeps_while_a_member_is_silent_whose_node_is_up(room: Room) -> None:
    """Nothing would tell the leader when that member is back."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    away = room.place(next(node for node in (1, 2, 3) if node != leader.node_id))
    room.call(partial(away.host.remove, away.partition))
    assert room.produce(leader) == [ErrorCode.NONE]
    room.ticks(3 * ASLEEP_TICKS)
    assert not leader.is_asleep
    assert leader.partition.in_sync == tuple(node for node in (1, 2, 3) if node != away.node_id)


def test_too_few_replicas_that_are_open_keep_their_leader_awake(room: Room) -> None:
    """It must step down, and would not notice in its sleep."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    others = [place for place in room.places[:3] if place is not leader]
    for place in others:
        room.greet(leader, place.node_id, b"first")
        room.call(partial(place.host.remove, place.partition))
    for place in others:
        room.greet(leader, place.node_id, b"second")
    room.call(leader.partition.replica.wake)
    room.ticks(3 * ASLEEP_TICKS)
    assert not leader.is_asleep
    assert not leader.partition.is_serving


def test_a_learner_that_was_never_heard_keeps_its_group_awake(room: Room) -> None:
    """It does not know its group yet, so it could not wake it."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    room.call(lambda: leader.partition.replica.change_members([NodeId(1), NodeId(2), NodeId(3)], [NodeId(4)], "a test"))
    room.greet(leader, 4, b"first")
    room.greet(leader, 4, b"second")
    room.ticks(3 * ASLEEP_TICKS)
    assert not leader.is_asleep


def test_after_a_start_of_all_nodes_the_preferred_replica_leads(room: Room) -> None:
    """The others are open much earlier, and wait for it. Leadership need not be transferred later."""
    first, second, preferred = room.places[:3]
    for place in (first, second):
        room.call(partial(place.open_again, preferred.node_id))
    room.ticks(3 * OPTIONS.election_timeout_ticks)
    assert not first.partition.is_serving
    assert not second.partition.is_serving
    room.call(partial(preferred.open_again, preferred.node_id))
    room.ticks(OPTIONS.election_timeout_ticks // 2)
    assert preferred.partition.is_serving


def test_after_a_start_without_the_preferred_replica_another_leads(room: Room) -> None:
    """Its node is up, but cannot open it."""
    for place in room.places[:2]:
        room.call(partial(place.open_again, NodeId(3)))
    room.ticks(12 * OPTIONS.election_timeout_ticks)
    assert any(place.partition.is_serving for place in room.places[:2])
