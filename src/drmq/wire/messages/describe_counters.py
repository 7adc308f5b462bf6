"""DescribeCounters (12000): the counters of the node that is asked. An API of DRMQ alone."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int8, int16, int32, int64, message, string


@message(ApiKey.DESCRIBE_COUNTERS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeCountersRequest:
    prefix: str = string()


@dataclass(slots=True)
class DescribeCountersResponseLabel:
    name: str = string()
    value: str = string()


@dataclass(slots=True)
class DescribeCountersResponseCounter:
    name: str = string()
    kind: int = int8()
    labels: list[DescribeCountersResponseLabel] = array(DescribeCountersResponseLabel)
    value: int = int64()
    buckets: list[int] = array("int64")


@message(ApiKey.DESCRIBE_COUNTERS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeCountersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    node_id: int = int32(default=-1)
    counters: list[DescribeCountersResponseCounter] = array(DescribeCountersResponseCounter)
