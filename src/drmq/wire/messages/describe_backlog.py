"""DescribeBacklog (12005): what lies behind an offset: how far its partition goes, and how old its record is.

An API of DRMQ alone, for the age of the oldest record that a group has not read. Any node answers: it asks the leaders
of the partitions, each node once. A partition may be named several times, with the offsets of several groups.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string


@dataclass(slots=True)
class DescribeBacklogRequestPartition:
    partition_index: int = int32()
    offset: int = int64()


@dataclass(slots=True)
class DescribeBacklogRequestTopic:
    name: str = string()
    partitions: list[DescribeBacklogRequestPartition] = array(DescribeBacklogRequestPartition)


@message(ApiKey.DESCRIBE_BACKLOG, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeBacklogRequest:
    topics: list[DescribeBacklogRequestTopic] = array(DescribeBacklogRequestTopic)


@dataclass(slots=True)
class DescribeBacklogResponsePartition:
    """In the order of the request."""

    partition_index: int = int32()
    error_code: int = int16()
    offset: int = int64()
    high_watermark: int = int64(default=-1)
    """-1 if its leader did not answer."""
    oldest_ms: int = int64(default=-1)
    """The time of the first record in the batch of the record at `offset`; -1 if there is none, or it is not known."""


@dataclass(slots=True)
class DescribeBacklogResponseTopic:
    name: str = string()
    partitions: list[DescribeBacklogResponsePartition] = array(DescribeBacklogResponsePartition)


@message(ApiKey.DESCRIBE_BACKLOG, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeBacklogResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[DescribeBacklogResponseTopic] = array(DescribeBacklogResponseTopic)
