"""LeaveGroup (13): leave a classic group at once, instead of waiting for the session to run out.

Up to v2 a request names one member; from v3 a list, with one error code each in the response.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, message, string


@dataclass(slots=True)
class LeaveGroupRequestMember:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)


@message(ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4)
@dataclass(slots=True)
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[LeaveGroupRequestMember] = array(LeaveGroupRequestMember, "3+")


@dataclass(slots=True)
class LeaveGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    error_code: int = int16()


@message(ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4)
@dataclass(slots=True)
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[LeaveGroupResponseMember] = array(LeaveGroupResponseMember, "3+")
