"""ShareFetch (78): lease records from partitions of a share group, and settle leased ones on the way.

The session of a member with a broker has an epoch: 0 opens it, -1 closes it. A session remembers its partitions, so
a request names only those that are new, gone, or have acknowledgements. The acquired records of a partition are ranges
of offsets. The batches in `records` may hold others too, which the client skips.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.codec import Buffer
from drmq.wire.fields import array, boolean, int8, int16, int32, int64, message, payload, string, structure, uuid


@dataclass(slots=True)
class ShareAcknowledgementBatch:
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array("int8")
    """One for all offsets, or one for each."""


@dataclass(slots=True)
class ShareFetchRequestPartition:
    partition_index: int = int32()
    acknowledgement_batches: list[ShareAcknowledgementBatch] = array(ShareAcknowledgementBatch)


@dataclass(slots=True)
class ShareFetchRequestTopic:
    topic_id: bytes = uuid()
    partitions: list[ShareFetchRequestPartition] = array(ShareFetchRequestPartition)


@dataclass(slots=True)
class ShareFetchRequestForgottenTopic:
    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


@message(ApiKey.SHARE_FETCH, versions=(1, 2), flexible=0)
@dataclass(slots=True)
class ShareFetchRequest:
    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+")
    is_renew_ack: bool = boolean("2+")
    topics: list[ShareFetchRequestTopic] = array(ShareFetchRequestTopic)
    forgotten_topics_data: list[ShareFetchRequestForgottenTopic] = array(ShareFetchRequestForgottenTopic)


@dataclass(slots=True)
class ShareLeader:
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class ShareAcquiredRecords:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@dataclass(slots=True)
class ShareFetchResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: ShareLeader = structure(ShareLeader, default=lambda: ShareLeader(-1, -1))
    records: Buffer = payload()
    acquired_records: list[ShareAcquiredRecords] = array(ShareAcquiredRecords)


@dataclass(slots=True)
class ShareFetchResponseTopic:
    topic_id: bytes = uuid()
    partitions: list[ShareFetchResponsePartition] = array(ShareFetchResponsePartition)


@dataclass(slots=True)
class ShareNode:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@message(ApiKey.SHARE_FETCH, versions=(1, 2), flexible=0)
@dataclass(slots=True)
class ShareFetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchResponseTopic] = array(ShareFetchResponseTopic)
    node_endpoints: list[ShareNode] = array(ShareNode)
