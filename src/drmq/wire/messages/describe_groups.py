"""DescribeGroups (15): state, members and assignments of classic groups."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS, array, binary, boolean, int16, int32, message, string


@message(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5)
@dataclass(slots=True)
class DescribeGroupsRequest:
    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean("3+")


@dataclass(slots=True)
class DescribeGroupsResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


@dataclass(slots=True)
class DescribeGroupsResponseGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribeGroupsResponseMember] = array(DescribeGroupsResponseMember)
    authorized_operations: int = int32("3+", default=NO_AUTHORIZED_OPERATIONS)


@message(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5)
@dataclass(slots=True)
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+")
    groups: list[DescribeGroupsResponseGroup] = array(DescribeGroupsResponseGroup)
