"""One classic group as the shard's leader sees it.

A `Group` keeps data: it answers queries (common protocols, the next leader) and keeps its indexes consistent.
Deadlines, records and responses are handled in `rounds`.

Always true between inputs:

- `static` maps exactly the instance ids of members to their member ids;
- `leader` is a member, or None in Empty and PreparingRebalance;
- a parked join exists only in PreparingRebalance, a parked sync only in CompletingRebalance;
- `awaiting_sync` names members only, and is empty in Empty and PreparingRebalance;
- an id is a member or pending, never both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from drmq.groups.messages import JoinedMember, JoinGroupResponse
from drmq.groups.records import GroupMetadata, MemberMetadata, Protocol, opaque_bytes, text_bytes
from drmq.groups.state import NEXT_STATES, GroupState
from drmq.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from drmq.model import ErrorCode

_MEMBER_BYTES = 160
"""The size of the field names and numbers of a stored member."""
_PAIR_BYTES = 4
"""The size of the brackets and commas of a stored protocol."""


def member_bytes(names: Iterable[str | None], protocols: Iterable[Protocol]) -> int:
    """The approximate size of a member in its group's record, without an assignment."""
    protocol_bytes = sum(text_bytes(each.name) + opaque_bytes(len(each.metadata)) + _PAIR_BYTES for each in protocols)
    return _MEMBER_BYTES + sum(map(text_bytes, names)) + protocol_bytes


@dataclass(slots=True)
class Member:
    """A client in a group. While one of its requests is parked, its session does not expire."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    is_new: bool = True
    """Its first join has not been answered, so the client does not know of it yet."""
    stored_bytes: int = field(init=False)
    """The approximate size of the member in the group's record, without its assignment."""

    def __post_init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        """Update `stored_bytes` after a change. It is stored because every join asks for that of the whole group."""
        self.stored_bytes = member_bytes(
            (self.member_id, self.instance_id, self.client_id, self.client_host), self.protocols
        )

    def metadata_for(self, protocol_name: str | None) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def to_metadata(self) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
        )

    @classmethod
    def from_metadata(cls, stored: MemberMetadata) -> Member:
        return cls(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols=stored.protocols,
            assignment=stored.assignment,
            is_new=False,
        )


@dataclass(slots=True)
class Group:
    """A group in memory on the leader of its shard. Owned by `Rounds`."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    protocol_type: str = ""
    generation: int = 0
    protocol_name: str | None = None
    leader: str | None = None
    state_since_ms: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    """In the order of joining: the first member to join is the first candidate for the leader."""
    static: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    """Member ids that were assigned and have not been used to join."""
    awaiting_sync: set[str] = field(default_factory=set)
    delay_remaining_ms: int | None = None
    """While the first join of an empty group waits for more members: how much longer this may be extended."""
    newcomer_seen: bool = False
    released_bytes: int = 0
    """The size of the last assignments, also of members that left since, while there are no new ones. The room is kept:
    a group that adds nothing can always go on. A leader that takes over in between does not know it."""
    unstored_bytes: int = 0
    """What counts besides the group's record: released assignments, and what members that join add."""

    def transition(self, state: GroupState, wall_ms: int) -> None:
        assert state in NEXT_STATES[self.state], (self.group_id, self.state, state)
        self.state = state
        self.state_since_ms = wall_ms

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members, (self.group_id, member.member_id)
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        self.awaiting_sync.discard(member.member_id)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = None

    def replace_id(self, member: Member, member_id: str) -> None:
        """Give a static member a new id in its old place, so that a client that uses the old id is fenced."""
        assert member.instance_id is not None, member
        old_id = member.member_id
        member.member_id = member_id
        member.measure()
        self.members = {each.member_id: each for each in self.members.values()}
        self.static[member.instance_id] = member_id
        self.awaiting_sync.discard(old_id)
        if self.leader == old_id:
            self.leader = member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined.

        A member id that was assigned and is not used yet counts as missing: its client is about to join, and continuing
        without it would mean two rebalances.
        """
        return not self.pending and all(m.join_ticket is not None for m in self.members.values())

    def stored_bytes(self, without: Member | None = None) -> int:
        """The approximate stored size of the members, optionally without one of them."""
        return sum(member.stored_bytes for member in self.members.values() if member is not without)

    def common_protocols(self, without: Member | None = None) -> set[str] | None:
        """Names that all members support, optionally without one member; None if there is no member."""
        supported = [
            {protocol.name for protocol in member.protocols}
            for member in self.members.values()
            if member is not without
        ]
        return set.intersection(*supported) if supported else None

    def accepts(self, protocol_type: str, protocols: tuple[Protocol, ...], joining: Member | None) -> bool:
        """Whether the other members support one of these protocols."""
        if not protocol_type or not protocols:
            return False
        common = self.common_protocols(without=joining)
        if common is None:
            return True
        return protocol_type == self.protocol_type and any(each.name in common for each in protocols)

    def choose_protocol(self) -> str:
        """The protocol with the most votes: each member votes for its first one among those that all support.

        A tie goes to the name that comes first among the first member's preferences, so that the choice does not depend
        on anything that a replay or a restart could change.
        """
        candidates = self.common_protocols()
        assert candidates, f"group {self.group_id} let in a member that shares no protocol"
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in candidates)
            for member in self.members.values()
        )
        first_member = next(iter(self.members.values()))
        ranking = [protocol.name for protocol in first_member.protocols if protocol.name in candidates]
        return max(ranking, key=lambda name: votes[name])

    def elect_leader(self) -> str:
        """The leader of the last generation if it has joined again, otherwise the first member that has joined."""
        joined = [member.member_id for member in self.members.values() if member.join_ticket is not None]
        assert joined, f"group {self.group_id} elects a leader and nobody has joined"
        return self.leader if self.leader in joined else joined[0]

    def read_topics(self) -> frozenset[str] | None:
        """The topics that members read. None if that is unknown: callers must then assume all topics."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return frozenset()
        read: set[str] = set()
        for member in self.members.values():
            for protocol in member.protocols:
                topics = subscribed_topics(protocol.metadata)
                if topics is None:
                    return None
                read |= topics
        return frozenset(read)

    def join_response(self, member: Member) -> JoinGroupResponse:
        """The join response for a member in the current generation; the leader's lists the metadata of all members."""
        return JoinGroupResponse(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            members=self.member_list() if self.leader == member.member_id else (),
        )

    def member_list(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata_for(self.protocol_name))
            for member in self.members.values()
        )

    def to_metadata(self) -> GroupMetadata:
        return GroupMetadata(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.leader,
            state_since_ms=self.state_since_ms,
            members=tuple(member.to_metadata() for member in self.members.values()),
        )

    @classmethod
    def from_metadata(cls, stored: GroupMetadata) -> Group:
        group = cls(
            group_id=stored.group_id,
            state=stored.state,
            protocol_type=stored.protocol_type,
            generation=stored.generation,
            protocol_name=stored.protocol_name,
            leader=stored.leader,
            state_since_ms=stored.state_since_ms,
        )
        for member in stored.members:
            group.add(Member.from_metadata(member))
        if group.state is GroupState.COMPLETING_REBALANCE:
            group.awaiting_sync.update(group.members)
        return group
