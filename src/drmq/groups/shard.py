"""The coordinator of one shard of groups: the interface of this package.

It consists of two parts. The replicated state exists on every replica and is changed only by `replay`. The coordinator
itself exists only while this replica is the leader: requests, deadlines and parked responses, all of them soft state.
The package docstring has the contract with the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable

from drmq.groups.administration import Administration
from drmq.groups.classic import Joins, Membership, Rounds
from drmq.groups.commits import Commits
from drmq.groups.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeShareGroupsRequest,
    GroupRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    PartitionResult,
    PrepareShareGroupRequest,
    ShareHeartbeatRequest,
    SyncGroupRequest,
)
from drmq.groups.options import GroupOptions
from drmq.groups.quota import GROUP_BYTES, Quota, Usage
from drmq.groups.records import GroupRecord
from drmq.groups.replicated import ReplicatedState
from drmq.groups.share import PartitionsOf, ShareGroups, ShareTiming, TimingOf
from drmq.groups.step import Step, Turn
from drmq.model import ErrorCode, TopicId


class _Coordinator:
    """Everything that exists only while this replica is the leader."""

    def __init__(
        self,
        replicated: ReplicatedState,
        options: GroupOptions,
        new_member_id: Callable[[str], str],
        is_deleted: Callable[[TopicId], bool],
        quota: Quota,
        partitions_of: PartitionsOf,
        timing_of: TimingOf,
    ) -> None:
        self.rounds = Rounds(options)
        self.share = ShareGroups(
            replicated.share,
            lambda group_id: group_id in replicated or group_id in self.rounds.groups,
            options,
            partitions_of,
            timing_of,
            quota,
        )
        self.joins = Joins(self.rounds, options, new_member_id, quota, replicated)
        self.membership = Membership(self.rounds, quota)
        self.commits = Commits(replicated, self.rounds, options, is_deleted, quota)
        self.administration = Administration(replicated, self.rounds, self.share, options)


class GroupShard:
    """One replica's copy of a set of groups. Owned by one driver; not shared between threads."""

    def __init__(
        self,
        options: GroupOptions,
        new_member_id: Callable[[str], str],
        is_deleted: Callable[[TopicId], bool] = lambda topic_id: False,
        quota: Quota | None = None,
        partitions_of: PartitionsOf = lambda topic: None,
        timing_of: TimingOf = lambda group_id: ShareTiming(),
    ) -> None:
        """`is_deleted` says whether a topic with this id existed and was deleted. `timing_of` is for share groups.

        `quota` has the limits that this shard shares with others. Without it, they are for this shard alone.
        """
        self._quota = quota or Quota(options, lambda: self.usage, self.recount, held=self.held_by)
        self._partitions_of = partitions_of
        self._timing_of = timing_of
        self._options = options
        self._new_member_id = new_member_id
        self._is_deleted = is_deleted
        self._coordinator: _Coordinator | None = None
        self.replicated = ReplicatedState()

    # On every replica

    def replay(self, record: GroupRecord) -> None:
        """Apply the next record of the log: a stored one, or one that the last step asked to append."""
        self.replicated.replay(record)

    def snapshot(self) -> list[GroupRecord]:
        """Records that rebuild the replicated state when replayed into a new shard."""
        return self.replicated.snapshot()

    @property
    def usage(self) -> Usage:
        """The groups of this shard and their memory, including groups and members that are not stored yet."""
        groups, size_bytes = self.replicated.usage
        if self._coordinator is not None:
            unstored = max(0, len(self._coordinator.rounds.groups) - len(self.replicated.groups))
            groups += unstored
            size_bytes += unstored * GROUP_BYTES + self._coordinator.rounds.unstored_bytes
        return Usage(groups, size_bytes)

    def recount(self) -> None:
        """Count again what is not stored: `usage` still has members that left before they were stored."""
        if self._coordinator is not None:
            self._coordinator.rounds.recount(self.replicated.groups)

    def held_by(self, caller: str) -> int:
        """What members of groups take that count for a caller, if this replica leads."""
        if self._coordinator is None:
            return 0
        return self._coordinator.rounds.held.of(caller) + self._coordinator.share.held.of(caller)

    @property
    def is_leader(self) -> bool:
        return self._coordinator is not None

    def become_leader(self, now_ms: int) -> None:
        """Start to answer requests. The whole log must have been replayed; every member gets a new session."""
        coordinator = _Coordinator(
            self.replicated,
            self._options,
            self._new_member_id,
            self._is_deleted,
            self._quota,
            self._partitions_of,
            self._timing_of,
        )
        coordinator.share.adopt(now_ms)
        for stored in self.replicated.groups.values():
            coordinator.rounds.adopt(stored, now_ms)
        self._coordinator = coordinator

    def resign(self) -> Step:
        """Stop answering and drop all soft state. The step sends the clients of parked requests to the new coordinator.

        If records were replayed and then truncated from the log, the replicated state is invalid: build a new shard
        from the log.
        """
        turn = Turn(now_ms=0, wall_ms=0)
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            for group in coordinator.rounds.groups.values():
                for member in group.members.values():
                    coordinator.rounds.fail_parked(group, member, ErrorCode.NOT_COORDINATOR, turn)
        return turn.step()

    # On the leader

    def handle(self, ticket: int, request: GroupRequest, now_ms: int, wall_ms: int) -> Step:
        """Handle a request. Its response, with its ticket, is in this step or in a later one."""
        turn = Turn(now_ms, wall_ms)
        leading = self._leading
        is_share = getattr(request, "group_id", None) in self.replicated.share.groups
        match request:
            case JoinGroupRequest() if is_share:
                turn.answer(ticket, JoinGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
            case OffsetCommitRequest() if is_share:
                refusal = ErrorCode.GROUP_ID_NOT_FOUND
                results = [PartitionResult(each.topic, each.partition, refusal) for each in request.offsets]
                turn.answer(ticket, OffsetCommitResponse(tuple(results)))
            case JoinGroupRequest():
                leading.joins.join(ticket, request, turn)
            case SyncGroupRequest():
                leading.membership.sync(ticket, request, turn)
            case HeartbeatRequest():
                leading.membership.heartbeat(ticket, request, turn)
            case LeaveGroupRequest():
                leading.membership.leave(ticket, request, turn)
            case OffsetCommitRequest():
                leading.commits.commit(ticket, request, turn)
            case OffsetFetchRequest():
                leading.commits.fetch(ticket, request, turn)
            case OffsetDeleteRequest():
                leading.administration.delete_offsets(ticket, request, turn)
            case ListGroupsRequest():
                leading.administration.list_groups(ticket, request, turn)
            case DescribeGroupsRequest():
                leading.administration.describe_groups(ticket, request, turn)
            case DeleteGroupsRequest():
                leading.administration.delete_groups(ticket, request, turn)
            case ShareHeartbeatRequest():
                leading.share.heartbeat(ticket, request, turn)
            case DescribeShareGroupsRequest():
                leading.share.describe(ticket, request, turn)
            case PrepareShareGroupRequest():
                leading.share.prepare(ticket, request, turn)
        return turn.step()

    def on_disconnect(self, tickets: Iterable[int], now_ms: int, wall_ms: int) -> Step:
        """The connection of these tickets is closed: none of them will be answered any more."""
        turn = Turn(now_ms, wall_ms)
        for ticket in tickets:
            self._leading.rounds.on_disconnect(ticket, turn)
        return turn.step()

    def next_deadline(self) -> int | None:
        """When, on the clock of `now_ms`, `on_deadline` has something to do."""
        if self._coordinator is None:
            return None
        timers = (self._coordinator.rounds.timers.next_ms(), self._coordinator.share.timers.next_ms())
        return min((each for each in timers if each is not None), default=None)

    def on_deadline(self, now_ms: int, wall_ms: int) -> Step:
        """Handle every deadline that is due: sessions, rounds and unused ids. Afterwards nothing is due."""
        turn = Turn(now_ms, wall_ms)
        self._leading.rounds.on_deadline(turn)
        self._leading.share.on_deadline(turn)
        return turn.step()

    def take_lost_members(self) -> list[tuple[str, str]]:
        """Group and id of the members of share groups whose session has expired since the last call."""
        if self._coordinator is None or not self._coordinator.share.lost:
            return []
        lost, self._coordinator.share.lost = self._coordinator.share.lost, []
        return lost

    def expire_offsets(self, wall_ms: int, count_max: int = 1 << 62) -> Step:
        """Delete offsets that retention no longer covers. Call it every few minutes; Kafka takes ten.

        If the step has `count_max` records there may be more to delete: call it again once these are committed.
        """
        turn = Turn(now_ms=0, wall_ms=wall_ms)
        self._leading.administration.expire(turn, count_max)
        return turn.step()

    def forget_topics(self, names: Collection[str], topic_ids: Container[TopicId] = ()) -> Step:
        """Remove the offsets of deleted topics: by id and, for offsets without an id, by names that are free."""
        turn = Turn(now_ms=0, wall_ms=0)
        self._leading.administration.forget_topics(names, turn)
        self._leading.commits.forget_topics(topic_ids, turn)
        return turn.step()

    def share_groups_in_deletion(self) -> list[str]:
        """Share groups that are to be removed as soon as their queues are."""
        return [group_id for group_id, group in self.replicated.share.groups.items() if group.is_deleting]

    def finish_deletion(self, group_id: str) -> Step:
        """The queues of a share group that is being deleted are removed."""
        turn = Turn(now_ms=0, wall_ms=0)
        self._leading.share.finish_deletion(group_id, turn)
        return turn.step()

    @property
    def _leading(self) -> _Coordinator:
        assert self._coordinator is not None, "a request reached a shard that does not lead"
        return self._coordinator
