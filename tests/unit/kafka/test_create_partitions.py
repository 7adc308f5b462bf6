"""CreatePartitions: the number only grows."""

from __future__ import annotations

import pytest

from drmq.broker import BrokerOptions
from drmq.model import ApiError, ErrorCode
from drmq.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from support.broker_harness import NODE, Harness


def grow(harness: Harness, count: int, assignments: list[list[int]] | None = None, name: str = "orders") -> ErrorCode:
    given = None if assignments is None else [CreatePartitionsRequestAssignment(nodes) for nodes in assignments]
    request = CreatePartitionsRequest([CreatePartitionsRequestTopic(name, count, given)])
    [result] = harness.ask(request).results
    assert (result.error_message is None) == (result.error_code == 0)
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_can_be_used_and_old_ones_keep_their_records(harness: Harness, version: int) -> None:
    harness.create_topic("orders", 2)
    harness.produce("orders", 1)
    [result] = harness.ask(CreatePartitionsRequest([CreatePartitionsRequestTopic("orders", 4)]), version).results
    assert (result.name, result.error_code) == ("orders", 0)
    assert harness.broker.catalog.topic("orders").partition_count == 4
    assert harness.produce("orders", 1) == 1
    assert harness.produce("orders", 3) == 0


def test_the_number_must_grow(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    assert grow(harness, 2) is ErrorCode.INVALID_PARTITIONS
    assert grow(harness, 1) is ErrorCode.INVALID_PARTITIONS
    assert grow(harness, 1_000_000) is ErrorCode.INVALID_PARTITIONS
    assert grow(harness, 2, name="nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(harness, 9, name="__consumer_offsets") is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_node_gets_no_more_replicas_than_it_may_have() -> None:
    with Harness(options=BrokerOptions(replicas_max=10, offsets_topic_partitions=4)) as harness:
        harness.create_topic("orders", 6)
        assert grow(harness, 7) is ErrorCode.POLICY_VIOLATION
        assert harness.broker.catalog.topic("orders").partition_count == 6
        with pytest.raises(ApiError, match=r"a node may have 10 \(replicas_max\)") as caught:
            harness.create_topic("more")
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
        harness.run(harness.broker.topics.delete(harness.broker.catalog.topic("orders")))
        harness.create_topic("more")


def test_assignments_name_this_node_once_for_each_new_partition(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    assert grow(harness, 4, [[NODE]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(harness, 4, [[NODE], [2]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(harness, 4, [[NODE], [NODE]]) is ErrorCode.NONE


def test_validation_and_repeated_names_change_nothing(harness: Harness) -> None:
    harness.create_topic("orders")
    wanted = CreatePartitionsRequestTopic("orders", 4)
    [result] = harness.ask(CreatePartitionsRequest([wanted], validate_only=True)).results
    assert result.error_code == 0
    [result] = harness.ask(CreatePartitionsRequest([wanted, wanted])).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert harness.broker.catalog.topic("orders").partition_count == 1


def test_two_requests_at_once_do_not_touch_each_others_partitions(harness: Harness) -> None:
    harness.create_topic("orders")
    wanted = CreatePartitionsRequest([CreatePartitionsRequestTopic("orders", 4)])
    one, other = harness.send(wanted), harness.send(wanted)
    codes = [harness.run(task).results[0].error_code for task in (one, other)]
    assert codes == [0, ErrorCode.INVALID_PARTITIONS]
    for index in range(4):
        assert harness.produce("orders", index) == 0
