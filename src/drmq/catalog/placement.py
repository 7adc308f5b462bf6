"""Placement of the replicas of new partitions. Pure and deterministic.

The goals, in order of priority:

1. the replicas of a partition are on different brokers, and in as many racks as possible: one each if
   there are enough racks, otherwise no rack has two more replicas of a partition than another rack that
   still had a free broker. A broker without a rack counts as a rack of its own;
2. each broker gets the same number of the new replicas, plus or minus one, as far as the racks
   allow: small racks are full before large ones are used up;
3. the first replicas, which will lead, are spread as evenly as these replicas allow;
4. if there is still a choice, the broker with the lowest present load gets the next replica, so that many
   small topics are balanced together.

The new partitions are first spread among themselves; the present load only breaks ties. Otherwise a broker that was
just added would get whole topics, and with them all their traffic. Moving existing replicas is done by `balance`.

The method: first compute a quota for each broker, assigned one by one to the broker with the lowest; then each
partition in turn takes its replicas from the largest remaining quotas. Taking from the largest makes the quotas work
out: a broker whose quota equals the number of remaining partitions is in every one of them (this is the constructive
form of the Gale-Ryser condition for a matrix of zeros and ones with given sums).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeVar

from drmq.catalog.brokers import Broker, too_few_brokers
from drmq.model import NodeId

T = TypeVar("T")


class Load(NamedTuple):
    """The load of a broker: its replicas, and how many of them are first in their partition."""

    replicas: int = 0
    firsts: int = 0


NO_LOAD = Load()


def place(
    brokers: Iterable[Broker], partition_count: int, replication_factor: int, counts: Mapping[NodeId, Load]
) -> list[list[NodeId]]:
    """The nodes of each of `partition_count` new partitions, the preferred leader first.

    `counts` is the present load of the brokers. Raises `ApiError` (INVALID_REPLICATION_FACTOR) if fewer brokers than
    `replication_factor` can take replicas.
    """
    everyone = sorted(brokers, key=lambda broker: broker.node_id)
    usable = [broker for broker in everyone if broker.takes_replicas]
    if not 1 <= replication_factor <= len(usable):
        raise too_few_brokers(replication_factor, everyone)
    racks = _racks(usable, replication_factor)
    quotas = _quotas(racks, partition_count, replication_factor, counts)
    chosen = list(_take(racks, quotas, partition_count, replication_factor))
    leads = spread_firsts(chosen, {broker.node_id: counts.get(broker.node_id, NO_LOAD).firsts for broker in usable})
    return [[lead, *(node for node in replicas if node != lead)] for lead, replicas in zip(leads, chosen, strict=True)]


# ---- racks and quotas -----------------------------------------------------------------------------


def rack_of(broker: Broker) -> tuple[str, int]:
    """The rack; a broker without one is alone in a rack of its own."""
    return ("", broker.node_id) if broker.rack is None else (broker.rack, -1)


def replicas_per_rack_max(rack_sizes: Iterable[int], replication_factor: int) -> int:
    """The most replicas of one partition in a rack, if they are spread evenly over the racks."""
    sizes = list(rack_sizes)
    assert replication_factor <= sum(sizes), (replication_factor, sizes)
    most = 1
    while sum(min(most, size) for size in sizes) < replication_factor:
        most += 1
    return most


@dataclass(slots=True)
class _Rack:
    nodes: list[NodeId]
    always: int
    """Replicas of every partition in this rack."""
    takes_more: bool
    """Whether a partition may have one more here."""
    more: int = 0
    """How many of the remaining partitions have one more here."""


def _racks(usable: Sequence[Broker], replication_factor: int) -> list[_Rack]:
    members: dict[tuple[str, int], list[NodeId]] = {}
    for broker in usable:
        members.setdefault(rack_of(broker), []).append(broker.node_id)
    most = replicas_per_rack_max(map(len, members.values()), replication_factor)
    return [_Rack(nodes, min(most - 1, len(nodes)), len(nodes) >= most) for nodes in members.values()]


def _quotas(
    racks: Sequence[_Rack], partition_count: int, replication_factor: int, counts: Mapping[NodeId, Load]
) -> Counter[NodeId]:
    """How many of the new replicas each broker gets. Also sets each rack's `more`."""
    quotas: Counter[NodeId] = Counter()

    def hand_out(number: int, nodes: Iterable[NodeId], may_take: Callable[[NodeId], bool]) -> None:
        """Assign `number` replicas to `nodes`, each to the node with the fewest that may take one."""
        queue = [(quotas[node], counts.get(node, NO_LOAD), node) for node in nodes]
        heapify(queue)
        while number:
            quota, load, node = heappop(queue)
            # A node that is full stays full, so it need not return to the queue.
            if quota < partition_count and may_take(node):
                quotas[node] += 1
                number -= 1
                heappush(queue, (quota + 1, load, node))

    for rack in racks:
        hand_out(rack.always * partition_count, rack.nodes, lambda node: True)
    rack_by_node = {node: rack for rack in racks if rack.takes_more for node in rack.nodes}

    def takes_one_more(node: NodeId) -> bool:
        rack = rack_by_node[node]
        if rack.more == partition_count:
            return False
        rack.more += 1
        return True

    more = replication_factor - sum(rack.always for rack in racks)
    hand_out(more * partition_count, rack_by_node, takes_one_more)
    return quotas


def _take(
    racks: Sequence[_Rack], quotas: Counter[NodeId], partition_count: int, replication_factor: int
) -> Iterator[list[NodeId]]:
    """The replicas of each partition in turn, taken from the largest remaining quotas."""
    more = replication_factor - sum(rack.always for rack in racks)
    everyone = sorted(node for rack in racks for node in rack.nodes)
    for partition in range(partition_count):
        # Nodes with equal quotas are ordered differently for each partition. So if a broker fails, the other replicas
        # of its partitions are on many brokers, which share its work.
        turn = {node: (-quotas[node], _shuffled(partition, place), node) for place, node in enumerate(everyone)}
        ordered = [(rack, sorted(rack.nodes, key=turn.__getitem__)) for rack in racks]
        ordered.sort(key=lambda entry: (-entry[0].more, turn[entry[1][0]]))
        replicas: list[NodeId] = []
        for place, (rack, nodes) in enumerate(ordered):
            share = rack.always
            if place < more:
                share += 1
                rack.more -= 1
            replicas += nodes[:share]
        quotas.subtract(replicas)
        yield replicas


def _shuffled(partition: int, place: int) -> int:
    """A fixed number without a visible pattern: multiples of odd numbers, with the high bits folded down."""
    mixed = (partition * 0x9E3779B1 + place * 0x85EBCA77) & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 15) * 0x2C1B3C6D & 0xFFFFFFFF
    return mixed ^ mixed >> 13


# ---- first replicas -------------------------------------------------------------------------------


def at_once(steps: Generator[None, None, T]) -> T:
    """Do all steps of a calculation; returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def spread_firsts(
    partitions: Sequence[Sequence[NodeId]],
    present: Mapping[NodeId, int],
    firsts: Sequence[NodeId | None] | None = None,
) -> list[NodeId]:
    """As `spread_firsts_in_steps`, at once."""
    return at_once(spread_firsts_in_steps(partitions, present, firsts))


def spread_firsts_in_steps(
    partitions: Sequence[Sequence[NodeId]],
    present: Mapping[NodeId, int],
    firsts: Sequence[NodeId | None] | None = None,
) -> Generator[None, None, list[NodeId]]:
    """Which replica of each partition comes first, so that each broker leads the same number of partitions.

    Only brokers in `present` count and are chosen; on a tie, the one with the lower number there is chosen. With
    `firsts`, the present choice, as few as possible change: a partition whose first replica is not in `present` keeps
    it, and a partition without a first replica gets one.

    A broker gives up a leadership if a broker at the end of a chain has at least two fewer: each broker in the chain
    passes one leadership to the next. When no such chain is left, no assignment is more even (Harvey et al.,
    "Semi-matchings for bipartite graphs and load balancing", 2006).
    """
    leads: list[NodeId | None] = [None] * len(partitions) if firsts is None else list(firsts)
    led: dict[NodeId, dict[int, None]] = {node: {} for node in sorted(present)}
    for partition, lead in enumerate(leads):
        if lead in led:
            led[lead][partition] = None

    def burden(node: NodeId) -> tuple[int, int, NodeId]:
        return len(led[node]), present[node], node

    for partition, lead in enumerate(leads):
        if lead is None:
            least = min((node for node in partitions[partition] if node in led), key=burden)
            leads[partition] = least
            led[least][partition] = None
    while True:
        chains = (_chain(partitions, led, giver, burden) for giver in sorted(led, key=burden, reverse=True))
        chain = next((chain for chain in chains if chain), None)
        if chain is None:
            return [lead for lead in leads if lead is not None]
        for giver, partition, taker in chain:
            del led[giver][partition]
            led[taker][partition] = None
            leads[partition] = taker
        yield


def _chain(
    partitions: Sequence[Sequence[NodeId]],
    led: Mapping[NodeId, Mapping[int, None]],
    giver: NodeId,
    burden: Callable[[NodeId], tuple[int, int, NodeId]],
) -> list[tuple[NodeId, int, NodeId]]:
    """The shortest chain that moves a leadership from `giver` to the least loaded broker; empty if that is no gain."""
    came_by: dict[NodeId, tuple[NodeId, int] | None] = {giver: None}
    queue = [giver]
    for node in queue:
        for partition in led[node]:
            for other in partitions[partition]:
                if other in led and other not in came_by:
                    came_by[other] = node, partition
                    queue.append(other)
            if len(came_by) == len(led):
                break
    taker = min(queue, key=burden)
    leads, present, _ = burden(taker)
    if (leads + 1, present) >= burden(giver)[:2]:
        return []
    chain: list[tuple[NodeId, int, NodeId]] = []
    step = came_by[taker]
    while step is not None:
        node, partition = step
        chain.append((node, partition, taker))
        taker, step = node, came_by[node]
    return chain
