"""The events of nodes, for people and programs that watch a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drmq.client.cluster import Cluster
from drmq.client.connection import Deadline
from drmq.client.errors import refusal
from drmq.wire.messages.describe_events import DescribeEventsRequest, DescribeEventsResponse


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a node. Its sequence number belongs to one run of the node's process."""

    sequence: int
    time_ms: int
    level: str
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class NodeEvents:
    """Events of one node, the oldest first, when that node started, and the addresses of its gateway."""

    node_id: int
    started_ms: int
    http: str | None
    grpc: str | None
    events: Sequence[Event]


class Events:
    """Calls about events. Each raises `ClientError` and ends within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of(self, node_id: int, *, after: int = 0, count_max: int = 100, timeout_s: float | None = None) -> NodeEvents:
        """The events of one node with higher sequence numbers than `after`; the newest, if there are too many."""
        deadline = self._cluster.deadline() if timeout_s is None else Deadline(timeout_s)
        connection = self._cluster.node(node_id, deadline)
        answer = connection.call(DescribeEventsRequest(after, count_max), DescribeEventsResponse, deadline)
        if answer.error_code:
            raise refusal(answer.error_code, f"Node {node_id} refused to report its events", answer.error_message)
        found = [Event(each.sequence, each.time_ms, each.level, each.source, each.text) for each in answer.events]
        return NodeEvents(answer.node_id, answer.started_ms, answer.http, answer.grpc, found)
