"""ListGroups: every shard's groups in one list."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.broker_harness import Harness


def make_groups(harness: Harness) -> list[str]:
    """Enough groups for all shards: one with a member, the others only with offsets."""
    harness.create_topic("orders")
    names = [f"group-{number:02}" for number in range(12)]
    harness.join(names[0])
    for name in names[1:]:
        topics = [OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, 1)])]
        harness.ask(OffsetCommitRequest(name, topics=topics), 9)
    return names


@pytest.mark.parametrize("version", range(6))
def test_all_groups_of_all_shards(harness: Harness, version: int) -> None:
    names = make_groups(harness)
    answer: ListGroupsResponse = harness.ask(ListGroupsRequest(), version)
    assert answer.error_code == 0
    assert [group.group_id for group in answer.groups] == names
    assert len({harness.broker.groups.shard_of(name) for name in names}) == len(harness.broker.groups.shards)
    first = answer.groups[0]
    assert first.protocol_type == "consumer"
    assert first.group_state == ("Stable" if version >= 4 else "")
    assert first.group_type == ("classic" if version >= 5 else "")


def test_filters_by_state_and_type(harness: Harness) -> None:
    names = make_groups(harness)
    assert [group.group_id for group in harness.ask(ListGroupsRequest(["stable"])).groups] == names[:1]
    assert [group.group_id for group in harness.ask(ListGroupsRequest(["Empty"], ["Classic"])).groups] == names[1:]
    assert harness.ask(ListGroupsRequest([], ["share"])).groups == []


def test_a_shard_that_cannot_answer_makes_the_list_incomplete(harness: Harness) -> None:
    make_groups(harness)
    with harness.failing_shards(harness.broker.groups.shards[0]):
        answer: ListGroupsResponse = harness.ask(ListGroupsRequest())
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.groups
