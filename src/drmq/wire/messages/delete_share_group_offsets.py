"""DeleteShareGroupOffsets (92): let a share group forget topics."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, message, string, uuid


@dataclass(slots=True)
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = string()


@message(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DeleteShareGroupOffsetsRequest:
    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@dataclass(slots=True)
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
