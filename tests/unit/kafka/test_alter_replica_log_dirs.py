"""AlterReplicaLogDirs: a node has one data directory, in which all its replicas are."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode, NodeId
from drmq.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from support.broker_harness import Harness


def ask(harness: Harness, *moves: tuple[str, str, list[int]], version: int = 2) -> dict[tuple[str, int], int]:
    """The error code of each partition, for moves of partitions of a topic to a directory."""
    dirs = [
        AlterReplicaLogDirsRequestDir(path, [AlterReplicaLogDirsRequestTopic(topic, partitions)])
        for path, topic, partitions in moves
    ]
    return {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in harness.ask(AlterReplicaLogDirsRequest(dirs), version).results
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_already_where_it_may_be(harness: Harness, version: int) -> None:
    """The rollback that `kafka-reassign-partitions` prints names the directory of each replica, and works."""
    harness.create_topic("orders", 2)
    moved = ask(harness, (harness.store.location, "orders", [0, 1]), version=version)
    assert moved == {("orders", 0): 0, ("orders", 1): 0}


def test_another_directory_and_unknown_partitions_are_refused(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    here = harness.store.location
    assert ask(harness, ("/elsewhere", "orders", [0]), (here, "orders", [0, 1, 7]), (here, "nowhere", [0])) == {
        ("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND,
        ("orders", 1): 0,
        ("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_replica_of_another_node_is_not_available(harness: Harness) -> None:
    """A client asks again, because this node may not have heard yet that it is to get the replica."""
    harness.create_topic("orders")
    harness.broker.node_id = NodeId(2)
    assert ask(harness, (harness.store.location, "orders", [0])) == {("orders", 0): ErrorCode.REPLICA_NOT_AVAILABLE}
