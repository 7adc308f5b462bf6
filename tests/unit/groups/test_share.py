"""Share groups in the table of groups: what they take is counted, and limited."""

from __future__ import annotations

import pytest

from drmq.groups import GroupOptions, GroupShard, ShareHeartbeatRequest, ShareHeartbeatResponse
from drmq.groups.records import ShareMember
from drmq.groups.share import assign
from drmq.model import ErrorCode, TopicId

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
