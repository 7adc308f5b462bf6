"""OffsetDelete: forgets offsets, except of what a member reads."""

from __future__ import annotations

from drmq.model import ErrorCode
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from drmq.wire.messages.offset_fetch import OffsetFetchRequest
from support.broker_harness import Harness


def a_deletion(group_id: str, topic: str, *indexes: int) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(index) for index in indexes]
    return OffsetDeleteRequest(group_id, [OffsetDeleteRequestTopic(topic, partitions)])


def errors(response: OffsetDeleteResponse) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def commit(harness: Harness, group_id: str, topic: str) -> None:
    topics = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5)])]
    harness.ask(OffsetCommitRequest(group_id, topics=topics), 9)


def test_deletes_what_is_there_and_reports_what_is_not(harness: Harness) -> None:
    harness.create_topic("orders")
    commit(harness, "readers", "orders")
    answer = harness.ask(a_deletion("readers", "orders", 1, 0))
    assert answer.error_code == 0
    assert errors(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert harness.ask(OffsetFetchRequest("readers", None), 7).topics == []


def test_a_topic_that_a_member_reads_keeps_its_offsets(harness: Harness) -> None:
    harness.create_topic("orders")
    harness.join("readers", topics=["orders"])
    assert errors(harness.ask(a_deletion("readers", "orders", 0))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_an_unknown_group_is_an_error_of_the_whole(harness: Harness) -> None:
    harness.create_topic("orders")
    answer = harness.ask(a_deletion("nobody", "orders", 0))
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.topics == []
    assert harness.ask(a_deletion("", "orders", 0)).error_code == ErrorCode.INVALID_GROUP_ID
    assert harness.ask(a_deletion("nobody", "nowhere", 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_shard_whose_log_fails_is_not_available(harness: Harness) -> None:
    with harness.failing_shards():
        assert harness.ask(a_deletion("readers", "orders", 0)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
