"""DeleteTopics (20): delete topics by name (`topic_names`, up to v5), or by name or id (`topics`, from v6)."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, message, string, uuid


@dataclass(slots=True)
class DeleteTopicsRequestTopic:
    name: str | None = string(nullable="0+", default=None)
    topic_id: bytes = uuid()


@message(ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4)
@dataclass(slots=True)
class DeleteTopicsRequest:
    topics: list[DeleteTopicsRequestTopic] = array(DeleteTopicsRequestTopic, "6+")
    topic_names: list[str] = array("string", "0-5")
    timeout_ms: int = int32()


@dataclass(slots=True)
class DeleteTopicsResponseTopic:
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


@message(ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4)
@dataclass(slots=True)
class DeleteTopicsResponse:
    throttle_time_ms: int = int32()
    responses: list[DeleteTopicsResponseTopic] = array(DeleteTopicsResponseTopic)
