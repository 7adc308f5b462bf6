"""CreateTopics (19): create topics, each with partition and replica counts or with explicit assignments.

From v4 a count of -1 asks for the broker's default. From v5 the response describes what was created;
`topic_config_error_code` says why `configs` is null although the topic exists.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int8, int16, int32, message, string, uuid


@dataclass(slots=True)
class CreateTopicsRequestAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array("int32")


@dataclass(slots=True)
class CreateTopicsRequestConfig:
    name: str = string()
    value: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class CreateTopicsRequestTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreateTopicsRequestAssignment] = array(CreateTopicsRequestAssignment)
    configs: list[CreateTopicsRequestConfig] = array(CreateTopicsRequestConfig)


@message(ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5)
@dataclass(slots=True)
class CreateTopicsRequest:
    topics: list[CreateTopicsRequestTopic] = array(CreateTopicsRequestTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean()


@dataclass(slots=True)
class CreateTopicsResponseConfig:
    name: str = string()
    value: str | None = string(nullable="0+", default=None)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@dataclass(slots=True)
class CreateTopicsResponseTopic:
    name: str = string()
    topic_id: bytes = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreateTopicsResponseConfig] | None = array(CreateTopicsResponseConfig, "5+", nullable="5+")


@message(ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5)
@dataclass(slots=True)
class CreateTopicsResponse:
    throttle_time_ms: int = int32()
    topics: list[CreateTopicsResponseTopic] = array(CreateTopicsResponseTopic)
