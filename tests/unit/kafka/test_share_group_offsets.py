"""Describe-, Alter- and DeleteShareGroupOffsets, and what DeleteGroups does to the queues of a share group."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.catalog import Topic
from drmq.leases import WHOLE_TOPIC, QueueKey
from drmq.model import ApiError, ErrorCode
from drmq.testing.files import FakeFiles
from drmq.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from drmq.wire.messages.delete_groups import DeleteGroupsRequest
from drmq.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from drmq.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from drmq.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.broker_harness import Harness
from support.share_requests import ACCEPT, REJECT, RELEASE, ShareMember, set_group, until

GROUP = "billing"


@pytest.fixture
def orders(harness: Harness) -> Topic:
    set_group(harness, GROUP, share_auto_offset_reset="earliest")
    return harness.create_topic("orders", 2)


def beat(harness: Harness, epoch: int = 0, group: str = GROUP) -> ErrorCode:
    topics = ["orders"] if epoch == 0 else None
    request = ShareGroupHeartbeatRequest(group, "m1", epoch, None, topics)
    return ErrorCode(harness.ask(request).error_code)


def make_group(harness: Harness) -> None:
    """A group that had a member once."""
    assert beat(harness) is ErrorCode.NONE
    assert beat(harness, -1) is ErrorCode.NONE


def describe(harness: Harness, partitions: list[int] | None = None, version: int = 1, topic: str = "orders") -> Any:
    topics = None if partitions is None else [DescribeShareGroupOffsetsRequestTopic(topic, partitions)]
    [group] = harness.ask(
        DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, topics)]), version
    ).groups
    assert group.group_id == GROUP
    return group


def offsets(harness: Harness, partitions: list[int] | None = None, version: int = 1) -> list[tuple[int, int, int]]:
    """Partition, start offset and lag."""
    group = describe(harness, partitions, version)
    assert group.error_code == 0, group.error_message
    assert all(topic.topic_name == "orders" for topic in group.topics)
    return [(each.partition_index, each.start_offset, each.lag) for topic in group.topics for each in topic.partitions]


def alter(harness: Harness, *wanted: tuple[int, int], group: str = GROUP) -> tuple[int, list[tuple[int, int]]]:
    partitions = [AlterShareGroupOffsetsRequestPartition(*each) for each in wanted]
    topics = [AlterShareGroupOffsetsRequestTopic("orders", partitions)]
    answer = harness.ask(AlterShareGroupOffsetsRequest(group, topics))
    results = [(each.partition_index, each.error_code) for topic in answer.responses for each in topic.partitions]
    return answer.error_code, results


def forget(harness: Harness, *topics: str) -> tuple[int, list[tuple[str, int]]]:
    request = DeleteShareGroupOffsetsRequest(GROUP, [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics])
    answer = harness.ask(request)
    return answer.error_code, [(each.topic_name, each.error_code) for each in answer.responses]


def queues(harness: Harness) -> list[QueueKey]:
    return [key for shard in harness.broker.leases.shards.values() for key in shard.machine.queues]


# ---- describe ---------------------------------------------------------------------------------------


def test_the_first_open_offset_and_what_is_open(harness: Harness, orders: Topic) -> None:
    make_group(harness)
    member = ShareMember(harness, orders)
    harness.produce("orders", 0, [b"x"] * 10)
    assert len(member.take(count=6)) == 6
    member.fetch((0, 1, ACCEPT), (3, 3, ACCEPT), (4, 4, RELEASE), renews=True)
    # 2 and 5 are leased, 4 is available again, and 6 to 9 were never leased.
    assert offsets(harness) == [(0, 2, 7)]
    assert offsets(harness, [0, 1]) == [(0, 2, 7), (1, -1, -1)]
    assert offsets(harness, [0], version=0) == [(0, 2, -1)], "v0 has no lag"
    harness.produce("orders", 0)
    assert offsets(harness, [0]) == [(0, 2, 8)]


def test_what_is_given_up_is_open_until_its_dead_letter_is_written(harness: Harness, orders: Topic) -> None:
    make_group(harness)
    harness.create_topic(f"dlq.{GROUP}")
    member = ShareMember(harness, orders)
    harness.produce("orders", 0, [b"x"] * 2)
    member.take()
    member.fetch((0, 0, REJECT), (1, 1, ACCEPT), renews=True)
    assert offsets(harness) == [(0, 0, 1)]


def test_unknown_groups_topics_and_partitions(harness: Harness, orders: Topic) -> None:
    assert describe(harness).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    make_group(harness)
    assert offsets(harness) == []
    [unknown] = describe(harness, [0], topic="nowhere").topics
    assert [(each.error_code, each.start_offset) for each in unknown.partitions] == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    ]
    [topic] = describe(harness, [7]).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_shard_that_does_not_answer_is_an_error_and_not_an_offset(
    harness: Harness, orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_group(harness)
    ShareMember(harness, orders).take()
    refusal = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no leader")

    async def ask_shard(*args: object) -> object:
        raise refusal

    monkeypatch.setattr(harness.broker.services.leases.shards, "ask_shard", ask_shard)
    assert describe(harness).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    [topic] = describe(harness, [0, 1]).topics
    assert {each.error_code for each in topic.partitions} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


# ---- alter ------------------------------------------------------------------------------------------


def test_an_empty_group_begins_again_at_an_offset(harness: Harness, orders: Topic) -> None:
    member = ShareMember(harness, orders)
    harness.produce("orders", 0, [b"x"] * 5)
    assert len(member.take()) == 5
    assert beat(harness) is ErrorCode.NONE
    assert alter(harness, (0, 3)) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert beat(harness, -1) is ErrorCode.NONE
    assert alter(harness, (0, 3), (1, 0)) == (0, [(0, 0), (1, 0)])
    assert member.fetch((0, 4, ACCEPT)).acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE, "old leases are void"
    assert offsets(harness) == [(0, 3, 2), (1, 0, 0)]


def test_a_group_that_does_not_exist_is_told_where_to_begin(harness: Harness, orders: Topic) -> None:
    harness.produce("orders", 0, [b"x"] * 5)
    assert alter(harness, (0, 4)) == (0, [(0, 0)])
    assert ShareMember(harness, orders).take() == [(4, 1)]
    # The group began to work on the topic when it had two partitions.
    set_group(harness, GROUP, share_auto_offset_reset="latest")
    harness.run(harness.broker.topics.add_partitions("orders", 3))
    harness.settle()
    harness.produce("orders", 2)
    assert ShareMember(harness, orders).take(partition=2) == [(0, 1)]


def test_what_cannot_be_altered_is_refused_alone(harness: Harness, orders: Topic) -> None:
    make_group(harness)
    assert alter(harness, (0, -1), (9, 0), (1, 2), (1, 3)) == (
        0,
        [(0, ErrorCode.INVALID_REQUEST), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1, 0)],
    )
    assert offsets(harness) == [(1, 2, 0)]
    harness.join("readers")
    assert alter(harness, (0, 0), group="readers")[0] == ErrorCode.GROUP_ID_NOT_FOUND


# ---- delete -----------------------------------------------------------------------------------------


def test_an_empty_group_forgets_a_topic(harness: Harness, orders: Topic) -> None:
    bills = harness.create_topic("bills")
    for topic in (orders, bills):
        ShareMember(harness, topic).take()
    assert forget(harness, "orders") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert beat(harness) is ErrorCode.NONE
    assert forget(harness, "orders") == (ErrorCode.NON_EMPTY_GROUP, [])
    assert beat(harness, -1) is ErrorCode.NONE
    assert forget(harness, "orders", "nowhere") == (
        0,
        [("orders", 0), ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    )
    assert {key.topic_id for key in queues(harness)} == {bills.topic_id}


def test_a_deleted_group_leaves_no_queues(harness: Harness, orders: Topic) -> None:
    """Otherwise a new group of its name would go on where the old one ended."""
    other = ShareMember(harness, orders, group="other")
    make_group(harness)
    for partition in (0, 1):
        harness.produce("orders", partition)
        ShareMember(harness, orders).take(partition=partition)
        other.take(partition=partition)
    [result] = harness.ask(DeleteGroupsRequest([GROUP])).results
    assert result.error_code == 0
    assert {key.group for key in queues(harness)} == {"other"}
    assert {key.partition for key in queues(harness)} == {0, 1, WHOLE_TOPIC}
    assert describe(harness).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert ShareMember(harness, orders).take() == [(0, 1)]


def test_a_deletion_that_cannot_go_on_is_told_and_goes_on_later(
    harness: Harness, orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_group(harness)
    ShareMember(harness, orders).take()
    shards = harness.broker.services.leases.shards
    ask_shard = shards.ask_shard

    async def failing(*args: object) -> object:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no leader")

    monkeypatch.setattr(shards, "ask_shard", failing)
    waiting = harness.send(DeleteGroupsRequest([GROUP]))
    harness.advance(11_000)
    [result] = harness.run(waiting).results
    assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert beat(harness) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    monkeypatch.setattr(shards, "ask_shard", ask_shard)
    harness.advance(11_000)
    until(harness, lambda: not queues(harness))
    until(harness, lambda: beat(harness) is ErrorCode.NONE)


def test_a_node_that_fails_in_the_middle_of_a_deletion_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is marked, and the node fails before it removes the queues."""
    files = FakeFiles()
    harness = Harness(files)
    set_group(harness, GROUP, share_auto_offset_reset="earliest")
    topic = harness.create_topic("orders", 2)
    make_group(harness)
    for partition in (0, 1):
        harness.produce("orders", partition)
        ShareMember(harness, topic).take(partition=partition)

    async def hanging(*args: object) -> object:
        return await harness.loop.create_future()

    monkeypatch.setattr(harness.broker.services.leases.shards, "ask_shard", hanging)
    harness.send(DeleteGroupsRequest([GROUP]))
    harness.settle()
    assert len(queues(harness)) == 3
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        until(again, lambda: bool(again.broker.leases.shards) and not queues(again))
        until(again, lambda: beat(again) is ErrorCode.NONE)
        assert ShareMember(again, topic).take() == [(0, 1)]
