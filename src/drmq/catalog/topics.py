"""A topic, the nodes of its partitions' replicas, and the checks of a replica assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from drmq.catalog.brokers import Broker
from drmq.model import ApiError, ErrorCode, MemberId, NodeId, TopicId
from drmq.model.names import is_internal


@dataclass(frozen=True, slots=True)
class Assignment:
    """The nodes of a partition's replicas. Replaced, never changed."""

    replicas: tuple[NodeId, ...]
    """The preferred leader first."""
    target: tuple[NodeId, ...] | None
    """The nodes that it is being reassigned to, while the reassignment is in progress or queued."""
    initial_members: tuple[MemberId, ...]
    """The members when the partition was created: the first configuration of its group. Empty once the partition has
    moved: a node that gave up its replica and gets it again has lost what it confirmed, so it must not start the group
    again but wait for messages from the leader."""
    given_up: tuple[NodeId, ...] = ()
    """Nodes of targets that were replaced or cancelled after their move had begun: they may still be members of the
    group, which may even depend on their replicas."""
    begun: bool = False
    """Whether its reassignment has begun, so that its group may have changed. If not, no node has done anything for
    it."""
    moves: int = 0
    """How many times it was assigned to other nodes, or back. Never decreases."""
    arrivals: tuple[tuple[NodeId, int], ...] = ()
    """The move with which each host got its replica; hosts that had it from the start are not listed."""

    def arrival(self, node_id: NodeId) -> int:
        """The move with which a host got its replica. It is higher each time, so it is never the same twice."""
        return next((move for node, move in self.arrivals if node == node_id), 0)

    @property
    def planned(self) -> tuple[NodeId, ...]:
        """The replicas once nothing is left to be done."""
        return self.replicas if self.target is None else self.target

    @property
    def adding(self) -> tuple[NodeId, ...]:
        return tuple(node for node in self.planned if node not in self.replicas)

    @property
    def removing(self) -> tuple[NodeId, ...]:
        return tuple(node for node in self.replicas + self.given_up if node not in self.planned)

    @property
    def hosts(self) -> tuple[NodeId, ...]:
        """Every node that shall have a replica at present. A node that is not one of them may remove its files."""
        if self.target is None and not self.given_up:
            return self.replicas
        return tuple(dict.fromkeys(self.replicas + self.planned + self.given_up))

    @property
    def returns(self) -> bool:
        """Whether it shall be where it already is: nothing has to be copied, and no other move has to wait for it."""
        return set(self.planned) == set(self.replicas)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic in its present state. Replaced, never changed."""

    topic_id: TopicId
    name: str
    partitions: tuple[Assignment, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)


def check_replicas(
    brokers: Mapping[NodeId, Broker], partition: str, nodes: Sequence[NodeId], kept: Sequence[NodeId] = ()
) -> None:
    """Raise `ApiError` (INVALID_REPLICA_ASSIGNMENT) unless the replicas of `partition` can be on `nodes`.

    Nodes in `kept` have a replica already: they may be down or draining, as long as a majority is up.
    """
    strangers = [node for node in nodes if node not in brokers]
    known = [brokers[node] for node in nodes if node in brokers]
    unfit = [broker for broker in known if not broker.takes_replicas and broker.node_id not in kept]
    up = sum(not broker.fenced for broker in known)
    if not nodes:
        problem = "it is given no replicas; name at least one node"
    elif len(set(nodes)) < len(nodes):
        problem = f"{list(nodes)} names a node twice; each replica needs a node of its own"
    elif strangers:
        problem = f"there is no broker {strangers[0]}; there are {listed(brokers)}"
    elif unfit and unfit[0].fenced:
        problem = f"node {unfit[0].node_id} is down; start it, or choose another"
    elif unfit:
        problem = f"node {unfit[0].node_id} is being drained; choose another"
    elif up * 2 <= len(nodes):
        problem = f"{up} of {list(nodes)} up is no majority, so it could not have a leader; choose others"
    else:
        return
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{partition}: {problem}")


def check_new_replicas(
    brokers: Mapping[NodeId, Broker],
    name: str,
    partitions: range,
    replicas: Sequence[Sequence[NodeId]],
    replication_factor: int,
) -> None:
    """Raise `ApiError` (INVALID_REPLICA_ASSIGNMENT) unless these can be the replicas of new partitions of a topic.

    All partitions of a topic start with the same number of replicas; -1 means any number.
    """
    if len(replicas) != len(partitions):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {name!r}: replicas are given for {len(replicas)} partitions, and {len(partitions)} are to be made",
        )
    if replication_factor == -1:
        replication_factor = len(replicas[0])
    for partition, nodes in zip(partitions, replicas, strict=True):
        check_replicas(brokers, f"{name}-{partition}", nodes)
        if len(nodes) != replication_factor:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{name}-{partition} is given {len(nodes)} replicas; each partition of the topic has "
                f"{replication_factor}",
            )


def listed(nodes: Iterable[NodeId]) -> str:
    return ", ".join(str(node) for node in sorted(nodes)) or "none"
