"""RemoveRaftVoter (81): let a node follow the metadata without a vote from now on (KIP-853)."""

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import int16, int32, message, string, uuid


@message(ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class RemoveRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@message(ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class RemoveRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
