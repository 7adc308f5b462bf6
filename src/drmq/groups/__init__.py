"""Consumer groups: which member reads which partition, and how far each group has read.

The interface, for a driver that owns a log
-------------------------------------------

    shard = GroupShard(GroupOptions(), new_member_id=lambda client_id: f"{client_id}-{uuid4()}")
    shard.replay(record)                                   every record of the log, in order, on every replica
    shard.snapshot() -> list[GroupRecord]                  records that rebuild the state
    shard.become_leader(now_ms)                            only on the leader, from here:
    shard.submit(ticket, request, now_ms, wall_ms) -> Step
    shard.on_disconnect(tickets, now_ms, wall_ms) -> Step  a connection was closed
    shard.next_deadline() -> int | None                    to be called again after every step
    shard.on_deadline(now_ms, wall_ms) -> Step
    shard.expire_offsets(wall_ms) -> Step                  every few minutes
    shard.forget_topics(names, topic_ids) -> Step          topics were deleted
    shard.resign() -> Step                                 to here

    record_to_bytes(record) -> (key, value | None)         for the topic `__consumer_offsets`
    record_from_bytes(key, value) -> GroupRecord           raises RecordUnreadable

A `Step` has `records` and `answers`, which are pairs of a ticket and a response. With each step the driver

1. appends the records to the log and replays them, in order, before it does anything else;
2. holds the answers back until the log is committed up to its present end, even if the step has no records:
   an answer may depend on records of an earlier step;
3. sets its timer to `next_deadline()`.

`ticket` is any number that the driver has not used before; `now_ms` must not decrease and drives all deadlines;
`wall_ms` is used only to stamp and expire commits. If an append fails, leadership is lost, and the shard must be
discarded: build a new one from the log. No request raises an exception, however invalid it is. A request to a shard
that is not the leader is a bug in the driver.

The idea
--------

A handler decides, `replay` writes. Everything that must survive the coordinator is a record: one record per group and
one per offset, and the last record of a key is the valid one. Everything else (parked joins and syncs, sessions, member
ids that were assigned but not used) is soft state: it is in `classic.Rounds`, which is built from the records when
leadership begins and discarded when it ends.

Always true:

- a group's generation never decreases, over any change of leader, because it is committed before a client
  receives it;
- within a generation there is one assignment: it is stored once, by the leader's first sync, and no
  answer carries it before it is committed;
- a member's commit is accepted only with the current generation;
- a ticket is answered once, or its connection is closed;
- outside a join round, soft and replicated state of a group agree.
- outside a join round, soft and replicated state say the same of a group.

Where things are
----------------

`records` and `replicated` are the stored state, `offsets` the table of offsets; `messages` are requests and responses;
`state` is the table of states; `classic` the rebalance protocol; `commits` and `administration` the other APIs;
`quota` limits what clients can add; `timers`, `step`, `options` and `subscription` are what their names say; `shard` is
the interface.

Not here: authorization, topic existence and topic ids (the API layer), which group belongs to which shard (the broker),
transactional offset commits, the protocol of KIP-848 and share groups. Offsets of topics that a group *with members* no
longer reads are kept until the group is empty. If a member leaves or expires during a join round, and a change of
coordinator interrupts that round, the member is in the group again until its session expires once more; until then its
partitions have no new owner.
"""

from drmq.groups.errors import GroupsError, RecordMalformed, RecordUnreadable, UnknownRecordKind
from drmq.groups.messages import (
    NO_GENERATION,
    NO_OFFSET,
    DeletedGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeShareGroupsRequest,
    DescribeShareGroupsResponse,
    FetchedOffset,
    GroupRequest,
    GroupResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberAssignment,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionResult,
    PrepareShareGroupRequest,
    PrepareShareGroupResponse,
    ShareHeartbeatRequest,
    ShareHeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from drmq.groups.options import GroupOptions
from drmq.groups.quota import Quota, Usage
from drmq.groups.records import (
    GroupDeleted,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetCommitted,
    OffsetDeleted,
    Protocol,
    ShareGroupMetadata,
    record_from_bytes,
    record_to_bytes,
)
from drmq.groups.replicated import ReplicatedState
from drmq.groups.shard import GroupShard
from drmq.groups.share import ShareTiming
from drmq.groups.state import GroupState
from drmq.groups.step import Answer, Step

__all__ = [
    "NO_GENERATION",
    "NO_OFFSET",
    "Answer",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeletedGroupResult",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeShareGroupsRequest",
    "DescribeShareGroupsResponse",
    "DescribedGroup",
    "DescribedMember",
    "FetchedOffset",
    "GroupDeleted",
    "GroupMetadata",
    "GroupOptions",
    "GroupRecord",
    "GroupRequest",
    "GroupResponse",
    "GroupShard",
    "GroupState",
    "GroupsError",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "JoinedMember",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "LeavingMember",
    "LeftMember",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListedGroup",
    "MemberAssignment",
    "MemberMetadata",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetCommitted",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetDeleted",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetToCommit",
    "PartitionResult",
    "PrepareShareGroupRequest",
    "PrepareShareGroupResponse",
    "Protocol",
    "Quota",
    "RecordMalformed",
    "RecordUnreadable",
    "ReplicatedState",
    "ShareGroupMetadata",
    "ShareHeartbeatRequest",
    "ShareHeartbeatResponse",
    "ShareTiming",
    "Step",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "UnknownRecordKind",
    "Usage",
    "record_from_bytes",
    "record_to_bytes",
]
