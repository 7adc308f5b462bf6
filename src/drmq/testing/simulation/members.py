"""Members of a consumer group: they join, divide partitions, commit, pause, leave and return.

All members share one `GroupNotes`, and write into it before each request and after each response. It therefore knows
more than any member, and what one member has received restricts what the others may receive:

- **generations-never-fall**: a member that joins gets a generation no older than any that a member received before it
  sent the request;
- **one-owner-per-generation**: in a generation there is one leader, and each partition has one owner, the one that the
  leader chose;
- **commits-are-fenced**: after a member has received a generation, no commit of an older one succeeds;
- **committed-group-offsets-monotone**: a confirmed offset is never replaced by that of a former owner.

Every committed offset is higher than all that any member tried before: if a late commit of a former owner succeeds, the
offset goes back, which is detected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from drmq.model import ErrorCode
from drmq.testing.simulation.client import Connector, Unavailable
from drmq.testing.simulation.history import History, Place
from drmq.testing.simulation.workload import Worker
from drmq.testing.simulation.world import World
from drmq.wire.messages.heartbeat import HeartbeatRequest
from drmq.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from drmq.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from drmq.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_JOIN, _SYNC, _HEARTBEAT, _LEAVE, _COMMIT, _COMMITTED = 5, 3, 3, 3, 7, 6
_SESSION_TIMEOUT_MS = 2_000
_REBALANCE_TIMEOUT_MS = 3_000
_JOIN_PATIENCE_S = 6.0


class GroupNotes:
    """What all members of one group have received."""

    def __init__(self, world: World, history: History, group: str) -> None:
        self._world = world
        self.history = history
        self.group = group
        self.generation = 0
        """The newest generation that any member has received."""
        self._leaders: dict[int, str] = {}
        self._chosen: dict[int, dict[str, tuple[Place, ...]]] = {}
        """By generation, the assignment that its leader submitted."""
        self._owners: dict[tuple[int, Place], str] = {}

    def on_joined(self, member: str, generation: int, leader: str, floor: int) -> None:
        """A member received a response to its join; `floor` is the newest generation known when it sent the request."""
        self._world.require(
            generation >= floor,
            "generations-never-fall",
            f"{member} joined generation {generation} of {self.group}, but {floor} was known before its request",
        )
        known = self._leaders.setdefault(generation, leader)
        self._world.require(
            known == leader,
            "one-owner-per-generation",
            f"generation {generation} of {self.group} is led by {known}, but {member} received {leader}",
        )
        self.generation = max(self.generation, generation)

    def on_chosen(self, generation: int, shares: dict[str, tuple[Place, ...]]) -> None:
        """A leader is about to submit an assignment. If it has to do so again, it chooses the same one."""
        self._chosen.setdefault(generation, shares)

    def on_owned(self, member: str, generation: int, places: tuple[Place, ...]) -> None:
        """A member received its assignment."""
        chosen = self._chosen.get(generation, {}).get(member, ())
        self._world.require(
            places == chosen,
            "one-owner-per-generation",
            f"{member} received {places} in generation {generation}, but the leader chose {chosen}",
        )
        for place in places:
            owner = self._owners.setdefault((generation, place), member)
            self._world.require(
                owner == member,
                "one-owner-per-generation",
                f"{place} belongs to {owner} and to {member} in generation {generation}",
            )

    def next_offset(self, place: Place) -> int:
        """An offset that no member has tried to commit before."""
        key = (self.group, place)
        offset = self.history.asked[key] = self.history.asked.get(key, 0) + 1
        return offset

    def on_committed(self, member: str, generation: int, place: Place, offset: int, floor: int) -> None:
        """A commit succeeded; `floor` is the newest generation known when it was sent."""
        self._world.require(
            generation >= floor,
            "commits-are-fenced",
            f"{member} committed {offset} of {place} in generation {generation}, but {floor} was known before",
        )
        self.history.on_committed(self.group, place, offset)


class Member(Worker):
    """One member, which leaves or pauses for too long, and comes back, many times."""

    def __init__(self, world: World, connector: Connector, notes: GroupNotes, number: int, places: list[Place]) -> None:
        super().__init__(world, connector, notes.history, f"{notes.group}-{number}")
        self._notes = notes
        self._places = tuple(places)
        self._coordinator: int | None = None
        self._member_id = ""
        self._generation = -1
        self._owned: tuple[Place, ...] = ()
        self._is_assigned = False

    @property
    def group(self) -> str:
        return self._notes.group

    async def work(self) -> None:
        if self._coordinator is None:
            self._coordinator = await self.client.coordinator(self.group)
        try:
            if self._is_assigned:
                await self._take_part(self._coordinator)
            else:
                await self._join(self._coordinator)
        except Unavailable:
            self._coordinator = None
            raise

    # ---- a generation ---------------------------------------------------------------------------

    async def _join(self, node: int) -> None:
        floor = self._notes.generation
        request = JoinGroupRequest(
            self.group,
            _SESSION_TIMEOUT_MS,
            _REBALANCE_TIMEOUT_MS,
            self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("simulated", b"")],
        )
        answer: JoinGroupResponse = await self.client.ask(node, request, _JOIN, _JOIN_PATIENCE_S)
        error = self.check_code(answer.error_code, "a join")
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return
        if self._is_over(error):
            return
        self._member_id, self._generation = answer.member_id, answer.generation_id
        self._notes.on_joined(self._member_id, self._generation, answer.leader, floor)
        shares: Mapping[str, tuple[Place, ...]] = {}
        if answer.leader == self._member_id:
            shares = self._share(sorted(member.member_id for member in answer.members))
        await self._sync(node, shares)

    def _share(self, members: list[str]) -> dict[str, tuple[Place, ...]]:
        """The assignment: partitions are dealt out one by one, always in the same way within a generation.

        A leader whose assignment did not arrive joins again and receives the same generation. If it chose another
        assignment then, it would be unknown which of the two is valid.
        """
        first = self._generation % len(members)
        shares = {
            member: tuple(
                place for index, place in enumerate(self._places) if (index + first) % len(members) == position
            )
            for position, member in enumerate(members)
        }
        self._notes.on_chosen(self._generation, shares)
        return shares

    async def _sync(self, node: int, shares: Mapping[str, tuple[Place, ...]]) -> None:
        assignments = [SyncGroupRequestAssignment(member, _encode(places)) for member, places in shares.items()]
        request = SyncGroupRequest(self.group, self._generation, self._member_id, assignments=assignments)
        answer = await self.client.ask(node, request, _SYNC, _JOIN_PATIENCE_S)
        if self._is_over(self.check_code(answer.error_code, "a sync")):
            return
        self._owned, self._is_assigned = _decode(answer.assignment), True
        self._notes.on_owned(self._member_id, self._generation, self._owned)

    async def _take_part(self, node: int) -> None:
        dice = self.random.random()
        if dice < 0.04:
            await self._leave(node)
        elif dice < 0.06:
            # A process that ended without leaving. The client forgets its membership, the coordinator does not.
            self._forget()
        elif dice < 0.1:
            # Long enough to be considered dead. It continues as if nothing had happened, and must be fenced.
            await asyncio.sleep(self.random.uniform(1.0, 6.0))
            await self._commit(node)
        elif dice < 0.5:
            await self._commit(node)
        elif dice < 0.65:
            await self._look(node)
        else:
            await self._heartbeat(node)

    async def _heartbeat(self, node: int) -> None:
        request = HeartbeatRequest(self.group, self._generation, self._member_id)
        answer = await self.client.ask(node, request, _HEARTBEAT)
        if not self._is_over(self.check_code(answer.error_code, "a heartbeat")):
            self.successes += 1

    async def _leave(self, node: int) -> None:
        member = self._member_id
        self._forget()
        request = LeaveGroupRequest(self.group, members=[LeaveGroupRequestMember(member)])
        answer = await self.client.ask(node, request, _LEAVE)
        self.check_code(answer.error_code, "a leave")

    # ---- offsets --------------------------------------------------------------------------------

    async def _commit(self, node: int) -> None:
        if not self._owned:
            await self._heartbeat(node)
            return
        place = self.random.choice(self._owned)
        floor, generation, offset = self._notes.generation, self._generation, self._notes.next_offset(place)
        partition = OffsetCommitRequestPartition(place.partition, offset, committed_metadata="")
        request = OffsetCommitRequest(
            self.group,
            generation,
            self._member_id,
            topics=[OffsetCommitRequestTopic(place.topic, partitions=[partition])],
        )
        answer = await self.client.ask(node, request, _COMMIT)
        if self._is_over(self.check_code(answer.topics[0].partitions[0].error_code, "a member's commit")):
            return
        self._notes.on_committed(self._member_id, generation, place, offset, floor)
        self.successes += 1

    async def _look(self, node: int) -> None:
        place = self.random.choice(self._places)
        floor = self.history.committed.get((self.group, place), -1)
        request = OffsetFetchRequest(self.group, [OffsetFetchRequestTopic(place.topic, [place.partition])])
        answer = await self.client.ask(node, request, _COMMITTED)
        error = self.check_code(answer.error_code, "an offset fetch")
        if error is not ErrorCode.NONE:
            raise Unavailable(error.name)
        result = answer.topics[0].partitions[0]
        self.history.on_committed_read(self.group, place, result.committed_offset, floor)

    # ---- the end of a generation ----------------------------------------------------------------

    def _is_over(self, error: ErrorCode) -> bool:
        """Whether a response ends this member's part in its generation. Raises `Unavailable` for other errors."""
        if error is ErrorCode.NONE:
            return False
        if error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self._is_assigned = False
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
        else:
            raise Unavailable(error.name)
        return True

    def _forget(self) -> None:
        self._member_id, self._is_assigned = "", False


def _encode(places: tuple[Place, ...]) -> bytes:
    return " ".join(f"{place.topic}/{place.partition}" for place in places).encode()


def _decode(data: bytes) -> tuple[Place, ...]:
    found = (word.partition("/") for word in data.decode().split())
    return tuple(Place(topic, int(index)) for topic, _, index in found)
