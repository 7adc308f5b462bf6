"""Decisions of the controller that concern many partitions at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from drmq.broker.cluster import controller as controller_module
from drmq.catalog import Assignment, plan_leaders
from drmq.model import GroupId, NodeId
from drmq.transport.peers import LeaderNotice
from support.broker_harness import Harness
from support.other_nodes import add_node, add_topic, append


def test_leadership_returns_to_preferred_replicas_some_at_a_time(harness: Harness) -> None:
    """Each transfer is an election. Thousands at once would keep all nodes from anything else."""
    add_node(harness, 2)
    topic = add_topic(harness, "orders", *[[2, 1]] * 250)
    controller, elected = harness.broker.controller, list[GroupId]()
    controller.elect = lambda group, node_id: elected.append(group)

    def lead(node_id: int, term: int, indexes: Iterable[int]) -> None:
        nodes = (NodeId(1), NodeId(2))
        harness.broker.host.on_notices(
            LeaderNotice(GroupId(topic.topic_id, index), term, NodeId(node_id), 1, nodes) for index in indexes
        )

    def balance() -> int:
        elected.clear()
        controller._balance()
        return len(elected)

    lead(1, 7, range(250))
    controller._balance_at_ms = 0
    assert balance() == 100
    lead(2, 8, [249])  # by itself meanwhile, so it need not be asked to
    assert balance() == 100
    assert balance() == 49
    assert balance() == 0


def test_leaders_are_compared_some_at_a_time(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten thousand partitions, comparing all of them at once would hold up everything else on the node."""
    monkeypatch.setattr(controller_module, "_COMPARED_PER_ROUND", 40)
    add_node(harness, 2)
    topics = [add_topic(harness, name, *[[2, 1]] * count) for name, count in (("a", 100), ("b", 5), ("c", 5))]
    groups = [GroupId(topic.topic_id, index) for topic in topics for index in range(topic.partition_count)]
    nodes = (NodeId(1), NodeId(2))
    harness.broker.host.on_notices(LeaderNotice(group, 7, NodeId(1), 1, nodes) for group in groups)
    controller, compared = harness.broker.controller, list[int]()

    def plan(assignments: Mapping[GroupId, Assignment], *others: Any) -> list[tuple[GroupId, NodeId]]:
        compared[-1] += len(assignments)
        return plan_leaders(assignments, *others)

    monkeypatch.setattr(controller_module, "plan_leaders", plan)
    elected: list[GroupId] = []
    controller.elect = lambda group, node_id: elected.append(group)
    controller._balance_at_ms = 0
    for number in range(5):
        compared.append(0)
        controller._balance()
        if number == 1:
            append(harness, harness.broker.catalog.delete_topic(topics[1]))
    assert all(count <= 40 for count in compared), compared
    assert compared[-1] == 0, "until the next time"
    assert set(elected) == {group for group in groups if group.topic_id != topics[1].topic_id}
    assert len(elected) == 105
