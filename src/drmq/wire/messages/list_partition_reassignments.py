"""ListPartitionReassignments (46): the moves that are under way (KIP-455).

A null list of topics asks for all. `replicas` lists the replicas that stay, those being added and those being removed.
A partition that is not being moved is left out of the response.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, message, string


@dataclass(slots=True)
class ListPartitionReassignmentsRequestTopic:
    name: str = string()
    partition_indexes: list[int] = array("int32")


@message(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsRequestTopic] | None = array(
        ListPartitionReassignmentsRequestTopic, nullable="0+", default=None
    )


@dataclass(slots=True)
class ListPartitionReassignmentsResponsePartition:
    partition_index: int = int32()
    replicas: list[int] = array("int32")
    adding_replicas: list[int] = array("int32")
    removing_replicas: list[int] = array("int32")


@dataclass(slots=True)
class ListPartitionReassignmentsResponseTopic:
    name: str = string()
    partitions: list[ListPartitionReassignmentsResponsePartition] = array(ListPartitionReassignmentsResponsePartition)


@message(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[ListPartitionReassignmentsResponseTopic] = array(ListPartitionReassignmentsResponseTopic)
