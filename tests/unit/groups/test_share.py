"""Share groups in the table of groups: what they take is counted, and limited."""

from __future__ import annotations

import pytest

from drmq.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    GroupOptions,
    GroupResponse,
    GroupShard,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetToCommit,
    PrepareShareGroupRequest,
    PrepareShareGroupResponse,
    ShareHeartbeatRequest,
    ShareHeartbeatResponse,
    ShareTiming,
    Step,
    record_from_bytes,
    record_to_bytes,
)
from drmq.groups.records import ShareMember
from drmq.groups.share import assign
from drmq.model import ErrorCode, Offset, TopicId

ORDERS = TopicId(b"o" * 16)


def shard_with(**options: int) -> GroupShard:
    shard = GroupShard(GroupOptions(**options), lambda client: client, partitions_of=lambda topic: (ORDERS, 3))
    shard.become_leader(0)
    return shard


def beat(shard: GroupShard, group: str, member: str, epoch: int = 0) -> ErrorCode:
    topics = ("orders",) if epoch == 0 else None
    step = shard.handle(1, ShareHeartbeatRequest(group, member, epoch, topics, "c", "/host"), 0, 0)
    for record in step.records:
        shard.replay(record)
    [answer] = step.answers
    assert isinstance(answer.response, ShareHeartbeatResponse)
    return answer.response.error


def test_what_share_groups_take_is_counted_and_given_back() -> None:
    shard = shard_with()
    empty = shard.usage
    for number in range(5):
        assert beat(shard, f"g{number % 2}", f"m{number}") is ErrorCode.NONE
    used = shard.usage
    assert used.groups == 2
    assert used.size_bytes > 5 * 1_000
    rebuilt = GroupShard(GroupOptions(), lambda client: client)
    for record in shard.snapshot():
        rebuilt.replay(record)
    assert rebuilt.usage == used
    for number in range(5):
        beat(shard, f"g{number % 2}", f"m{number}", -1)
    assert shard.usage.size_bytes == empty.size_bytes + 2 * 1_000, "two groups without members"


def test_groups_beyond_the_limit_are_refused() -> None:
    shard = shard_with(groups_max=8)
    results = [beat(shard, f"g{number}", "m") for number in range(4)]
    assert results[:2] == [ErrorCode.NONE, ErrorCode.NONE], "a quarter of the limit is the share of a caller"
    assert results[2:] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    assert beat(shard, "g0", "another") is ErrorCode.NONE, "a group that exists may grow"


@pytest.mark.parametrize("partitions", range(1, 8))
def test_every_partition_has_a_member_and_every_member_a_partition(partitions: int) -> None:
    for count in range(1, 10):
        members = {f"m{number}": ShareMember("g", f"m{number}", 1, ("orders",)) for number in range(count)}
        assigned = assign(members, lambda topic: (ORDERS, partitions))
        parts = [index for [(_, indexes)] in assigned.values() for index in indexes]
        assert set(parts) == set(range(partitions))
        sizes = [len(indexes) for [(_, indexes)] in assigned.values()]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1


def carry_out(shard: GroupShard, step: Step) -> list[GroupResponse]:
    for record in step.records:
        shard.replay(record_from_bytes(*record_to_bytes(record)))
    return [answer.response for answer in step.answers]


def delete(shard: GroupShard, group: str) -> ErrorCode:
    [answer] = carry_out(shard, shard.handle(1, DeleteGroupsRequest((group,)), 0, 0))
    assert isinstance(answer, DeleteGroupsResponse)
    return answer.results[0].error


def listed(shard: GroupShard) -> list[str]:
    [answer] = carry_out(shard, shard.handle(1, ListGroupsRequest(), 0, 0))
    assert isinstance(answer, ListGroupsResponse)
    return [group.group_id for group in answer.groups]


def test_a_group_is_marked_first_and_gone_when_its_queues_are() -> None:
    """A coordinator that takes over in between knows from the mark that it must go on."""
    shard = shard_with()
    beat(shard, "g", "m")
    assert delete(shard, "g") is ErrorCode.NON_EMPTY_GROUP
    beat(shard, "g", "m", -1)
    assert delete(shard, "g") is ErrorCode.NONE
    assert (listed(shard), shard.share_groups_in_deletion()) == ([], ["g"])
    next_shard = shard_with()
    for record in shard.snapshot():
        next_shard.replay(record_from_bytes(*record_to_bytes(record)))
    assert next_shard.share_groups_in_deletion() == ["g"]
    assert beat(next_shard, "g", "m") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it would see the old queues"
    assert delete(next_shard, "g") is ErrorCode.NONE
    carry_out(next_shard, next_shard.finish_deletion("g"))
    assert next_shard.share_groups_in_deletion() == []
    assert next_shard.usage.groups == 0
    assert beat(next_shard, "g", "m") is ErrorCode.NONE


def test_a_group_that_lives_again_is_not_deleted_by_a_late_report() -> None:
    shard = shard_with()
    beat(shard, "g", "m")
    beat(shard, "g", "m", -1)
    delete(shard, "g")
    carry_out(shard, shard.finish_deletion("g"))
    beat(shard, "g", "m")
    assert shard.finish_deletion("g").records == ()
    assert listed(shard) == ["g"]


@pytest.mark.parametrize(
    ("members", "creates", "error"),
    [
        (None, False, ErrorCode.GROUP_ID_NOT_FOUND),
        (None, True, ErrorCode.NONE),
        (0, False, ErrorCode.NONE),
        (0, True, ErrorCode.NONE),
        (1, False, ErrorCode.NON_EMPTY_GROUP),
        (1, True, ErrorCode.NON_EMPTY_GROUP),
    ],
)
def test_the_queues_of_a_group_change_only_while_it_has_no_members(
    members: int | None, creates: bool, error: ErrorCode
) -> None:
    shard = shard_with()
    if members is not None:
        beat(shard, "g", "m")
    if members == 0:
        beat(shard, "g", "m", -1)
    [answer] = carry_out(shard, shard.handle(1, PrepareShareGroupRequest("g", creates, "/host"), 0, 0))
    assert isinstance(answer, PrepareShareGroupResponse)
    assert answer.error is error
    assert (answer.error_message is None) == (error is ErrorCode.NONE)
    assert listed(shard) == ([] if error is ErrorCode.GROUP_ID_NOT_FOUND else ["g"])


def test_a_consumer_group_has_no_queues() -> None:
    shard = shard_with()
    step = shard.handle(1, OffsetCommitRequest("g", (OffsetToCommit("orders", 0, Offset(5)),)), 0, 0)
    carry_out(shard, step)
    [answer] = carry_out(shard, shard.handle(1, PrepareShareGroupRequest("g", creates=True), 0, 0))
    assert isinstance(answer, PrepareShareGroupResponse)
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_each_group_has_its_session_timeout_and_its_interval() -> None:
    timing = {"slow": ShareTiming(60_000, 15_000), "fast": ShareTiming(45_000, 5_000)}
    shard = GroupShard(GroupOptions(), str, partitions_of=lambda topic: (ORDERS, 1), timing_of=timing.__getitem__)
    shard.become_leader(0)
    for group in timing:
        step = shard.handle(1, ShareHeartbeatRequest(group, "m", 0, ("orders",)), 0, 0)
        [answer] = carry_out(shard, step)
        assert isinstance(answer, ShareHeartbeatResponse)
        assert answer.heartbeat_interval_ms == timing[group].heartbeat_interval_ms
    for shard_then in (shard, _taken_over(shard, timing)):
        for now_ms, left in ((44_999, ["fast", "slow"]), (45_000, ["slow"]), (59_999, ["slow"]), (60_000, [])):
            carry_out(shard_then, shard_then.on_deadline(now_ms, 0))
            with_members = [name for name, group in shard_then.replicated.share.groups.items() if group.members]
            assert sorted(with_members) == left, now_ms


def _taken_over(shard: GroupShard, timing: dict[str, ShareTiming]) -> GroupShard:
    again = GroupShard(GroupOptions(), str, partitions_of=lambda topic: (ORDERS, 1), timing_of=timing.__getitem__)
    for group in timing:
        again.replay(ShareMember(group, "m", 1, ("orders",)))
    again.become_leader(0)
    return again
