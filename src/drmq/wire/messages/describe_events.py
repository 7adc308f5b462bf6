"""DescribeEvents (12004): the last events of the node that is asked. An API of DRMQ alone."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string


@message(ApiKey.DESCRIBE_EVENTS, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class DescribeEventsRequest:
    after_sequence: int = int64()
    """Only events with higher numbers. The numbers of a node begin again with 1 when it starts."""
    events_max: int = int32(default=100)


@dataclass(slots=True)
class DescribeEventsResponseEvent:
    sequence: int = int64()
    time_ms: int = int64()
    level: str = string()
    source: str = string()
    text: str = string()


@message(ApiKey.DESCRIBE_EVENTS, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class DescribeEventsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    node_id: int = int32(default=-1)
    started_ms: int = int64()
    """When the node started. A reader that finds another time than before begins again with sequence 0."""
    http: str | None = string(nullable="0+", default=None)
    """Where the gateway of the node answers, `host:port`; null if it has none."""
    grpc: str | None = string("1+", nullable="1+", default=None)
    """Where it answers gRPC."""
    events: list[DescribeEventsResponseEvent] = array(DescribeEventsResponseEvent)
