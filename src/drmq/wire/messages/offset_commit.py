"""OffsetCommit (8): a group records how far it has read.

Topics go by name up to v9 and by id from v10. v2 to v4 could ask for a retention of their own,
which Kafka has ignored ever since.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string, uuid


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8)
@dataclass(slots=True)
class OffsetCommitRequest:
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8)
@dataclass(slots=True)
class OffsetCommitResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
