"""The rounds of a rebalance: the changes of a group's state, and every deadline.

`Rounds` is the soft state of a shard's leader: its groups, their timers and the parked requests. A group is written to
the log at four moments, each time as one record of the whole group: when a join round ends with a new generation, when
it ends with an empty group, when the leader's assignment arrives, and when a static member gets a new id. The end of
the join round is stored before any member receives the new generation. So a generation that a client has seen is never
assigned again, and a new coordinator can continue the sync round where the old one stopped.

A group that is still joining is not stored. If the coordinator fails then, the group is again in its state before the
round: members ask again, and a member that had left counts as present until its session expires.

Deadlines. *Session*: a member has been silent for too long. It runs while the member has no parked request, and every
request of the member restarts it. *Pending member*: an id was assigned and not used. *Join round*: the largest
rebalance timeout in the group; members that have not joined by then are dropped. *Sync round*: the same time again for
the members to ask for their assignment. *Initial delay*: the time that the first member of an empty group waits for
more members.

A parked request whose connection is closed is dropped: its ticket is never answered. A new member that its client does
not know of yet is removed with it. Any other member has its session timeout to return, so the group waits for the
shorter of that and the round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drmq.groups.classic.group import Group, Member
from drmq.groups.messages import JoinGroupResponse, SyncGroupResponse
from drmq.groups.options import GroupOptions
from drmq.groups.quota import GROUP_BYTES, MEMBER_BYTES, Held
from drmq.groups.records import GroupMetadata
from drmq.groups.replicated import members_bytes
from drmq.groups.state import GroupState
from drmq.groups.step import Turn
from drmq.groups.timers import TimerKey, TimerKind
from drmq.model import ErrorCode, Timers


@dataclass(frozen=True, slots=True)
class Parked:
    """The group and member that the parked request with a ticket belongs to."""

    group_id: str
    member_id: str


class Rounds:
    """The soft state of one shard's leader. Discarded as a whole when leadership ends."""

    def __init__(self, options: GroupOptions) -> None:
        self.options = options
        self.groups: dict[str, Group] = {}
        self.timers: Timers[TimerKey] = Timers()
        self.parked: dict[int, Parked] = {}
        self.held = Held()
        """Members and unused member ids, by group and member id; the assignments of a group, by its id."""
        self.unstored_bytes = 0
        """`Group.unstored_bytes` of all groups, and the memory of member ids that were assigned and not used."""

    def adopt(self, stored: GroupMetadata, now_ms: int) -> None:
        """Take over a stored group. Its members get a new session, because it is unknown when they were last heard.

        A member that does not find the new coordinator within that time is removed.
        """
        group = Group.from_metadata(stored)
        self.groups[group.group_id] = group
        for member in group.members.values():
            self.renew_session(group, member, now_ms)
            self.hold(group, member, member.client_host)
        assigner = group.members.get(group.leader or "") or next(iter(group.members.values()), None)
        if assigner is not None:
            self._hold_assignments(group, assigner.client_host)
        if group.awaiting_sync:
            self.timers.set(_sync_key(group), now_ms + group.rebalance_timeout_ms)

    def open(self, group_id: str) -> Group:
        """The group, created if it does not exist."""
        return self.groups.setdefault(group_id, Group(group_id))

    def forget(self, group: Group) -> None:
        """Drop a group without members, and its unused member ids."""
        assert not group.members, (group.group_id, list(group.members))
        for member_id in group.pending:
            self.timers.cancel(_pending_key(group, member_id))
            self.held.drop((group.group_id, member_id))
        self.held.drop(group.group_id)
        self.unstored_bytes -= group.unstored_bytes + GROUP_BYTES * len(group.pending)
        del self.groups[group.group_id]

    def forget_if_unused(self, group: Group) -> None:
        """Drop a group that was never stored, such as one whose only client never joined."""
        if group.generation == 0 and group.state is GroupState.EMPTY and not group.pending:
            self.forget(group)

    # Sessions and parked requests

    def renew_session(self, group: Group, member: Member, now_ms: int) -> None:
        """Restart the member's session. While one of its requests is parked, it has none."""
        if member.join_ticket is None and member.sync_ticket is None:
            self.timers.set(_session_key(group, member), now_ms + member.session_timeout_ms)

    def add_pending(self, group: Group, member_id: str, caller: str, session_timeout_ms: int, now_ms: int) -> None:
        assert member_id not in group.pending, (group.group_id, member_id)
        group.pending.add(member_id)
        self.unstored_bytes += GROUP_BYTES
        self.held.put((group.group_id, member_id), caller, GROUP_BYTES)
        self.timers.set(_pending_key(group, member_id), now_ms + session_timeout_ms)

    def remove_pending(self, group: Group, member_id: str) -> None:
        if member_id in group.pending:
            self.timers.cancel(_pending_key(group, member_id))
            group.pending.remove(member_id)
            self.held.drop((group.group_id, member_id))
            self.unstored_bytes -= GROUP_BYTES

    def add_member(self, group: Group, member: Member) -> None:
        self.remove_pending(group, member.member_id)
        group.add(member)
        self.hold(group, member, member.client_host)
        self.add_unstored(group, MEMBER_BYTES + member.stored_bytes)

    def hold(self, group: Group, member: Member, caller: str) -> None:
        """Let what a member takes count for a caller."""
        size_bytes = MEMBER_BYTES + len(group.protocol_type) + member.stored_bytes
        self.held.put((group.group_id, member.member_id), caller, size_bytes)

    def _hold_assignments(self, group: Group, caller: str) -> None:
        self.held.put(group.group_id, caller, sum(len(member.assignment) for member in group.members.values()))

    def add_unstored(self, group: Group, size_bytes: int) -> None:
        """Count what a group needs, and its record does not have yet."""
        group.unstored_bytes += size_bytes
        self.unstored_bytes += size_bytes

    def recount(self, stored: Mapping[str, GroupMetadata]) -> None:
        """Count again what the groups need and their records do not have. Looks at every group, so only if the count
        decides."""
        self.unstored_bytes = 0
        for group in self.groups.values():
            group.unstored_bytes = 0
            is_joining = group.state is GroupState.PREPARING_REBALANCE
            needed = group.released_bytes
            if is_joining:
                # The record is of the round before, and has most of them already.
                members = group.stored_bytes() + MEMBER_BYTES * len(group.members)
                needed = max(0, needed + members - members_bytes(stored.get(group.group_id)))
            self.add_unstored(group, needed)
            self.unstored_bytes += GROUP_BYTES * len(group.pending)

    def park_join(self, group: Group, member: Member, ticket: int, turn: Turn) -> None:
        # The client has given up on its earlier request, but a connection answers in order: an earlier ticket that is
        # never answered would block all later ones.
        self.answer_join(group, member, _failed_join(member, ErrorCode.REBALANCE_IN_PROGRESS), turn)
        member.join_ticket = ticket
        self.parked[ticket] = Parked(group.group_id, member.member_id)
        self.timers.cancel(_session_key(group, member))

    def park_sync(self, group: Group, member: Member, ticket: int, turn: Turn) -> None:
        self.answer_sync(group, member, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS), turn)
        member.sync_ticket = ticket
        self.parked[ticket] = Parked(group.group_id, member.member_id)
        self.timers.cancel(_session_key(group, member))

    def answer_join(self, group: Group, member: Member, response: JoinGroupResponse, turn: Turn) -> None:
        """Answer the member's parked join, if there is one; its session runs from now."""
        if member.join_ticket is None:
            return
        turn.answer(member.join_ticket, response)
        del self.parked[member.join_ticket]
        member.join_ticket = None
        self.renew_session(group, member, turn.now_ms)

    def answer_sync(self, group: Group, member: Member, response: SyncGroupResponse, turn: Turn) -> None:
        """Answer the member's parked sync, if there is one; its session runs from now."""
        if member.sync_ticket is None:
            return
        turn.answer(member.sync_ticket, response)
        del self.parked[member.sync_ticket]
        member.sync_ticket = None
        self.renew_session(group, member, turn.now_ms)

    def fail_parked(self, group: Group, member: Member, error: ErrorCode, turn: Turn) -> None:
        self.answer_join(group, member, _failed_join(member, error), turn)
        self.answer_sync(group, member, SyncGroupResponse(error), turn)

    def on_disconnect(self, ticket: int, turn: Turn) -> None:
        """Drop a parked request whose connection is closed. Other tickets are ignored."""
        parked = self.parked.pop(ticket, None)
        if parked is None:
            return
        group = self.groups[parked.group_id]
        member = group.members[parked.member_id]
        member.join_ticket = member.sync_ticket = None
        if member.is_new:
            self.remove_members(group, [member], turn)
        else:
            self.renew_session(group, member, turn.now_ms)

    # The join round

    def begin_join_round(self, group: Group, turn: Turn) -> None:
        """Ask all members to join again. Parked syncs are answered, because their assignment will not come."""
        for member in group.members.values():
            self.answer_sync(group, member, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS), turn)
        group.awaiting_sync.clear()
        self.timers.cancel(_sync_key(group))
        was_empty = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, turn.wall_ms)
        round_ms = group.rebalance_timeout_ms
        if was_empty and self.options.initial_rebalance_delay_ms > 0:
            delay_ms = min(self.options.initial_rebalance_delay_ms, round_ms)
            group.delay_remaining_ms = round_ms - delay_ms
            group.newcomer_seen = False
            self.timers.set(_delay_key(group), turn.now_ms + delay_ms)
        else:
            self.timers.set(_join_key(group), turn.now_ms + round_ms)

    def maybe_end_join_round(self, group: Group, turn: Turn) -> None:
        """End the join round if there is nothing left to wait for."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if not group.members or (group.delay_remaining_ms is None and group.all_joined):
            self.end_join_round(group, turn)

    def end_join_round(self, group: Group, turn: Turn) -> None:
        """Continue with the members that have joined, and drop the others.

        Static members are kept even so: they may be restarting, and keep their place and their assignment until their
        sessions expire. If only such members are left, the round waits further for one of them.
        """
        self.timers.cancel(_delay_key(group))
        self.timers.cancel(_join_key(group))
        group.delay_remaining_ms = None
        missing = [member for member in group.members.values() if member.join_ticket is None]
        nobody_joined = len(missing) == len(group.members)
        for member in missing:
            if member.instance_id is None:
                self._drop(group, member, turn)
        if group.members and nobody_joined:
            self.timers.set(_join_key(group), turn.now_ms + group.rebalance_timeout_ms)
            return
        group.generation += 1
        if group.members:
            self._begin_sync_round(group, turn)
        else:
            self._become_empty(group, turn)

    def _become_empty(self, group: Group, turn: Turn) -> None:
        group.transition(GroupState.EMPTY, turn.wall_ms)
        group.protocol_name = None
        group.leader = None
        group.released_bytes = 0
        self.held.drop(group.group_id)
        self.store(group, turn)

    # The sync round

    def _begin_sync_round(self, group: Group, turn: Turn) -> None:
        group.transition(GroupState.COMPLETING_REBALANCE, turn.wall_ms)
        group.leader = group.elect_leader()
        group.protocol_name = group.choose_protocol()
        # A static member that did not join has nothing to sync; its session determines how long it is kept.
        group.awaiting_sync = {member.member_id for member in group.members.values() if member.join_ticket is not None}
        self.timers.set(_sync_key(group), turn.now_ms + group.rebalance_timeout_ms)
        for member in group.members.values():
            group.released_bytes += len(member.assignment)
            member.assignment = b""
            member.is_new = False
        self.store(group, turn)
        for member in group.members.values():
            self.answer_join(group, member, group.join_response(member), turn)

    def assign(self, group: Group, assignments: dict[str, bytes], caller: str, turn: Turn) -> None:
        """End the sync round with the leader's assignments. A member without one gets an empty assignment.

        They count for `caller` until the next ones, also while there are none.
        """
        group.transition(GroupState.STABLE, turn.wall_ms)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.released_bytes = 0
        self._hold_assignments(group, caller)
        self.store(group, turn)
        for member in group.members.values():
            self.answer_sync(group, member, sync_response(group, member), turn)

    def note_sync(self, group: Group, member: Member) -> None:
        """Record that the member has asked for its assignment in this generation."""
        group.awaiting_sync.discard(member.member_id)
        if not group.awaiting_sync:
            self.timers.cancel(_sync_key(group))

    # Members and records

    def remove_members(self, group: Group, members: Iterable[Member], turn: Turn) -> None:
        """Remove members and start a rebalance of the others.

        All of them are removed first. One by one, the second would be part of the round that the removal of the first
        starts.
        """
        for member in members:
            self._drop(group, member, turn)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.begin_join_round(group, turn)
        self.maybe_end_join_round(group, turn)

    def _drop(self, group: Group, member: Member, turn: Turn) -> None:
        self.fail_parked(group, member, ErrorCode.UNKNOWN_MEMBER_ID, turn)
        self.timers.cancel(_session_key(group, member))
        group.released_bytes += len(member.assignment)
        self.held.drop((group.group_id, member.member_id))
        group.remove(member)

    def replace_id(self, group: Group, member: Member, member_id: str, turn: Turn) -> None:
        """Give a static member's place to its new process, and fence the old one."""
        self.fail_parked(group, member, ErrorCode.FENCED_INSTANCE_ID, turn)
        self.timers.cancel(_session_key(group, member))
        caller = self.held.caller_of((group.group_id, member.member_id)) or member.client_host
        self.held.drop((group.group_id, member.member_id))
        group.replace_id(member, member_id)
        self.hold(group, member, caller)
        if not group.awaiting_sync:
            self.timers.cancel(_sync_key(group))

    def store(self, group: Group, turn: Turn) -> None:
        turn.records.append(group.to_metadata())
        self.unstored_bytes += group.released_bytes - group.unstored_bytes
        group.unstored_bytes = group.released_bytes

    # Deadlines

    def on_deadline(self, turn: Turn) -> None:
        """Handle every deadline that is due. Terminates, because new deadlines are after `now_ms`."""
        while (key := self.timers.take_due(turn.now_ms)) is not None:
            group = self.groups[key.group_id]
            match key.kind:
                case TimerKind.SESSION:
                    self.remove_members(group, [group.members[key.member_id]], turn)
                case TimerKind.PENDING_MEMBER:
                    self.remove_pending(group, key.member_id)
                    self.maybe_end_join_round(group, turn)
                    self.forget_if_unused(group)
                case TimerKind.INITIAL_DELAY:
                    self._on_initial_delay(group, turn)
                case TimerKind.JOIN_ROUND:
                    self.end_join_round(group, turn)
                case TimerKind.SYNC_ROUND:
                    late = [m for m in group.members.values() if m.member_id in group.awaiting_sync]
                    self.remove_members(group, late, turn)

    def _on_initial_delay(self, group: Group, turn: Turn) -> None:
        """Wait again if members joined during the last wait, but never longer than the rebalance timeout."""
        remaining_ms = group.delay_remaining_ms
        assert remaining_ms is not None, group.group_id
        if not (group.newcomer_seen and remaining_ms > 0):
            self.end_join_round(group, turn)
            return
        delay_ms = min(self.options.initial_rebalance_delay_ms, remaining_ms)
        group.delay_remaining_ms = remaining_ms - delay_ms
        group.newcomer_seen = False
        self.timers.set(_delay_key(group), turn.now_ms + delay_ms)


def sync_response(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def _failed_join(member: Member, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error, member.member_id)


def _session_key(group: Group, member: Member) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member.member_id)


def _pending_key(group: Group, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id)


def _delay_key(group: Group) -> TimerKey:
    return TimerKey(TimerKind.INITIAL_DELAY, group.group_id)


def _join_key(group: Group) -> TimerKey:
    return TimerKey(TimerKind.JOIN_ROUND, group.group_id)


def _sync_key(group: Group) -> TimerKey:
    return TimerKey(TimerKind.SYNC_ROUND, group.group_id)
