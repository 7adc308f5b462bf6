"""AlterPartitionReassignments and ListPartitionReassignments: what is decided, what is refused, what is under way."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode, NodeId
from drmq.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from drmq.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
)
from support.broker_harness import Harness
from support.other_nodes import add_node, add_topic


@pytest.fixture(autouse=True)
def topic(harness: Harness) -> None:
    """Two partitions on nodes that nobody can reach: what is begun stays as it is."""
    for node_id in (2, 3, 4):
        add_node(harness, node_id)
    add_topic(harness, "t", [2, 3], [3, 2])


def alter(
    harness: Harness,
    *moves: tuple[int, list[int] | None],
    topic: str = "t",
    keep_factor: bool = False,
    version: int = 1,
) -> list[tuple[int, int, str]]:
    partitions = [AlterPartitionReassignmentsRequestPartition(index, replicas) for index, replicas in moves]
    request = AlterPartitionReassignmentsRequest(
        1000, not keep_factor, [AlterPartitionReassignmentsRequestTopic(topic, partitions)]
    )
    answer = harness.ask(request, version)
    assert answer.error_code == 0, answer
    [answered] = answer.responses
    return [(each.partition_index, each.error_code, each.error_message or "") for each in answered.partitions]


def under_way(
    harness: Harness, topics: list[ListPartitionReassignmentsRequestTopic] | None = None
) -> dict[int, object]:
    answer = harness.ask(ListPartitionReassignmentsRequest(1000, topics))
    return {
        each.partition_index: (each.replicas, each.adding_replicas, each.removing_replicas)
        for found in answer.topics
        for each in found.partitions
    }


@pytest.mark.parametrize("version", range(2))
def test_a_move_is_listed_until_it_is_done(harness: Harness, version: int) -> None:
    assert under_way(harness) == {}
    assert alter(harness, (0, [4, 3]), version=version) == [(0, 0, "")]
    assert under_way(harness) == {0: ([4, 3, 2], [4], [2])}
    catalog = harness.broker.catalog
    harness.call(lambda: harness.broker.metadata.append(catalog.finish_reassignment(catalog.topic("t"), 0)))
    assert under_way(harness) == {}
    assert catalog.topic("t").partitions[0].replicas == (4, 3)


def test_moves_can_be_asked_for_one_by_one(harness: Harness) -> None:
    alter(harness, (0, [4, 3]), (1, [4, 2]))
    assert set(under_way(harness)) == {0, 1}
    assert set(under_way(harness, [ListPartitionReassignmentsRequestTopic("t", [1, 5])])) == {1}
    assert under_way(harness, [ListPartitionReassignmentsRequestTopic("other", [0])]) == {}
    assert under_way(harness, []) == {}


def test_another_order_changes_only_who_should_lead(harness: Harness) -> None:
    assert alter(harness, (0, [3, 2])) == [(0, 0, "")]
    assert under_way(harness) == {}
    assert harness.broker.catalog.topic("t").partitions[0].replicas == (3, 2)


def test_a_move_that_waits_is_cancelled_at_once_and_one_under_way_returns(harness: Harness) -> None:
    alter(harness, (0, [4, 3]), (1, [4, 2]))
    assert alter(harness, (1, None)) == [(1, 0, "")]
    assert set(under_way(harness)) == {0}
    assert alter(harness, (0, None)) == [(0, 0, "")]
    assert under_way(harness) == {0: ([2, 3, 4], [], [4])}


@pytest.mark.parametrize(
    ("move", "code", "says"),
    [
        ((0, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "not being reassigned"),
        ((0, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replicas"),
        ((0, [2, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        ((0, [2, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker 9"),
        ((5, [2, 3]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no partition 5"),
    ],
)
def test_refusals_are_each_partitions_own(
    harness: Harness, move: tuple[int, list[int] | None], code: ErrorCode, says: str
) -> None:
    refused, taken = alter(harness, move, (1, [3, 4]))
    assert refused[:2] == (move[0], code)
    assert says in refused[2]
    assert taken == (1, 0, "")
    assert set(under_way(harness)) == {1}


def test_an_unknown_topic(harness: Harness) -> None:
    assert alter(harness, (0, [2]), topic="other")[0][1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_named_twice_is_refused_as_a_whole(harness: Harness) -> None:
    [refused] = alter(harness, (0, [4, 3]), (0, [2, 4]))
    assert refused[:2] == (0, ErrorCode.INVALID_REQUEST)
    assert under_way(harness) == {}


def test_the_number_of_replicas_changes_only_if_it_may(harness: Harness) -> None:
    [refused] = alter(harness, (0, [2, 3, 4]), keep_factor=True)
    assert refused[:2] == (0, ErrorCode.INVALID_REPLICATION_FACTOR)
    assert "has 2 replicas and would have 3" in refused[2]
    assert under_way(harness) == {}
    assert alter(harness, (0, [2, 3, 4])) == [(0, 0, "")]


def test_a_node_that_is_down_or_leaving_gets_nothing(harness: Harness) -> None:
    catalog = harness.broker.catalog
    harness.call(lambda: harness.broker.metadata.append(catalog.fence(NodeId(4))))
    [refused] = alter(harness, (0, [4, 3]))
    assert refused[:2] == (0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def test_without_the_metadata_nothing_is_decided(harness: Harness) -> None:
    with harness.failing(harness.broker.metadata.log.partition):
        request = AlterPartitionReassignmentsRequest(
            1000,
            True,
            [AlterPartitionReassignmentsRequestTopic("t", [AlterPartitionReassignmentsRequestPartition(0, [4, 3])])],
        )
        answer = harness.ask(request)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert answer.responses == []
    assert under_way(harness) == {}


def test_a_move_to_a_node_that_has_as_many_replicas_as_it_may_have_is_refused(harness: Harness) -> None:
    harness.broker.topics.replicas_max = 2
    [(_, code, message)] = alter(harness, (0, [1, 3]))
    assert code == ErrorCode.POLICY_VIOLATION
    assert "a node may have 2 (replicas_max)" in message
    assert under_way(harness) == {}
    assert alter(harness, (0, [3, 2])) == [(0, 0, "")]
