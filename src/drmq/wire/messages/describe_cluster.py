"""DescribeCluster (60): the cluster's id, its controller and its brokers.

Endpoint types (v1): 1 asks for brokers, 2 for controllers.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS, array, boolean, int8, int16, int32, message, string


@message(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@dataclass(slots=True)
class DescribeClusterResponseBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@message(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterResponseBroker] = array(DescribeClusterResponseBroker)
    cluster_authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)
