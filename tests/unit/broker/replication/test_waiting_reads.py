"""Reads that wait for a majority to confirm the leader: each is answered, whatever happens to the replica."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from drmq.model import ErrorCode, NodeId
from drmq.raft import AppendAccepted, Heartbeat, HeartbeatResponse
from drmq.testing.files import FakeFiles
from support.harness_leader import Leader, receive
from support.replica_harness import SELF, ReplicaHarness
from unit.broker.replication.test_replica import GROUP, lead_with_quorum


def close(desk: ReplicaHarness) -> None:
    desk.partition.close()


def fill_the_disk(desk: ReplicaHarness) -> None:
    assert desk.files is not None
    desk.files.fail("write", errno.ENOSPC, path_part=".log")
    desk.append()


def fail_on_a_bug(desk: ReplicaHarness) -> None:
    desk.replica.on_bug(AssertionError("wrong code"))


def follow(desk: ReplicaHarness) -> None:
    receive(desk, Leader(3, desk.partition.leader_epoch + 1).heartbeat(0))


ENDS = [close, fill_the_disk, fail_on_a_bug, follow]


@pytest.mark.parametrize("end", ENDS)
def test_a_read_that_waits_is_answered_when_the_lead_ends(end: Callable[[ReplicaHarness], None]) -> None:
    """Requests for the latest offset, or for the committed offsets of a group, are sent to the next leader."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    lead_with_quorum(desk)
    heard: list[ErrorCode] = []
    desk.partition.confirm_leadership(heard.append)
    desk.partition.confirm_leadership(heard.append)
    desk.work()
    assert heard == []
    end(desk)
    desk.work()
    assert heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


@pytest.mark.parametrize("end", [None, *ENDS])
def test_a_read_waits_for_what_a_majority_has_committed_without_this_disk(
    end: Callable[[ReplicaHarness], None] | None,
) -> None:
    """A follower shows it already. A client that has read it there must not be told that the log ends before it."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    lead_with_quorum(desk)
    next_offset = desk.append()
    desk.turn()
    node = desk.replica.node
    assert node is not None
    for follower in GROUP[1:]:
        receive(desk, AppendAccepted(NodeId(follower), SELF, node.term, node.last_index))
    desk.turn()
    assert node.commit_index == node.last_index
    heard: list[ErrorCode] = []
    desk.partition.confirm_leadership(heard.append)
    desk.turn()
    asked = [message for message in desk.sent if isinstance(message, Heartbeat)]
    receive(desk, HeartbeatResponse(NodeId(2), SELF, node.term, asked[-1].read_round))
    desk.turn()
    assert desk.partition.high_watermark < next_offset
    assert heard == [], "a majority has confirmed who leads, and that does not say what is visible here"
    if end is None:
        desk.work()
        assert (heard, desk.partition.high_watermark) == ([ErrorCode.NONE], next_offset)
    else:
        end(desk)
        desk.work()
        assert len(heard) == 1
        assert heard != [ErrorCode.NONE]
