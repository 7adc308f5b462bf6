"""OffsetFetch: one group or several, some partitions or all, by name or by id."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseTopic,
)
from support.broker_harness import Harness

Shown = list[tuple[str, list[tuple[int, int, int]]]]


def commit(harness: Harness, group_id: str, topic: str, index: int, offset: int) -> None:
    partitions = [OffsetCommitRequestPartition(index, offset, 0, "note")]
    answer = harness.ask(
        OffsetCommitRequest(group_id, topics=[OffsetCommitRequestTopic(topic, partitions=partitions)]), 9
    )
    assert answer.topics[0].partitions[0].error_code == 0


def shown(topics: list[OffsetFetchResponseTopic] | list[OffsetFetchResponseGroupTopic]) -> Shown:
    return [
        (topic.name, [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions])
        for topic in topics
    ]


@pytest.mark.parametrize("version", range(1, 8))
def test_up_to_v7_one_group_and_the_partitions_asked_for(harness: Harness, version: int) -> None:
    harness.create_topic("orders", 2)
    commit(harness, "readers", "orders", 0, 5)
    topics = [OffsetFetchRequestTopic("orders", [0, 1]), OffsetFetchRequestTopic("nowhere", [0])]
    answer = harness.ask(OffsetFetchRequest("readers", topics), version)
    assert answer.error_code == 0
    assert shown(answer.topics) == [("orders", [(0, 5, 0), (1, -1, 0)]), ("nowhere", [(0, -1, 0)])]
    assert answer.topics[0].partitions[0].metadata == "note"
    assert answer.topics[0].partitions[0].committed_leader_epoch == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", range(2, 8))
def test_null_asks_for_all_that_the_group_committed(harness: Harness, version: int) -> None:
    harness.create_topic("orders", 2)
    commit(harness, "readers", "orders", 1, 5)
    commit(harness, "others", "orders", 0, 9)
    assert shown(harness.ask(OffsetFetchRequest("readers", None), version).topics) == [("orders", [(1, 5, 0)])]


@pytest.mark.parametrize("version", range(1, 8))
def test_an_error_of_the_group_is_in_its_field_or_in_v1_on_each_partition(harness: Harness, version: int) -> None:
    answer = harness.ask(OffsetFetchRequest("", [OffsetFetchRequestTopic("orders", [0])]), version)
    if version == 1:
        assert shown(answer.topics) == [("orders", [(0, -1, ErrorCode.INVALID_GROUP_ID)])]
    else:
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
        assert answer.topics == []


@pytest.mark.parametrize("version", [8, 9])
def test_from_v8_several_groups_each_with_its_own_answer(harness: Harness, version: int) -> None:
    """Ten groups, so that several shards are asked."""
    harness.create_topic("orders")
    names = [f"group-{number}" for number in range(10)]
    for number, name in enumerate(names):
        commit(harness, name, "orders", 0, number)
    asked = [
        OffsetFetchRequestGroup(name, topics=[OffsetFetchRequestGroupTopic("orders", partition_indexes=[0])])
        for name in names
    ]
    answer = harness.ask(OffsetFetchRequest(groups=[*asked, OffsetFetchRequestGroup("", topics=None)]), version)
    assert [group.group_id for group in answer.groups] == [*names, ""]
    for number, group in enumerate(answer.groups[:-1]):
        assert shown(group.topics) == [("orders", [(0, number, 0)])]
        assert group.error_code == 0
    assert answer.groups[-1].error_code == ErrorCode.INVALID_GROUP_ID


def test_no_groups_at_all(harness: Harness) -> None:
    assert harness.ask(OffsetFetchRequest(groups=[])).groups == []


def test_v10_names_topics_by_id(harness: Harness) -> None:
    topic = harness.create_topic("orders", 2)
    commit(harness, "readers", "orders", 1, 5)
    asked = [
        OffsetFetchRequestGroupTopic(topic_id=b"?" * 16, partition_indexes=[0]),
        OffsetFetchRequestGroupTopic(topic_id=topic.topic_id, partition_indexes=[0, 1]),
    ]
    [group] = harness.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("readers", topics=asked)]), 10).groups
    assert [(each.topic_id, shown([each])[0][1]) for each in group.topics] == [
        (b"?" * 16, [(0, -1, ErrorCode.UNKNOWN_TOPIC_ID)]),
        (topic.topic_id, [(0, -1, 0), (1, 5, 0)]),
    ]
    [group] = harness.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("readers", topics=None)]), 10).groups
    assert [(each.topic_id, shown([each])[0][1]) for each in group.topics] == [(topic.topic_id, [(1, 5, 0)])]


def test_a_shard_whose_log_fails_is_not_available(harness: Harness) -> None:
    with harness.failing_shards():
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        asked = [OffsetFetchRequestTopic("orders", [0])]
        assert shown(harness.ask(OffsetFetchRequest("readers", asked), 1).topics) == [("orders", [(0, -1, error)])]
        assert harness.ask(OffsetFetchRequest("readers", asked), 7).error_code == error
        assert (
            harness.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("readers")])).groups[0].error_code == error
        )
