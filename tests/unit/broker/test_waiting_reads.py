"""Reads that wait for a majority to confirm who leads: each is answered, whatever becomes of the replica."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from drmq.model import ErrorCode
from drmq.testing.files import FakeFiles
from support.desk_leader import Leader, receive
from support.replica_desk import Desk
from unit.broker.test_replica import GROUP, lead_with_quorum


def close(desk: Desk) -> None:
    desk.partition.close()


def fill_the_disk(desk: Desk) -> None:
    assert desk.files is not None
    desk.files.fail("write", errno.ENOSPC, path_part=".log")
    desk.append()


def fail_on_a_bug(desk: Desk) -> None:
    desk.replica.on_bug(AssertionError("wrong code"))


def follow(desk: Desk) -> None:
    receive(desk, Leader(3, desk.partition.leader_epoch + 1).heartbeat(0))


@pytest.mark.parametrize("end", [close, fill_the_disk, fail_on_a_bug, follow])
def test_a_read_that_waits_is_answered_when_the_lead_ends(end: Callable[[Desk], None]) -> None:
    """Whoever asked for the latest offset, or for what a group has committed, asks the next leader."""
    desk = Desk(FakeFiles(), members=GROUP)
    lead_with_quorum(desk)
    heard: list[ErrorCode] = []
    desk.partition.confirm_leadership(heard.append)
    desk.partition.confirm_leadership(heard.append)
    desk.work()
    assert heard == []
    end(desk)
    desk.work()
    assert heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
