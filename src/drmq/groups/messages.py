"""Requests to a shard and its responses, one class for all wire versions of an API.

Differences between versions that matter here are fields that the API layer sets (`member_id_required`,
`supports_skip_assignment`); the API layer handles differences of layout. In the single-member LeaveGroup of versions 0
to 2, the member's own error is the error of the response.
"""

from __future__ import annotations

from dataclasses import dataclass

from drmq.groups.records import Protocol
from drmq.model import NO_LEADER_EPOCH, ErrorCode, LeaderEpoch, Offset, TopicId, TopicPartition

NO_GENERATION = -1
NO_OFFSET = Offset(-1)


@dataclass(frozen=True, slots=True)
class JoinGroupRequest:
    """A member asks to be part of the next generation, or for its place in the current one."""

    group_id: str
    member_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int = 0
    """0 or less if the version has none (v0): then the session timeout is used."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_id_required: bool = False
    """v4+: a dynamic member without an id is first given one and must join again with it."""
    supports_skip_assignment: bool = False
    """v9+: the response can tell a leader that it need not assign."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the group's leader sees it, with the metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResponse:
    """A member's place in a generation. Only the leader gets `members`."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The leader's assignment for one member."""

    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SyncGroupRequest:
    """A member asks for its assignment; the leader sends the assignments of all members."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupResponse:
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """The member that leaves: by member id, or by instance id with an empty member id (an administrator)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupRequest:
    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class LeftMember:
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse:
    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    topic: str
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str | None = ""
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """Offsets of a member, or (generation -1, no member id) of a client that assigns itself."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    retention_ms: int | None = None
    """v2 to v4 only: how long to keep these offsets, regardless of the settings."""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class PartitionResult:
    topic: str
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    results: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """One group's offsets: of these partitions or, if None, of all that it has committed."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    topic: str
    partition: int
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequest:
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse:
    error: ErrorCode
    results: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroupsRequest:
    """An empty filter matches everything. Filters ignore case."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroupsRequest:
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group in its present state. An unknown one is `Dead` with GROUP_ID_NOT_FOUND, which versions before 6
    do not have: for them the API layer sends `Dead` without an error."""

    error: ErrorCode
    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroupsResponse:
    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest:
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedGroupResult:
    group_id: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class DeleteGroupsResponse:
    results: tuple[DeletedGroupResult, ...]


ShareAssignment = tuple[tuple[TopicId, tuple[int, ...]], ...]
"""The partitions of a member: for each topic its id and the numbers of the partitions."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeatRequest:
    """A member of a share group joins (epoch 0), reports, or leaves (epoch -1)."""

    group_id: str
    member_id: str
    member_epoch: int
    topics: tuple[str, ...] | None = None
    """None: as before."""
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class ShareHeartbeatResponse:
    error: ErrorCode
    member_id: str
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ShareAssignment | None = None
    """None: as before."""
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeShareGroupsRequest:
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribedShareMember:
    member_id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: ShareAssignment


@dataclass(frozen=True, slots=True)
class PrepareShareGroupRequest:
    """The queues of a share group are about to be changed: it must have no members."""

    group_id: str
    creates: bool = False
    """Create the group if it does not exist."""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class PrepareShareGroupResponse:
    error: ErrorCode
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    error: ErrorCode
    group_id: str
    state: str
    epoch: int = 0
    members: tuple[DescribedShareMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeShareGroupsResponse:
    groups: tuple[DescribedShareGroup, ...]


GroupRequest = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
    | OffsetDeleteRequest
    | ListGroupsRequest
    | DescribeGroupsRequest
    | DeleteGroupsRequest
    | ShareHeartbeatRequest
    | DescribeShareGroupsRequest
    | PrepareShareGroupRequest
)

GroupResponse = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | ListGroupsResponse
    | DescribeGroupsResponse
    | DeleteGroupsResponse
    | ShareHeartbeatResponse
    | DescribeShareGroupsResponse
    | PrepareShareGroupResponse
)
