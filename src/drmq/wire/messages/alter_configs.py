"""AlterConfigs (33): replace all settings of a resource. What a request leaves out goes back to its default."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int8, int16, int32, message, string


@dataclass(slots=True)
class AlterConfigsRequestConfig:
    name: str = string()
    value: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class AlterConfigsRequestResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterConfigsRequestConfig] = array(AlterConfigsRequestConfig)


@message(ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class AlterConfigsRequest:
    resources: list[AlterConfigsRequestResource] = array(AlterConfigsRequestResource)
    validate_only: bool = boolean()


@dataclass(slots=True)
class AlterConfigsResponseResource:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()


@message(ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResponseResource] = array(AlterConfigsResponseResource)
