"""ShareAcknowledge (79): settle leased records of a share group without fetching others."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int16, int32, message, string, structure, uuid
from drmq.wire.messages.share_fetch import ShareAcknowledgementBatch, ShareLeader, ShareNode


@dataclass(slots=True)
class ShareAcknowledgeRequestPartition:
    partition_index: int = int32()
    acknowledgement_batches: list[ShareAcknowledgementBatch] = array(ShareAcknowledgementBatch)


@dataclass(slots=True)
class ShareAcknowledgeRequestTopic:
    topic_id: bytes = uuid()
    partitions: list[ShareAcknowledgeRequestPartition] = array(ShareAcknowledgeRequestPartition)


@message(ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2), flexible=0)
@dataclass(slots=True)
class ShareAcknowledgeRequest:
    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[ShareAcknowledgeRequestTopic] = array(ShareAcknowledgeRequestTopic)


@dataclass(slots=True)
class ShareAcknowledgeResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: ShareLeader = structure(ShareLeader, default=lambda: ShareLeader(-1, -1))


@dataclass(slots=True)
class ShareAcknowledgeResponseTopic:
    topic_id: bytes = uuid()
    partitions: list[ShareAcknowledgeResponsePartition] = array(ShareAcknowledgeResponsePartition)


@message(ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2), flexible=0)
@dataclass(slots=True)
class ShareAcknowledgeResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgeResponseTopic] = array(ShareAcknowledgeResponseTopic)
    node_endpoints: list[ShareNode] = array(ShareNode)
