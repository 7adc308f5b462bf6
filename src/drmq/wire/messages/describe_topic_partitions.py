"""DescribeTopicPartitions (75): topics and their partitions, page by page (KIP-966).

`next_cursor` of one response is `cursor` of the next request; null at the start and at the end.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS, array, boolean, int16, int32, message, string, structure, uuid


@dataclass(slots=True)
class DescribeTopicPartitionsRequestTopic:
    name: str = string()


@dataclass(slots=True)
class DescribeTopicPartitionsRequestCursor:
    topic_name: str = string()
    partition_index: int = int32()


@message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    topics: list[DescribeTopicPartitionsRequestTopic] = array(DescribeTopicPartitionsRequestTopic)
    response_partition_limit: int = int32(default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = structure(
        DescribeTopicPartitionsRequestCursor, nullable="0+", default=None
    )


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    eligible_leader_replicas: list[int] | None = array("int32", nullable="0+", default=None)
    last_known_elr: list[int] | None = array("int32", nullable="0+", default=None)
    offline_replicas: list[int] = array("int32")


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)


@dataclass(slots=True)
class DescribeTopicPartitionsResponseCursor:
    topic_name: str = string()
    partition_index: int = int32()


@message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = structure(
        DescribeTopicPartitionsResponseCursor, nullable="0+", default=None
    )
