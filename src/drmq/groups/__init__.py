"""Consumer groups: who reads which partition, and how far each group has come.

The interface, for a driver that owns a log
-------------------------------------------

    shard = GroupShard(GroupOptions(), new_member_id=lambda client_id: f"{client_id}-{uuid4()}")
    shard.replay(record)                                   every record of the log, in order, on every replica
    shard.snapshot() -> list[GroupRecord]                  records that rebuild the state
    shard.become_leader(now_ms)                            from now on:
    shard.submit(ticket, request, now_ms, wall_ms) -> Step
    shard.on_disconnect(tickets, now_ms, wall_ms) -> Step  a connection is gone
    shard.next_deadline() -> int | None                    ask again after every step
    shard.on_deadline(now_ms, wall_ms) -> Step
    shard.expire_offsets(wall_ms) -> Step                  every few minutes
    shard.forget_topics(names, topic_ids) -> Step          topics were deleted
    shard.resign() -> Step                                 until here

    record_to_bytes(record) -> (key, value | None)         for the topic `__consumer_offsets`
    record_from_bytes(key, value) -> GroupRecord           raises RecordUnreadable

A `Step` has `records` and `answers`, pairs of a ticket and a response. With each step the driver

1. appends the records to the log and replays them, in order, before it does anything else;
2. holds the answers back until the log is committed up to its end at that moment, also where the step
   has no records of its own: an answer may rest on what an earlier step appended;
3. sets its timer to `next_deadline()`.

`ticket` is any number the driver has not used before; `now_ms` must not fall and drives all deadlines;
`wall_ms` only stamps commits and expires them. If an append fails, leadership is lost, and with it the
shard: build a new one from the log. Nothing here raises for a request, however odd; a request to a
shard that does not lead is a bug in the driver.

The idea
--------

A handler decides, `replay` writes. Whatever must outlive the coordinator is a record: a whole group per
record, an offset per record, the last one per key being the truth. Everything else (parked joins and
syncs, sessions, ids given out but not used) is soft: it lives in `classic.Rounds`, which is built from
the records when leadership begins and thrown away when it ends.

Always true:

- a group's generation never falls, over any change of leader, because it is committed before a client
  hears of it;
- within a generation there is one assignment: it is stored once, by the leader's first sync, and no
  answer carries it before it is committed;
- a member's commit counts only with the current generation;
- a ticket is answered once, or its connection is gone;
- outside a join round, soft and replicated state say the same of a group.

Where things are
----------------

`records` and `replicated` are what is stored, `offsets` the table of offsets; `messages` what comes and
goes; `state` the table of states; `classic` the rebalance protocol; `commits` and `administration` the
other APIs; `timers`, `step`, `options`, `subscription` what their names say; `shard` the door.

Not here: authorization, topic existence and topic ids (the API layer), which group belongs to which
shard (the broker), transactional offset commits, the protocol of KIP-848 and share groups. Offsets of
topics that a *live* group no longer reads are kept until the group is empty. A member that leaves, or
expires, during a join round that a change of coordinator cuts short is back in the group until its
session ends once more; the price is that its partitions wait that long for a new owner.
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
    SyncGroupRequest,
    SyncGroupResponse,
)
from drmq.groups.options import GroupOptions
from drmq.groups.records import (
    GroupDeleted,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetCommitted,
    OffsetDeleted,
    Protocol,
    record_from_bytes,
    record_to_bytes,
)
from drmq.groups.replicated import ReplicatedState
from drmq.groups.shard import GroupShard
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
    "Protocol",
    "RecordMalformed",
    "RecordUnreadable",
    "ReplicatedState",
    "Step",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "UnknownRecordKind",
    "record_from_bytes",
    "record_to_bytes",
]
