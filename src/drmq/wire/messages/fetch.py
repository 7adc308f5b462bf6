"""Fetch (1): read record batches from partitions, waiting for them if need be.

These classes are for clients and tests; a broker reads and writes this API with
`drmq.wire.fetch`, which must agree with them byte for byte. Topics go by name up to v12 and by
id from v13. Followers name themselves with `replica_id`, from v15 inside `replica_state`. The tagged fields of
partitions (v17, v18) are for followers too, and a broker of DRMQ skips them: its followers do not fetch.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.codec import Buffer
from drmq.wire.fields import array, int8, int16, int32, int64, message, payload, string, structure, uuid


@dataclass(slots=True)
class FetchRequestReplicaState:
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@dataclass(slots=True)
class FetchRequestPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0)
    high_watermark: int = int64("18+", default=2**63 - 1, tag=1)


@dataclass(slots=True)
class FetchRequestTopic:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[FetchRequestPartition] = array(FetchRequestPartition)


@dataclass(slots=True)
class FetchRequestForgottenTopic:
    topic: str = string("7-12")
    topic_id: bytes = uuid("13+")
    partitions: list[int] = array("int32")


@message(ApiKey.FETCH, versions=(4, 18), flexible=12)
@dataclass(slots=True)
class FetchRequest:
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: FetchRequestReplicaState = structure(FetchRequestReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    isolation_level: int = int8()
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchRequestTopic] = array(FetchRequestTopic)
    forgotten_topics_data: list[FetchRequestForgottenTopic] = array(FetchRequestForgottenTopic, "7+")
    rack_id: str = string("11+")


@dataclass(slots=True)
class FetchResponseDivergingEpoch:
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@dataclass(slots=True)
class FetchResponseLeader:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@dataclass(slots=True)
class FetchResponseSnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@dataclass(slots=True)
class FetchResponseAbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@dataclass(slots=True)
class FetchResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: FetchResponseDivergingEpoch = structure(FetchResponseDivergingEpoch, "12+", tag=0)
    current_leader: FetchResponseLeader = structure(FetchResponseLeader, "12+", tag=1)
    snapshot_id: FetchResponseSnapshotId = structure(FetchResponseSnapshotId, "12+", tag=2)
    aborted_transactions: list[FetchResponseAbortedTransaction] | None = array(
        FetchResponseAbortedTransaction, nullable="0+", default=None
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | None = payload(nullable="0+", default=None)


@dataclass(slots=True)
class FetchResponseTopic:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[FetchResponsePartition] = array(FetchResponsePartition)


@dataclass(slots=True)
class FetchResponseNode:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@message(ApiKey.FETCH, versions=(4, 18), flexible=12)
@dataclass(slots=True)
class FetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchResponseTopic] = array(FetchResponseTopic)
    node_endpoints: list[FetchResponseNode] = array(FetchResponseNode, "16+", tag=0)
