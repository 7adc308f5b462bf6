"""ElectLeaders (43): let a preferred replica lead, or any live one where no replica is in sync.

A null list of topics means all partitions. Election types (v1): 0 preferred, which is all that v0
can ask for, and 1 unclean. The top-level error is there from v1; v0 repeats it for each partition.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int8, int16, int32, message, string


@dataclass(slots=True)
class ElectLeadersRequestTopic:
    topic: str = string()
    partitions: list[int] = array("int32")


@message(ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class ElectLeadersRequest:
    election_type: int = int8("1+")
    topic_partitions: list[ElectLeadersRequestTopic] | None = array(ElectLeadersRequestTopic, nullable="0+")
    timeout_ms: int = int32(default=60000)


@dataclass(slots=True)
class ElectLeadersResponsePartition:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ElectLeadersResponseTopic:
    topic: str = string()
    partition_result: list[ElectLeadersResponsePartition] = array(ElectLeadersResponsePartition)


@message(ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ElectLeadersResponseTopic] = array(ElectLeadersResponseTopic)
