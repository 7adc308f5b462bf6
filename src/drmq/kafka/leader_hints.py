"""Leader hints: an answer that another node leads the partition names that leader (KIP-951).

A client that gets NOT_LEADER_OR_FOLLOWER would request metadata next. From Produce v10 and Fetch v16 on, the answer has
the leader's id, term and address, so the client can connect to it at once. The hint is what this node knows and may be
outdated. Because it has a term, a client never follows it back to an older leader. Only refused requests pay for the
lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from drmq.broker.services.cluster_view import ClusterView
from drmq.broker.services.reads import MISDIRECTED
from drmq.model import NodeId
from drmq.wire.fetch import FetchResult
from drmq.wire.produce import ProduceResult
from drmq.wire.topics import NodeEndpoint, hinted_leaders

R = TypeVar("R", ProduceResult, FetchResult)


def with_hints(cluster: ClusterView, results: Sequence[R]) -> tuple[list[R], list[NodeEndpoint]]:
    """Add the known leaders to refused results; also returns the addresses of these leaders."""
    hinted = [
        result._replace(current_leader=cluster.leader_elsewhere(result.topic, result.partition))
        if result.error_code in MISDIRECTED
        else result
        for result in results
    ]
    brokers = cluster.catalog.brokers
    endpoints = []
    for leader in hinted_leaders(hinted):
        known = brokers[NodeId(leader)]
        endpoints.append(NodeEndpoint(leader, known.host, known.port, known.rack))
    return hinted, endpoints


def is_being_elected(cluster: ClusterView, results: Sequence[R]) -> bool:
    """Whether a refused result would name no leader because its group, which includes this node, is electing one."""
    return any(
        result.error_code in MISDIRECTED and cluster.is_electing(result.topic, result.partition) for result in results
    )
