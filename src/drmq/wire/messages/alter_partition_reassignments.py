"""AlterPartitionReassignments (45): move partitions to other brokers (KIP-455).

A list of replicas starts a move, or replaces one that is under way; null cancels it. With
`allow_replication_factor_change` false (v1) a list of another length than before is refused.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int16, int32, message, string


@dataclass(slots=True)
class AlterPartitionReassignmentsRequestPartition:
    partition_index: int = int32()
    replicas: list[int] | None = array("int32", nullable="0+", default=None)


@dataclass(slots=True)
class AlterPartitionReassignmentsRequestTopic:
    name: str = string()
    partitions: list[AlterPartitionReassignmentsRequestPartition] = array(AlterPartitionReassignmentsRequestPartition)


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[AlterPartitionReassignmentsRequestTopic] = array(AlterPartitionReassignmentsRequestTopic)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponseTopic:
    name: str = string()
    partitions: list[AlterPartitionReassignmentsResponsePartition] = array(AlterPartitionReassignmentsResponsePartition)


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterPartitionReassignmentsResponseTopic] = array(AlterPartitionReassignmentsResponseTopic)
