"""A request that names the same thing again and again is answered once: else a few bytes would ask for megabytes.

No client sends such a request: all keep what they ask for in maps or sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drmq.groups.classic import group as group_module
from drmq.groups.subscription import subscribed_topics
from drmq.kafka.config_resources import ResourceType
from drmq.model import ErrorCode
from drmq.model.names import CLUSTER_METADATA
from drmq.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from drmq.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from drmq.wire.messages.describe_groups import DescribeGroupsRequest
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from drmq.wire.messages.find_coordinator import FindCoordinatorRequest
from drmq.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsRequestPartition, ListOffsetsRequestTopic
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from drmq.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from drmq.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from support.broker_harness import Harness

TIMES = 50


def commit(harness: Harness, group_id: str, topic: str, partition_count: int) -> None:
    partitions = [OffsetCommitRequestPartition(index, 7, committed_metadata="") for index in range(partition_count)]
    request = OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(topic, partitions=partitions)])
    assert [each.error_code for each in harness.ask(request, 7).topics[0].partitions] == [0] * partition_count


def indexes(topics: list[Any]) -> Iterator[tuple[str, list[int]]]:
    for topic in topics:
        yield topic.name, [partition.partition_index for partition in topic.partitions]


@pytest.mark.parametrize("version", [1, 4, 12])
def test_metadata_by_name(harness: Harness, version: int) -> None:
    """With one that is not there and is created for the question."""
    harness.create_topic("t", 3)
    wanted = [MetadataRequestTopic(name=name) for name in ("t", "new", "t", "not/allowed") * TIMES]
    topics = harness.ask(MetadataRequest(wanted), version).topics
    assert [(topic.name, len(topic.partitions)) for topic in topics] == [("t", 3), ("new", 1), ("not/allowed", 0)]


def test_metadata_by_id(harness: Harness) -> None:
    topic_id = harness.create_topic("t", 3).topic_id
    wanted = [MetadataRequestTopic(each, None) for each in (topic_id, b"?" * 16) * TIMES]
    topics = harness.ask(MetadataRequest(wanted), 12).topics
    assert [(topic.topic_id, topic.error_code) for topic in topics] == [
        (topic_id, 0),
        (b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_offset_delete(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the members of the group read is looked up once, not again for every partition."""
    looked_up: list[bytes] = []

    def count(metadata: bytes) -> frozenset[str] | None:
        looked_up.append(metadata)
        return subscribed_topics(metadata)

    monkeypatch.setattr(group_module, "subscribed_topics", count)
    for name in ("t", "read"):
        harness.create_topic(name, 3)
    harness.join("g", topics=["read"])
    wanted = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in (2, 0, 2, 9)])
        for name in ("t", "read", "missing") * TIMES
    ]
    topics = harness.ask(OffsetDeleteRequest("g", wanted), 0).topics
    assert list(indexes(topics)) == [("t", [2, 0, 9]), ("read", [2, 0, 9]), ("missing", [2, 0, 9])]
    unknown, subscribed = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert [[partition.error_code for partition in topic.partitions] for topic in topics] == [
        [0, 0, unknown],
        [subscribed, subscribed, unknown],
        [unknown] * 3,
    ]
    assert len(looked_up) == 1


def test_describe_groups(harness: Harness) -> None:
    harness.join("g", topics=["t"])
    groups = harness.ask(DescribeGroupsRequest(["g", "missing"] * TIMES), 5).groups
    assert [(group.group_id, group.group_state, len(group.members)) for group in groups] == [
        ("g", "Stable", 1),
        ("missing", "Dead", 0),
    ]


@pytest.mark.parametrize("version", [8, 9])
def test_offset_fetch_of_all_that_a_group_has(harness: Harness, version: int) -> None:
    harness.create_topic("t", 3)
    commit(harness, "g", "t", 3)
    one = OffsetFetchRequestGroupTopic("t", partition_indexes=[1])
    wanted = [OffsetFetchRequestGroup("g", topics=topics) for topics in ([one], None) * TIMES]
    (group,) = harness.ask(OffsetFetchRequest(groups=wanted), version).groups
    assert list(indexes(group.topics)) == [("t", [0, 1, 2])]


def test_offset_fetch_of_some_partitions(harness: Harness) -> None:
    """What the entries for one group ask for is put together."""
    for name in ("t", "u"):
        harness.create_topic(name, 3)
    commit(harness, "g", "t", 3)
    wanted = [
        OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestGroupTopic(name, partition_indexes=each)])
        for name, each in (("t", [1, 1]), ("u", [0]), ("t", [2, 1]))
    ] * TIMES
    groups = harness.ask(OffsetFetchRequest(groups=[*wanted, OffsetFetchRequestGroup("h", topics=None)]), 8).groups
    assert [(group.group_id, list(indexes(group.topics))) for group in groups] == [
        ("g", [("t", [1, 2]), ("u", [0])]),
        ("h", []),
    ]


def test_offset_fetch_by_topic_id(harness: Harness) -> None:
    topic_id = harness.create_topic("t", 3).topic_id
    commit(harness, "g", "t", 3)
    topics = [
        OffsetFetchRequestGroupTopic(topic_id=each, partition_indexes=[1, 1]) for each in (topic_id, b"?" * 16) * TIMES
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)] * 2)
    (group,) = harness.ask(request, 10).groups
    assert {topic.topic_id: [each.error_code for each in topic.partitions] for topic in group.topics} == {
        topic_id: [0],
        b"?" * 16: [ErrorCode.UNKNOWN_TOPIC_ID],
    }
    assert len(group.topics) == 2


@pytest.mark.parametrize("version", [1, 7])
def test_offset_fetch_of_one_group(harness: Harness, version: int) -> None:
    harness.create_topic("t", 3)
    commit(harness, "g", "t", 3)
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [2, 0, 2])] * TIMES)
    assert list(indexes(harness.ask(request, version).topics)) == [("t", [2, 0])]


def test_offset_fetch_of_one_group_that_fails(harness: Harness) -> None:
    """v1 has no place for the error of the group, so every partition has it: once."""
    request = OffsetFetchRequest("", [OffsetFetchRequestTopic("t", [2, 0, 2])] * TIMES)
    (topic,) = harness.ask(request, 1).topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (2, ErrorCode.INVALID_GROUP_ID),
        (0, ErrorCode.INVALID_GROUP_ID),
    ]


def test_describe_configs(harness: Harness) -> None:
    """Of a resource whose entries ask for different settings, all of them are described."""
    for name in ("t", "u"):
        harness.create_topic(name)
    topic = ResourceType.TOPIC
    wanted = [
        DescribeConfigsRequestResource(topic, "t", ["retention.ms"]),
        DescribeConfigsRequestResource(topic, "u", ["retention.ms"]),
        DescribeConfigsRequestResource(topic, "t", ["retention.bytes"]),
        DescribeConfigsRequestResource(topic, "u", None),
        DescribeConfigsRequestResource(ResourceType.BROKER, "t", None),
    ] * TIMES
    results = harness.ask(DescribeConfigsRequest(wanted), 4).results
    assert [(each.resource_type, each.resource_name) for each in results] == [(topic, "t"), (topic, "u"), (4, "t")]
    assert {config.name for config in results[0].configs} == {"retention.ms", "retention.bytes"}
    assert len(results[1].configs) > 2


def test_find_coordinator(harness: Harness) -> None:
    answer = harness.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"] * TIMES), 4)
    assert [(each.key, each.error_code) for each in answer.coordinators] == [("g", 0), ("h", 0)]


def test_describe_quorum(harness: Harness) -> None:
    partitions = [DescribeQuorumRequestPartition(index) for index in (0, 0, 5)]
    topics = harness.ask(
        DescribeQuorumRequest([DescribeQuorumRequestTopic(CLUSTER_METADATA, partitions)] * TIMES)
    ).topics
    assert [(each.topic_name, [entry.partition_index for entry in each.partitions]) for each in topics] == [
        (CLUSTER_METADATA, [0, 5])
    ]


def test_list_offsets(harness: Harness) -> None:
    """The same question is answered once; another one about the same partition is another one."""
    harness.create_topic("t", 2)
    harness.produce("t", 1)
    partitions = [ListOffsetsRequestPartition(1, timestamp=when) for when in (-1, -2, -1)]
    topics = harness.ask(ListOffsetsRequest(topics=[ListOffsetsRequestTopic("t", partitions)] * TIMES)).topics
    assert list(indexes(topics)) == [("t", [1, 1])]
    assert [each.offset for each in topics[0].partitions] == [1, 0]


def test_offset_for_leader_epoch(harness: Harness) -> None:
    harness.create_topic("t", 2)
    epoch = harness.partition("t", 1).leader_epoch
    partitions = [OffsetForLeaderEpochRequestPartition(1, leader_epoch=each) for each in (epoch, epoch + 9, epoch)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequestTopic("t", partitions)] * TIMES)
    (topic,) = harness.ask(request).topics
    assert [(each.partition, each.end_offset) for each in topic.partitions] == [(1, 0), (1, -1)]


def test_delete_records(harness: Harness) -> None:
    """Up to which offset was meant cannot be known, so nothing is deleted."""
    harness.create_topic("t", 2)
    for index in (0, 1):
        harness.produce("t", index, [b"a", b"b"])
    partitions = [DeleteRecordsRequestPartition(index, offset) for index, offset in ((0, 1), (0, 2), (1, 2))]
    (topic,) = harness.ask(DeleteRecordsRequest([DeleteRecordsRequestTopic("t", partitions)], 1_000)).topics
    assert [(each.partition_index, each.low_watermark, each.error_code) for each in topic.partitions] == [
        (0, -1, ErrorCode.INVALID_REQUEST),
        (1, 2, 0),
    ]
    again = [DeleteRecordsRequestTopic("t", partitions[:1])] * TIMES
    (topic,) = harness.ask(DeleteRecordsRequest(again, 1_000)).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.INVALID_REQUEST]
    assert harness.partition("t", 0).start_offset == 0
