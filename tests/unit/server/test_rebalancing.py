"""A plan from what a client sees is the plan that the catalog itself would make."""

import pytest

from drmq.catalog.balance import plan_rebalance
from drmq.client import Broker, ClientError, Partition, Reassignment, Topic
from drmq.model import NO_TOPIC_ID, TopicPartition
from drmq.model.address import Address
from drmq.server.rebalancing import PlannedMove, catalog_of, plan, plan_replicas

from ..catalog.clusters import add_topic, an_id, cluster, group


def broker(node_id: int, rack: str | None = None, *, fenced: bool = False) -> Broker:
    return Broker(node_id, Address(f"host-{node_id}", 9092), rack, is_fenced=fenced, is_controller=node_id == 1)


def topic(name: str, *replicas: tuple[int, ...], number: int = 1) -> Topic:
    partitions = [Partition(index, nodes[0], 1, nodes, nodes) for index, nodes in enumerate(replicas)]
    return Topic(name, an_id(number), False, tuple(partitions))


def test_even_cluster_needs_nothing() -> None:
    """Three brokers that each lead one partition of three."""
    brokers = [broker(1), broker(2), broker(3)]
    assert plan(brokers, [topic("a", (1, 2, 3), (2, 3, 1), (3, 1, 2))], {}) == []


def test_new_broker_gets_its_share() -> None:
    """Replicas move to it, and the moves that copy come before those that change the order."""
    brokers = [broker(node_id) for node_id in (1, 2, 3, 4)]
    moves = plan(brokers, [topic("a", *[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4)], {})
    assert sum(move.adding == (4,) for move in moves) == 9
    copies = [bool(move.adding) for move in moves]
    assert copies == sorted(copies, reverse=True)
    for move in moves:
        assert len(move.replicas) == 3
        assert set(move.present) - set(move.removing) | set(move.adding) == set(move.replicas)


def test_leaders_are_spread_without_copies() -> None:
    """All partitions led by one broker: the order changes, and nothing is copied."""
    brokers = [broker(1), broker(2), broker(3)]
    moves = plan(brokers, [topic("a", (1, 2, 3), (1, 2, 3), (1, 2, 3))], {})
    assert [move.adding for move in moves] == [(), ()]
    assert {move.replicas[0] for move in moves} == {2, 3}


def test_plan_is_that_of_the_catalog() -> None:
    """Racks, a broker that is down and several topics: the same moves as from the catalog that has it all."""
    racks = ["a", "a", "b", "c"]
    catalog = cluster(*racks)
    replicas = [[1, 2], [1, 2], [2, 3], [1, 3]]
    add_topic(catalog, "one", replicas)
    add_topic(catalog, "two", [[1, 3], [3, 4]])
    expected = [
        PlannedMove(
            TopicPartition(move.topic, move.group.partition),
            tuple(catalog.topic(move.topic).partitions[move.group.partition].replicas),
            tuple(move.replicas),
        )
        for move in plan_rebalance(catalog)
    ]
    assert expected
    seen = [topic("one", *map(tuple, replicas), number=1), topic("two", (1, 3), (3, 4), number=2)]
    assert plan([broker(node_id, rack) for node_id, rack in enumerate(racks, 1)], seen, {}) == expected


def test_what_moves_already_is_left_alone() -> None:
    """Its replicas are the old and the new; only the old ones count, and the plan has no second move for it."""
    brokers = [broker(node_id) for node_id in (1, 2, 3, 4)]
    seen = [topic("a", (1, 2, 3, 4), (1, 2, 3))]
    moving = {TopicPartition("a", 0): Reassignment((1, 2, 3, 4), adding=(4,), removing=(1,))}
    catalog = catalog_of(brokers, seen, moving)
    assignment = catalog.assignment(group(catalog, "a", 0))
    assert assignment is not None
    assert (assignment.replicas, assignment.planned) == ((1, 2, 3), (2, 3, 4))
    assert all(move.place != TopicPartition("a", 0) for move in plan(brokers, seen, moving))


def test_broker_that_is_down_gets_nothing() -> None:
    """And keeps what it has: whether it comes back is not for a plan to decide."""
    brokers = [broker(1), broker(2), broker(3, fenced=True), broker(4)]
    moves = plan(brokers, [topic("a", *[(1, 2)] * 6, (3, 1, 2))], {})
    assert moves
    assert all(3 not in move.adding and 3 not in move.removing for move in moves)


def test_metadata_and_broken_topics_are_left_out() -> None:
    """The metadata's partition is not moved like others; a topic without partitions has nothing to move."""
    broken = Topic("broken", NO_TOPIC_ID, False, ())
    assert catalog_of([broker(1)], [topic("__cluster_metadata", (1,)), broken], {}).topics == {}


def test_topics_of_a_broker_that_tells_no_ids() -> None:
    """They are told apart all the same."""
    seen = [Topic(name, NO_TOPIC_ID, False, topic(name, (1,), (1,)).partitions) for name in ("a", "b")]
    assert len(catalog_of([broker(1), broker(2)], seen, {}).assignments()) == 4


# ---- more or fewer replicas -----------------------------------------------------------------------


def targets(moves: list[PlannedMove]) -> dict[int, tuple[int, ...]]:
    return {move.place.partition: move.replicas for move in moves}


def test_more_replicas_go_where_there_are_few() -> None:
    """A topic that was made on one node gets copies on the others, evenly, and is led as before."""
    brokers = [broker(node_id) for node_id in (1, 2, 3, 4)]
    seen = [topic("a", (1,), (1,), (1,), number=1), topic("b", (4,), (4,), number=2)]
    assert targets(plan_replicas(brokers, seen, {}, "a", 2)) == {0: (1, 2), 1: (1, 3), 2: (1, 2)}
    full = plan_replicas(brokers, seen, {}, "a", 4)
    assert [(move.place.topic, set(move.replicas), move.replicas[0]) for move in full] == [("a", {1, 2, 3, 4}, 1)] * 3


def test_new_replicas_stand_in_other_racks() -> None:
    """Also where a node in the same rack has less to do; and never on one that is not there."""
    brokers = [broker(1, "x"), broker(2, "x"), broker(3, "y"), broker(4, "z", fenced=True)]
    seen = [topic("a", (1,)), topic("b", (3,), (3,), number=2)]
    assert targets(plan_replicas(brokers, seen, {}, "a", 2)) == {0: (1, 3)}
    with pytest.raises(ClientError, match="a-0 cannot have 4 replicas"):
        plan_replicas(brokers, seen, {}, "a", 4)


def test_fewer_replicas_keep_the_most_useful() -> None:
    """Who is not there goes first, then who is behind, then who shares a rack; who leads stays if it can."""
    brokers = [broker(1, "x"), broker(2, "y"), broker(3, "x"), broker(4, "z", fenced=True)]
    behind = Partition(3, 1, 1, (1, 2, 3), (1, 3))
    found = topic("a", (1, 2, 3), (4, 2, 1), (1, 2))
    seen = [Topic("a", found.topic_id, False, (*found.partitions, behind))]
    assert targets(plan_replicas(brokers, seen, {}, "a", 2)) == {0: (1, 2), 1: (2, 1), 3: (1, 3)}
    assert targets(plan_replicas(brokers, seen, {}, "a", 1)) == {0: (1,), 1: (2,), 2: (1,), 3: (1,)}


def test_replicas_that_are_as_many_as_wanted_stay() -> None:
    """And what is on its way is not planned over."""
    brokers = [broker(1), broker(2), broker(3)]
    seen = [topic("a", (1, 2))]
    assert plan_replicas(brokers, seen, {}, "a", 2) == []
    moving = {TopicPartition("a", 0): Reassignment((1, 2, 3), adding=(3,), removing=(1,))}
    with pytest.raises(ClientError, match="a-0 is being moved"):
        plan_replicas(brokers, seen, moving, "a", 3)
