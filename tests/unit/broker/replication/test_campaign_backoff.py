"""A replica whose disk fails repeatedly takes part, accepts no batches, and does not campaign."""

from __future__ import annotations

import errno
from collections.abc import Callable

from drmq.broker.replication.campaign_backoff import REST_S_MAX, CampaignBackoff
from drmq.model import NodeId
from drmq.raft import (
    AppendAccepted,
    HeartbeatResponse,
    LogIndex,
    PreVoteRequest,
    Term,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from drmq.testing.files import FakeFiles
from support.harness_leader import Leader, answers, on_disk, plain, receive
from support.replica_harness import SELF, ReplicaHarness

GROUP = (1, 2, 3)


def test_a_follower_whose_disk_stays_full_goes_on_hearing_its_leader() -> None:
    """It votes and answers heartbeats, so that a replica with space can lead, and accepts no batches for a while."""
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    leader = Leader(2, 1).batch(b"a")
    receive(desk, leader.appends(1, commit=2))
    desk.work()
    files.fail("write", errno.ENOSPC, path_part=".log", fail_count=2)
    leader.batch(b"b")
    for _ in range(2):
        receive(desk, leader.appends(3))
        desk.work()
    (waiting,) = desk.later
    assert 0 < waiting[0] <= REST_S_MAX
    desk.sent.clear()
    receive(desk, leader.heartbeat(2), leader.appends(3))
    desk.work()
    assert answers(desk, HeartbeatResponse) == [HeartbeatResponse(SELF, NodeId(2), Term(1), 0)]
    assert answers(desk, AppendAccepted) == []
    assert desk.partition.failure is None
    receive(desk, VoteRequest(NodeId(3), SELF, Term(2), LogIndex(3), Term(1), transfer=True))
    desk.work()
    assert answers(desk, VoteResponse) == [VoteResponse(SELF, NodeId(3), Term(2), granted=True)]
    desk.wait()
    successor = Leader(3, 2, leader.log)
    receive(desk, successor.appends(3))
    desk.work()
    assert answers(desk, AppendAccepted) == [AppendAccepted(SELF, NodeId(3), Term(2), LogIndex(4))]
    assert on_disk(desk) == plain(successor.log)


def test_a_replica_whose_disk_stays_full_does_not_try_to_lead() -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    leader = Leader(2, 1).batch(b"a")
    files.fail("write", errno.ENOSPC, path_part=".log", fail_count=2)
    for _ in range(2):
        receive(desk, leader.appends(1))
        desk.work()
    desk.sent.clear()
    for _ in range(200):
        desk.replica.tick()
    desk.replica.campaign()
    receive(desk, TimeoutNow(NodeId(2), SELF, Term(1)))
    desk.work()
    assert desk.sent == []
    desk.wait()
    for _ in range(200):
        desk.replica.tick()
    desk.work()
    assert answers(desk, PreVoteRequest)


def test_a_new_failure_makes_the_rest_longer() -> None:
    """The end of an earlier rest does not end the next one."""
    rest = CampaignBackoff()
    later: list[tuple[float, Callable[[], object]]] = []

    def call_later(delay_s: float, function: Callable[..., object], *arguments: object) -> None:
        later.append((delay_s, lambda: function(*arguments)))

    for failures in (1, 2, 3):
        rest.failures = failures
        rest.begin(call_later)
        assert rest.is_on == (failures > 1)
    (first_s, first_ends), (second_s, second_ends) = later
    assert first_s < second_s
    first_ends()
    assert rest.is_on
    second_ends()
    assert not rest.is_on
