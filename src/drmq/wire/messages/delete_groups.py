"""DeleteGroups (42): delete empty groups with all that they committed."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, message, string


@message(ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class DeleteGroupsRequest:
    groups_names: list[str] = array("string")


@dataclass(slots=True)
class DeleteGroupsResponseResult:
    group_id: str = string()
    error_code: int = int16()


@message(ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeleteGroupsResponseResult] = array(DeleteGroupsResponseResult)
