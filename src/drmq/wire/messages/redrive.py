"""Redrive (12003): dead letters that wait: how many, which, and moving them back or purging them. An API of DRMQ alone.

Any node answers. `action` decides what is done, and which fields matter:

    0 STATUS   counts, and the last redrive; with `count_max` above 0 also the oldest and the newest letter that wait
    1 START    begin a redrive of the letters that match `filter`, of `count_max` at most, or of all if it is 0
    2 STOP     the redrive that runs takes no more letters
    3 PURGE    letters that match `filter` are done; look at `next_partition` whether to ask again
    4 LIST     up to `count_max` letters that wait and match, or only their number if it is 0; to be continued likewise

The answer to each has the counts. A filter is a JSON object.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, binary, boolean, int8, int16, int32, int64, message, string


class RedriveAction(IntEnum):
    STATUS = 0
    START = 1
    STOP = 2
    PURGE = 3
    LIST = 4


@message(ApiKey.REDRIVE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class RedriveRequest:
    action: int = int8()
    topic: str = string()
    """The dead-letter topic."""
    filter: str | None = string(nullable="0+", default=None)
    count_max: int = int64()
    from_partition: int = int32()
    from_offset: int = int64()


@dataclass(slots=True)
class RedriveHeader:
    name: str = string()
    value: bytes | None = binary(nullable="0+", default=None)


@dataclass(slots=True)
class RedriveLetter:
    partition_index: int = int32()
    offset: int = int64()
    timestamp: int = int64()
    key: bytes | None = binary(nullable="0+", default=None)
    value: bytes | None = binary(nullable="0+", default=None)
    headers: list[RedriveHeader] = array(RedriveHeader)
    origin_topic: str = string()
    origin_partition: int = int32()
    origin_offset: int = int64()
    group_id: str = string()
    reason: str = string()
    attempts: int = int32()
    first_failed_ms: int = int64()
    last_failed_ms: int = int64()
    has_record: bool = boolean()
    """Whether key and value are those of the record. If not, it was not copied."""
    redrive_count: int = int32()


@dataclass(slots=True)
class RedrivePartition:
    partition_index: int = int32()
    start_offset: int = int64()
    end_offset: int = int64()
    waiting_count: int = int64()


@message(ApiKey.REDRIVE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class RedriveResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    number: int = int64()
    """Of the redrive that runs or ran last; 0 if there was none."""
    state: int = int8()
    """1 running, 2 stopping, 3 finished, 4 stopped; 0 if there was none."""
    started_ms: int = int64(default=-1)
    ended_ms: int = int64(default=-1)
    filter: str = string()
    count_max: int = int64()
    redriven_count: int = int64()
    skipped_count: int = int64()
    """Letters that do not match the filter."""
    failed_count: int = int64()
    """Letters that match, and cannot be moved."""
    reason: str = string()
    """Why they cannot be moved, or what the redrive waits for."""
    purged_count: int = int64()
    """Letters that were ever purged from this topic."""
    matched_count: int = int64()
    """PURGE: letters that are done now. LIST: letters that match."""
    next_partition: int = int32(default=-1)
    """PURGE and LIST: where to go on; -1 at the end."""
    next_offset: int = int64(default=-1)
    partitions: list[RedrivePartition] = array(RedrivePartition)
    letters: list[RedriveLetter] = array(RedriveLetter)
