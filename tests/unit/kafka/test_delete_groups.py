"""DeleteGroups: empty groups of many shards."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.delete_groups import DeleteGroupsRequest
from drmq.wire.messages.list_groups import ListGroupsRequest
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.broker_harness import Harness


@pytest.mark.parametrize("version", range(3))
def test_deletes_the_empty_and_refuses_the_others(harness: Harness, version: int) -> None:
    harness.create_topic("orders")
    empty = [f"group-{number}" for number in range(8)]
    for name in empty:
        topics = [OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, 1)])]
        harness.ask(OffsetCommitRequest(name, topics=topics), 9)
    harness.join("busy")
    answer = harness.ask(DeleteGroupsRequest([*empty, "busy", "nobody", "", empty[0]]), version)
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        *((name, 0) for name in empty),
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_GROUP_ID),
    ]
    assert [group.group_id for group in harness.ask(ListGroupsRequest()).groups] == ["busy"]


def test_a_shard_whose_log_fails_is_not_available(harness: Harness) -> None:
    with harness.failing_shards():
        [result] = harness.ask(DeleteGroupsRequest(["readers"])).results
        assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_nothing_asked_nothing_answered(harness: Harness) -> None:
    assert harness.ask(DeleteGroupsRequest([])).results == []
