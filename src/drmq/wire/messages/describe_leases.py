"""DescribeLeases (12002): the queues of a lease group, and what is leased. An API of DRMQ alone.

Any node answers for the whole group: it asks the shards that hold its queues.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int16, int32, int64, message, string, uuid


@message(ApiKey.DESCRIBE_LEASES, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeLeasesRequest:
    group_id: str = string()
    topics: list[str] | None = array("string", nullable="0+", default=None)
    """None for all topics."""
    leases_max: int = int32()
    """Runs of leased offsets to list, over all queues; 0 for counts only."""


@dataclass(slots=True)
class DescribedLease:
    first_offset: int = int64()
    last_offset: int = int64()
    member_id: str = string()
    attempt: int = int16()
    token: int = int64()
    left_ms: int = int64()


@dataclass(slots=True)
class DescribedQueue:
    topic_id: bytes = uuid()
    topic: str = string()
    partition_index: int = int32()
    error_code: int = int16()
    """If it is not 0, the shard of this queue did not answer."""
    error_message: str | None = string(nullable="0+", default=None)
    start_offset: int = int64(default=-1)
    """The first offset that is not done."""
    end_offset: int = int64(default=-1)
    """The first offset that was never leased."""
    high_watermark: int = int64(default=-1)
    open_count: int = int64(default=-1)
    """Records that are not done: the lag."""
    oldest_open_ms: int = int64(default=-1)
    """The time of the record at `start_offset`; -1 if nothing is open, or it is not known."""
    held_count: int = int64()
    returned_count: int = int64()
    parked_count: int = int64()
    dying_count: int = int64()
    next_due_ms: int = int64(default=-1)
    is_paused: bool = boolean()
    leases: list[DescribedLease] = array(DescribedLease)


@message(ApiKey.DESCRIBE_LEASES, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeLeasesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    dead_letter_topic: str | None = string(nullable="0+", default=None)
    """Where the dead letters of the group go; None if they are dropped."""
    queues: list[DescribedQueue] = array(DescribedQueue)
