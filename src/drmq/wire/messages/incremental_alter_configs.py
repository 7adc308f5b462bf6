"""IncrementalAlterConfigs (44): change single settings of a resource.

Operations: 0 set, 1 delete, 2 append to a list, 3 subtract from a list.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int8, int16, int32, message, string


@dataclass(slots=True)
class IncrementalAlterConfigsRequestConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class IncrementalAlterConfigsRequestResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterConfigsRequestConfig] = array(IncrementalAlterConfigsRequestConfig)


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1)
@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsRequestResource] = array(IncrementalAlterConfigsRequestResource)
    validate_only: bool = boolean()


@dataclass(slots=True)
class IncrementalAlterConfigsResponseResource:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1)
@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[IncrementalAlterConfigsResponseResource] = array(IncrementalAlterConfigsResponseResource)
