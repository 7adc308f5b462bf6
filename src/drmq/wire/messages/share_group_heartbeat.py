"""ShareGroupHeartbeat (76): a member of a share group joins, reports that it is alive, or leaves.

Member epoch 0 joins, -1 leaves. The answer has an assignment only if it has changed for the member.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, message, string, structure, uuid


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1), flexible=0)
@dataclass(slots=True)
class ShareGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array("string", nullable="0+", default=None)


@dataclass(slots=True)
class ShareGroupHeartbeatResponseTopic:
    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


@dataclass(slots=True)
class ShareGroupHeartbeatResponseAssignment:
    topic_partitions: list[ShareGroupHeartbeatResponseTopic] = array(ShareGroupHeartbeatResponseTopic)


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1), flexible=0)
@dataclass(slots=True)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ShareGroupHeartbeatResponseAssignment | None = structure(
        ShareGroupHeartbeatResponseAssignment, nullable="0+", default=None
    )
