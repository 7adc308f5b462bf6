"""JoinGroup (11): become a member of a classic group and wait for the next generation.

Only the leader's response lists the members. A v0 request has no rebalance timeout: its session
timeout serves as both. From v9 `skip_assignment` tells a returning static leader to assign nothing.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, binary, boolean, int16, int32, message, string


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = binary()


@message(ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6)
@dataclass(slots=True)
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


@dataclass(slots=True)
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = binary()


@message(ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6)
@dataclass(slots=True)
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
