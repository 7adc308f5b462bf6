"""DescribeCluster (60): the cluster's id, its controller and its brokers. From v2 it can include brokers that are down.

From v1 a client states whether it expects to be connected to a broker or to a controller. In DRMQ clients only connect
to brokers.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.kafka.operations import CLUSTER_OPERATIONS
from drmq.model import ErrorCode
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS
from drmq.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)

_BROKERS, _CONTROLLERS = 1, 2


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    cluster = context.services.cluster
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker's endpoint, not a controller's; use the bootstrap servers, not controllers",
            endpoint_type=_BROKERS,
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} is unknown; only brokers ({_BROKERS}) are supported",
            endpoint_type=_BROKERS,
        )
    known = cluster.live_brokers()
    if request.include_fenced_brokers:
        known = [each for _, each in sorted(cluster.catalog.brokers.items())]
    return DescribeClusterResponse(
        cluster_id=context.broker.cluster_id,
        controller_id=cluster.controller_id(),
        brokers=[
            DescribeClusterResponseBroker(each.node_id, each.host, each.port, each.rack, is_fenced=each.fenced)
            for each in known
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_AUTHORIZED_OPERATIONS
        ),
    )
