"""LeaseFetch (12001): lease records of a lease group, and settle leased ones on the way. An API of DRMQ alone.

It does what ShareFetch does, and more: no session, so that each request says all; tokens; the delay of a release; and
an answer for each run of offsets that was refused. Members join with ShareGroupHeartbeat, as those of share groups do,
and both kinds may be members of one group. The batches in `records` may hold records that were not leased.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.codec import Buffer
from drmq.wire.fields import array, int8, int16, int32, int64, message, payload, string, structure, uuid


@dataclass(slots=True)
class LeaseSettlement:
    """The outcome for a run of offsets, both ends included."""

    first_offset: int = int64()
    last_offset: int = int64()
    outcome: int = int8()
    """1 accept, 2 release, 3 reject, 4 renew, 5 give back: the first four as ShareAcknowledge has them."""
    delay_ms: int = int64(default=-1)
    """Release: how long they wait; -1 for the backoff of the group."""
    token: int = int64()
    """Of the delivery; 0 if the member does not check it."""


@dataclass(slots=True)
class LeaseFetchRequestPartition:
    partition_index: int = int32()
    takes: int = int8(default=1)
    """0: only settle, take nothing from this partition."""
    settlements: list[LeaseSettlement] = array(LeaseSettlement)


@dataclass(slots=True)
class LeaseFetchRequestTopic:
    topic_id: bytes = uuid()
    partitions: list[LeaseFetchRequestPartition] = array(LeaseFetchRequestPartition)


@message(ApiKey.LEASE_FETCH, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class LeaseFetchRequest:
    group_id: str = string()
    member_id: str = string()
    max_wait_ms: int = int32()
    """0 if records are not waited for. A request with settlements is answered as soon as these are carried out."""
    max_bytes: int = int32()
    max_records: int = int32()
    """0: only settle."""
    topics: list[LeaseFetchRequestTopic] = array(LeaseFetchRequestTopic)


@dataclass(slots=True)
class LeaseRefusal:
    """A run of offsets that was not settled. Nothing about it has changed."""

    first_offset: int = int64()
    last_offset: int = int64()
    reason: int = int8()
    """1 never leased, 2 lease over or settled before, 3 leased to another member, 4 stale token, 5 the group
    does not renew leases."""


@dataclass(slots=True)
class LeaseLeader:
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class LeaseDelivery:
    first_offset: int = int64()
    last_offset: int = int64()
    attempt: int = int16()


@dataclass(slots=True)
class LeaseFetchResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    """Of taking."""
    error_message: str | None = string(nullable="0+", default=None)
    settle_error_code: int = int16()
    """Of settling as a whole. If it is not 0, nothing of this partition was settled."""
    settle_error_message: str | None = string(nullable="0+", default=None)
    refusals: list[LeaseRefusal] = array(LeaseRefusal)
    current_leader: LeaseLeader = structure(LeaseLeader, default=lambda: LeaseLeader(-1, -1))
    token: int = int64()
    lease_ms: int = int32()
    """How long the lease lasts from now on."""
    deliveries: list[LeaseDelivery] = array(LeaseDelivery)
    records: Buffer = payload()


@dataclass(slots=True)
class LeaseFetchResponseTopic:
    topic_id: bytes = uuid()
    partitions: list[LeaseFetchResponsePartition] = array(LeaseFetchResponsePartition)


@message(ApiKey.LEASE_FETCH, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class LeaseFetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    lease_ms: int = int32()
    """The duration of the group's leases, for renewals."""
    topics: list[LeaseFetchResponseTopic] = array(LeaseFetchResponseTopic)
