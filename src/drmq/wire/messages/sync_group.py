"""SyncGroup (14): the leader sends the assignments of a generation, and each member receives its own."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, binary, int16, int32, message, string


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = binary()


@message(ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4)
@dataclass(slots=True)
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4)
@dataclass(slots=True)
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = binary()
