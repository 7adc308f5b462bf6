"""Catalogs to test with: some brokers, some topics, and facts played as a driver would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from drmq.catalog import Catalog, Fact
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, TopicId


def an_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def nodes(*numbers: int) -> list[NodeId]:
    return [NodeId(number) for number in numbers]


def play(catalog: Catalog, facts: Iterable[Fact]) -> None:
    for fact in facts:
        catalog.replay(fact)


def register(
    catalog: Catalog,
    node: int,
    rack: str | None = None,
    *,
    life: int = 0,
    port: int = 9_092,
    starts: int = 0,
    boot_id: str = "",
) -> list[Fact]:
    """Register a node with the data directory of incarnation `life`; returns the facts, which are replayed already."""
    facts = catalog.register_broker(
        NodeId(node),
        f"{node:08x}{life:08x}",
        host=f"host-{node}",
        port=port,
        peer_host=f"host-{node}",
        peer_port=port + 1_000,
        rack=rack,
        starts=starts,
        boot_id=boot_id,
    )
    play(catalog, facts)
    return facts


def cluster(*racks: str | None) -> Catalog:
    """A catalog with as many brokers, numbered from 1, each in the rack given."""
    catalog = Catalog()
    play(catalog, catalog.create_cluster("test"))
    for node, rack in enumerate(racks, 1):
        register(catalog, node, rack)
    return catalog


def of(count: int) -> Catalog:
    """A cluster of brokers that say nothing of racks."""
    return cluster(*[None] * count)


def add_topic(catalog: Catalog, name: str, replicas: Sequence[Sequence[int]]) -> None:
    """Create a topic with given replicas."""
    number = len(catalog.topics) + len(catalog.deleted) + 1
    given = [nodes(*each) for each in replicas]
    play(catalog, catalog.create_topic(name, an_id(number), len(given), {}, internal=False, replicas=given))


def group(catalog: Catalog, name: str, partition: int) -> GroupId:
    return GroupId(catalog.topic(name).topic_id, partition)


def refusal(operation: Callable[[], object]) -> tuple[ErrorCode, str]:
    """The code and the text that an operation is refused with."""
    with pytest.raises(ApiError) as caught:
        operation()
    return caught.value.code, caught.value.message


def state(catalog: Catalog) -> tuple[object, ...]:
    """All that a catalog knows, and what it answers from its index."""
    return (
        catalog.cluster_id,
        catalog.brokers,
        catalog.former_brokers,
        catalog.topics,
        catalog.topics_by_id,
        list(catalog.deleted.items()),
        list(catalog.reassignments.items()),
        catalog.next_producer_id,
        catalog.broker_configs,
        catalog.loads(),
        [sorted(catalog.partitions_on(NodeId(node))) for node in range(7)],
    )
