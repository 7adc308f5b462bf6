"""AddRaftVoter (80): let a node that follows the metadata vote on it (KIP-853).

The id of the data directory says which incarnation of the node is meant; zeros mean any. From v1 the response may be
sent before the change is committed.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int16, int32, message, string, uint16, uuid


@dataclass(slots=True)
class AddRaftVoterRequestListener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@message(ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class AddRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[AddRaftVoterRequestListener] = array(AddRaftVoterRequestListener)
    ack_when_committed: bool = boolean("1+", default=True)


@message(ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class AddRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
