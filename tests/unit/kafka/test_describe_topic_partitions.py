"""DescribeTopicPartitions: pages that together show each partition once."""

from __future__ import annotations

import pytest

from drmq.kafka.operations import TOPIC_OPERATIONS
from drmq.model import ErrorCode, GroupId
from drmq.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
)
from support.broker_harness import NODE, Harness
from support.other_nodes import add_node, add_topic, announce


def ask(
    harness: Harness, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        [DescribeTopicPartitionsRequestTopic(name) for name in names],
        limit,
        None if cursor is None else DescribeTopicPartitionsRequestCursor(*cursor),
    )
    answer = harness.ask(request)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    return answer


def shown(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]


def test_topics_come_in_the_order_of_their_names(harness: Harness) -> None:
    orders = harness.create_topic("orders", 2)
    harness.create_topic("bills")
    answer = ask(harness, "orders", "nowhere", "bills", "orders")
    assert shown(answer) == [("bills", [0]), ("nowhere", []), ("orders", [0, 1])]
    assert [topic.error_code for topic in answer.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert answer.next_cursor is None
    described = answer.topics[2]
    assert (described.topic_id, described.is_internal) == (orders.topic_id, False)
    assert described.topic_authorized_operations == TOPIC_OPERATIONS
    partition = described.partitions[1]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, NODE, 1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([NODE], [NODE], [])


def test_no_names_are_all_topics(harness: Harness) -> None:
    harness.create_topic("orders")
    answer = ask(harness)
    assert [(topic.name, topic.is_internal) for topic in answer.topics] == [
        ("__consumer_offsets", True),
        ("orders", False),
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
def test_pages_together_show_each_partition_once(harness: Harness, limit: int) -> None:
    for name, count in (("a", 3), ("b", 1), ("c", 4)):
        harness.create_topic(name, count)
    seen: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(20):
        answer = ask(harness, "a", "b", "c", limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in shown(answer) for index in indexes]
        assert 0 < len(page) <= limit
        seen += page
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert seen == [(name, index) for name, count in (("a", 3), ("b", 1), ("c", 4)) for index in range(count)]


def test_a_cursor_at_a_topic_that_is_gone_goes_on_behind_it(harness: Harness) -> None:
    harness.create_topic("a")
    harness.create_topic("c")
    assert shown(ask(harness, cursor=("b", 7))) == [("c", [0])]
    assert shown(ask(harness, "a", cursor=("a", 9))) == [("a", [])]
    assert shown(ask(harness, "a", cursor=("a", -5))) == [("a", [0])]


def test_nonsense_limits_still_give_a_page(harness: Harness) -> None:
    harness.create_topic("a", 3)
    assert shown(ask(harness, "a", limit=-1)) == [("a", [0])]


def test_a_stopped_partition_has_no_leader(harness: Harness) -> None:
    created = harness.create_topic("a", 2)
    served = harness.broker.partitions.withdraw(GroupId(created.topic_id, 1))
    assert served is not None
    harness.broker.partitions.publish_stopped(created, 1, "its directory is gone")
    [topic] = ask(harness, "a").topics
    partition = topic.partitions[1]
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (partition.isr_nodes, partition.offline_replicas) == ([], [NODE])


@pytest.mark.parametrize("names", [["new"], []], ids=["named", "all"])
def test_a_new_topic_is_shown_with_its_leaders(harness: Harness, names: list[str]) -> None:
    """The node hears of a topic before it hears of its leaders. The client gets both at once."""
    add_node(harness, 2)
    add_topic(harness, "new", [2, 1], [2, 1], is_new=True)
    request = DescribeTopicPartitionsRequest([DescribeTopicPartitionsRequestTopic(name) for name in names], 2_000)
    answer = harness.send(request)
    announce(harness, "new", 2, [2, 1])
    assert not answer.done()
    announce(harness, "new", 2, [2, 1], index=1)
    described = {topic.name: topic for topic in harness.run(answer).topics}["new"]
    assert [(each.error_code, each.leader_id) for each in described.partitions] == [(0, 2), (0, 2)]
