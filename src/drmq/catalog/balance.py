"""Balancing existing partitions: which replicas to move, and which leaders to transfer. Pure.

`plan_rebalance` examines the whole catalog and returns the reassignments after which

1. no replica is left on a draining broker;
2. the replicas of a partition are spread over as many racks as possible;
3. all brokers have the same number of replicas, plus or minus one, as far as the racks allow;
4. all brokers are the first replica of the same number of partitions, so that leadership is spread too.

A move copies a partition over the network, so the plan has as few moves as these goals need: a replica that can stay
stays, and the fourth goal only changes the order of replicas, which copies nothing. Brokers that are down keep their
replicas and get no new ones; an operator who knows that a broker will not return drains it. Partitions that are already
being reassigned, or have no majority up to agree on a move, are counted but not moved.

`plan_leaders` compares the present leaders with the preferred ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping
from typing import NamedTuple

from drmq.catalog.brokers import Broker
from drmq.catalog.catalog import Catalog
from drmq.catalog.placement import at_once, rack_of, spread_firsts_in_steps
from drmq.catalog.topics import Assignment
from drmq.model import GroupId, NodeId, TopicId


class Move(NamedTuple):
    """One reassignment to start."""

    topic: str
    group: GroupId
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    """Nodes that get a new replica. If there are none, only the order of the replicas changes."""


class _Step(NamedTuple):
    """The move of a replica from one broker to another."""

    group: GroupId
    giver: NodeId
    taker: NodeId


def plan_rebalance(catalog: Catalog) -> list[Move]:
    """The moves that balance the cluster: those from draining brokers first, changes of order alone last."""
    return at_once(plan_rebalance_in_steps(catalog))


def plan_rebalance_in_steps(catalog: Catalog) -> Generator[None, None, list[Move]]:
    """As `plan_rebalance`, with other work between the steps. The catalog may change in between.

    The plan is for the catalog of the first step, without the topics that are deleted until the last.
    """
    plan = _Plan(catalog)
    yield
    leaving = yield from plan.leave_draining()
    yield from plan.repair_racks()
    yield from plan.even_out()
    yield from plan.spread_leaders()
    moves = []
    for group, present in plan.before.items():
        replicas = tuple(plan.replicas[group])
        if replicas != present and group.topic_id in catalog.topics_by_id:
            name = catalog.topics_by_id[group.topic_id].name
            moves.append(Move(name, group, replicas, tuple(node for node in replicas if node not in present)))
    moves.sort(key=lambda move: 0 if move.group in leaving else 1 if move.adding else 2)
    return moves


def plan_leaders(
    assignments: Mapping[GroupId, Assignment], leaders: Mapping[GroupId, NodeId], live: Collection[NodeId]
) -> list[tuple[GroupId, NodeId]]:
    """Which leaderships to transfer to which node, so that preferred replicas lead.

    `leaders` has the partitions whose leader is known. A partition that is being reassigned is left alone: its
    preferred replica may be about to be removed. It is considered again afterwards.
    """
    return [
        (group, assignment.replicas[0])
        for group, assignment in assignments.items()
        if assignment.target is None
        and assignment.replicas[0] in live
        and leaders.get(group, assignment.replicas[0]) not in (assignment.replicas[0], -1)
    ]


class _Plan:
    """The planned replicas, changed step by step until no step improves them."""

    def __init__(self, catalog: Catalog) -> None:
        self._brokers = dict(catalog.brokers)
        self._usable = sorted(node for node, broker in catalog.brokers.items() if broker.takes_replicas)
        self._racks = {node: rack_of(broker) for node, broker in catalog.brokers.items()}
        self._racks |= {node: rack_of(broker) for node, broker in catalog.former_brokers.items()}
        self.before: dict[GroupId, tuple[NodeId, ...]] = {}
        self.replicas: dict[GroupId, list[NodeId]] = {}
        """The planned replicas of all partitions that can be moved."""
        self._still: list[tuple[NodeId, ...]] = []
        """The replicas of the partitions that cannot be moved."""
        self._counts: Counter[NodeId] = Counter()
        self._kept: dict[NodeId, dict[TopicId, dict[GroupId, None]]] = {node: {} for node in self._usable}
        """The movable replicas of each broker, by topic."""
        for group, assignment in catalog.assignments().items():
            self._counts.update(assignment.planned)
            if assignment.target is not None or not _has_majority(assignment.replicas, catalog.brokers):
                self._still.append(assignment.planned)
                continue
            self.before[group] = assignment.replicas
            self.replicas[group] = list(assignment.replicas)
            for node in assignment.replicas:
                if node in self._kept:
                    self._kept[node].setdefault(group.topic_id, {})[group] = None

    # ---- the four goals -------------------------------------------------------------------------

    def leave_draining(self) -> Generator[None, None, set[GroupId]]:
        """Move replicas off draining brokers; returns the partitions concerned."""
        concerned = set()
        for group, replicas in self.replicas.items():
            for giver in list(replicas):
                if not self._is_leaving(giver):
                    continue
                takers = [node for node in self._usable if node not in replicas]
                if takers:
                    self._apply(_Step(group, giver, min(takers, key=lambda node: self._cost(group, giver, node))))
                    concerned.add(group)
            yield
        return concerned

    def repair_racks(self) -> Iterator[None]:
        """Spread each partition over more racks if possible."""
        for group, replicas in self.replicas.items():
            while len({self._rack(node) for node in replicas}) < len(replicas):
                steps = [
                    _Step(group, giver, taker)
                    for giver in replicas
                    if giver in self._kept
                    for taker in self._usable
                    if taker not in replicas and self._crowding(replicas, giver, taker) < 0
                ]
                if not steps:
                    break
                self._apply(min(steps, key=lambda step: (self._cost(*step), -self._counts[step.giver], step.giver)))
            yield

    def even_out(self) -> Iterator[None]:
        """Move replicas from brokers with many to brokers with few, through others if racks forbid the direct way."""
        while True:
            givers = sorted(self._usable, key=lambda node: (-self._counts[node], node))
            chain = next((chain for chain in map(self._chain, givers) if chain), None)
            if chain is None:
                return
            for step in chain:
                self._apply(step)
            yield

    def spread_leaders(self) -> Iterator[None]:
        """Make each broker the first replica of the same number of partitions."""
        movable = list(self.replicas.values())
        # Partitions that cannot change count too: as partitions with only one replica to choose from.
        fixed = [[planned[0]] for planned in self._still]
        partitions = movable + fixed
        present = [replicas[0] for replicas in partitions]
        firsts = yield from spread_firsts_in_steps(partitions, dict.fromkeys(self._usable, 0), present)
        for replicas, first in zip(movable, firsts, strict=False):
            replicas.remove(first)
            replicas.insert(0, first)

    # ---- steps ----------------------------------------------------------------------------------

    def _chain(self, giver: NodeId) -> list[_Step]:
        """The fewest steps that take a replica from `giver` and give one to a broker with at least two fewer."""
        gain_below = self._counts[giver] - 1
        if not any(self._counts[node] < gain_below for node in self._usable):
            return []
        takers = sorted(self._usable, key=lambda node: (self._counts[node], node))
        ways: dict[NodeId, list[_Step]] = {giver: []}
        queue = [giver]
        for node in queue:
            for taker in takers:
                if taker in ways:
                    continue
                step = self._step(node, taker, {step.group for step in ways[node]})
                if step is not None:
                    ways[taker] = [*ways[node], step]
                    if self._counts[taker] < gain_below:
                        return ways[taker]
                    queue.append(taker)
        return []

    def _step(self, giver: NodeId, taker: NodeId, used: Collection[GroupId]) -> _Step | None:
        """A replica that can move from `giver` to `taker`, preferably of the topic in which they differ most."""
        topics, theirs = self._kept[giver], self._kept[taker]
        if not topics:
            return None
        crowded = max(topics, key=lambda topic: len(topics[topic]) - len(theirs.get(topic, ())))
        for group in _in_turn(topics, crowded):
            replicas = self.replicas[group]
            if taker not in replicas and group not in used and self._crowding(replicas, giver, taker) <= 0:
                return _Step(group, giver, taker)
        return None

    def _apply(self, step: _Step) -> None:
        replicas = self.replicas[step.group]
        replicas[replicas.index(step.giver)] = step.taker
        self._counts[step.giver] -= 1
        self._counts[step.taker] += 1
        topic = step.group.topic_id
        if step.giver in self._kept:
            del self._kept[step.giver][topic][step.group]
            if not self._kept[step.giver][topic]:
                del self._kept[step.giver][topic]
        self._kept[step.taker].setdefault(topic, {})[step.group] = None

    def _cost(self, group: GroupId, giver: NodeId, taker: NodeId) -> tuple[int, int, int, NodeId]:
        """The cost of a move to `taker`: racks first, then its number of replicas, then those of this topic."""
        of_topic = len(self._kept[taker].get(group.topic_id, ()))
        return self._crowding(self.replicas[group], giver, taker), self._counts[taker], of_topic, taker

    def _crowding(self, replicas: list[NodeId], giver: NodeId, taker: NodeId) -> int:
        """How a step changes the spread over racks: below 0 it becomes more even, above 0 less."""
        old, new = self._rack(giver), self._rack(taker)
        if old == new:
            return 0
        racks = [self._rack(node) for node in replicas]
        # Half of the change in the sum of squares of the replicas per rack.
        return racks.count(new) - racks.count(old) + 1

    def _rack(self, node: NodeId) -> tuple[str, int]:
        return self._racks.get(node, ("", node))

    def _is_leaving(self, node: NodeId) -> bool:
        broker = self._brokers.get(node)
        return broker is None or broker.draining


def _has_majority(nodes: Collection[NodeId], brokers: Mapping[NodeId, Broker]) -> bool:
    up = sum(node in brokers and not brokers[node].fenced for node in nodes)
    return up * 2 > len(nodes)


def _in_turn(topics: Mapping[TopicId, Mapping[GroupId, None]], first: TopicId) -> Iterator[GroupId]:
    yield from topics[first]
    for topic, groups in topics.items():
        if topic != first:
            yield from groups
