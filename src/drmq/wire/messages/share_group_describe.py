"""ShareGroupDescribe (77): the members of share groups and what is assigned to them."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS, array, boolean, int16, int32, message, string, structure, uuid


@message(ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), flexible=0)
@dataclass(slots=True)
class ShareGroupDescribeRequest:
    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


@dataclass(slots=True)
class ShareGroupDescribeResponseTopic:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


@dataclass(slots=True)
class ShareGroupDescribeResponseAssignment:
    topic_partitions: list[ShareGroupDescribeResponseTopic] = array(ShareGroupDescribeResponseTopic)


@dataclass(slots=True)
class ShareGroupDescribeResponseMember:
    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    assignment: ShareGroupDescribeResponseAssignment = structure(ShareGroupDescribeResponseAssignment)


@dataclass(slots=True)
class ShareGroupDescribeResponseGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ShareGroupDescribeResponseMember] = array(ShareGroupDescribeResponseMember)
    authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)


@message(ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), flexible=0)
@dataclass(slots=True)
class ShareGroupDescribeResponse:
    throttle_time_ms: int = int32()
    groups: list[ShareGroupDescribeResponseGroup] = array(ShareGroupDescribeResponseGroup)
