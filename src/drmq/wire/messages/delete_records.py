"""DeleteRecords (21): move a partition's start up to an offset; -1 means the high watermark."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string


@dataclass(slots=True)
class DeleteRecordsRequestPartition:
    partition_index: int = int32()
    offset: int = int64()


@dataclass(slots=True)
class DeleteRecordsRequestTopic:
    name: str = string()
    partitions: list[DeleteRecordsRequestPartition] = array(DeleteRecordsRequestPartition)


@message(ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsRequestTopic] = array(DeleteRecordsRequestTopic)
    timeout_ms: int = int32()


@dataclass(slots=True)
class DeleteRecordsResponsePartition:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@dataclass(slots=True)
class DeleteRecordsResponseTopic:
    name: str = string()
    partitions: list[DeleteRecordsResponsePartition] = array(DeleteRecordsResponsePartition)


@message(ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsResponseTopic] = array(DeleteRecordsResponseTopic)
