"""Checks that no node gets more replicas than it can carry.

A replica needs memory, about 40 KB while it is idle, and a few files. A node that runs out of memory serves nobody, so
the controller refuses a request that would give a node too many, and the removal of a node whose replicas the others
have no room for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from drmq.catalog.catalog import Catalog
from drmq.catalog.records import Fact, PartitionsAdded, ReassignmentStarted, TopicCreated
from drmq.model import ApiError, ErrorCode, GroupId, NodeId


def check_capacity(catalog: Catalog, facts: Iterable[Fact], replicas_max: int) -> None:
    """Raise `ApiError` (POLICY_VIOLATION) if these facts would give a node more than `replicas_max` replicas.

    A request that gives a node no additional replica is always allowed, also if it has too many already.
    """
    added: Counter[NodeId] = Counter()
    for fact in facts:
        if isinstance(fact, TopicCreated | PartitionsAdded):
            for nodes in fact.replicas:
                added.update(nodes)
        elif isinstance(fact, ReassignmentStarted):
            assignment = catalog.assignment(GroupId(fact.topic_id, fact.partition))
            added.update(node for node in fact.replicas if assignment is None or node not in assignment.hosts)
    for node, count in added.items():
        present = catalog.loads()[node].replicas if node in catalog.brokers else 0
        if present + count > replicas_max:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"node {node} has {present} replicas of partitions and would get {count} more, but a node may have "
                f"{replicas_max} (replicas_max); delete topics, use fewer partitions or replicas, add nodes, or raise "
                "replicas_max on all nodes, which then need more memory",
            )


def check_drain(catalog: Catalog, node_id: NodeId, replicas_max: int) -> None:
    """Raise `ApiError` (POLICY_VIOLATION) if the other nodes together cannot carry the replicas of a node that leaves.

    The replicas of nodes that are leaving already need room as well. A node without replicas can always leave.
    """
    brokers, loads = catalog.brokers, catalog.loads()
    leaving = {node_id, *(node for node, broker in brokers.items() if broker.draining)}
    moved = dict.fromkeys(leaving, 0)
    for node in leaving:
        for group in catalog.partitions_on(node):
            assignment = catalog.assignment(group)
            moved[node] += assignment is not None and node in assignment.planned
    takers = [node for node, broker in brokers.items() if broker.takes_replicas and node not in leaving]
    room = sum(max(0, replicas_max - loads[node].replicas) for node in takers)
    needed = sum(moved.values())
    if moved[node_id] and needed > room:
        others = "" if needed == moved[node_id] else f" and those of other nodes that leave, {needed} in all,"
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"node {node_id} cannot be drained: its {moved[node_id]} replicas of partitions{others} need another "
            f"place, but a node may have {replicas_max} (replicas_max), and the {len(takers)} that stay and are up "
            f"have room for {room}; delete topics, use fewer replicas, add nodes, or raise replicas_max on all nodes, "
            "which then need more memory",
        )
