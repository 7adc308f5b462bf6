"""Names for integers and ids, so that mypy refuses an offset where an epoch belongs."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
TopicId = NewType("TopicId", bytes)
"""Sixteen bytes that identify one incarnation of a topic. A topic that is deleted and created again gets a new id."""

MemberId = NewType("MemberId", NodeId)
"""One incarnation of a node's data directory and of its replica of a partition. Consensus counts members, not nodes: a
node that returns with an empty disk, or is given a partition again after it gave it up, has lost its record of past
votes. It must therefore count as a different member from the one that cast them."""

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


class GroupId(NamedTuple):
    """One replica group: a partition, by the id of its topic."""

    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex()}-{self.partition}"


_INCARNATION_SHIFT = 32


def member_id(node_id: NodeId, incarnation: int) -> MemberId:
    """The member id of incarnation `incarnation` of `node_id`. Incarnation 0 has the same number as the node."""
    return MemberId(NodeId(incarnation << _INCARNATION_SHIFT | node_id))


def incarnation_of(member: NodeId) -> int:
    """The incarnation number of a member."""
    return member >> _INCARNATION_SHIFT


def node_of(member: NodeId) -> NodeId:
    """The node that a member belongs to."""
    return NodeId(member & ((1 << _INCARNATION_SHIFT) - 1))


def topic_id_text(topic_id: TopicId) -> str:
    """The id as Kafka's tools print it: URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")
