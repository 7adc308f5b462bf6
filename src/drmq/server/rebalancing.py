"""A plan for evening out a cluster, made from what any client can see of it.

The planner works on a catalog (`drmq.catalog.balance`). A client has none, but it can ask for the
same facts: which brokers there are and where they stand, which of them are down, where the replicas
of every partition are, and what is on its way already.

What a client cannot see: that a broker is about to leave. Its partitions are being moved by the
controller, and those that wait for their turn look as if they were to stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from drmq.catalog import Catalog
from drmq.catalog.balance import plan_rebalance
from drmq.catalog.records import BrokerFenced, BrokerRegistered, ReassignmentStarted, TopicCreated
from drmq.client import Broker, Reassignment, Topic
from drmq.model import NodeId, TopicId, TopicPartition
from drmq.model.names import CLUSTER_METADATA


class PlannedMove(NamedTuple):
    """One partition that is to be elsewhere, or whose replicas are to be in another order."""

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
    """What to move so that all brokers have their share, those that copy a partition first. Changes nothing."""
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


def catalog_of(
    brokers: Iterable[Broker], topics: Iterable[Topic], moving: Mapping[TopicPartition, Reassignment]
) -> Catalog:
    """A catalog as far as answers to a client tell. What they do not tell, the planner does not look at."""
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
        # A broker so old that it tells no ids gets one made up: the planner only needs them to differ.
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
