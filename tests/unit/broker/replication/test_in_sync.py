"""Which replicas are in sync, and when a leader without a quorum steps down, also while its group sleeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drmq.model import ErrorCode, NodeId
from unit.broker.replication.test_group_host import ASLEEP_TICKS, OPTIONS, Room


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room(4)
    yield made
    made.close()


@pytest.mark.parametrize("asleep", [True, False])
def test_who_is_known_to_be_down_is_not_in_sync(room: Room, asleep: bool) -> None:
    """At once, and all nodes are notified, without waiting for an election timeout."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    if not asleep:
        room.produce(leader)
    assert leader.is_asleep == asleep
    assert leader.partition.in_sync == (1, 2, 3)
    away, witness = (node for node in (1, 2, 3) if node != leader.node_id)
    room.remove(away)
    rest = tuple(sorted((leader.node_id, witness)))
    assert leader.partition.in_sync == rest
    assert room.place(witness).host.leaders[leader.partition.group].in_sync == rest
    # A place without a replica is told too.
    assert room.place(4).host.leaders[leader.partition.group].in_sync == rest


def test_who_stores_nothing_is_not_in_sync(room: Room) -> None:
    """A disk that hangs does not keep its node from answering heartbeats, nor are a few records many."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    stuck, sound = (room.place(node) for node in (1, 2, 3) if node != leader.node_id)
    stuck.disk_hangs = True
    assert room.produce(leader) == [ErrorCode.NONE]
    room.ticks(3 * OPTIONS.election_timeout_ticks)
    rest = tuple(sorted((leader.node_id, sound.node_id)))
    assert leader.partition.in_sync == rest
    assert sound.host.leaders[leader.partition.group].in_sync == rest
    stuck.disk_hangs = False
    room.ticks(OPTIONS.election_timeout_ticks)
    assert leader.partition.in_sync == (1, 2, 3)


def test_a_leader_that_slept_when_it_lost_the_others_does_not_lead_on(room: Room) -> None:
    """Its node has not heard them for as long as a group that is awake would have waited."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    assert leader.is_asleep

    def cut_off() -> None:
        room.gone.update({1, 2, 3} - {leader.node_id})
        for node in sorted(room.gone):
            leader.host.on_peer_down(NodeId(node))

    room.call(cut_off)
    room.ticks(1)
    assert not leader.partition.is_leader
