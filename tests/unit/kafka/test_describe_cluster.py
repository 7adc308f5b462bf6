"""DescribeCluster: one node is the whole cluster."""

from __future__ import annotations

import pytest

from drmq.kafka.operations import CLUSTER_OPERATIONS
from drmq.model import ErrorCode
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS
from drmq.wire.messages.describe_cluster import DescribeClusterRequest
from support.broker_harness import NODE, Harness


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_and_its_node(harness: Harness, version: int) -> None:
    answer = harness.ask(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, harness.broker.cluster_id, NODE)
    [broker] = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced) == (
        NODE,
        "localhost",
        9092,
        None,
        False,
    )
    assert answer.cluster_authorized_operations == NO_AUTHORIZED_OPERATIONS
    assert harness.ask(DescribeClusterRequest(True), version).cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_there_is_no_controllers_endpoint(harness: Harness, endpoint: int, code: ErrorCode) -> None:
    answer = harness.ask(DescribeClusterRequest(endpoint_type=endpoint), 1)
    assert answer.error_code == code
    assert answer.error_message
    assert answer.brokers == []
