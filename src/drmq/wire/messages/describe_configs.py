"""DescribeConfigs (32): settings of topics and brokers, where each comes from and what it would fall back to.

A null list of keys asks for all settings of a resource.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int8, int16, int32, message, string


@dataclass(slots=True)
class DescribeConfigsRequestResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array("string", nullable="0+")


@message(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4)
@dataclass(slots=True)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsRequestResource] = array(DescribeConfigsRequestResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


@dataclass(slots=True)
class DescribeConfigsResponseSynonym:
    name: str = string()
    value: str | None = string(nullable="0+", default=None)
    source: int = int8()


@dataclass(slots=True)
class DescribeConfigsResponseConfig:
    name: str = string()
    value: str | None = string(nullable="0+", default=None)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsResponseSynonym] = array(DescribeConfigsResponseSynonym)
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="3+", default=None)


@dataclass(slots=True)
class DescribeConfigsResponseResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResponseConfig] = array(DescribeConfigsResponseConfig)


@message(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4)
@dataclass(slots=True)
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResponseResult] = array(DescribeConfigsResponseResult)
