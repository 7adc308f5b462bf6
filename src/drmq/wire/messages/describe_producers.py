"""DescribeProducers (61): the idempotent and transactional producers that a partition remembers (KIP-664)."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string


@dataclass(slots=True)
class DescribeProducersRequestTopic:
    name: str = string()
    partition_indexes: list[int] = array("int32")


@message(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeProducersRequest:
    topics: list[DescribeProducersRequestTopic] = array(DescribeProducersRequestTopic)


@dataclass(slots=True)
class DescribeProducersResponseProducer:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@dataclass(slots=True)
class DescribeProducersResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[DescribeProducersResponseProducer] = array(DescribeProducersResponseProducer)


@dataclass(slots=True)
class DescribeProducersResponseTopic:
    name: str = string()
    partitions: list[DescribeProducersResponsePartition] = array(DescribeProducersResponsePartition)


@message(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeProducersResponseTopic] = array(DescribeProducersResponseTopic)
