"""The shard as its driver sees it: everything except requests, which `tests/scripts/groups` covers."""

from __future__ import annotations

import pytest

from drmq.groups import (
    Answer,
    GroupOptions,
    GroupShard,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetToCommit,
    Protocol,
    Step,
    SyncGroupRequest,
)
from drmq.model import ErrorCode, Offset


def new_shard() -> GroupShard:
    shard = GroupShard(GroupOptions(), new_member_id=lambda client_id: f"{client_id}-1")
    shard.become_leader(0)
    return shard


def apply(shard: GroupShard, step: Step) -> Step:
    for record in step.records:
        shard.replay(record)
    return step


def join(client_id: str, group_id: str = "g", member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(group_id, member_id, "consumer", (Protocol("range", b""),), 10_000, client_id=client_id)


def test_a_shard_that_does_not_lead_refuses_to_be_asked() -> None:
    """Answering from a follower's state would be a stale promise; the driver must not get here."""
    shard = GroupShard(GroupOptions(), new_member_id=str)
    assert not shard.is_leader
    assert shard.next_deadline() is None
    with pytest.raises(AssertionError):
        shard.handle(1, ListGroupsRequest(), 0, 0)


def test_resigning_sends_the_waiting_away_and_forgets_the_deadlines() -> None:
    shard = new_shard()
    apply(shard, shard.handle(1, join("a"), 0, 0))
    apply(shard, shard.handle(2, join("b"), 0, 0))
    assert shard.next_deadline() is not None
    step = shard.resign()
    assert step.answers == (Answer(2, JoinGroupResponse(ErrorCode.NOT_COORDINATOR, "b-1")),)
    assert not step.records
    assert shard.next_deadline() is None
    assert shard.resign() == Step()


def test_a_version_zero_join_rebalances_within_its_session_timeout() -> None:
    shard = new_shard()
    apply(shard, shard.handle(1, join("a"), 0, 0))
    assert shard.replicated.groups["g"].members[0].rebalance_timeout_ms == 10_000


@pytest.mark.parametrize("letter", ["g", "\0", "\u00fc", "\N{EURO SIGN}"], ids=["ascii", "nul", "two", "three"])
def test_a_group_id_has_a_largest_size_in_bytes(letter: str) -> None:
    """Each offset's key repeats it, so that a long one makes a small commit large."""
    longest = letter * (1_024 // len(letter.encode()))
    for group_id, expected in ((longest, ErrorCode.NONE), (longest + letter, ErrorCode.INVALID_GROUP_ID)):
        shard = new_shard()
        committed = shard.handle(1, OffsetCommitRequest(group_id, (OffsetToCommit("t", 0, Offset(1)),)), 0, 0)
        [(_, response)] = committed.answers
        assert isinstance(response, OffsetCommitResponse)
        assert [result.error for result in response.results] == [expected]
        joined = shard.handle(2, join("a", group_id), 0, 0)
        [(_, response)] = joined.answers
        assert isinstance(response, JoinGroupResponse)
        assert response.error is expected
        is_taken = expected is ErrorCode.NONE
        assert bool(committed.records) == bool(joined.records) == is_taken


def test_list_filters_by_state_and_type_without_regard_to_case() -> None:
    shard = new_shard()
    apply(shard, shard.handle(1, join("a", "one"), 0, 0))
    commit = OffsetCommitRequest("two", (OffsetToCommit("t", 0, Offset(1)),))
    apply(shard, shard.handle(2, commit, 0, 0))

    def names(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        response = shard.handle(3, ListGroupsRequest(states, types), 0, 0).answers[0].response
        assert isinstance(response, ListGroupsResponse)
        return [group.group_id for group in response.groups]

    assert names() == ["one", "two"]
    assert names(states=("EMPTY",)) == ["two"]
    assert names(states=("completingrebalance", "Dead")) == ["one"]
    assert names(types=("Classic",)) == ["one", "two"]
    assert names(types=("consumer",)) == []


def test_a_heartbeat_moves_the_deadline() -> None:
    shard = new_shard()
    apply(shard, shard.handle(1, join("a"), 0, 0))
    apply(shard, shard.handle(2, SyncGroupRequest("g", 1, "a-1"), 0, 0))
    assert shard.next_deadline() == 10_000
    apply(shard, shard.handle(3, HeartbeatRequest("g", 1, "a-1"), 4_000, 0))
    assert shard.next_deadline() == 14_000


def test_a_snapshot_rebuilds_the_state() -> None:
    shard = new_shard()
    for group_id in ("b", "a"):
        apply(shard, shard.handle(1, join("m", group_id), 0, 0))
        commit = OffsetCommitRequest(f"simple-{group_id}", (OffsetToCommit("t", 0, Offset(1)),))
        apply(shard, shard.handle(2, commit, 0, 0))
    rebuilt = GroupShard(GroupOptions(), new_member_id=str)
    for record in shard.snapshot():
        rebuilt.replay(record)
    assert rebuilt.replicated == shard.replicated
    assert rebuilt.snapshot() == shard.snapshot()
