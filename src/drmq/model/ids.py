"""Names for integers and ids, so that mypy refuses an offset where an epoch belongs."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
TopicId = NewType("TopicId", bytes)
"""Sixteen bytes that belong to one incarnation of a topic: recreated under its old name, it gets new ones."""

NO_TOPIC_ID = TopicId(bytes(16))
NO_PRODUCER_ID = ProducerId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = -1


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_id_text(topic_id: TopicId) -> str:
    """The id as Kafka's tools print it: URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")
