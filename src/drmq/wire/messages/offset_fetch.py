"""OffsetFetch (9): how far groups have read.

Up to v7 one group, with its topics in the message itself; from v8 many, in `groups`. A null list
of topics asks for all (from v2). Topics in `groups` go by name up to v9 and by id from v10.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int16, int32, int64, message, string, uuid


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    name: str = string()
    partition_indexes: list[int] = array("int32")


@dataclass(slots=True)
class OffsetFetchRequestGroupTopic:
    name: str = string("8-9")
    topic_id: bytes = uuid("10+")
    partition_indexes: list[int] = array("int32")


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    group_id: str = string()
    member_id: str | None = string("9+", nullable="9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestGroupTopic] | None = array(OffsetFetchRequestGroupTopic, nullable="8+")


@message(ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6)
@dataclass(slots=True)
class OffsetFetchRequest:
    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@dataclass(slots=True)
class OffsetFetchResponseGroupTopic:
    name: str = string("8-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    group_id: str = string()
    topics: list[OffsetFetchResponseGroupTopic] = array(OffsetFetchResponseGroupTopic)
    error_code: int = int16()


@message(ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6)
@dataclass(slots=True)
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
