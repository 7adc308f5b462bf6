"""Where a group begins in a partition that it has not worked on.

The setting `share.auto.offset.reset` of the group decides: at the end of the log, at its start, or at a time. A
partition that was added to a topic since the group began to work on the topic begins at its start: all of its records
are new to the group, and none of them may be skipped. So a group remembers how many partitions a topic had when it
began. The number is an entry of its own beside the queues (`WHOLE_TOPIC`), in the shard that its key belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drmq.broker.partitions.partition import Partition
from drmq.broker.services.lease_shards import LeaseShards
from drmq.leases import WHOLE_TOPIC, Failed, QueueBegun, QueueKey, StartQueue
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.records import InvalidBatch
from drmq.storage import StorageError

if TYPE_CHECKING:
    from drmq.broker.broker import Broker


class QueueStarts:
    """Finds the first offset of new queues. Used on the event loop."""

    def __init__(self, broker: Broker, shards: LeaseShards) -> None:
        self._broker = broker
        self._shards = shards

    async def offset_of(self, group: str, partition: Partition, caller: str) -> int:
        """The offset at which a group begins in a partition that this node leads. Raises `ApiError`.

        `caller` is the address of the client that has asked for it.
        """
        if partition.index >= await self.begin_topic(group, partition.topic_id, caller):
            return partition.start_offset
        age_ms = self._broker.group_settings.of(group).start_age_ms
        if age_ms is None:
            return partition.start_offset
        # Read before the search: what is appended meanwhile is not skipped.
        end = partition.high_watermark
        return end if age_ms == 0 else await self._at_time(group, partition, end, age_ms)

    async def _at_time(self, group: str, partition: Partition, end: int, age_ms: int) -> int:
        time_ms = max(0, self._broker.clock.wall_ms() - age_ms)
        try:
            found, _, _ = await self._broker.services.lookups.find_offset(
                partition.topic, partition.index, time_ms, caller=f"group {group}"
            )
        except (StorageError, InvalidBatch, OSError) as error:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition!r} cannot be searched by time: {error}"
            ) from error
        return end if found < 0 else found

    async def begin_topic(self, group: str, topic_id: TopicId, caller: str) -> int:
        """The number of partitions that a topic had when the group began to work on it: now, if it has not yet.

        Raises `ApiError`.
        """
        topic = self._broker.metadata.committed_catalog.topic_by_id(topic_id)
        key = QueueKey(group, topic_id, WHOLE_TOPIC)
        answer = await self._shards.ask(key, StartQueue(key, topic.partition_count, caller=caller))
        if isinstance(answer, Failed):
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"group {group} cannot begin in topic {topic.name}: {answer.failure.value}"
            )
        assert isinstance(answer, QueueBegun), answer
        return answer.end
