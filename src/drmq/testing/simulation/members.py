"""Members of a consumer group: they join, share partitions among themselves, commit, fall silent, leave and return.

All of them keep one book, `GroupNotes`, and write into it before they ask and when they are answered. So it knows more
than any member, and what was told to one of them binds what the others may hear:

- **generations-never-fall**: who joins gets a generation no older than any that a member was told before it asked;
- **one-owner-per-generation**: in a generation there is one leader, and a partition has one owner, the one the leader
  chose;
- **commits-are-fenced**: once a member was told of a generation, no commit of an older one succeeds;
- **committed-group-offsets-monotone**: and so an offset, once confirmed, is never replaced by an older owner's.

Every offset that is committed is higher than all that were tried before, whoever tries: a commit of a former owner that
comes through late shows, because the offset then goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from drmq.model import ErrorCode
from drmq.testing.simulation.client import Doors, Unavailable
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
    """What the members of one group were told, all of them together."""

    def __init__(self, world: World, history: History, group: str) -> None:
        self._world = world
        self.history = history
        self.group = group
        self.generation = 0
        """The newest that any member was told of."""
        self._leaders: dict[int, str] = {}
        self._chosen: dict[int, dict[str, tuple[Place, ...]]] = {}
        """By generation, what its leader has handed in."""
        self._owners: dict[tuple[int, Place], str] = {}

    def on_joined(self, member: str, generation: int, leader: str, floor: int) -> None:
        """A member was answered; `floor` is the newest generation that was known when it asked."""
        self._world.require(
            generation >= floor,
            "generations-never-fall",
            f"{member} joined generation {generation} of {self.group}, and {floor} was there before it asked",
        )
        known = self._leaders.setdefault(generation, leader)
        self._world.require(
            known == leader,
            "one-owner-per-generation",
            f"generation {generation} of {self.group} is led by {known} and, {member} is told, by {leader}",
        )
        self.generation = max(self.generation, generation)

    def on_chosen(self, generation: int, shares: dict[str, tuple[Place, ...]]) -> None:
        """A leader is about to hand in who owns what. It may have to do so again, and chooses the same then."""
        self._chosen.setdefault(generation, shares)

    def on_owned(self, member: str, generation: int, places: tuple[Place, ...]) -> None:
        """A member was told what it owns."""
        chosen = self._chosen.get(generation, {}).get(member, ())
        self._world.require(
            places == chosen,
            "one-owner-per-generation",
            f"{member} is told that it owns {places} in generation {generation}, and its leader chose {chosen}",
        )
        for place in places:
            owner = self._owners.setdefault((generation, place), member)
            self._world.require(
                owner == member,
                "one-owner-per-generation",
                f"{place} belongs to {owner} and to {member} in generation {generation}",
            )

    def next_offset(self, place: Place) -> int:
        """An offset that nobody has tried to commit before."""
        key = (self.group, place)
        offset = self.history.asked[key] = self.history.asked.get(key, 0) + 1
        return offset

    def on_committed(self, member: str, generation: int, place: Place, offset: int, floor: int) -> None:
        """A commit was answered with success; `floor` is the newest generation that was known when it was sent."""
        self._world.require(
            generation >= floor,
            "commits-are-fenced",
            f"{member} committed {offset} of {place} in generation {generation}, and {floor} was there before",
        )
        self.history.on_committed(self.group, place, offset)


class Member(Worker):
    """One member, which has many lives: it leaves, or falls silent for too long, and comes back."""

    def __init__(self, world: World, doors: Doors, notes: GroupNotes, number: int, places: list[Place]) -> None:
        super().__init__(world, doors, notes.history, f"{notes.group}-{number}")
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
        """Who owns what: dealt out one by one, the same way whenever it is asked in a generation.

        A leader whose choice did not get through joins again and is told of the same generation. Were it to choose
        anew, nobody could say which of the two holds.
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
            # A process that ended without a word. What it was is forgotten here, and not there.
            self._forget()
        elif dice < 0.1:
            # Long enough to be taken for dead. It goes on as if nothing had been, and must not be believed.
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
        self.check_code(answer.error_code, "a farewell")

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
        """Whether an answer ends this member's part in its generation. Raises `Unavailable` where nobody answers."""
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
