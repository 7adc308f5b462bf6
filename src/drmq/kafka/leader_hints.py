"""Where a client that asked the wrong node finds the leader, said in the refusal itself (KIP-951).

A client that gets NOT_LEADER_OR_FOLLOWER would ask for metadata next. From Produce v10 and Fetch v16 on, the answer
names the leader with its term and address, so that the client can go there at once. The hint is what this node has
heard; it has a term, so a client never follows it back to an older leader. Only refusals cost anything.
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
    """The results with the leaders that this node knows of, and where those listen."""
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
    """Whether one of the refusals would name no leader because its group, which this node is in, is electing one."""
    return any(
        result.error_code in MISDIRECTED and cluster.is_electing(result.topic, result.partition) for result in results
    )
