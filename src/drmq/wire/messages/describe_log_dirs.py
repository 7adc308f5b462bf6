"""DescribeLogDirs (35): how many bytes each partition takes in each data directory.

A null list of topics asks for all. Kept at v4: kafka-python infers Kafka 4.3 from v5.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int16, int32, int64, message, string


@dataclass(slots=True)
class DescribeLogDirsRequestTopic:
    topic: str = string()
    partitions: list[int] = array("int32")


@message(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4), flexible=2)
@dataclass(slots=True)
class DescribeLogDirsRequest:
    topics: list[DescribeLogDirsRequestTopic] | None = array(DescribeLogDirsRequestTopic, nullable="0+")


@dataclass(slots=True)
class DescribeLogDirsResponsePartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@dataclass(slots=True)
class DescribeLogDirsResponseTopic:
    name: str = string()
    partitions: list[DescribeLogDirsResponsePartition] = array(DescribeLogDirsResponsePartition)


@dataclass(slots=True)
class DescribeLogDirsResponseResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsResponseTopic] = array(DescribeLogDirsResponseTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)


@message(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4), flexible=2)
@dataclass(slots=True)
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResponseResult] = array(DescribeLogDirsResponseResult)
