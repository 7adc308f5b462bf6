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

MemberId = NewType("MemberId", NodeId)
"""A node in one life of its data directory, and of its replica of a partition. Consensus counts members, not nodes:
a node that comes back with an empty disk, or gets a partition back that it gave up, has forgotten its votes, so it
must not be taken for the one that gave them."""

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
    """The member that `node_id` is in its `incarnation`-th life. The first is called like the node itself."""
    return MemberId(NodeId(incarnation << _INCARNATION_SHIFT | node_id))


def life_of(member: NodeId) -> int:
    """Which of its lives the member is."""
    return member >> _INCARNATION_SHIFT


def node_of(member: NodeId) -> NodeId:
    """The node that a member of a replica group is, or was."""
    return NodeId(member & ((1 << _INCARNATION_SHIFT) - 1))


def topic_id_text(topic_id: TopicId) -> str:
    """The id as Kafka's tools print it: URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")
