"""Plans that balance a cluster or change the number of replicas, made from what any client can query.

The planner works on a catalog (`drmq.catalog.balance`). A client has none, but it can query the same facts: the
brokers and their racks, which of them are down, where the replicas of every partition are, and which reassignments are
in progress.

A client cannot see that a broker is about to leave. The controller moves the partitions of such a broker, and those
whose turn has not come yet look as if they were going to stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from drmq.catalog import Catalog
from drmq.catalog.balance import plan_rebalance
from drmq.catalog.records import BrokerFenced, BrokerRegistered, ReassignmentStarted, TopicCreated
from drmq.client import Broker, ClientError, Reassignment, Topic
from drmq.model import NodeId, TopicId, TopicPartition
from drmq.model.names import CLUSTER_METADATA


class PlannedMove(NamedTuple):
    """A partition whose replicas are to change nodes or order."""

    place: TopicPartition
    present: tuple[int, ...]
    replicas: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(node for node in self.replicas if node not in self.present)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(node for node in self.present if node not in self.replicas)


def plan(
    brokers: Iterable[Broker], topics: Sequence[Topic], moving: Mapping[TopicPartition, Reassignment]
) -> list[PlannedMove]:
    """Moves that balance replicas and leaders over all brokers; moves that copy data come first. Changes nothing."""
    catalog = catalog_of(brokers, topics, moving)
    present = {
        TopicPartition(topic.name, index): assignment.replicas
        for topic in catalog.topics.values()
        for index, assignment in enumerate(topic.partitions)
    }
    moves = []
    for move in plan_rebalance(catalog):
        place = TopicPartition(move.topic, move.group.partition)
        moves.append(PlannedMove(place, tuple(present[place]), tuple(move.replicas)))
    return moves


def plan_replicas(
    brokers: Iterable[Broker],
    topics: Sequence[Topic],
    moving: Mapping[TopicPartition, Reassignment],
    name: str,
    count: int,
) -> list[PlannedMove]:
    """Moves that give each partition of a topic `count` replicas. Changes nothing.

    A new replica goes to a rack that has none yet, then to the broker with the fewest replicas. Replicas are dropped in
    this order: on brokers that are down, out of sync, in the same rack as another replica, on the brokers with the most
    replicas. The first replica, which is the preferred leader, stays if possible. Raises `ClientError` if there is no
    such plan.
    """
    brokers = list(brokers)
    racks = {broker.node_id: broker.rack or f"node {broker.node_id}" for broker in brokers}
    up = {broker.node_id for broker in brokers if not broker.is_fenced}
    loads = Counter(node for topic in topics for partition in topic.partitions for node in partition.replicas)
    moves = []
    for partition in (each for topic in topics if topic.name == name for each in topic.partitions):
        place = TopicPartition(name, partition.index)
        if place in moving:
            raise ClientError(
                f"{place} is being moved", advice="Try again when `drmq cluster info` shows no moving partitions."
            )
        replicas = list(partition.replicas)
        while len(replicas) < count:
            if up.issubset(replicas):
                raise ClientError(
                    f"{place} cannot have {count} replicas: each needs its own node, and {len(up)} nodes are up",
                    advice="Add nodes first; `drmq cluster members` lists the nodes.",
                )
            replicas.append(_best_target(up.difference(replicas), replicas, racks, loads))
            loads[replicas[-1]] += 1
        while len(replicas) > count:
            dropped = _least_useful(replicas, up.intersection(partition.in_sync), up, racks, loads)
            replicas.remove(dropped)
            loads[dropped] -= 1
        if tuple(replicas) != partition.replicas:
            moves.append(PlannedMove(place, partition.replicas, tuple(replicas)))
    return moves


def _best_target(
    candidates: Iterable[int], replicas: Sequence[int], racks: Mapping[int, str], loads: Mapping[int, int]
) -> int:
    """The candidate that should get one more replica of a partition that already has these replicas."""
    crowds = Counter(racks.get(node) for node in replicas)
    return min(candidates, key=lambda node: (crowds[racks[node]], loads[node], node))


def _least_useful(
    replicas: Sequence[int],
    in_sync: Collection[int],
    up: Collection[int],
    racks: Mapping[int, str],
    loads: Mapping[int, int],
) -> int:
    """The node that should drop its replica."""
    crowds = Counter(racks.get(node) for node in replicas)
    return max(
        replicas,
        key=lambda node: (
            node not in up,
            node not in in_sync,
            node != replicas[0],
            crowds[racks.get(node)],
            loads[node],
            node,
        ),
    )


def catalog_of(
    brokers: Iterable[Broker], topics: Iterable[Topic], moving: Mapping[TopicPartition, Reassignment]
) -> Catalog:
    """A catalog with everything that responses to a client contain. The planner does not use the rest."""
    catalog = Catalog()
    for broker in brokers:
        node_id = NodeId(broker.node_id)
        host, port = broker.address
        directory_id = f"{node_id:08x}"
        catalog.replay(BrokerRegistered(node_id, 0, directory_id, host, port, host, port, broker.rack, ["broker"]))
        if broker.is_fenced:
            catalog.replay(BrokerFenced(node_id))
    for number, topic in enumerate(topics, start=1):
        if topic.name == CLUSTER_METADATA or not topic.partitions:
            continue
        # Old brokers return no topic ids, so one is made up: the planner only needs them to be distinct.
        topic_id = topic.topic_id if any(topic.topic_id) else TopicId(number.to_bytes(16, "big"))
        underway = {
            partition.index: moving[place]
            for partition in topic.partitions
            if (place := TopicPartition(topic.name, partition.index)) in moving
        }
        replicas = [
            [
                NodeId(node)
                for node in partition.replicas
                if partition.index not in underway or node not in underway[partition.index].adding
            ]
            for partition in topic.partitions
        ]
        catalog.replay(TopicCreated(topic_id, topic.name, replicas))
        for index, move in underway.items():
            catalog.replay(ReassignmentStarted(topic_id, index, [NodeId(node) for node in move.target]))
    return catalog
