"""The catalog's facts, as values and as bytes.

Each fact is one record of the metadata log: the key says what it is about, and the value is a JSON object with the
fact's `kind` and fields, so that `drmq log dump` shows an operator what happened. A kind or a version that this DRMQ
does not know is never skipped: it is better to stop than to run with an incomplete catalog.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from drmq.catalog.features import FEATURES
from drmq.model import MemberId, NodeId, TopicId, UnknownFormat

FACT_VERSION = 2
"""Version 1 supported a single node: its topics have no replicas, so they cannot be used further."""


class UnknownFact(UnknownFormat):
    """The metadata log holds a record that this version of DRMQ does not understand."""


# ---- the cluster and its brokers ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterCreated:
    """The first fact of a cluster: its id, which never changes."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class FeatureLevelSet:
    """A level is final: all nodes support it, and what it allows may be written from now on."""

    feature: str
    level: int


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A node joined, returned with an empty disk (a higher `incarnation`), or changed its addresses."""

    node_id: NodeId
    incarnation: int
    directory_id: str
    """Hex digits that identify one data directory, so that a node with a new disk can be recognised."""
    host: str
    port: int
    peer_host: str
    peer_port: int
    rack: str | None
    roles: list[str]
    starts: int = 0
    """How many times its directory has been opened: an older copy has a lower number."""
    boot_id: str = ""
    """The process that opened it last."""


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """The node was silent for too long: nothing new is placed on it."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerDraining:
    """The node will be removed: its replicas are moved away, and nothing new is placed on it."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerDrainCancelled:
    """The node stays in the cluster after all."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    """The node is no longer part of the cluster. If it registers again, it counts as a new node."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BrokerConfigsSet:
    """All settings of a broker, or of all brokers, that were set at run time, replacing earlier ones."""

    node_id: NodeId | None
    """None for all brokers."""
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class GroupConfigsSet:
    """All settings of a group, replacing earlier ones. The group need not exist."""

    group_id: str
    configs: dict[str, str]


# ---- topics and where their replicas are ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic_id: TopicId
    name: str
    replicas: list[list[NodeId]]
    """For each partition the nodes of its replicas, the preferred leader first."""
    configs: dict[str, str] = field(default_factory=dict)
    initial_members: list[list[MemberId]] | None = None
    """Only in snapshots: the members when the topic was created. Otherwise they follow from the present
    incarnations."""


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The topic was deleted; each node removes its files of it."""

    topic_id: TopicId
    name: str


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    topic_id: TopicId
    partition_count: int
    """The new number of partitions. The added ones are the last."""
    replicas: list[list[NodeId]]
    """The replicas of the added partitions."""


@dataclass(frozen=True, slots=True)
class TopicConfigsSet:
    """All settings of the topic, replacing earlier ones."""

    topic_id: TopicId
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class ReassignmentStarted:
    """The partition shall move to `replicas`. Replaces an earlier reassignment of it."""

    topic_id: TopicId
    partition: int
    replicas: list[NodeId]


@dataclass(frozen=True, slots=True)
class ReassignmentFinished:
    """The partition has its replicas on `replicas`, and nowhere else."""

    topic_id: TopicId
    partition: int
    replicas: list[NodeId]


@dataclass(frozen=True, slots=True)
class ReassignmentCancelled:
    """The partition shall stay where it was; steps of the move that were already done are undone first."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """A node lost its replica, and gets a new one from the others, as a new member."""

    topic_id: TopicId
    partition: int
    node_id: NodeId
    arrival: int
    """Identifies the replica that was lost: the move with which the node got it."""


@dataclass(frozen=True, slots=True)
class AssignmentRestored:
    """Only in snapshots: the results of earlier moves of a partition, and its target, if any."""

    topic_id: TopicId
    partition: int
    moves: int
    arrivals: list[list[int]]
    """Pairs of a node and the move with which it got its replica."""
    target: list[NodeId] | None
    given_up: list[NodeId]
    begun: bool


# ---- producers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """Every producer id below `next_id` may have been assigned."""

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
Fact: TypeAlias = (
    ClusterCreated | FeatureLevelSet | BrokerConfigsSet | GroupConfigsSet | BrokerFact | TopicFact | ProducerIdsReserved
)

_KINDS: dict[str, type[Fact]] = {
    "cluster-created": ClusterCreated,
    "feature-level-set": FeatureLevelSet,
    "broker-registered": BrokerRegistered,
    "broker-fenced": BrokerFenced,
    "broker-unfenced": BrokerUnfenced,
    "broker-draining": BrokerDraining,
    "broker-drain-cancelled": BrokerDrainCancelled,
    "broker-removed": BrokerRemoved,
    "broker-configs-set": BrokerConfigsSet,
    "group-configs-set": GroupConfigsSet,
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
        subject = "brokers" if values["node_id"] is None else f"node-{values['node_id']}"
    elif isinstance(fact, GroupConfigsSet):
        subject = fact.group_id
    elif isinstance(fact, FeatureLevelSet):
        subject = fact.feature
    else:
        subject = "cluster" if isinstance(fact, ClusterCreated) else "producer-ids"
    value = json.dumps({"kind": kind, "version": FACT_VERSION, **values}, separators=(",", ":"))
    return f"{kind}:{subject}".encode(), value.encode()


def decode_fact(value: bytes) -> Fact:
    """The fact in a record's value. Raises `UnknownFact` if another version of DRMQ wrote it."""
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
        fact = _KINDS[kind](**values)
    except (TypeError, ValueError) as error:
        raise UnknownFact(
            f"the metadata log holds a {kind!r} record with fields that do not fit ({error}); "
            "start the version that wrote it"
        ) from error
    if isinstance(fact, FeatureLevelSet):
        _check_level(fact)
    return fact


def _check_level(fact: FeatureLevelSet) -> None:
    """Reject a level that this release does not support: records that it allows may follow."""
    known = FEATURES.get(fact.feature)
    if known is None or fact.level not in known.levels:
        levels = "no such feature" if known is None else f"levels {known.level_min} to {known.level_max} of it"
        raise UnknownFact(
            f"the cluster has finalized level {fact.level} of the feature {fact.feature!r}, and this release knows "
            f"{levels}; start the release that finalized it, or a later one"
        )
