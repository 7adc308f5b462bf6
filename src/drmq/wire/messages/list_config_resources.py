"""ListConfigResources (74): the resources that have settings. v0 lists only those of client metrics (KIP-1142)."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int8, int16, int32, message, string


@message(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class ListConfigResourcesRequest:
    resource_types: list[int] = array("int8", "1+")


@dataclass(slots=True)
class ListConfigResourcesResponseResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


@message(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ListConfigResourcesResponseResource] = array(ListConfigResourcesResponseResource)
