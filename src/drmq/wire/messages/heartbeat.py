"""Heartbeat (12): a member of a classic group reports that it is alive, and learns whether it must rejoin."""

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import int16, int32, message, string


@message(ApiKey.HEARTBEAT, versions=(0, 4), flexible=4)
@dataclass(slots=True)
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message(ApiKey.HEARTBEAT, versions=(0, 4), flexible=4)
@dataclass(slots=True)
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
