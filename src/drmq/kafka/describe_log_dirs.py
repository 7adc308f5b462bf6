"""DescribeLogDirs (35): how many bytes each partition takes on this node's disk.

A node has one data directory. Partitions that are not on this node, or whose log cannot be opened, are left out. From
v4 the answer has the size of the file system and its free space.
"""

from __future__ import annotations

from collections.abc import Iterable

from drmq.broker import Broker, Partition
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseResult,
    DescribeLogDirsResponseTopic,
)


async def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = context.broker
    if request.topics is None:
        topics = [_topic(broker, name, None) for name in sorted(broker.metadata.committed_catalog.topics)]
    else:
        wanted: dict[str, set[int]] = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
        topics = [
            _topic(broker, name, indexes)
            for name, indexes in wanted.items()
            if name in broker.metadata.committed_catalog.topics
        ]
    try:
        total_bytes, usable_bytes = await broker.blocking(broker.store.disk_bytes)
    except OSError:
        failed = DescribeLogDirsResponseResult(ErrorCode.KAFKA_STORAGE_ERROR, broker.store.location)
        return DescribeLogDirsResponse(results=[failed])
    result = DescribeLogDirsResponseResult(
        log_dir=broker.store.location,
        topics=[topic for topic in topics if topic.partitions],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


def _topic(broker: Broker, name: str, indexes: Iterable[int] | None) -> DescribeLogDirsResponseTopic:
    """The sizes of the topic's partitions in `indexes`, or of all its partitions if that is None."""
    return DescribeLogDirsResponseTopic(
        name,
        [
            DescribeLogDirsResponsePartition(slot.index, slot.log.size_bytes)
            for _, slot in sorted(
                broker.partitions.slots(broker.metadata.committed_catalog.topics[name].topic_id).items()
            )
            if isinstance(slot, Partition) and (indexes is None or slot.index in indexes)
        ],
    )
