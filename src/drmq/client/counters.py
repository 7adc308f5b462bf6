"""The counters of nodes, for people who look for the cause of a problem."""

from __future__ import annotations

from drmq.client.cluster import Cluster
from drmq.client.connection import Deadline
from drmq.client.errors import refusal
from drmq.model.counters import Sample
from drmq.wire.messages.describe_counters import DescribeCountersRequest, DescribeCountersResponse


class NodeCounters:
    """Calls about counters. Each raises `ClientError` and ends within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of(self, node_id: int, prefix: str = "", *, timeout_s: float | None = None) -> list[Sample]:
        """The counters of one node whose names begin with `prefix`."""
        deadline = self._cluster.deadline() if timeout_s is None else Deadline(timeout_s)
        connection = self._cluster.node(node_id, deadline)
        response = connection.call(DescribeCountersRequest(prefix), DescribeCountersResponse, deadline)
        if response.error_code:
            what = f"Node {node_id} refused to report its counters"
            raise refusal(response.error_code, what, response.error_message)
        return [
            Sample(
                counter.name,
                counter.value,
                tuple((label.name, label.value) for label in counter.labels),
                tuple(counter.buckets),
            )
            for counter in response.counters
        ]
