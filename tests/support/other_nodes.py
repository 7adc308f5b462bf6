"""Nodes that a harness's broker has only heard of: in its catalog, and as leaders of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from drmq.catalog import Fact, Topic
from drmq.model import GroupId, NodeId
from drmq.transport.peers import LeaderNotice, NoNetwork
from support.broker_harness import Harness


class Heard(NoNetwork):
    """A network in which nodes are heard, and nothing reaches them."""

    def __init__(self) -> None:
        self.up: set[NodeId] = set()

    def is_up(self, node_id: NodeId) -> bool:
        return node_id in self.up


def heard(harness: Harness) -> set[NodeId]:
    """The nodes that are up, as far as the broker knows; tests change it."""
    if not isinstance(harness.broker.network, Heard):
        harness.broker.network = Heard()
    return harness.broker.network.up


def add_node(
    harness: Harness, node_id: int, rack: str | None = None, roles: Sequence[str] = ("broker", "controller")
) -> None:
    """A node that has registered and is heard, and does nothing."""
    heard(harness).add(NodeId(node_id))
    facts = harness.broker.catalog.register_broker(
        NodeId(node_id),
        directory_id(node_id).hex(),
        host=f"node-{node_id}",
        port=9092,
        peer_host=f"node-{node_id}",
        peer_port=10092,
        rack=rack,
        roles=roles,
    )
    append(harness, facts)


def directory_id(node_id: int) -> bytes:
    return node_id.to_bytes(16, "big")


def append(harness: Harness, facts: Sequence[Fact]) -> None:
    """Make facts true."""
    harness.call(lambda: harness.broker.metadata.append(facts))


def add_topic(harness: Harness, name: str, *replicas: Sequence[int], is_new: bool = False) -> Topic:
    """A topic whose partitions are on these nodes, whether these exist or not. Answers wait for a new one."""
    nodes = [[NodeId(node_id) for node_id in each] for each in replicas]
    topic_id = harness.broker.new_topic_id()
    catalog = harness.broker.catalog
    append(harness, catalog.create_topic(name, topic_id, len(nodes), {}, internal=False, replicas=nodes))
    if not is_new:
        harness.call(harness.broker.new_partitions.begin)
    return harness.broker.catalog.topic(name)


def announce(harness: Harness, topic: str, leader: int, in_sync: Sequence[int], term: int = 7, index: int = 0) -> None:
    """A node says that it leads a partition."""
    group = GroupId(harness.broker.catalog.topic(topic).topic_id, index)
    nodes = tuple(NodeId(node_id) for node_id in in_sync)
    notice = LeaderNotice(group, term, NodeId(leader), 1, nodes)
    harness.call(lambda: harness.broker.host.on_notices([notice]))
