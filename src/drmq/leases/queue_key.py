"""The name of a queue."""

from __future__ import annotations

from typing import NamedTuple

from drmq.model import TopicId
from drmq.model.names import REDRIVE_GROUP


class QueueKey(NamedTuple):
    """One partition of a topic as one group works on it. All lease state belongs to one of these."""

    group: str
    topic_id: TopicId
    partition: int


def redrive_key(topic_id: TopicId, partition: int = 0) -> QueueKey:
    """The key of what is known about the dead letters of a topic. All its partitions are in one shard."""
    return QueueKey(REDRIVE_GROUP, topic_id, partition)
