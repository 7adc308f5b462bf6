"""The catalog's facts, as values and as bytes.

Each is one record of the metadata log: the key says what it is about, the value is a JSON object
with the fact's `kind` and fields, so that `drmq log dump` shows a person what happened. A kind or a
version that this DRMQ does not know is not passed over: better to stop than to run on half a truth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from drmq.model import DrmqError, MemberId, NodeId, TopicId

FACT_VERSION = 2
"""Version 1 knew one node: its topics have no replicas, so there is nothing to go on with."""


class UnknownFact(DrmqError):
    """The metadata log holds a record that this version of DRMQ does not understand."""


# ---- the cluster and its brokers ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterCreated:
    """The first fact of a cluster: its name for ever."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A node came, came back with an empty disk (a higher `incarnation`), or changed its addresses."""

    node_id: NodeId
    incarnation: int
    directory_id: str
    """Hex digits that belong to one data directory: how a node with a new disk is told from the old one."""
    host: str
    port: int
    peer_host: str
    peer_port: int
    rack: str | None
    roles: list[str]
    starts: int = 0
    """How often its directory has been opened: an older copy of it counts lower."""
    boot_id: str = ""
    """Which process has opened it last."""


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """The node was not heard of for too long: nothing new is placed on it."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerDraining:
    """The node is to leave: its replicas move away, and nothing new is placed on it."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerDrainCancelled:
    """The node is to stay after all."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    """The node is no part of the cluster any more. If it comes again, it comes as a new one."""

    node_id: NodeId


# ---- topics and where their replicas are ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic_id: TopicId
    name: str
    replicas: list[list[NodeId]]
    """For each partition the nodes that keep it, the preferred leader first."""
    configs: dict[str, str] = field(default_factory=dict)
    initial_members: list[list[MemberId]] | None = None
    """Only in snapshots: who the replicas were when the topic was made. Else they are who they are at this fact."""


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The topic is gone; each node removes the files it has of it."""

    topic_id: TopicId
    name: str


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    topic_id: TopicId
    partition_count: int
    """How many the topic has with the new ones, which are the last."""
    replicas: list[list[NodeId]]
    """Those of the new partitions."""


@dataclass(frozen=True, slots=True)
class TopicConfigsSet:
    """All settings that the topic has of its own, replacing those it had."""

    topic_id: TopicId
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class ReassignmentStarted:
    """The partition is to be on `replicas`. One that was under way for it is given up for this one."""

    topic_id: TopicId
    partition: int
    replicas: list[NodeId]


@dataclass(frozen=True, slots=True)
class ReassignmentFinished:
    """The partition is on `replicas`, and nowhere else."""

    topic_id: TopicId
    partition: int
    replicas: list[NodeId]


@dataclass(frozen=True, slots=True)
class ReassignmentCancelled:
    """The partition is to stay where it was; what was done for the move, if anything, is undone first."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """A node cannot use its copy any more, and gets another one from the others, as another member."""

    topic_id: TopicId
    partition: int
    node_id: NodeId
    arrival: int
    """Which copy it is about: that of the move with which the node came."""


@dataclass(frozen=True, slots=True)
class AssignmentRestored:
    """Only in snapshots: what moving has made of a partition, and where it is to go, if anywhere."""

    topic_id: TopicId
    partition: int
    moves: int
    arrivals: list[list[int]]
    """Pairs of a node and the move with which it came."""
    target: list[NodeId] | None
    given_up: list[NodeId]
    begun: bool


# ---- producers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """Every producer id below `next_id` may have been given out."""

    next_id: int


BrokerFact: TypeAlias = (
    BrokerRegistered | BrokerFenced | BrokerUnfenced | BrokerDraining | BrokerDrainCancelled | BrokerRemoved
)
TopicFact: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigsSet
    | ReassignmentStarted
    | ReassignmentFinished
    | ReassignmentCancelled
    | ReplicaLost
    | AssignmentRestored
)
Fact: TypeAlias = ClusterCreated | BrokerFact | TopicFact | ProducerIdsReserved

_KINDS: dict[str, type[Fact]] = {
    "cluster-created": ClusterCreated,
    "broker-registered": BrokerRegistered,
    "broker-fenced": BrokerFenced,
    "broker-unfenced": BrokerUnfenced,
    "broker-draining": BrokerDraining,
    "broker-drain-cancelled": BrokerDrainCancelled,
    "broker-removed": BrokerRemoved,
    "topic-created": TopicCreated,
    "topic-deleted": TopicDeleted,
    "partitions-added": PartitionsAdded,
    "topic-configs-set": TopicConfigsSet,
    "reassignment-started": ReassignmentStarted,
    "reassignment-finished": ReassignmentFinished,
    "reassignment-cancelled": ReassignmentCancelled,
    "replica-lost": ReplicaLost,
    "assignment-restored": AssignmentRestored,
    "producer-ids-reserved": ProducerIdsReserved,
}
_NAMES = {cls: kind for kind, cls in _KINDS.items()}


def encode_fact(fact: Fact) -> tuple[bytes, bytes]:
    """Key and value of the record that holds this fact."""
    kind = _NAMES[type(fact)]
    values: dict[str, Any] = {each.name: getattr(fact, each.name) for each in fields(fact)}
    if "topic_id" in values:
        subject = values["topic_id"] = values["topic_id"].hex()
        if "partition" in values:
            subject += f"-{values['partition']}"
    elif "node_id" in values:
        subject = f"node-{values['node_id']}"
    else:
        subject = "cluster" if isinstance(fact, ClusterCreated) else "producer-ids"
    value = json.dumps({"kind": kind, "version": FACT_VERSION, **values}, separators=(",", ":"))
    return f"{kind}:{subject}".encode(), value.encode()


def decode_fact(value: bytes) -> Fact:
    """The fact in a record's value. Raises `UnknownFact` for what an older or newer version wrote."""
    values = json.loads(value)
    kind, version = values.pop("kind", None), values.pop("version", None)
    if version == 1:
        raise UnknownFact(
            f"the metadata log holds a {kind!r} record of version 1, from before DRMQ had clusters, and it cannot be "
            "carried over; go on with the version that wrote it, or start this one with an empty data directory and "
            "copy the records with any Kafka client"
        )
    if kind not in _KINDS or version != FACT_VERSION:
        raise UnknownFact(
            f"the metadata log holds a {kind!r} record of version {version}, which this version of DRMQ does not know; "
            "start the version that wrote it"
        )
    try:
        if "topic_id" in values:
            values["topic_id"] = TopicId(bytes.fromhex(values["topic_id"]))
        return _KINDS[kind](**values)
    except (TypeError, ValueError) as error:
        raise UnknownFact(
            f"the metadata log holds a {kind!r} record with fields that do not fit ({error}); "
            "start the version that wrote it"
        ) from error
