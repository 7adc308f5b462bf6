"""Members of a lease group: they take records, settle them well or badly, vanish, and come back.

Two kinds of members work in one group. `LeaseMember` speaks DRMQ's own requests, with tokens, delays and an answer for
each record. `ShareMember` speaks Kafka's share group protocol, with a session on every node. Both settle in time or
late, twice, for others, or not at all; answers are lost on purpose. Everything is written down in one `LeaseHistory`,
before each request and after each answer. `lease_rules` judges it after the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from drmq.leases import Outcome
from drmq.model import ErrorCode, TopicId
from drmq.records import decode_batch, iter_batches
from drmq.testing.lease_history import Departure, Handout, Job, LeaseHistory, OpenTake, Said, Settling
from drmq.testing.simulation.client import Connector, Unavailable
from drmq.testing.simulation.history import History, Place
from drmq.testing.simulation.workload import Worker
from drmq.testing.simulation.world import MS, World
from drmq.wire.messages.lease_fetch import (
    LeaseFetchRequest,
    LeaseFetchRequestPartition,
    LeaseFetchRequestTopic,
    LeaseSettlement,
)
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from drmq.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestPartition,
    ShareAcknowledgeRequestTopic,
)
from drmq.wire.messages.share_fetch import (
    ShareAcknowledgementBatch,
    ShareFetchRequest,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
)
from drmq.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

_METADATA, _HEARTBEAT, _SHARE_FETCH, _ACKNOWLEDGE, _LEASE_FETCH = 12, 1, 2, 2, 0
_DECOMPRESSED_MAX = 1 << 24
_TYPES = {
    Outcome.ACCEPT: 1,
    Outcome.RELEASE: 2,
    Outcome.REJECT: 3,
    Outcome.RENEW: 4,
    Outcome.GIVE_BACK: 5,
}
_PAST_MAX = 40
_CLOSES = -1


def is_poison(value: bytes, share: float) -> bool:
    """Whether no member ever accepts this record."""
    return crc32(value) % 1_000 < share * 1_000


class Habits(NamedTuple):
    """How the members of a run behave: the probability of each."""

    release: float = 0.08
    give_back: float = 0.06
    reject: float = 0.02
    renew: float = 0.08
    late: float = 0.05
    """Wait until the lease has run out, and settle then."""
    repeat: float = 0.05
    """Say something once more that was said before, or something else about the same delivery."""
    foreign: float = 0.03
    """Settle what another member holds."""
    lose: float = 0.05
    """Close the connection before the answer comes, and ask again."""
    crash: float = 0.01
    """Forget everything, and come back as another member."""
    leave: float = 0.01
    """Give back everything, and come back as another member."""
    pause: float = 0.02
    poison: float = 0.0
    """The share of records that no member accepts."""


USUAL = Habits()
TIMELY = Habits(*([0.0] * len(Habits._fields)))
"""Members that accept everything in time."""


class LeaseNotes:
    """What all members of a group share: the history, and what they may do to each other."""

    def __init__(self, world: World, history: LeaseHistory, topic: str, partitions: int, habits: Habits) -> None:
        self.world = world
        self.history = history
        self.topic = topic
        self.places = [Place(topic, index) for index in range(partitions)]
        self.habits = habits
        self.topic_id: TopicId | None = None
        self.recent: list[Handout] = []
        """The last deliveries to anybody."""
        self._last: dict[tuple[str, Job], Handout] = {}

    @property
    def now_ms(self) -> float:
        return self.world.now_us / MS

    def on_handout(self, handout: Handout) -> None:
        self.recent.append(handout)
        del self.recent[:-_PAST_MAX]
        self._last[handout.member, handout.job] = handout

    def meant(self, handout: Handout, member: str) -> Handout:
        """The delivery that a settlement without a token is about: the last one to this member."""
        return self._last.get((member, handout.job), handout)


class _LeaseWorker(Worker):
    """A member; subclasses have a protocol."""

    def __init__(self, world: World, connector: Connector, history: History, notes: LeaseNotes, number: int) -> None:
        super().__init__(world, connector, history, f"{notes.history.group}-{number}")
        self.notes = notes
        self.pause_s = 0.06
        self.is_drained: Callable[[], bool] = lambda: True
        """Whether the group has nothing left to do."""
        self._life = 0
        self.member = ""
        self._epoch = 0
        self._mine: list[Place] = []
        """The partitions that the coordinator has assigned."""
        self._coordinator: int | None = None
        self.held: list[Handout] = []
        self._past: list[Settling] = []
        self._kept: dict[int, float] = {}
        """By the id of a delivery whose lease was renewed: until when the work on it goes on."""
        self._beat_ms = 0.0
        self._be_born()

    @property
    def is_done(self) -> bool:
        return self.is_stopping and self.is_drained()

    def _be_born(self) -> None:
        self._life += 1
        self.member = f"{self.name}.{self._life}"
        self._epoch, self._beat_ms = 0, 0.0
        self._mine = []
        self.held = []
        self._past = []
        self._kept = {}

    # ---- what it does ---------------------------------------------------------------------------

    async def work(self) -> None:
        notes, habits, random = self.notes, self.notes.habits, self.random
        if notes.topic_id is None:
            await self._look_up()
        if notes.now_ms >= self._beat_ms:
            await self._heartbeat()
        self.held = [one for one in self.held if one.asked_ms + 3 * one.lease_ms > notes.now_ms]
        is_calm = self.healed_us is not None
        if not is_calm and random.random() < habits.pause:
            await asyncio.sleep(random.uniform(0.3, 4.0))
        if not is_calm and random.random() < habits.crash:
            self.world.say(self.name, "a member vanishes")
            self._be_born()
        elif not is_calm and random.random() < habits.leave:
            await self._leave()
        elif not is_calm and self._past and random.random() < habits.repeat:
            await self._repeat()
        elif not is_calm and notes.recent and random.random() < habits.foreign:
            await self._meddle()
        elif self._free() and (not habits.late or random.random() < 0.7):
            await self._settle_some()
        else:
            await self._take()

    async def _look_up(self) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=self.notes.topic)], allow_auto_topic_creation=False)
        found = (await self.client.ask_any(request, _METADATA)).topics[0]
        if found.error_code:
            raise Unavailable("the topic is not known there yet")
        self.notes.topic_id = TopicId(found.topic_id)

    async def _heartbeat(self) -> None:
        if self._coordinator is None:
            self._coordinator = await self.client.coordinator(self.notes.history.group)
        topics = [self.notes.topic] if self._epoch == 0 else None
        request = ShareGroupHeartbeatRequest(
            self.notes.history.group, self.member, self._epoch, subscribed_topic_names=topics
        )
        try:
            answer = await self.client.ask(self._coordinator, request, _HEARTBEAT)
        except Unavailable:
            self._coordinator = None
            raise
        error = self.check_code(answer.error_code, "a heartbeat of a share group")
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._epoch = 0
            return
        if error is not ErrorCode.NONE:
            self._coordinator = None
            raise Unavailable(error.name)
        self._epoch = answer.member_epoch
        self._beat_ms = self.notes.now_ms + 1_000
        if answer.assignment is not None:
            self._mine = [
                Place(self.notes.topic, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
                if topic.topic_id == self.notes.topic_id
            ]

    async def _take(self) -> None:
        # At the end the members that vanished still have their share, so everybody works on everything.
        places = self._mine if self._mine and self.healed_us is None else self.notes.places
        place = self.random.choice(places)
        takes = self.random.choice((1, 3, 10)) if self.healed_us is None else 50
        await self._exchange(place, [], takes=takes)

    async def _settle_some(self) -> None:
        """Settle a few of the records that are held in one partition, perhaps with the next request for records."""
        random, habits = self.random, self.notes.habits
        place = _place_of(random.choice(self._free()))
        here = self._held_in(place)
        takes_all = not habits.late or random.random() < 0.3 or self.healed_us is not None
        chosen = here if takes_all else random.sample(here, random.randint(1, min(3, len(here))))
        chosen.sort(key=lambda one: one.job.offset)
        if self.healed_us is None and random.random() < habits.late:
            end_ms = max(one.answered_ms + one.lease_ms for one in chosen)
            await asyncio.sleep(max(0.0, end_ms - self.notes.now_ms) / 1_000 + random.choice((0.01, 0.4, 1.0)))
        settlings = [self._judge(one) for one in chosen]
        await self._exchange(place, settlings, takes=random.choice((0, 0, 5)))

    def _free(self) -> list[Handout]:
        """What is held, and is not being worked on."""
        now_ms, is_calm = self.notes.now_ms, self.healed_us is not None
        return [one for one in self.held if is_calm or self._kept.get(id(one), 0.0) <= now_ms]

    def _held_in(self, place: Place) -> list[Handout]:
        """What is free in a partition, by offset: the last delivery of each record."""
        latest = {one.job.offset: one for one in self._free() if _place_of(one) == place}
        return [latest[offset] for offset in sorted(latest)]

    def _judge(self, handout: Handout) -> Settling:
        """What to say about a record. Only in the end everything that can be done is done."""
        random, habits = self.random, self.notes.habits
        poison = is_poison(handout.value, habits.poison)
        dice = random.random()
        outcome = Outcome.RELEASE if poison else Outcome.ACCEPT
        if self.healed_us is None or poison:
            for other, chance in (
                (Outcome.RELEASE, habits.release),
                (Outcome.GIVE_BACK, habits.give_back if self.healed_us is None else 0.0),
                (Outcome.REJECT, habits.reject),
                (Outcome.RENEW, habits.renew if self.healed_us is None else 0.0),
            ):
                if dice < chance:
                    outcome = other
                    break
                dice -= chance
        delay_ms = random.choice((None, 0, 300, 1_200)) if outcome is Outcome.RELEASE else None
        return self._say(handout, outcome, delay_ms)

    def _say(self, handout: Handout, outcome: Outcome, delay_ms: float | None = None) -> Settling:
        meant = handout if handout.token else self.notes.meant(handout, self.member)
        return Settling(meant, self.member, outcome, self.notes.now_ms, delay_ms, is_fenced=bool(meant.token))

    async def _repeat(self) -> None:
        """Repeat what was said about a delivery, or think differently of it now."""
        past = self.random.choice(self._past)
        outcome = past.outcome
        if self.random.random() < 0.3:
            outcome = self.random.choice(self._outcomes)
        delay_ms = past.delay_ms if outcome is Outcome.RELEASE else None
        await self._exchange(_place_of(past.handout), [self._say(past.handout, outcome, delay_ms)], takes=0)

    async def _meddle(self) -> None:
        other = self.random.choice(self.notes.recent)
        if other.member == self.member:
            return
        outcome = self.random.choice(self._outcomes)
        await self._exchange(_place_of(other), [self._say(other, outcome)], takes=0)

    async def _leave(self) -> None:
        self.world.say(self.name, "a member leaves")
        await self._give_all_back()
        if self._coordinator is not None:
            request = ShareGroupHeartbeatRequest(self.notes.history.group, self.member, -1)
            self._be_born()
            await self.client.ask(self._coordinator, request, _HEARTBEAT)
        else:
            self._be_born()

    # ---- protocols ------------------------------------------------------------------------------

    _outcomes: Sequence[Outcome] = ()

    async def _exchange(self, place: Place, settlings: list[Settling], *, takes: int) -> None:
        """Settle, and take up to `takes` records."""
        leader = await self.client.leader(place)
        asked_ms = self.notes.now_ms
        history = self.notes.history
        for one in settlings:
            one.asked_ms = asked_ms
        history.settlings += settlings
        take = OpenTake(*place, self.member, asked_ms)
        loses = self.healed_us is None and self.random.random() < self.notes.habits.lose
        try:
            await self._ask(leader.node, place, settlings, take if takes else None, takes, loses)
        except Unavailable:
            self.client.mark_stale(place)
            if takes:
                history.open_takes += self._opened(take)
            raise
        finally:
            self._after(settlings)
        self.successes += 1

    def _after(self, settlings: list[Settling]) -> None:
        over = {
            id(one.handout)
            for one in settlings
            if one.by == one.handout.member and one.outcome is not Outcome.RENEW and one.said is not Said.NOTHING
        }
        self.held = [one for one in self.held if id(one) not in over]
        for one in settlings:
            if one.outcome is Outcome.RENEW and one.said is Said.OK and one.by == one.handout.member:
                # Longer than the first lease, and shorter than the renewed one.
                self._kept[id(one.handout)] = one.asked_ms + 0.8 * one.handout.lease_ms
        self._past += [one for one in settlings if one.by == one.handout.member]
        del self._past[:-_PAST_MAX]

    def _opened(self, take: OpenTake) -> list[OpenTake]:
        """What a request for records that was not answered may have leased."""
        return [take]

    async def _ask(
        self, node: int, place: Place, settlings: list[Settling], take: OpenTake | None, takes: int, loses: bool
    ) -> None:
        raise NotImplementedError

    async def _give_all_back(self) -> None:
        raise NotImplementedError

    async def _request(self, node: int, request: object, version: int, loses: bool) -> Any:
        """Ask; or ask, and close the connection before the answer comes."""
        if not loses:
            return await self.client.ask(node, request, version, 3.0)
        self.client.connection(node).send(request, version)
        await asyncio.sleep(self.random.choice((0.0, 0.002, 0.05)))
        self.client.disconnect(node)
        raise Unavailable("the connection was lost")

    def _on_taken(
        self, take: OpenTake, deliveries: Sequence[tuple[int, int, int]], token: int, lease_ms: int, data: object
    ) -> None:
        values: dict[int, bytes] = {}
        view = memoryview(bytes(data or b""))  # type: ignore[call-overload]
        for at, header in iter_batches(view):
            for record in decode_batch(view[at : at + header.size], decompressed_size_max=_DECOMPRESSED_MAX):
                values[record.offset] = record.value or b""
        for first, last, attempt in deliveries:
            for offset in range(first, last + 1):
                job = Job(take.topic, take.partition, offset)
                self.world.require(
                    offset in values, "leased-records-are-sent", f"{self.member} was leased {job} without the record"
                )
                value = values.get(offset, b"")
                self.history.on_read(self.member, Place(take.topic, take.partition), offset, value)
                handout = self.notes.history.on_handout(
                    job, self.member, attempt, token, take.asked_ms, self.notes.now_ms, lease_ms, value
                )
                self.held.append(handout)
                self.notes.on_handout(handout)


class LeaseMember(_LeaseWorker):
    """A member that speaks DRMQ's own requests."""

    _outcomes = tuple(Outcome)

    async def _ask(
        self, node: int, place: Place, settlings: list[Settling], take: OpenTake | None, takes: int, loses: bool
    ) -> None:
        assert self.notes.topic_id is not None
        items = [
            LeaseSettlement(
                one.handout.job.offset,
                one.handout.job.offset,
                _TYPES[one.outcome],
                -1 if one.delay_ms is None else int(one.delay_ms),
                one.handout.token,
            )
            for one in settlings
        ]
        partition = LeaseFetchRequestPartition(place.partition, int(take is not None), items)
        request = LeaseFetchRequest(
            self.notes.history.group,
            self.member,
            300 if takes and not items else 0,
            1 << 20,
            takes,
            [LeaseFetchRequestTopic(self.notes.topic_id, [partition])],
        )
        answer = await self._request(node, request, _LEASE_FETCH, loses)
        self._check(answer.error_code, "a request for leases")
        result = answer.topics[0].partitions[0]
        error = self.check_code(result.settle_error_code, "settlements")
        if settlings and error is ErrorCode.NONE:
            refused = {offset for run in result.refusals for offset in range(run.first_offset, run.last_offset + 1)}
            for one in settlings:
                one.said = Said.REFUSED if one.handout.job.offset in refused else Said.OK
                one.answered_ms = self.notes.now_ms
        if take is not None:
            self._check(result.error_code, "a request for leases")
            runs = [(run.first_offset, run.last_offset, run.attempt) for run in result.deliveries]
            self._on_taken(take, runs, result.token, result.lease_ms, result.records)
        if error is not ErrorCode.NONE:
            raise Unavailable(error.name)

    def _check(self, code: int, what: str) -> None:
        error = self.check_code(code, what)
        if error is not ErrorCode.NONE:
            raise Unavailable(error.name)

    async def _give_all_back(self) -> None:
        for place in self.notes.places:
            if here := self._held_in(place):
                await self._exchange(place, [self._say(one, Outcome.GIVE_BACK) for one in here], takes=0)


class ShareMember(_LeaseWorker):
    """A member that speaks Kafka's protocol for share groups."""

    _outcomes = (Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT)

    def _be_born(self) -> None:
        super()._be_born()
        self._sessions: dict[int, int] = {}
        """By node: the epoch of the next request."""

    def _say(self, handout: Handout, outcome: Outcome, delay_ms: float | None = None) -> Settling:
        settling = super()._say(self.notes.meant(handout, self.member), outcome, delay_ms)
        settling.is_fenced = False
        return settling

    def _judge(self, handout: Handout) -> Settling:
        settling = super()._judge(handout)
        if settling.outcome not in self._outcomes:
            settling.outcome = (
                Outcome.ACCEPT if not is_poison(handout.value, self.notes.habits.poison) else (Outcome.RELEASE)
            )
        settling.delay_ms = None
        return settling

    async def _ask(
        self, node: int, place: Place, settlings: list[Settling], take: OpenTake | None, takes: int, loses: bool
    ) -> None:
        assert self.notes.topic_id is not None
        epoch = self._sessions.get(node, 0)
        batches = [
            ShareAcknowledgementBatch(one.handout.job.offset, one.handout.job.offset, [_TYPES[one.outcome]])
            for one in settlings
        ]
        if settlings and epoch == 0:
            # A session is opened without acknowledgements.
            await self._open(node, place)
            epoch = self._sessions.get(node, 0)
            for one in settlings:  # what it is about may have come with the answer
                one.handout = self.notes.meant(one.handout, self.member)
        try:
            if take is not None:
                await self._fetch(node, place, epoch, batches, settlings, take, takes, loses)
            else:
                await self._acknowledge(node, place, epoch, batches, settlings, loses)
        except Unavailable:
            self._sessions.pop(node, None)
            raise

    def _opened(self, take: OpenTake) -> list[OpenTake]:
        # A session takes from all its partitions.
        return [OpenTake(*place, take.member, take.asked_ms) for place in self.notes.places]

    async def _open(self, node: int, place: Place) -> None:
        take = OpenTake(*place, self.member, self.notes.now_ms)
        try:
            await self._fetch(node, place, 0, [], [], take, 1, False)
        except Unavailable:
            self.notes.history.open_takes += self._opened(take)
            self._sessions.pop(node, None)
            raise

    async def _fetch(
        self,
        node: int,
        place: Place,
        epoch: int,
        batches: list[ShareAcknowledgementBatch],
        settlings: list[Settling],
        take: OpenTake,
        takes: int,
        loses: bool,
    ) -> None:
        assert self.notes.topic_id is not None
        partition = ShareFetchRequestPartition(place.partition, batches)
        request = ShareFetchRequest(
            self.notes.history.group,
            self.member,
            epoch,
            300,
            1,
            1 << 20,
            takes,
            takes,
            topics=[ShareFetchRequestTopic(self.notes.topic_id, [partition])],
        )
        answer = await self._request(node, request, _SHARE_FETCH, loses)
        self._advance(node, epoch, answer.error_code)
        for topic in answer.responses:
            for result in topic.partitions:
                if result.partition_index == place.partition:
                    self._on_acknowledged(settlings, result.acknowledge_error_code)
                # The session may have other partitions, whose records come along.
                here = (
                    take
                    if result.partition_index == place.partition
                    else OpenTake(place.topic, result.partition_index, self.member, take.asked_ms)
                )
                error = self.check_code(result.error_code, "a share fetch")
                if error is not ErrorCode.NONE:
                    self.client.mark_stale(Place(here.topic, here.partition))
                    self.notes.history.open_takes.append(here)
                    continue
                runs = [(run.first_offset, run.last_offset, run.delivery_count) for run in result.acquired_records]
                self._on_taken(here, runs, 0, answer.acquisition_lock_timeout_ms, result.records)

    async def _acknowledge(
        self,
        node: int,
        place: Place,
        epoch: int,
        batches: list[ShareAcknowledgementBatch],
        settlings: list[Settling],
        loses: bool,
    ) -> None:
        assert self.notes.topic_id is not None
        partition = ShareAcknowledgeRequestPartition(place.partition, batches)
        request = ShareAcknowledgeRequest(
            self.notes.history.group,
            self.member,
            epoch,
            topics=[ShareAcknowledgeRequestTopic(self.notes.topic_id, [partition])],
        )
        answer = await self._request(node, request, _ACKNOWLEDGE, loses)
        self._advance(node, epoch, answer.error_code)
        for topic in answer.responses:
            for result in topic.partitions:
                self._on_acknowledged(settlings, result.error_code)

    def _advance(self, node: int, epoch: int, code: int) -> None:
        error = self.check_code(code, "a request in a share session")
        if error is not ErrorCode.NONE:
            self._sessions.pop(node, None)
            raise Unavailable(error.name)
        self._sessions[node] = epoch + 1

    def _on_acknowledged(self, settlings: list[Settling], code: int) -> None:
        error = self.check_code(code, "acknowledgements")
        for one in settlings:
            if error is ErrorCode.NONE:
                one.said, one.answered_ms = Said.OK, self.notes.now_ms
            elif error is ErrorCode.INVALID_RECORD_STATE and len(settlings) == 1:
                one.said, one.answered_ms = Said.REFUSED, self.notes.now_ms

    async def _give_all_back(self) -> None:
        """Close the sessions, which gives everything back."""
        self.notes.history.departures.append(Departure(self.member, self.notes.now_ms))
        sessions, self._sessions = self._sessions, {}
        for node in sessions:
            request = ShareFetchRequest(self.notes.history.group, self.member, _CLOSES, topics=[])
            await self.client.ask(node, request, _SHARE_FETCH)


def _place_of(handout: Handout) -> Place:
    return Place(handout.job.topic, handout.job.partition)
