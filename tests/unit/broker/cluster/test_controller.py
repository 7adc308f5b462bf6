"""Decisions of the controller that concern many partitions at once."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

import pytest

from drmq.broker.cluster import controller as controller_module
from drmq.broker.replication import sliced_work
from drmq.catalog import Assignment, Catalog, Move, plan_leaders, plan_rebalance_in_steps
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


def draining(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> list[list[Move]]:
    """Node 2 has 150 partitions and is to be removed. Each step of the work is a slice.

    The list gets every plan that is begun; its moves when it is ready.
    """
    monkeypatch.setattr(sliced_work, "SLICE_S", 0)
    for node_id in (2, 3, 4):
        add_node(harness, node_id)
    for name, count in (("a", 100), ("b", 50)):
        add_topic(harness, name, *[[2, 1]] * count)
    plans: list[list[Move]] = []

    def plan(catalog: Catalog) -> Generator[None, None, list[Move]]:
        plans.append([])
        mine = plans[-1]
        mine += yield from plan_rebalance_in_steps(catalog)
        return mine

    monkeypatch.setattr(controller_module, "plan_rebalance_in_steps", plan)
    # Without a turn of the loop, in which the controller may begin.
    harness.broker.metadata.append(harness.broker.catalog.drain(NodeId(2)))
    return plans


def slices(harness: Harness) -> Generator[int, None, None]:
    """Run the work slice by slice, with a round of the controller in each, until nothing changes any more."""
    catalog, controller = harness.broker.catalog, harness.broker.controller
    harness.loop.call_soon(controller._drain)
    idle = 0
    while idle < 3:
        before = len(catalog.reassignments)
        harness.loop.call_soon(controller._drain)
        harness.loop.call_soon(harness.loop.stop)
        harness.loop.run_forever()
        idle = 0 if controller._moving_away.is_busy else idle + 1
        yield len(catalog.reassignments) - before


def test_a_node_is_drained_some_partitions_at_a_time(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten thousand partitions, moving all of them at once would hold up everything else on the node."""
    plans = draining(harness, monkeypatch)
    begun = list(slices(harness))
    assert max(begun) <= 20
    assert begun.count(0) > 350, "the plan is made in steps, too"
    catalog = harness.broker.catalog
    assert sum(begun) == len(catalog.reassignments) == 150
    assert not any(2 in target for target in catalog.reassignments.values())
    assert len(plans) == 1, "rounds in between begin no other plan"


@pytest.mark.parametrize("after", [0, 40], ids=["planning", "moving"])
def test_moves_that_do_not_fit_any_more_are_left_out(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Topics are deleted, nodes go down and other moves begin while a node is drained. The rest is moved."""
    plans = draining(harness, monkeypatch)
    catalog, changed = harness.broker.catalog, False
    kept = catalog.topic("b")
    own = [(NodeId(1), NodeId(4)), (NodeId(2), NodeId(4))]
    by_user: list[GroupId] = []
    for _ in slices(harness):
        if not changed and plans and len(catalog.reassignments) >= after:
            changed = True
            harness.broker.metadata.append(catalog.delete_topic(catalog.topic("a")))
            waiting = [index for index in range(50) if GroupId(kept.topic_id, index) not in catalog.reassignments]
            by_user = [GroupId(kept.topic_id, index) for index in waiting[-2:]]
            for group, replicas in zip(by_user, own, strict=True):
                harness.broker.metadata.append(catalog.start_reassignment(kept, group.partition, replicas))
            harness.broker.metadata.append(catalog.fence(NodeId(3)))
    assert changed
    assert [catalog.reassignments[group] for group in by_user] == own
    [plan] = plans
    fitting = {move.group for move in plan if move.group.topic_id == kept.topic_id and NodeId(3) not in move.adding}
    assert 10 < len(fitting) < 40
    assert set(catalog.reassignments) == fitting.union(by_user)
    # What was left out is planned again when nothing moves.
    append(harness, catalog.unfence(NodeId(3)))
    while catalog.reassignments:
        for group in list(catalog.reassignments):
            topic = catalog.topics_by_id[group.topic_id]
            append(harness, catalog.finish_reassignment(topic, group.partition))
        list(slices(harness))
    assert catalog.partitions_on(NodeId(2)) == []


def test_a_plan_ends_with_the_reign_of_its_controller(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next controller makes its own: two plans at a time would undo each other's moves."""
    plans = draining(harness, monkeypatch)
    catalog = harness.broker.catalog
    for _ in slices(harness):
        if 0 < len(catalog.reassignments) < 40 and len(plans) == 1:
            harness.broker.controller.on_lead()
            break
    begun = len(catalog.reassignments)
    assert 0 < begun < 40
    assert sum(slices(harness)) == 0
    for group in list(catalog.reassignments):
        topic = catalog.topics_by_id[group.topic_id]
        harness.broker.metadata.append(catalog.finish_reassignment(topic, group.partition))
    assert sum(slices(harness)) == 150 - begun
    assert len(plans) == 2
