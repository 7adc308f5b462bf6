"""OffsetCommit: which partitions there are, by name and by id; one failure is nobody else's."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from drmq.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness

NAMED = range(2, 10)


def a_commit(topic: str, *offsets: int, topic_id: bytes = bytes(16), metadata: str = "") -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(index, offset, 0, metadata) for index, offset in enumerate(offsets)]
    return OffsetCommitRequest("readers", topics=[OffsetCommitRequestTopic(topic, topic_id, partitions)])


def errors(response: OffsetCommitResponse) -> list[list[int]]:
    return [[partition.error_code for partition in topic.partitions] for topic in response.topics]


def committed(harness: Harness) -> dict[tuple[str, int], tuple[int, str | None]]:
    answer = harness.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("readers", topics=None)]), 9)
    return {
        (topic.name, partition.partition_index): (partition.committed_offset, partition.metadata)
        for topic in answer.groups[0].topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", NAMED)
def test_a_commit_is_stored_with_its_metadata(harness: Harness, version: int) -> None:
    harness.create_topic("orders", 2)
    answer = harness.ask(a_commit("orders", 5, 7, metadata="note"), version)
    assert errors(answer) == [[0, 0]]
    assert answer.topics[0].name == "orders"
    assert committed(harness) == {("orders", 0): (5, "note"), ("orders", 1): (7, "note")}


def test_v10_names_topics_by_id(harness: Harness) -> None:
    topic = harness.create_topic("orders")
    answer = harness.ask(a_commit("", 5, topic_id=topic.topic_id), 10)
    assert errors(answer) == [[0]]
    assert answer.topics[0].topic_id == topic.topic_id
    assert committed(harness) == {("orders", 0): (5, "")}
    assert errors(harness.ask(a_commit("", 5, topic_id=b"?" * 16), 10)) == [[ErrorCode.UNKNOWN_TOPIC_ID]]


@pytest.mark.parametrize("version", NAMED)
def test_an_unknown_partition_does_not_keep_the_others_from_being_stored(harness: Harness, version: int) -> None:
    harness.create_topic("orders")
    request = a_commit("orders", 5, 7)
    request.topics.append(OffsetCommitRequestTopic("nowhere", partitions=[OffsetCommitRequestPartition(0, 1)]))
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(harness.ask(request, version)) == [[0, missing], [missing]]
    assert committed(harness) == {("orders", 0): (5, "")}


def test_offsets_beyond_the_end_and_negative_ones_are_stored(harness: Harness) -> None:
    """kafkajs resets a group with -2 and -1, and reads them back: for the earliest and the latest offset."""
    harness.create_topic("orders", 4)
    offsets = [1_000_000, -1, -2, -(2**63)]
    assert errors(harness.ask(a_commit("orders", *offsets), 9)) == [[0, 0, 0, 0]]
    assert [offset for offset, _ in committed(harness).values()] == offsets


def test_who_goes_on_beyond_the_end_is_told_until_the_log_reaches_so_far(harness: Harness) -> None:
    harness.create_topic("orders")
    harness.produce("orders")
    assert errors(harness.ask(a_commit("orders", 3), 9)) == [[0]]
    line = KafkaHarness(harness)

    def fetched() -> tuple[int, bool]:
        offset, _ = committed(harness)["orders", 0]
        wanted = FetchRequestPartition(0, fetch_offset=offset, partition_max_bytes=1000)
        topic = FetchRequestTopic("orders", partitions=[wanted])
        answer = line.ask(FetchRequest(max_wait_ms=0, topics=[topic]), 12)
        [[result]] = [topic.partitions for topic in answer.responses]
        return result.error_code, bool(result.records)

    assert fetched() == (ErrorCode.OFFSET_OUT_OF_RANGE, False)
    harness.produce("orders", values=[b"b", b"c"])
    assert fetched() == (0, False)
    harness.produce("orders")
    assert fetched() == (0, True)
    assert committed(harness) == {("orders", 0): (3, "")}


def test_an_error_of_the_group_is_on_every_partition_that_exists(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    harness.join("readers")
    request = a_commit("orders", 1, 1, 1)
    request.generation_id_or_member_epoch = 1
    request.member_id = "stranger"
    error = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors(harness.ask(request, 9)) == [[error, error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
    request.group_id = ""
    assert errors(harness.ask(request, 9))[0][:2] == [ErrorCode.INVALID_GROUP_ID] * 2


def test_metadata_that_is_too_large_is_refused(harness: Harness) -> None:
    harness.create_topic("orders")
    assert errors(harness.ask(a_commit("orders", 1, metadata="x" * 5_000), 9)) == [
        [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    ]


def test_a_shard_whose_log_fails_is_not_available(harness: Harness) -> None:
    harness.create_topic("orders")
    with harness.failing_shards():
        assert errors(harness.ask(a_commit("orders", 1), 9)) == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]]


def test_v2_to_v4_may_ask_for_a_retention_of_their_own(harness: Harness) -> None:
    harness.create_topic("orders")
    request = a_commit("orders", 1)
    request.retention_time_ms = 1_000
    harness.ask(request, 4)
    harness.advance(2_000)
    harness.call(lambda: harness.broker.groups.expire_offsets(harness.clock.wall_ms()))
    assert committed(harness) == {}
