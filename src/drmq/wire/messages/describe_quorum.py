"""DescribeQuorum (55): the voters of the metadata log, its leader, and how far each replica is (KIP-595, KIP-853).

Clients ask for partition 0 of `__cluster_metadata` and nothing else. Times are those of the leader's
clock in milliseconds, -1 where it does not know. The ids of data directories, the endpoints of the
voters and the messages beside the codes are there from v2.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, int64, message, string, uint16, uuid


@dataclass(slots=True)
class DescribeQuorumRequestPartition:
    partition_index: int = int32()


@dataclass(slots=True)
class DescribeQuorumRequestTopic:
    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartition] = array(DescribeQuorumRequestPartition)


@message(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class DescribeQuorumRequest:
    topics: list[DescribeQuorumRequestTopic] = array(DescribeQuorumRequestTopic)


@dataclass(slots=True)
class DescribeQuorumResponseReplica:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@dataclass(slots=True)
class DescribeQuorumResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[DescribeQuorumResponseReplica] = array(DescribeQuorumResponseReplica)
    observers: list[DescribeQuorumResponseReplica] = array(DescribeQuorumResponseReplica)


@dataclass(slots=True)
class DescribeQuorumResponseTopic:
    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartition] = array(DescribeQuorumResponsePartition)


@dataclass(slots=True)
class DescribeQuorumResponseListener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class DescribeQuorumResponseNode:
    node_id: int = int32()
    listeners: list[DescribeQuorumResponseListener] = array(DescribeQuorumResponseListener)


@message(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    topics: list[DescribeQuorumResponseTopic] = array(DescribeQuorumResponseTopic)
    nodes: list[DescribeQuorumResponseNode] = array(DescribeQuorumResponseNode, "2+")
