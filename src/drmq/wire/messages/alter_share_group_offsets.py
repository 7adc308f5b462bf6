"""AlterShareGroupOffsets (91): let a share group begin again at offsets."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string, uuid


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = int32()
    start_offset: int = int64()


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


@message(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class AlterShareGroupOffsetsRequest:
    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


@message(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)
