"""A request that would give a node more replicas than it can carry is refused, with the limit and the way out."""

from __future__ import annotations

import pytest

from drmq.catalog import Catalog, Fact, check_capacity
from drmq.model import ErrorCode

from .clusters import add_topic, an_id, nodes, of, refusal


@pytest.fixture
def catalog() -> Catalog:
    """Three nodes, and a topic of four partitions on the first two."""
    catalog = of(3)
    add_topic(catalog, "orders", [[1, 2]] * 4)
    return catalog


def refused(catalog: Catalog, facts: list[Fact], replicas_max: int) -> str:
    code, message = refusal(lambda: check_capacity(catalog, facts, replicas_max))
    assert code is ErrorCode.POLICY_VIOLATION
    return message


def test_a_topic_that_fits_is_allowed_and_one_more_partition_is_not(catalog: Catalog) -> None:
    fits = catalog.create_topic("more", an_id(9), 6, {}, internal=False, replicas=[nodes(1)] * 6)
    check_capacity(catalog, fits, 10)
    message = refused(catalog, fits, 9)
    assert message.startswith("node 1 has 4 replicas of partitions and would get 6 more, but a node may have 9")
    assert "replicas_max" in message
    assert "add nodes" in message


def test_partitions_that_are_added_count(catalog: Catalog) -> None:
    facts = catalog.add_partitions("orders", 6, [nodes(1, 2)] * 2)
    check_capacity(catalog, facts, 6)
    assert "node 1" in refused(catalog, facts, 5)


def test_a_move_counts_for_the_nodes_that_get_a_replica(catalog: Catalog) -> None:
    topic = catalog.topic("orders")
    check_capacity(catalog, catalog.start_reassignment(topic, 0, nodes(2, 3)), 1)
    refused(catalog, catalog.start_reassignment(topic, 0, nodes(1, 3)), 0)
    # Nothing moves: also allowed on nodes that have too many.
    check_capacity(catalog, catalog.start_reassignment(topic, 0, nodes(2, 1)), 1)
