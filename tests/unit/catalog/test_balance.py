"""Evening out: everything ends where it should, with as few copies as that takes."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from drmq.catalog import Assignment, BrokerDraining, BrokerFenced, Catalog, Move, plan_leaders, plan_rebalance
from drmq.catalog.placement import rack_of
from drmq.model import GroupId, MemberId, NodeId

from .clusters import add_topic, an_id, cluster, group, nodes, of, play, register

RACKS = st.sampled_from([None, "a", "b", "c"])


@st.composite
def catalogs(draw: st.DrawFn, racks: st.SearchStrategy[str | None] = RACKS, *, troubled: bool = False) -> Catalog:
    """A cluster with topics that lie anyhow. In a troubled one brokers are down or leaving, and moves have begun."""
    catalog = cluster(*draw(st.lists(racks, min_size=1, max_size=6)))
    everyone = list(catalog.brokers)
    lists = st.permutations(everyone).flatmap(lambda order: st.integers(1, 3).map(lambda factor: order[:factor]))
    for number in range(draw(st.integers(0, 4))):
        factor = draw(st.integers(1, min(3, len(everyone))))
        given_lists = st.permutations(everyone).map(lambda order, factor=factor: order[:factor])  # type: ignore[misc]
        add_topic(catalog, f"t{number}", draw(st.lists(given_lists, min_size=1, max_size=8)))
    if troubled:
        for topic in catalog.topics.values():
            for partition in draw(st.sets(st.integers(0, topic.partition_count - 1), max_size=2)):
                play(catalog, catalog.start_reassignment(topic, partition, draw(lists)))
        play(catalog, map(BrokerFenced, draw(st.sets(st.sampled_from(everyone)))))
        play(catalog, map(BrokerDraining, draw(st.sets(st.sampled_from(everyone)))))
    return catalog


def carry_out(catalog: Catalog, moves: list[Move]) -> None:
    """Start all moves and finish them."""
    for move in moves:
        topic = catalog.topic(move.topic)
        play(catalog, catalog.start_reassignment(topic, move.group.partition, move.replicas))
        if move.group in catalog.reassignments:
            play(catalog, catalog.finish_reassignment(topic, move.group.partition))


def replicas_by_node(catalog: Catalog) -> Counter[NodeId]:
    return Counter(node for each in catalog.assignments().values() for node in each.replicas)


def firsts_by_node(catalog: Catalog) -> Counter[NodeId]:
    return Counter(each.replicas[0] for each in catalog.assignments().values())


def spread(catalog: Catalog, counts: Counter[NodeId]) -> int:
    """By how much the usable broker with most differs from the one with least."""
    usable = [counts[node] for node, broker in catalog.brokers.items() if broker.takes_replicas]
    return max(usable) - min(usable)


def fewest_copies(counts: Counter[NodeId], brokers: int) -> int:
    """What all brokers have above an even share together; those with most may have the odd ones."""
    share, odd = divmod(counts.total(), brokers)
    most = sorted((counts[node] for node in counts), reverse=True)
    return sum(max(0, count - share - (place < odd)) for place, count in enumerate(most))


@given(catalogs(racks=st.none()))
def test_without_racks_all_is_even_after_the_fewest_copies(catalog: Catalog) -> None:
    moves = plan_rebalance(catalog)
    assert sum(len(move.adding) for move in moves) == fewest_copies(replicas_by_node(catalog), len(catalog.brokers))
    carry_out(catalog, moves)
    assert spread(catalog, replicas_by_node(catalog)) <= 1
    assert plan_rebalance(catalog) == []


@given(catalogs(troubled=True))
@example(of(1))
def test_a_plan_can_be_carried_out_and_then_there_is_nothing_left_to_do(catalog: Catalog) -> None:
    """In any cluster: each move is accepted, leaves alone what is under way, and keeps the number of replicas."""
    moves = plan_rebalance(catalog)
    for move in moves:
        before = catalog.assignment(move.group)
        assert before is not None
        assert before.target is None
        assert len(set(move.replicas)) == len(before.replicas)
        assert move.adding == tuple(node for node in move.replicas if node not in before.replicas)
        assert all(catalog.brokers[node].takes_replicas for node in move.adding)
        gone = [node for node in before.replicas if node not in move.replicas]
        assert not any(catalog.brokers[node].fenced and not catalog.brokers[node].draining for node in gone)
    assert len({move.group for move in moves}) == len(moves)
    carry_out(catalog, moves)
    assert plan_rebalance(catalog) == []


@given(catalogs(troubled=True))
def test_nothing_that_can_leave_stays_on_a_draining_broker(catalog: Catalog) -> None:
    carry_out(catalog, plan_rebalance(catalog))
    usable = {node for node, broker in catalog.brokers.items() if broker.takes_replicas}
    for each in catalog.assignments().values():
        up = sum(not catalog.brokers[node].fenced for node in each.replicas)
        if each.target is None and up * 2 > len(each.replicas):
            draining = any(catalog.brokers[node].draining for node in each.replicas)
            assert not draining or usable <= set(each.replicas)


@given(catalogs())
def test_racks_are_used_as_far_as_they_go(catalog: Catalog) -> None:
    """Afterwards each partition is in as many racks as it has replicas, or as there are racks."""
    carry_out(catalog, plan_rebalance(catalog))
    rack = {node: rack_of(broker) for node, broker in catalog.brokers.items()}
    for each in catalog.assignments().values():
        assert len({rack[node] for node in each.replicas}) == min(len(each.replicas), len(set(rack.values())))


@given(catalogs())
def test_a_broker_has_more_than_others_only_where_racks_want_it(catalog: Catalog) -> None:
    carry_out(catalog, plan_rebalance(catalog))
    counts, rack = replicas_by_node(catalog), {node: rack_of(broker) for node, broker in catalog.brokers.items()}
    for giver in catalog.brokers:
        for taker in catalog.brokers:
            if counts[giver] > counts[taker] + 1:
                for each in catalog.assignments().values():
                    if giver in each.replicas and taker not in each.replicas:
                        racks = Counter(rack[node] for node in each.replicas)
                        assert rack[giver] != rack[taker]
                        assert racks[rack[taker]] >= racks[rack[giver]]


def test_a_new_broker_gets_its_share_of_every_topic() -> None:
    catalog = of(3)
    for number in range(4):
        add_topic(catalog, f"t{number}", [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]])
    register(catalog, 4)
    moves = plan_rebalance(catalog)
    assert sum(len(move.adding) for move in moves) == 12
    assert Counter(move.topic for move in moves if move.adding) == {f"t{number}": 3 for number in range(4)}
    carry_out(catalog, moves)
    assert set(replicas_by_node(catalog).values()) == {12}
    assert set(firsts_by_node(catalog).values()) == {4}


def test_a_broker_that_is_drained_is_empty_afterwards_and_can_go() -> None:
    catalog = of(4)
    play(catalog, catalog.create_topic("orders", an_id(1), 20, {}, internal=False))
    play(catalog, catalog.drain(NodeId(2)))
    moves = plan_rebalance(catalog)
    assert len(moves) >= 15
    assert all(len(move.adding) <= 1 for move in moves)
    carry_out(catalog, moves)
    assert catalog.partitions_on(NodeId(2)) == []
    assert set(replicas_by_node(catalog).values()) == {20}
    play(catalog, catalog.remove_broker(NodeId(2)))


def test_a_dead_broker_that_is_drained_is_replaced() -> None:
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2, 3]] * 3)
    play(catalog, catalog.fence(NodeId(1)))
    assert not any(move.adding for move in plan_rebalance(catalog) if 1 not in move.replicas)
    play(catalog, catalog.drain(NodeId(1)))
    carry_out(catalog, plan_rebalance(catalog))
    assert {frozenset(each.replicas) for each in catalog.assignments().values()} == {frozenset(nodes(2, 3, 4))}


def test_moves_off_draining_brokers_come_first_and_mere_changes_of_order_last() -> None:
    catalog = of(4)
    add_topic(catalog, "crowded", [[1, 2]] * 8)
    add_topic(catalog, "leaving", [[4]])
    play(catalog, catalog.drain(NodeId(4)))
    moves = plan_rebalance(catalog)
    assert moves[0].topic == "leaving"
    kinds = [bool(move.adding) for move in moves]
    assert kinds == sorted(kinds, reverse=True)
    assert len(set(kinds)) == 2


def test_leading_is_evened_out_without_copies() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1, 2, 3]] * 9)
    moves = plan_rebalance(catalog)
    assert len(moves) == 6
    assert not any(move.adding for move in moves)
    carry_out(catalog, moves)
    assert firsts_by_node(catalog) == {1: 3, 2: 3, 3: 3}


def test_leaders_of_partitions_under_way_count() -> None:
    """Node 2 will lead both that move to it, so it is even that node 1 leads the others."""
    catalog = of(2)
    add_topic(catalog, "moving", [[1], [1]])
    add_topic(catalog, "orders", [[1, 2], [1, 2]])
    for partition in range(2):
        play(catalog, catalog.start_reassignment(catalog.topic("moving"), partition, nodes(2)))
    assert plan_rebalance(catalog) == []


def test_partitions_without_a_majority_are_left_alone() -> None:
    """They cannot agree on a move."""
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2, 3]] * 3)
    play(catalog, catalog.fence(NodeId(1)) + catalog.fence(NodeId(2)))
    play(catalog, [BrokerDraining(NodeId(1))])
    assert plan_rebalance(catalog) == []


def test_where_racks_forbid_the_direct_way_there_is_one_around() -> None:
    """Broker 1 can give nothing to 4, which shares a rack with 2; but to 3, and 3 can give to 4."""
    catalog = cluster("a", "b", "c", "b")
    add_topic(catalog, "pairs", [[1, 2], [1, 2], [1, 2], [1, 4]])
    add_topic(catalog, "singles", [[4], [3], [3], [3]])
    assert replicas_by_node(catalog) == {1: 4, 2: 3, 3: 3, 4: 2}
    moves = plan_rebalance(catalog)
    assert sum(len(move.adding) for move in moves) == 2
    carry_out(catalog, moves)
    assert set(replicas_by_node(catalog).values()) == {3}


# ---- leaders ----------------------------------------------------------------------------------------


def assigned(*replicas: int, target: list[NodeId] | None = None) -> Assignment:
    members = tuple(MemberId(node) for node in nodes(*replicas))
    return Assignment(tuple(nodes(*replicas)), None if target is None else tuple(target), members)


def at(partition: int) -> GroupId:
    return GroupId(an_id(1), partition)


def test_leaders_are_handed_to_preferred_replicas_that_are_up() -> None:
    assignments = {
        at(0): assigned(1, 2, 3),
        at(1): assigned(2, 3, 1),
        at(2): assigned(3, 1, 2),
        at(3): assigned(1, 2, 3),
        at(4): assigned(1, 2, 3),
        at(5): assigned(1, 2, target=nodes(2, 3)),
        at(6): assigned(2),
    }
    leaders = {at(0): 1, at(1): 1, at(2): 1, at(3): -1, at(5): 2, at(6): 1, at(9): 1}
    known = {group: NodeId(leader) for group, leader in leaders.items()}
    assert plan_leaders(assignments, known, nodes(1, 2)) == [(at(1), 2), (at(6), 2)]
    assert plan_leaders(assignments, known, nodes(3)) == [(at(2), 3)]


def test_when_all_preferred_replicas_lead_there_is_nothing_to_hand_over() -> None:
    catalog = of(3)
    play(catalog, catalog.create_topic("orders", an_id(1), 7, {}, internal=False))
    leaders = {each: assignment.replicas[0] for each, assignment in catalog.assignments().items()}
    assert plan_leaders(catalog.assignments(), leaders, list(catalog.brokers)) == []
    moved = leaders | {group(catalog, "orders", 4): NodeId(9)}
    assert plan_leaders(catalog.assignments(), moved, list(catalog.brokers)) == [
        (group(catalog, "orders", 4), leaders[group(catalog, "orders", 4)])
    ]
