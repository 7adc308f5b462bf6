"""Partitions that move, and replicas that are lost: what the catalog says about them, and their member ids."""

from __future__ import annotations

from drmq.catalog import Catalog
from drmq.model import ErrorCode, NodeId, member_id

from .clusters import add_topic, group, nodes, of, play, refusal, register, state


def test_a_reassignment_from_start_to_finish() -> None:
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2, 3], [2, 3, 4]])
    topic, moving = catalog.topic("orders"), group(catalog, "orders", 0)
    play(catalog, catalog.start_reassignment(topic, 0, nodes(4, 1, 2)))
    under_way = catalog.assignment(moving)
    assert under_way is not None
    assert (under_way.replicas, under_way.target) == ((1, 2, 3), (4, 1, 2))
    assert (under_way.adding, under_way.removing, under_way.planned) == ((4,), (3,), (4, 1, 2))
    assert catalog.reassignments == {moving: (4, 1, 2)}
    assert [moving in catalog.partitions_on(NodeId(node)) for node in (1, 2, 3, 4)] == [True] * 4
    play(catalog, catalog.finish_reassignment(topic, 0))
    through = catalog.assignment(moving)
    assert through is not None
    assert (through.replicas, through.target) == ((4, 1, 2), None)
    assert catalog.reassignments == {}
    assert [moving in catalog.partitions_on(NodeId(node)) for node in (1, 2, 3, 4)] == [True, True, False, True]


def test_reassignments_wait_for_each_other_in_order() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1], [1], [1]])
    topic = catalog.topic("orders")
    for partition in (2, 0, 1):
        play(catalog, catalog.start_reassignment(topic, partition, nodes(2)))
    play(catalog, catalog.start_reassignment(topic, 0, nodes(3)))
    assert [(each.partition, target) for each, target in catalog.reassignments.items()] == [
        (2, (2,)),
        (0, (3,)),
        (1, (2,)),
    ]
    play(catalog, catalog.cancel_reassignment(topic, 0))
    play(catalog, catalog.finish_reassignment(topic, 1))
    assert [each.partition for each in catalog.reassignments] == [2]
    assert [each.replicas for each in catalog.topic("orders").partitions] == [(1,), (2,), (1,)]


def test_who_was_to_get_a_partition_keeps_its_copy_until_the_group_has_let_go_of_it() -> None:
    """It may have moved when its reassignment is cancelled: were node 2 to remove its files, all would be lost."""
    catalog = of(4)
    add_topic(catalog, "orders", [[1], [1]])
    topic, moving = catalog.topic("orders"), group(catalog, "orders", 0)

    def hosts() -> set[int]:
        assignment = catalog.assignment(moving)
        assert assignment is not None
        return set(assignment.hosts)

    play(catalog, catalog.start_reassignment(topic, 0, nodes(2)))
    play(catalog, catalog.start_reassignment(topic, 1, nodes(2)))
    play(catalog, catalog.start_reassignment(topic, 0, nodes(3)))
    assert hosts() == {1, 2, 3}
    play(catalog, catalog.cancel_reassignment(topic, 0))
    assert hosts() == {1, 2, 3}
    restored = Catalog()
    play(restored, catalog.snapshot())
    assert state(restored) == state(catalog)
    assert catalog.cancel_reassignment(topic, 0) == []
    assert next(iter(catalog.reassignments.items())) == (moving, (1,))
    returning = catalog.assignment(moving)
    assert returning is not None
    assert (returning.adding, returning.removing) == ((), (2, 3))
    assert refusal(lambda: catalog.remove_broker(NodeId(3)))[0] is ErrorCode.REASSIGNMENT_IN_PROGRESS
    play(catalog, catalog.start_reassignment(topic, 0, nodes(2)))
    assert hosts() == {1, 2, 3}
    play(catalog, catalog.cancel_reassignment(topic, 0))
    play(catalog, catalog.finish_reassignment(topic, 0))
    assert hosts() == {1}
    assert catalog.topic("orders").partitions[0].initial_members == (1,)
    # The other has become the first, and is being carried out from now on.
    play(catalog, catalog.cancel_reassignment(topic, 1))
    assert NodeId(2) in catalog.topic("orders").partitions[1].hosts


def test_a_target_given_up_is_taken_apart_into_who_stays_and_who_goes() -> None:
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2]])
    topic = catalog.topic("orders")
    play(catalog, catalog.start_reassignment(topic, 0, nodes(1, 3)))
    play(catalog, catalog.start_reassignment(topic, 0, nodes(2, 4)))
    under_way = catalog.topic("orders").partitions[0]
    assert (under_way.adding, under_way.removing, under_way.hosts) == ((4,), (1, 3), (1, 2, 4, 3))


def test_a_reassignment_that_nobody_has_begun_is_cancelled_at_once() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1], [1]])
    topic = catalog.topic("orders")
    play(catalog, catalog.start_reassignment(topic, 0, nodes(2)))
    play(catalog, catalog.start_reassignment(topic, 1, nodes(2)))
    play(catalog, catalog.start_reassignment(topic, 1, nodes(3)))
    assert catalog.topic("orders").partitions[1].hosts == (1, 3)
    play(catalog, catalog.cancel_reassignment(topic, 1))
    assert catalog.topic("orders").partitions[1].hosts == (1,)
    assert list(catalog.reassignments) == [group(catalog, "orders", 0)]


def test_nobody_begins_a_group_that_has_moved_before() -> None:
    """A node that gave up its copy and gets it back has forgotten what it voted and confirmed."""
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2, 3]])
    topic = catalog.topic("orders")
    play(catalog, catalog.start_reassignment(topic, 0, nodes(3, 2, 1)))
    assert catalog.topic("orders").partitions[0].initial_members == (1, 2, 3)
    for target in (nodes(2, 3, 4), nodes(1, 2, 3)):
        play(catalog, catalog.start_reassignment(topic, 0, target))
        play(catalog, catalog.finish_reassignment(topic, 0))
        assert catalog.topic("orders").partitions[0].initial_members == ()


def test_a_finish_that_comes_after_another_target_was_asked_for_changes_nothing() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1]])
    topic = catalog.topic("orders")
    play(catalog, catalog.start_reassignment(topic, 0, nodes(2)))
    late = catalog.finish_reassignment(topic, 0)
    play(catalog, catalog.start_reassignment(topic, 0, nodes(3)))
    play(catalog, late)
    assert catalog.topic("orders").partitions[0].replicas == (1,)
    assert catalog.reassignments == {group(catalog, "orders", 0): (3,)}
    play(catalog, catalog.cancel_reassignment(topic, 0))
    play(catalog, late)
    assert catalog.topic("orders").partitions[0].replicas == (1,)
    assert catalog.reassignments == {group(catalog, "orders", 0): (1,)}


def test_what_needs_no_move_is_done_at_once() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1, 2, 3]])
    topic = catalog.topic("orders")
    assert catalog.start_reassignment(topic, 0, nodes(1, 2, 3)) == []
    play(catalog, catalog.start_reassignment(topic, 0, nodes(3, 1, 2)))
    assert catalog.topic("orders").partitions[0].replicas == (3, 1, 2)
    assert catalog.reassignments == {}
    play(catalog, catalog.start_reassignment(topic, 0, nodes(1)))
    assert catalog.start_reassignment(topic, 0, nodes(1)) == []
    # The same nodes as now are something else while the group is on its way: it has to return.
    play(catalog, catalog.start_reassignment(topic, 0, nodes(3, 1, 2)))
    assert catalog.reassignments == {group(catalog, "orders", 0): (3, 1, 2)}
    play(catalog, catalog.start_reassignment(topic, 0, nodes(1, 2, 3)))
    assert catalog.reassignments == {group(catalog, "orders", 0): (1, 2, 3)}


def test_a_node_that_gives_a_partition_up_and_gets_it_back_is_another_member() -> None:
    """Together with its files it lost what it had confirmed, so it must not count as the same member."""
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2], [1, 2]])
    topic = catalog.topic("orders")
    names: list[tuple[int, ...]] = []

    def note() -> None:
        present = catalog.topic("orders").partitions[0]
        again = Catalog()
        play(again, catalog.snapshot())
        names.append(again.members(again.topic("orders").partitions[0], nodes(1, 2)))
        assert names[-1] == catalog.members(present, nodes(1, 2))

    note()
    for target in ([1, 3], [1, 2], [1, 3], [2, 1], [2, 4]):
        play(catalog, catalog.start_reassignment(topic, 0, nodes(*target)))
        play(catalog, catalog.finish_reassignment(topic, 0))
        if 2 in target:
            note()
    first, second, third, stayed = (name for _, name in names)
    assert first < second < third == stayed
    assert {name for name, _ in names} == {1}
    # A new disk is a new life on top of that, and never one that was before.
    register(catalog, 2, life=1)
    note()
    assert names[-1][1] > third
    assert catalog.members(catalog.topic("orders").partitions[1], nodes(1, 2)) == (1, member_id(NodeId(2), 1))


def test_a_node_whose_copy_is_lost_is_another_member_with_its_next_one() -> None:
    """Each loss counts once, however often it is reported, and a snapshot contains it."""
    catalog = of(3)
    add_topic(catalog, "orders", [[1, 2, 3], [1, 2, 3]])
    names = set()
    for _ in range(3):
        topic = catalog.topic("orders")
        arrival = topic.partitions[0].arrival(NodeId(2))
        facts = catalog.lose_replica(topic, 0, NodeId(2), arrival)
        play(catalog, [*facts, *facts])
        assert catalog.lose_replica(catalog.topic("orders"), 0, NodeId(2), arrival) == []
        present = catalog.topic("orders").partitions[0]
        names.add(catalog.members(present, nodes(1, 2, 3)))
        again = Catalog()
        play(again, catalog.snapshot())
        assert again.topic("orders") == catalog.topic("orders")
        assert again.members(again.topic("orders").partitions[0], nodes(1, 2, 3)) in names
    assert len(names) == 3
    assert {(name[0], name[2]) for name in names} == {(1, 3)}
    assert catalog.members(catalog.topic("orders").partitions[1], nodes(1, 2, 3)) == (1, 2, 3)


def test_a_partition_does_not_get_more_replicas_with_one_on_a_node_that_is_to_go() -> None:
    """With as many replicas as there are nodes, the node could never go."""
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2, 4]])
    play(catalog, catalog.drain(NodeId(4)))
    topic = catalog.topic("orders")
    code, text = refusal(lambda: catalog.start_reassignment(topic, 0, nodes(1, 2, 3, 4)))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "node 4 is being drained" in text
    play(catalog, catalog.start_reassignment(topic, 0, nodes(2, 1, 4)))
    assert catalog.topic("orders").partitions[0].replicas == (2, 1, 4)
    play(catalog, catalog.start_reassignment(topic, 0, nodes(2, 1, 3)))
    assert catalog.reassignments == {group(catalog, "orders", 0): (2, 1, 3)}


def test_only_a_host_can_lose_its_copy() -> None:
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2, 3]])
    assert catalog.lose_replica(catalog.topic("orders"), 0, NodeId(4), 0) == []


def test_a_target_that_was_given_up_before_its_turn_is_another_member_the_next_time() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1], [1]])
    topic = catalog.topic("orders")
    play(catalog, catalog.start_reassignment(topic, 0, nodes(2)))
    names = set()
    for _ in range(3):
        play(catalog, catalog.start_reassignment(topic, 1, nodes(2)))
        names.add(catalog.members(catalog.topic("orders").partitions[1], nodes(2)))
        play(catalog, catalog.cancel_reassignment(topic, 1))
    assert len(names) == 3


def test_a_move_to_a_node_that_is_down_lets_the_others_pass() -> None:
    catalog = of(4)
    add_topic(catalog, "orders", [[1], [1], [1]])
    topic = catalog.topic("orders")
    for partition, node in enumerate([4, 3, 2]):
        play(catalog, catalog.start_reassignment(topic, partition, nodes(node)))
    first, second, third = (group(catalog, "orders", partition) for partition in range(3))
    assert catalog.active_reassignment() == first
    play(catalog, catalog.fence(NodeId(4)))
    assert catalog.active_reassignment() == second
    assert catalog.waits_for(catalog.topic("orders").partitions[0]) == (4,)
    play(catalog, catalog.fence(NodeId(1)))
    assert catalog.waits_for(catalog.topic("orders").partitions[1]) == (1,)
    assert catalog.active_reassignment() is None
    assert not catalog.topic("orders").partitions[2].begun
    play(catalog, catalog.unfence(NodeId(1)))
    # The first has begun, though it waits: its group may have changed, and has to return.
    play(catalog, catalog.cancel_reassignment(topic, 0))
    assert catalog.reassignments[first] == (1,)
    assert catalog.topic("orders").partitions[0].hosts == (1, 4)
    assert catalog.active_reassignment() == second
    play(catalog, catalog.cancel_reassignment(topic, 2))
    assert third not in catalog.reassignments
    play(catalog, catalog.finish_reassignment(topic, 0))
    assert list(catalog.reassignments) == [second]


def test_reassignments_that_cannot_be() -> None:
    catalog = of(5)
    add_topic(catalog, "orders", [[1, 2, 3]])
    topic = catalog.topic("orders")
    play(catalog, catalog.fence(NodeId(2)) + catalog.fence(NodeId(3)) + catalog.drain(NodeId(5)))

    def start(*replicas: int) -> str:
        found, text = refusal(lambda: catalog.start_reassignment(topic, 0, nodes(*replicas)))
        assert found is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return text

    assert "orders-0: it is given no replicas" in start()
    assert "names a node twice" in start(1, 1)
    assert "there is no broker 9" in start(1, 9)
    assert "node 5 is being drained" in start(1, 5)
    assert "1 of [1, 3] up is no majority" in start(1, 3)
    play(catalog, catalog.start_reassignment(topic, 0, nodes(1, 4, 3)))
    assert catalog.reassignments
    catalog = of(3)
    add_topic(catalog, "orders", [[1]])
    play(catalog, catalog.fence(NodeId(2)))
    topic = catalog.topic("orders")
    assert "node 2 is down" in start(1, 2)
    for operation in (catalog.finish_reassignment, catalog.cancel_reassignment):
        assert refusal(lambda run=operation: run(topic, 0)) == (  # type: ignore[misc]
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "orders-0 is not being reassigned",
        )
