"""SyncGroup, Heartbeat and LeaveGroup: the requests of members.

Each request is first checked for its sender. The checks have the order that clients expect: an instance id that now
belongs to another member is fenced permanently, so that of two processes with the same instance id the older one stops;
an unknown member must join as a new one; a member with a wrong generation must join again.
"""

from __future__ import annotations

from drmq.groups.classic.group import Group, Member
from drmq.groups.classic.rounds import Rounds, sync_response
from drmq.groups.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from drmq.groups.quota import Quota
from drmq.groups.state import GroupState
from drmq.groups.step import Turn
from drmq.model import ErrorCode


def member_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """The error if this is not a member of the group: fenced, or unknown."""
    if instance_id:
        owner = group.static.get(instance_id)
        if owner is not None and owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


class Membership:
    """Handles SyncGroup, Heartbeat and LeaveGroup."""

    def __init__(self, rounds: Rounds, quota: Quota) -> None:
        self._rounds = rounds
        self._quota = quota

    def sync(self, ticket: int, request: SyncGroupRequest, turn: Turn) -> None:
        group = self._rounds.groups.get(request.group_id)
        error = _request_error(group, request)
        if group is None or error is not ErrorCode.NONE:
            turn.answer(ticket, SyncGroupResponse(error))
            return
        member = group.members[request.member_id]
        self._rounds.renew_session(group, member, turn.now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            turn.answer(ticket, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        elif not _protocol_agrees(group, request):
            turn.answer(ticket, SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is GroupState.STABLE:
            self._rounds.note_sync(group, member)
            turn.answer(ticket, sync_response(group, member))
        elif group.leader != member.member_id:
            self._rounds.note_sync(group, member)
            self._rounds.park_sync(group, member, ticket, turn)
        else:
            shares = {
                each.member_id: each.assignment for each in request.assignments if each.member_id in group.members
            }
            # It has asked in time, also if it is refused: else it is removed, and there may be no room to join anew.
            self._rounds.note_sync(group, member)
            size_bytes = sum(map(len, shares.values()))
            owner, growth = self._rounds.held.caller_of(group.group_id), size_bytes - group.released_bytes
            charged = self._quota.charged_caller(owner, member.client_host, size_bytes, growth, turn.now_ms)
            if charged is None:
                # Clients join again after this code, until there is room. Codes that say more, such as
                # GROUP_MAX_SIZE_REACHED, end a Java consumer, then the next leader of the group, until none is left.
                turn.answer(ticket, SyncGroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            self._rounds.park_sync(group, member, ticket, turn)
            self._rounds.assign(group, shares, charged, turn)

    def heartbeat(self, ticket: int, request: HeartbeatRequest, turn: Turn) -> None:
        group = self._rounds.groups.get(request.group_id)
        error = _request_error(group, request)
        if group is not None and error is ErrorCode.NONE:
            self._rounds.renew_session(group, group.members[request.member_id], turn.now_ms)
            # In CompletingRebalance a member that has joined need not do anything; only in PreparingRebalance must it
            # join again.
            if group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        turn.answer(ticket, HeartbeatResponse(error))

    def leave(self, ticket: int, request: LeaveGroupRequest, turn: Turn) -> None:
        group = self._rounds.groups.get(request.group_id)
        if not request.group_id or group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            turn.answer(ticket, LeaveGroupResponse(error))
            return
        results: list[LeftMember] = []
        leavers: dict[str, Member] = {}
        for leaving in request.members:
            error = _leave_error(group, leaving)
            results.append(LeftMember(leaving.member_id, leaving.instance_id, error))
            if error is not ErrorCode.NONE:
                continue
            member_id = leaving.member_id or group.static[leaving.instance_id or ""]
            if member_id in group.members:
                leavers[member_id] = group.members[member_id]
            else:
                self._rounds.remove_pending(group, member_id)
        if leavers:
            self._rounds.remove_members(group, leavers.values(), turn)
        self._rounds.maybe_end_join_round(group, turn)
        self._rounds.forget_if_unused(group)
        turn.answer(ticket, LeaveGroupResponse(ErrorCode.NONE, tuple(results)))


def _request_error(group: Group | None, request: SyncGroupRequest | HeartbeatRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = member_error(group, request.member_id, request.instance_id)
    if error is ErrorCode.NONE and request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _protocol_agrees(group: Group, request: SyncGroupRequest) -> bool:
    """Whether the request names the chosen protocol. Members send it from v5 on; earlier versions do not."""
    return (request.protocol_type is None or request.protocol_type == group.protocol_type) and (
        request.protocol_name is None or request.protocol_name == group.protocol_name
    )


def _leave_error(group: Group, leaving: LeavingMember) -> ErrorCode:
    if not leaving.member_id:
        # An administrator removes the member that has the instance id at present.
        known = leaving.instance_id is not None and leaving.instance_id in group.static
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
    if leaving.member_id in group.pending:
        return ErrorCode.NONE
    return member_error(group, leaving.member_id, leaving.instance_id)
