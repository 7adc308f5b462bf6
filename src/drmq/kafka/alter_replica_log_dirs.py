"""AlterReplicaLogDirs (34): move replicas of this node to another of its data directories.

A node has one data directory. A replica that is on this node, or will be, is in that directory, so there is nothing to
do. `kafka-reassign-partitions --execute` asks for it nevertheless: the assignment that it prints for a rollback names
the directory of each replica.
"""

from __future__ import annotations

from drmq.broker import Broker
from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.model import ErrorCode
from drmq.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
)


def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    asked = each_once(
        (
            (topic.name, [(index, directory.path) for index in topic.partitions])
            for directory in request.dirs
            for topic in directory.topics
        ),
        lambda entry: entry[0],
    )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseTopic(
                name,
                [
                    AlterReplicaLogDirsResponsePartition(index, _check(context.broker, name, index, path))
                    for index, path in entries
                ],
            )
            for name, entries in asked.items()
        ]
    )


def _check(broker: Broker, name: str, index: int, path: str) -> ErrorCode:
    """Whether this node's replica of a partition is, or will be, in the directory at `path`."""
    if path != broker.store.location:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = broker.metadata.committed_catalog.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Clients ask again after this error, because this node may learn of a reassignment later than they do.
    return ErrorCode.NONE if broker.node_id in topic.partitions[index].hosts else ErrorCode.REPLICA_NOT_AVAILABLE
