"""CreatePartitions (37): raise a topic's partition count. `count` is the new total, not the increase."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int16, int32, message, string


@dataclass(slots=True)
class CreatePartitionsRequestAssignment:
    broker_ids: list[int] = array("int32")


@dataclass(slots=True)
class CreatePartitionsRequestTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsRequestAssignment] | None = array(
        CreatePartitionsRequestAssignment, nullable="0+", default=None
    )


@message(ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsRequestTopic] = array(CreatePartitionsRequestTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@dataclass(slots=True)
class CreatePartitionsResponseResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsResponseResult] = array(CreatePartitionsResponseResult)
