"""DescribeShareGroupOffsets (90): where share groups are in partitions, and from v1 how many records are open there."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string, uuid


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: list[int] = array("int32")


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+"
    )
    """None for all topics."""


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
