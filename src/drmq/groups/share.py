"""Share groups: which members there are, and which partitions each of them works on.

Members of a share group lease records, so a partition may be assigned to several of them, and nothing has to be handed
over when an assignment changes: there are no rounds. An assignment follows from the members, their topics and the
number of partitions (`assign`), and is not stored. A member learns of it with a heartbeat.

A group that is deleted has queues elsewhere (`drmq.leases`). First it is marked, and takes no members any more; when
the driver has removed the queues, it is gone (`finish_deletion`). So a crash in between leaves nothing behind.

Replicated: the members with their topics, and the epoch of the group, which grows with every change of them. Soft: the
deadlines of members, and the assignment that each was sent last. A new coordinator sends every assignment again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from drmq.groups.messages import (
    DescribedShareGroup,
    DescribedShareMember,
    DescribeShareGroupsRequest,
    DescribeShareGroupsResponse,
    ListedGroup,
    PrepareShareGroupRequest,
    PrepareShareGroupResponse,
    ShareAssignment,
    ShareHeartbeatRequest,
    ShareHeartbeatResponse,
)
from drmq.groups.options import GroupOptions
from drmq.groups.quota import GROUP_BYTES, MEMBER_BYTES, Held, Quota
from drmq.groups.records import ShareGroupDeleted, ShareGroupMetadata, ShareMember, ShareMemberLeft
from drmq.groups.state import GroupState
from drmq.groups.step import Turn
from drmq.model import ErrorCode, Timers, TopicId
from drmq.model.names import is_group_id

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
_MEMBER_ID_MAX = 36
_LIMITED = "the groups of this node have reached a limit; see its log"

PartitionsOf = Callable[[str], "tuple[TopicId, int] | None"]
"""The id of a topic and the number of its partitions; None if there is no such topic."""


class ShareTiming(NamedTuple):
    """Settings of a share group that its coordinator needs."""

    session_timeout_ms: int = 45_000
    """How long a member may be silent. Its leases end by their own time."""
    heartbeat_interval_ms: int = 5_000
    """How often a member reports. It learns of a new assignment with a report."""


TimingOf = Callable[[str], ShareTiming]
"""The settings of a group."""


@dataclass(slots=True)
class ShareGroup:
    """A share group as it is stored."""

    epoch: int = 0
    is_deleting: bool = False
    members: dict[str, ShareMember] = field(default_factory=dict)


@dataclass(slots=True)
class ShareGroupTable:
    """The stored share groups of a shard. Only `replay` changes it."""

    groups: dict[str, ShareGroup] = field(default_factory=dict)
    size_bytes: int = 0
    """The memory of all members."""

    def replay(self, record: ShareGroupMetadata | ShareGroupDeleted | ShareMember | ShareMemberLeft) -> None:
        if isinstance(record, ShareGroupDeleted):
            gone = self.groups.pop(record.group_id, None)
            self.size_bytes -= sum(map(member_bytes, gone.members.values())) if gone is not None else 0
            return
        group = self.groups.setdefault(record.group_id, ShareGroup())
        if isinstance(record, ShareGroupMetadata):
            group.epoch, group.is_deleting = record.epoch, record.is_deleting
            return
        before = group.members.pop(record.member_id, None)
        self.size_bytes -= 0 if before is None else member_bytes(before)
        if isinstance(record, ShareMember):
            group.members[record.member_id] = record
            self.size_bytes += member_bytes(record)

    def snapshot(self) -> Iterable[ShareGroupMetadata | ShareMember]:
        for group_id in sorted(self.groups):
            group = self.groups[group_id]
            yield ShareGroupMetadata(group_id, group.epoch, group.is_deleting)
            for member_id in sorted(group.members):
                yield group.members[member_id]


def member_bytes(member: ShareMember) -> int:
    """The memory of a member."""
    return MEMBER_BYTES + len(member.client_id) + len(member.rack_id or "") + sum(map(len, member.topics))


def assign(members: Mapping[str, ShareMember], partitions_of: PartitionsOf) -> dict[str, ShareAssignment]:
    """The partitions of each member. Every partition has a member, and members of a topic have about as many each."""
    readers: dict[str, list[str]] = {}
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            readers.setdefault(topic, []).append(member_id)
    assigned: dict[str, list[tuple[TopicId, tuple[int, ...]]]] = {member_id: [] for member_id in members}
    for topic in sorted(readers):
        found = partitions_of(topic)
        if found is None:
            continue
        topic_id, count = found
        names = readers[topic]
        for index, member_id in enumerate(names):
            mine = tuple(range(index, count, len(names))) if index < count else (index % count,)
            assigned[member_id].append((topic_id, mine))
    return {member_id: tuple(parts) for member_id, parts in assigned.items()}


class ShareGroups:
    """The coordinator of share groups. Exists while its shard leads."""

    def __init__(
        self,
        table: ShareGroupTable,
        is_classic: Callable[[str], bool],
        options: GroupOptions,
        partitions_of: PartitionsOf,
        timing_of: TimingOf,
        quota: Quota,
    ) -> None:
        self._quota = quota
        self._timing_of = timing_of
        self._table = table
        self._is_classic = is_classic
        self._options = options
        self._partitions_of = partitions_of
        self.timers: Timers[tuple[str, str]] = Timers()
        self._sent: dict[tuple[str, str], ShareAssignment] = {}
        self.held = Held()
        """By group and id of a member."""
        self.lost: list[tuple[str, str]] = []
        """Group and id of members whose session has expired, until `GroupShard.take_lost_members`."""

    def adopt(self, now_ms: int) -> None:
        """Give every stored member its full session."""
        for group_id, group in self._table.groups.items():
            timeout_ms = self._timing_of(group_id).session_timeout_ms
            for member_id, member in group.members.items():
                self.timers.set((group_id, member_id), now_ms + timeout_ms)
                self.held.put((group_id, member_id), member.client_host, member_bytes(member))

    def heartbeat(self, ticket: int, request: ShareHeartbeatRequest, turn: Turn) -> None:
        error, text = self._refusal(request)
        if error is not ErrorCode.NONE:
            turn.answer(ticket, ShareHeartbeatResponse(error, request.member_id, error_message=text))
            return
        key = (request.group_id, request.member_id)
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(request.group_id, request.member_id, turn)
            turn.answer(ticket, ShareHeartbeatResponse(ErrorCode.NONE, request.member_id, LEAVE_EPOCH))
            return
        group = self._table.groups.get(request.group_id, ShareGroup())
        known = group.members.get(request.member_id)
        members, epoch = group.members, group.epoch
        topics = known.topics if request.topics is None and known is not None else tuple(sorted(request.topics or ()))
        if known is None or topics != known.topics:
            epoch += 1
            member = ShareMember(
                request.group_id,
                request.member_id,
                epoch,
                topics,
                request.client_id,
                request.client_host,
                request.rack_id,
            )
            if not self._is_admitted(member, known, request.group_id not in self._table.groups, turn.now_ms):
                # As for classic groups: the first code ends a consumer, the second lets it come again.
                error = ErrorCode.GROUP_MAX_SIZE_REACHED if known is None else ErrorCode.COORDINATOR_NOT_AVAILABLE
                turn.answer(ticket, ShareHeartbeatResponse(error, request.member_id, error_message=_LIMITED))
                return
            members = {**members, request.member_id: member}
            turn.records += [ShareGroupMetadata(request.group_id, epoch), member]
        timing = self._timing_of(request.group_id)
        self.timers.set(key, turn.now_ms + timing.session_timeout_ms)
        assignment: ShareAssignment | None = assign(members, self._partitions_of)[request.member_id]
        is_joining = request.member_epoch == JOIN_EPOCH
        if assignment == self._sent.get(key) and not is_joining and request.topics is None:
            assignment = None
        else:
            assert assignment is not None
            self._sent[key] = assignment
        turn.answer(
            ticket,
            ShareHeartbeatResponse(
                ErrorCode.NONE,
                request.member_id,
                max(epoch, 1),
                timing.heartbeat_interval_ms,
                assignment,
            ),
        )

    def _is_admitted(self, member: ShareMember, known: ShareMember | None, is_new_group: bool, now_ms: int) -> bool:
        """Whether there is room for the member, or for what it adds to its place. If so, it counts for its caller."""
        key, caller, size_bytes = (member.group_id, member.member_id), member.client_host, member_bytes(member)
        charged: str | None
        if is_new_group:
            charged = caller if self._quota.admits(caller, 1, GROUP_BYTES, now_ms, size_bytes) else None
        else:
            growth = size_bytes - (0 if known is None else member_bytes(known))
            charged = self._quota.charged_caller(self.held.caller_of(key), caller, size_bytes, growth, now_ms)
        if charged is not None:
            self.held.put(key, charged, size_bytes)
        return charged is not None

    def _refusal(self, request: ShareHeartbeatRequest) -> tuple[ErrorCode, str | None]:
        if not is_group_id(request.group_id):
            return ErrorCode.INVALID_GROUP_ID, "the group id is empty or too long"
        if not request.member_id or len(request.member_id) > _MEMBER_ID_MAX:
            return ErrorCode.INVALID_REQUEST, f"a member id has 1 to {_MEMBER_ID_MAX} characters"
        if request.member_epoch < LEAVE_EPOCH:
            return ErrorCode.INVALID_REQUEST, f"{request.member_epoch} is not a member epoch"
        if self._is_classic(request.group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND, f"{request.group_id} is a consumer group, not a share group"
        group = self._table.groups.get(request.group_id)
        if group is not None and group.is_deleting:
            # A client tries again after this code, and finds the group gone.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{request.group_id} is being deleted; try again"
        known = None if group is None else group.members.get(request.member_id)
        if request.member_epoch == JOIN_EPOCH:
            if request.topics is None:
                return ErrorCode.INVALID_REQUEST, "a member that joins must name its topics"
            if known is None and group is not None and len(group.members) >= self._options.group_size_max:
                return ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {self._options.group_size_max} members"
            return ErrorCode.NONE, None
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {request.member_id}"
        if group is not None and request.member_epoch > group.epoch:
            return (
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"epoch {request.member_epoch} is newer than the group's, {group.epoch}",
            )
        return ErrorCode.NONE, None

    def on_deadline(self, turn: Turn) -> None:
        """Remove the members whose session has expired."""
        while (key := self.timers.take_due(turn.now_ms)) is not None:
            self._remove(*key, turn)
            self.lost.append(key)

    def _remove(self, group_id: str, member_id: str, turn: Turn) -> None:
        self.timers.cancel((group_id, member_id))
        self._sent.pop((group_id, member_id), None)
        self.held.drop((group_id, member_id))
        group = self._table.groups.get(group_id)
        if group is not None and member_id in group.members:
            # Several members of one group may expire in one turn, before any of it is replayed.
            epoch = max(
                [
                    group.epoch,
                    *(r.epoch for r in turn.records if isinstance(r, ShareGroupMetadata) and r.group_id == group_id),
                ]
            )
            turn.records += [ShareGroupMetadata(group_id, epoch + 1), ShareMemberLeft(group_id, member_id)]

    # ---- administration -------------------------------------------------------------------------

    def listed(self) -> list[ListedGroup]:
        return [
            ListedGroup(group_id, "share", _state(group).value, "share")
            for group_id, group in sorted(self._table.groups.items())
            if not group.is_deleting
        ]

    def describe(self, ticket: int, request: DescribeShareGroupsRequest, turn: Turn) -> None:
        turn.answer(ticket, DescribeShareGroupsResponse(tuple(self._describe(each) for each in request.group_ids)))

    def _describe(self, group_id: str) -> DescribedShareGroup:
        group = self._table.groups.get(group_id)
        if group is None or group.is_deleting:
            return DescribedShareGroup(ErrorCode.GROUP_ID_NOT_FOUND, group_id, GroupState.DEAD.value)
        assigned = assign(group.members, self._partitions_of)
        members = tuple(
            DescribedShareMember(
                member.member_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                member.topics,
                assigned[member.member_id],
            )
            for member in group.members.values()
        )
        return DescribedShareGroup(ErrorCode.NONE, group_id, _state(group).value, group.epoch, members)

    def prepare(self, ticket: int, request: PrepareShareGroupRequest, turn: Turn) -> None:
        """Check that the queues of a group may be changed, and create it if that is asked for."""
        error, text = self._unprepared(request)
        if error is ErrorCode.NONE and request.group_id not in self._table.groups:
            if self._quota.admits(request.client_host, 1, GROUP_BYTES, turn.now_ms):
                turn.records.append(ShareGroupMetadata(request.group_id, 1))
            else:
                error, text = ErrorCode.GROUP_MAX_SIZE_REACHED, _LIMITED
        turn.answer(ticket, PrepareShareGroupResponse(error, text))

    def _unprepared(self, request: PrepareShareGroupRequest) -> tuple[ErrorCode, str | None]:
        group_id, group = request.group_id, self._table.groups.get(request.group_id)
        if not is_group_id(group_id):
            return ErrorCode.INVALID_GROUP_ID, "the group id is empty or too long"
        if group is None and (not request.creates or self._is_classic(group_id)):
            return ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id}"
        if group is not None and group.is_deleting:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{group_id} is being deleted; try again"
        if group is not None and group.members:
            return (
                ErrorCode.NON_EMPTY_GROUP,
                f"{group_id} has {len(group.members)} members, whose leases would end; stop them first",
            )
        return ErrorCode.NONE, None

    def delete(self, group_id: str, turn: Turn) -> ErrorCode:
        """Begin to delete a group without members."""
        group = self._table.groups[group_id]
        if group.members:
            return ErrorCode.NON_EMPTY_GROUP
        if not group.is_deleting:
            turn.records.append(ShareGroupMetadata(group_id, group.epoch, is_deleting=True))
        return ErrorCode.NONE

    def finish_deletion(self, group_id: str, turn: Turn) -> None:
        """The queues of a group that is being deleted are removed."""
        group = self._table.groups.get(group_id)
        if group is not None and group.is_deleting:
            turn.records.append(ShareGroupDeleted(group_id))


def _state(group: ShareGroup) -> GroupState:
    return GroupState.STABLE if group.members else GroupState.EMPTY
