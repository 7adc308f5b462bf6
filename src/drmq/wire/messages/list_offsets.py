"""ListOffsets (2): the first, the last, or the first offset at or after a time.

Negative timestamps have a special meaning: -1 the end, -2 the start, -3 the record with the largest timestamp (v7), -4
the start of the local log (v8), -5 the end of the remote log (v9).
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int8, int16, int32, int64, message, string


@dataclass(slots=True)
class ListOffsetsRequestPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


@dataclass(slots=True)
class ListOffsetsRequestTopic:
    name: str = string()
    partitions: list[ListOffsetsRequestPartition] = array(ListOffsetsRequestPartition)


@message(ApiKey.LIST_OFFSETS, versions=(1, 10), flexible=6)
@dataclass(slots=True)
class ListOffsetsRequest:
    replica_id: int = int32(default=-1)
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsRequestTopic] = array(ListOffsetsRequestTopic)
    timeout_ms: int = int32("10+")


@dataclass(slots=True)
class ListOffsetsResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@dataclass(slots=True)
class ListOffsetsResponseTopic:
    name: str = string()
    partitions: list[ListOffsetsResponsePartition] = array(ListOffsetsResponsePartition)


@message(ApiKey.LIST_OFFSETS, versions=(1, 10), flexible=6)
@dataclass(slots=True)
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsResponseTopic] = array(ListOffsetsResponseTopic)
