"""Where replicas go: on different brokers and racks, evenly, whatever the cluster looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drmq.catalog import Broker, Load, place
from drmq.catalog.placement import rack_of, replicas_per_rack_max, spread_firsts
from drmq.model import ApiError, ErrorCode, NodeId

from .clusters import cluster, nodes

RACKS = st.sampled_from([None, "a", "b", "c"])
LOADS = st.builds(Load, st.integers(0, 20), st.integers(0, 20))


def brokers_of(*racks: str | None) -> list[Broker]:
    return list(cluster(*racks).brokers.values())


def spread(numbers: Iterable[int]) -> int:
    found = list(numbers)
    return max(found) - min(found)


def counted(brokers: Sequence[Broker], placed: Iterable[Iterable[NodeId]]) -> dict[NodeId, int]:
    """How often each broker occurs, those that do not as well."""
    counts = Counter(node for replicas in placed for node in replicas)
    return {broker.node_id: counts[broker.node_id] for broker in brokers}


@st.composite
def questions(draw: st.DrawFn, racks: st.SearchStrategy[str | None] = RACKS) -> tuple[list[Broker], int, int]:
    """Brokers, a number of partitions and a replication factor that there are brokers enough for."""
    brokers = brokers_of(*draw(st.lists(racks, min_size=1, max_size=8)))
    down = draw(st.sets(st.sampled_from(brokers), max_size=len(brokers) - 1))
    leaving = draw(st.booleans())
    brokers = [
        replace(broker, draining=leaving, fenced=not leaving) if broker in down else broker for broker in brokers
    ]
    factor = draw(st.integers(1, len(brokers) - len(down)))
    return brokers, draw(st.integers(1, 25)), factor


def present(brokers: Sequence[Broker], loads: Sequence[Load]) -> dict[NodeId, Load]:
    return {broker.node_id: load for broker, load in zip(brokers, loads, strict=False)}


@given(questions(), st.lists(LOADS, max_size=8))
def test_each_replica_has_a_broker_of_its_own_that_is_up_and_staying(
    question: tuple[list[Broker], int, int], loads: list[Load]
) -> None:
    brokers, count, factor = question
    placed = place(brokers, count, factor, present(brokers, loads))
    usable = {broker.node_id for broker in brokers if broker.takes_replicas}
    assert len(placed) == count
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= usable
    assert placed == place(reversed(brokers), count, factor, present(brokers, loads))


@given(questions(), st.lists(LOADS, max_size=8))
def test_replicas_are_in_as_many_racks_as_there_are(question: tuple[list[Broker], int, int], loads: list[Load]) -> None:
    """One each where there are racks enough; else no rack has two more than one that had another broker to give."""
    brokers, count, factor = question
    usable = [broker for broker in brokers if broker.takes_replicas]
    sizes = Counter(rack_of(broker) for broker in usable)
    rack = {broker.node_id: rack_of(broker) for broker in usable}
    for replicas in place(brokers, count, factor, present(brokers, loads)):
        used = Counter(rack[node] for node in replicas)
        assert len(used) == min(factor, len(sizes))
        for one, other in product(sizes, sizes):
            assert used[one] <= used[other] + 1 or used[other] == sizes[other]


@given(questions(st.none()), st.lists(LOADS, max_size=8))
def test_without_racks_the_new_partitions_are_spread_evenly(
    question: tuple[list[Broker], int, int], loads: list[Load]
) -> None:
    """Whatever the brokers have already: a broker that is added empty does not get a whole topic."""
    brokers, count, factor = question
    usable = [broker for broker in brokers if broker.takes_replicas]
    placed = place(brokers, count, factor, present(brokers, loads))
    assert spread(counted(usable, placed).values()) <= 1
    assert spread(counted(usable, (replicas[:1] for replicas in placed)).values()) <= 1


@given(questions(), st.lists(LOADS, max_size=8))
@example((brokers_of("a", "b", "c", "c"), 2, 2), [])
def test_no_broker_has_more_than_racks_make_necessary(
    question: tuple[list[Broker], int, int], loads: list[Load]
) -> None:
    """A broker has two more replicas than another only if racks forbid every move of one."""
    brokers, count, factor = question
    usable = [broker for broker in brokers if broker.takes_replicas]
    placed = place(brokers, count, factor, present(brokers, loads))
    counts = counted(usable, placed)
    rack = {broker.node_id: rack_of(broker) for broker in usable}
    for giver, taker in product(counts, counts):
        if counts[giver] > counts[taker] + 1:
            for replicas in placed:
                if giver in replicas and taker not in replicas:
                    racks = Counter(rack[node] for node in replicas)
                    assert rack[giver] != rack[taker]
                    assert racks[rack[taker]] >= racks[rack[giver]]


@given(st.lists(RACKS, min_size=1, max_size=5), st.integers(1, 3), st.integers(1, 4))
def test_the_largest_share_is_as_small_as_it_can_be(racks: list[str | None], factor: int, count: int) -> None:
    """Compared with all ways there are to fill quotas that the racks allow."""
    brokers = brokers_of(*racks)
    factor = min(factor, len(brokers))
    rack = {broker.node_id: rack_of(broker) for broker in brokers}
    sizes = Counter(rack.values())
    most = replicas_per_rack_max(sizes.values(), factor)

    def allowed(replicas: Iterable[NodeId]) -> bool:
        used = Counter(rack[node] for node in replicas)
        return all(min(most - 1, size) <= used[each] <= most for each, size in sizes.items())

    ways = [each for each in combinations(rack, factor) if allowed(each)]
    reachable = {(0,) * len(brokers)}
    for _ in range(count):
        reachable = {
            tuple(total + (node in way) for total, node in zip(totals, rack, strict=True))
            for totals in reachable
            for way in ways
        }
    best = min(sorted(totals, reverse=True) for totals in reachable)
    assert sorted(counted(brokers, place(brokers, count, factor, {})).values(), reverse=True) == best


@given(st.integers(1, 6), st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=40))
def test_many_small_topics_are_even_together(broker_count: int, topics: list[tuple[int, int]]) -> None:
    """Each placement continues from the present load."""
    brokers = brokers_of(*[None] * broker_count)
    placed: list[list[NodeId]] = []
    for count, factor in topics:
        replicas, firsts = counted(brokers, placed), counted(brokers, (each[:1] for each in placed))
        loads = {node: Load(replicas[node], firsts[node]) for node in replicas}
        placed += place(brokers, count, min(factor, broker_count), loads)
    assert spread(counted(brokers, placed).values()) <= 1


@pytest.mark.parametrize("broker_count", [3, 5, 7])
def test_leading_is_shared_among_many_small_topics(broker_count: int) -> None:
    """Not quite evenly, since each topic is placed without moving others; but the difference does not grow."""
    brokers = brokers_of(*[None] * broker_count)
    placed: list[list[NodeId]] = []
    for _ in range(300):
        replicas, firsts = counted(brokers, placed), counted(brokers, (each[:1] for each in placed))
        placed += place(brokers, 1, 3, {node: Load(replicas[node], firsts[node]) for node in replicas})
    assert spread(counted(brokers, (each[:1] for each in placed)).values()) <= 2


def test_a_broker_that_has_less_gets_what_is_odd() -> None:
    brokers = brokers_of(None, None, None)
    loads = {NodeId(1): Load(9, 3), NodeId(2): Load(2, 2), NodeId(3): Load(9, 2)}
    assert place(brokers, 1, 1, loads) == [[2]]
    assert counted(brokers, place(brokers, 4, 1, loads)) == {1: 1, 2: 2, 3: 1}
    assert place(brokers, 1, 3, loads)[0][0] in (2, 3)


def test_the_other_replicas_of_a_brokers_partitions_are_on_many() -> None:
    """When it fails, not one other broker has all of its work."""
    placed = place(brokers_of(*[None] * 6), 60, 3, {})
    together = Counter(frozenset(pair) for replicas in placed for pair in combinations(replicas, 2))
    assert len(together) == 15
    assert max(together.values()) < 30


def test_a_thousand_partitions_on_three_racks() -> None:
    brokers = brokers_of(*"aabbcc")
    placed = place(brokers, 1_000, 3, {})
    assert spread(counted(brokers, placed).values()) == 0
    assert spread(counted(brokers, (replicas[:1] for replicas in placed)).values()) <= 1
    assert all({(node - 1) // 2 for node in replicas} == {0, 1, 2} for replicas in placed)


@pytest.mark.parametrize("factor", [0, 3])
def test_more_replicas_than_brokers_are_refused(factor: int) -> None:
    with pytest.raises(ApiError) as caught:
        place(brokers_of(None, "a"), 1, factor, {})
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


# ---- first replicas ---------------------------------------------------------------------------------

PARTITIONS = st.lists(st.lists(st.integers(1, 4).map(NodeId), min_size=1, max_size=3, unique=True), max_size=6)


@given(PARTITIONS)
def test_no_choice_of_first_replicas_is_more_even(partitions: list[list[NodeId]]) -> None:
    chosen = spread_firsts(partitions, dict.fromkeys(nodes(1, 2, 3, 4), 0))
    assert all(first in replicas for first, replicas in zip(chosen, partitions, strict=True))

    def unevenness(firsts: Iterable[NodeId]) -> int:
        return sum(count**2 for count in Counter(firsts).values())

    assert unevenness(chosen) == min(map(unevenness, product(*partitions)))


@given(PARTITIONS, st.sets(st.integers(1, 4).map(NodeId)))
def test_first_replicas_change_only_for_more_evenness(
    partitions: list[list[NodeId]], counted_nodes: set[NodeId]
) -> None:
    """What is even stays; a first that does not count is neither taken away nor given."""
    load = dict.fromkeys(counted_nodes, 0)
    firsts = [replicas[0] for replicas in partitions]
    chosen = spread_firsts(partitions, load, firsts)
    assert spread_firsts(partitions, load, chosen) == chosen
    for before, after in zip(firsts, chosen, strict=True):
        assert before == after or {before, after} <= counted_nodes
