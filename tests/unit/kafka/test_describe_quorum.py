"""DescribeQuorum: the replica group of the metadata, and of any partition."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.kafka.describe_quorum import is_about_metadata
from drmq.model import ErrorCode, NodeId
from drmq.model.names import CLUSTER_METADATA
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from support.broker_harness import NODE, Harness
from support.other_nodes import add_node, add_topic, announce


def request(*topics: str) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        [DescribeQuorumRequestTopic(name, [DescribeQuorumRequestPartition(0)]) for name in topics]
    )


def described(harness: Harness, topic: str, version: int = 2) -> Any:
    answer = harness.ask(request(topic), version)
    assert answer.error_code == 0
    [[partition]] = [found.partitions for found in answer.topics]
    return partition


@pytest.mark.parametrize("version", range(3))
def test_the_metadata_of_one_node(harness: Harness, version: int) -> None:
    before_ms = harness.clock.wall_ms()
    partition = described(harness, CLUSTER_METADATA, version)
    log = harness.broker.metadata.log.partition
    assert (partition.error_code, partition.leader_id) == (0, NODE)
    assert (partition.leader_epoch, partition.high_watermark) == (log.leader_epoch, log.high_watermark)
    [voter] = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE, log.next_offset)
    assert partition.observers == []
    if version >= 1:
        assert before_ms <= voter.last_fetch_timestamp == voter.last_caught_up_timestamp <= harness.clock.wall_ms()
    if version >= 2:
        assert voter.replica_directory_id.hex() == harness.store.directory_id
        [node] = harness.ask(request(CLUSTER_METADATA), version).nodes
        assert (node.node_id, node.listeners[0].host, node.listeners[0].port) == (NODE, "localhost", 9092)


def test_a_partition_with_records(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", values=[b"a", b"b", b"c"])
    partition = described(harness, "t")
    assert (partition.error_code, partition.high_watermark, partition.leader_id) == (0, 3, NODE)
    assert [voter.log_end_offset for voter in partition.current_voters] == [3]


def test_a_member_that_was_never_heard_has_no_known_end(harness: Harness) -> None:
    add_node(harness, 2)
    replica = harness.broker.metadata.log.partition.replica
    member = harness.broker.catalog.brokers[NodeId(2)].member
    harness.call(lambda: replica.change_members({NODE}, {member}, "a test"))
    partition = described(harness, CLUSTER_METADATA)
    [observer] = partition.observers
    assert (observer.replica_id, observer.log_end_offset, observer.last_caught_up_timestamp) == (2, -1, -1)
    assert [voter.replica_id for voter in partition.current_voters] == [NODE]


def test_what_another_node_leads(harness: Harness) -> None:
    add_node(harness, 2)
    add_topic(harness, "t", [2])
    partition = described(harness, "t")
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    announce(harness, "t", 2, [2], term=9)
    partition = described(harness, "t")
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        2,
        9,
    )
    assert (partition.current_voters, partition.high_watermark) == ([], -1)


def test_what_is_not_there(harness: Harness) -> None:
    partition = described(harness, "missing")
    assert (partition.error_code, partition.leader_id) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_only_questions_about_the_metadata_alone_are_the_controllers(harness: Harness) -> None:
    assert is_about_metadata(request(CLUSTER_METADATA))
    assert not is_about_metadata(request("t"))
    assert not is_about_metadata(request(CLUSTER_METADATA, "t"))
