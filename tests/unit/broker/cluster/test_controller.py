"""Decisions of the controller that concern many partitions at once."""

from __future__ import annotations

from collections.abc import Iterable

from drmq.model import GroupId, NodeId
from drmq.transport.peers import LeaderNotice
from support.broker_harness import Harness
from support.other_nodes import add_node, add_topic


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
