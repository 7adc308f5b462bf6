"""JoinGroup: which members may join, and the effect of a join in each state.

A client without a member id is new, or is a static member that has restarted. A new dynamic client is first given an id
and asked to join again with it (KIP-394). Otherwise every retry of a join whose response was lost would leave behind a
member without a client. A static member does not need this, because its instance id identifies it. If it returns
without a member id, it gets a new one in its old place, and a client that still uses the old id is fenced (KIP-345).

The effect of a join by a known member:

    PreparingRebalance    waits for the others
    CompletingRebalance   unchanged: the same response again (it was lost); changed: a new join round
    Stable                a follower, unchanged: its current place; a leader, or changed: a new join round

A leader's join always starts a round, because this is how it announces that the partitions of its topics have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from drmq.groups.classic.group import Group, Member, member_bytes
from drmq.groups.classic.membership import member_error
from drmq.groups.classic.rounds import Rounds
from drmq.groups.messages import JoinGroupRequest, JoinGroupResponse
from drmq.groups.options import GroupOptions
from drmq.groups.quota import GROUP_BYTES, MEMBER_BYTES, Quota
from drmq.groups.replicated import ReplicatedState
from drmq.groups.state import GroupState
from drmq.groups.step import Turn
from drmq.groups.subscription import same_interest
from drmq.model import ErrorCode
from drmq.model.names import is_group_id


class Joins:
    """Handles JoinGroup. `new_member_id` creates an id that was never used before from a client id."""

    def __init__(
        self,
        rounds: Rounds,
        options: GroupOptions,
        new_member_id: Callable[[str], str],
        quota: Quota,
        replicated: ReplicatedState,
    ) -> None:
        self._rounds = rounds
        self._quota = quota
        self._replicated = replicated
        self._options = options
        self._new_member_id = new_member_id

    def join(self, ticket: int, request: JoinGroupRequest, turn: Turn) -> None:
        if request.instance_id == "":
            request = replace(request, instance_id=None)
        known = self._rounds.groups.get(request.group_id)
        error = self._refusal(known, request)
        charged = self._charged_caller(known, request, turn.now_ms) if error is ErrorCode.NONE else None
        if error is ErrorCode.NONE and charged is None:
            # GROUP_MAX_SIZE_REACHED ends a Java consumer. A member that needs more than before, as with the partitions
            # that it owns, joins again after the other code, until there is room.
            is_present = known is not None and _present(known, request) is not None
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_present else ErrorCode.GROUP_MAX_SIZE_REACHED
        if charged is None:
            turn.answer(ticket, JoinGroupResponse(error, request.member_id))
            return
        group = self._rounds.open(request.group_id)
        if request.member_id in group.members:
            self._join_again(ticket, group, group.members[request.member_id], request, charged, turn)
        elif request.member_id or not (request.instance_id or request.member_id_required):
            # An id that was assigned before, or an old client that expects to get one with the response.
            self._join_new(ticket, group, request.member_id or self._fresh_id(request), request, turn)
        elif request.instance_id in group.static:
            member = group.members[group.static[request.instance_id]]
            self._join_returned(ticket, group, member, request, charged, turn)
        elif request.instance_id:
            self._join_new(ticket, group, self._fresh_id(request), request, turn)
        else:
            member_id = self._fresh_id(request)
            self._rounds.add_pending(group, member_id, charged, request.session_timeout_ms, turn.now_ms)
            turn.answer(ticket, JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _refusal(self, group: Group | None, request: JoinGroupRequest) -> ErrorCode:
        """The error of this join, judged by the request and the present group alone."""
        options = self._options
        if not is_group_id(request.group_id):
            return ErrorCode.INVALID_GROUP_ID
        if not options.session_timeout_ms_min <= request.session_timeout_ms <= options.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group is None:
            if request.member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            group = Group(request.group_id)
        joining = None
        if request.member_id in group.pending and request.instance_id is None:
            pass
        elif request.member_id:
            error = member_error(group, request.member_id, request.instance_id)
            if error is not ErrorCode.NONE:
                return error
            joining = group.members[request.member_id]
        elif request.instance_id in group.static:
            joining = group.members[group.static[request.instance_id]]
        elif len(group.members) + len(group.pending) >= options.group_size_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.accepts(request.protocol_type, request.protocols, joining):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        # The id may not be created yet; it will contain one of the other names.
        names = (request.member_id, request.instance_id, request.client_id, request.client_host)
        if group.stored_bytes(joining) + member_bytes(names, request.protocols) > options.group_bytes_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _charged_caller(self, group: Group | None, request: JoinGroupRequest, now_ms: int) -> str | None:
        """The caller that the member counts for. None if there is no room for it, or for what a present one adds."""
        names = (request.member_id, request.instance_id, request.client_id, request.client_host)
        size_bytes = MEMBER_BYTES + len(request.protocol_type) + member_bytes(names, request.protocols)
        caller, owner, growth = request.client_host, None, size_bytes
        if group is not None:
            present = _present(group, request)
            if present is not None:
                owner = self._rounds.held.caller_of((group.group_id, present.member_id))
                growth = size_bytes - MEMBER_BYTES - len(group.protocol_type) - present.stored_bytes
            elif request.member_id in group.pending:
                growth -= GROUP_BYTES
        if group is None and request.group_id not in self._replicated:
            return caller if self._quota.admits(caller, 1, GROUP_BYTES, now_ms, size_bytes) else None
        return self._quota.charged_caller(owner, caller, size_bytes, growth, now_ms)

    def _join_new(self, ticket: int, group: Group, member_id: str, request: JoinGroupRequest, turn: Turn) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            protocols=request.protocols,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        self._rounds.add_member(group, member)
        self._join_round(ticket, group, member, turn)

    def _join_again(
        self, ticket: int, group: Group, member: Member, request: JoinGroupRequest, charged: str, turn: Turn
    ) -> None:
        changed = member.protocols != request.protocols or group.protocol_type != request.protocol_type
        may_keep_place = (
            group.state is GroupState.COMPLETING_REBALANCE
            or (group.state is GroupState.STABLE and group.leader != member.member_id)
        ) and not changed
        if may_keep_place:
            self._rounds.renew_session(group, member, turn.now_ms)
            turn.answer(ticket, group.join_response(member))
            return
        self._update(group, member, request, charged)
        self._join_round(ticket, group, member, turn)

    def _join_returned(
        self, ticket: int, group: Group, member: Member, request: JoinGroupRequest, charged: str, turn: Turn
    ) -> None:
        """A static member has returned without its id. In a stable group this may need no rebalance.

        While the leader computes the assignments (CompletingRebalance) it does: the leader knows only the old id, and
        its assignment would lack the new one.
        """
        old_id, old_leader, old_metadata = (
            member.member_id,
            group.leader,
            member.metadata_for(group.protocol_name),
        )
        self._rounds.replace_id(group, member, self._fresh_id(request), turn)
        self._update(group, member, request, charged)
        unchanged = (
            group.state is GroupState.STABLE
            and group.choose_protocol() == group.protocol_name
            and same_interest(group.protocol_type, old_metadata, member.metadata_for(group.protocol_name))
        )
        if not unchanged:
            self._join_round(ticket, group, member, turn)
            return
        self._rounds.renew_session(group, member, turn.now_ms)
        self._rounds.store(group, turn)
        response = group.join_response(member)
        if old_leader == old_id:
            # A client that learns that it is the leader sends an assignment, computed without knowing what the others
            # own. From v9 the response can ask it not to. Before, the response names the leader's old id, so that the
            # client takes itself for a follower and asks for its previous assignment (KIP-814).
            if request.supports_skip_assignment:
                response = replace(response, skip_assignment=True)
            else:
                response = replace(response, leader=old_id, members=())
        turn.answer(ticket, response)

    def _join_round(self, ticket: int, group: Group, member: Member, turn: Turn) -> None:
        """Count the member as joined, in a new round if none is in progress."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._rounds.begin_join_round(group, turn)
        elif member.is_new:
            group.newcomer_seen = True
        self._rounds.park_join(group, member, ticket, turn)
        self._rounds.maybe_end_join_round(group, turn)

    def _update(self, group: Group, member: Member, request: JoinGroupRequest, charged: str) -> None:
        before = member.stored_bytes
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.protocols = request.protocols
        member.measure()
        self._rounds.add_unstored(group, max(0, member.stored_bytes - before))
        # A join with another type gets this far only if the member is alone, and then the group adopts that type.
        group.protocol_type = request.protocol_type
        self._rounds.hold(group, member, charged)

    def _fresh_id(self, request: JoinGroupRequest) -> str:
        # An administrator recognises a static member by its instance id, whatever its client id is.
        return self._new_member_id(request.instance_id or request.client_id)


def _present(group: Group, request: JoinGroupRequest) -> Member | None:
    """The member that joins again."""
    return group.members.get(request.member_id or group.static.get(request.instance_id or "", ""))


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Also protects the deadlines: in a round of zero or negative length no member could join."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms > 0 else request.session_timeout_ms
