"""Produce (0): append record batches to partitions.

These classes are for clients and tests; a broker reads and writes this API with
`drmq.wire.produce`, which must agree with them byte for byte.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, binary, int16, int32, int64, message, string, structure, uuid


@dataclass(slots=True)
class ProduceRequestPartition:
    index: int = int32()
    records: bytes | None = binary(nullable="0+", default=None)


@dataclass(slots=True)
class ProduceRequestTopic:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[ProduceRequestPartition] = array(ProduceRequestPartition)


@message(ApiKey.PRODUCE, versions=(3, 13), flexible=9)
@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[ProduceRequestTopic] = array(ProduceRequestTopic)


@dataclass(slots=True)
class ProduceResponseRecordError:
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ProduceResponseLeader:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@dataclass(slots=True)
class ProduceResponsePartition:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[ProduceResponseRecordError] = array(ProduceResponseRecordError, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: ProduceResponseLeader = structure(ProduceResponseLeader, "10+", tag=0)


@dataclass(slots=True)
class ProduceResponseTopic:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[ProduceResponsePartition] = array(ProduceResponsePartition)


@dataclass(slots=True)
class ProduceResponseNode:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@message(ApiKey.PRODUCE, versions=(3, 13), flexible=9)
@dataclass(slots=True)
class ProduceResponse:
    responses: list[ProduceResponseTopic] = array(ProduceResponseTopic)
    throttle_time_ms: int = int32()
    node_endpoints: list[ProduceResponseNode] = array(ProduceResponseNode, "10+", tag=0)
