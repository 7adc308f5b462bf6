"""OffsetForLeaderEpoch (23): where an epoch ended, so that a reader notices a log that was cut (KIP-320)."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string


@dataclass(slots=True)
class OffsetForLeaderEpochRequestPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@dataclass(slots=True)
class OffsetForLeaderEpochRequestTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderEpochRequestPartition] = array(OffsetForLeaderEpochRequestPartition)


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4)
@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    # -2 is what the protocol calls a debugging consumer; an ordinary consumer sends -1.
    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderEpochRequestTopic] = array(OffsetForLeaderEpochRequestTopic)


@dataclass(slots=True)
class OffsetForLeaderEpochResponsePartition:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@dataclass(slots=True)
class OffsetForLeaderEpochResponseTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderEpochResponsePartition] = array(OffsetForLeaderEpochResponsePartition)


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4)
@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderEpochResponseTopic] = array(OffsetForLeaderEpochResponseTopic)
