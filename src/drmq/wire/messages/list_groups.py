"""ListGroups (16): the groups that this broker coordinates, filtered by state (v4) and type (v5)."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, message, string


@message(ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class ListGroupsRequest:
    states_filter: list[str] = array("string", "4+")
    types_filter: list[str] = array("string", "5+")


@dataclass(slots=True)
class ListGroupsResponseGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@message(ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListGroupsResponseGroup] = array(ListGroupsResponseGroup)
