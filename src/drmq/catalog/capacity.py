"""Checks that no node gets more replicas than it can carry.

A replica needs memory, about 40 KB while it is idle, and a few files. A node that runs out of memory serves nobody, so
the controller refuses a request that would give a node too many.
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
