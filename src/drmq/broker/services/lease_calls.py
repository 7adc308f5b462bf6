"""One request of a member of a lease group: settlements first, then records.

A call has no task and no thread. It submits everything to the shards of its partitions at once, and goes on when the
last answer has arrived: a settlement and the lease that follows it are one batch of the shard's log, and cost one sync.

A call that finds nothing waits in the shards. When one of several partitions has records, the requests to the others
are withdrawn. What is leased for a request that was withdrawn, or whose client has disconnected, is given back. If the
client disconnects after the answer was sent, the lease runs out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from drmq.broker.partitions.partition import Partition
from drmq.broker.services.lease_shards import ShardLink, is_temporary, unavailable
from drmq.broker.services.leased_records import Found
from drmq.broker.services.pending import Pending
from drmq.leases import (
    Acquire,
    Acquired,
    Delivery,
    Failed,
    Failure,
    LeaseResponse,
    QueueKey,
    Refusal,
    Refused,
    Settle,
    Settlement,
    SettleResult,
)
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.records import Buffer

if TYPE_CHECKING:
    from drmq.broker.services.leases import LeaseService

R = TypeVar("R")

SETTLEMENTS_MAX = 10_000
"""Runs of offsets that one request may settle in one partition: each takes a few microseconds on the event loop."""
_PAUSE_S = 0.2
"""A member that would wait, but whose shards are not available, is answered after this pause, and asks again."""
_NOTHING = Acquired(0, 0, ())


class Place(NamedTuple):
    """A partition that a member works on."""

    topic_id: TopicId
    partition: int


class Part(NamedTuple):
    """What a member asks of one partition."""

    place: Place
    settlements: Sequence[Settlement] = ()
    """In the order of their offsets."""
    takes: bool = True


class PartResult:
    """What became of it."""

    is_settled = False
    """Whether there were settlements."""
    settle_error: ApiError | None = None
    """Why nothing was settled."""
    refused: Sequence[Refused] = ()
    error: ApiError | None = None
    """Why nothing was taken."""
    token = 0
    duration_ms = 0
    deliveries: Sequence[Delivery] = ()
    records: Sequence[Buffer] = ()

    def __init__(self, place: Place) -> None:
        self.place = place


class LeaseCall(Pending[R]):
    """One request. Used on the event loop. Its result is what `finish` makes of the results of its parts."""

    _takings: list[Taking] = []  # replaced before it is filled
    """The parts that lease records."""
    _count_max = _bytes_left = _wait_ms = 0
    _pause_s = 0.0
    waits = False
    """Whether it leases records."""
    _is_waiting = False
    """Whether the first answer ends the call."""
    _read_count = 0
    """The partitions that were read, or had nothing."""

    def __init__(
        self,
        service: LeaseService,
        group: str,
        member: str,
        caller: str,
        finish: Callable[[list[PartResult]], R],
    ) -> None:
        self._service = service
        self.group = group
        self.member = member
        self.caller = caller
        self._finish = finish
        self._results: list[PartResult] = []
        self._open = 1
        """Answers that are not there yet, and one while the call begins."""

    def start(self, parts: Sequence[Part], count_max: int, bytes_max: int, wait_ms: int) -> None:
        """Settle, then lease up to `count_max` records; waits for the first ones up to `wait_ms`."""
        if count_max:
            self._count_max, self._bytes_left, self._wait_ms = count_max, bytes_max, wait_ms
            self._takings = []
        for part in parts:
            self._start_part(part, takes=part.takes and count_max > 0)
        takings = self._takings
        if wait_ms:
            self._pause_s = min(wait_ms / 1000, _PAUSE_S)
        if len(takings) == 1:
            self._open += 1
            takings[0].ask(count_max, wait_ms)
        elif takings:
            for taking, share in self._service.shares(takings, count_max):
                self._open += 1
                taking.ask(share, 0)
        self._on_answered()

    def _start_part(self, part: Part, *, takes: bool) -> None:
        place, settlements = part.place, part.settlements
        result = PartResult(place)
        self._results.append(result)
        result.is_settled = bool(settlements)
        try:
            partition = self._service.led(place)
        except ApiError as error:
            result.settle_error = error if settlements else None
            result.error = error if takes else None
            return
        key = QueueKey(self.group, *place)
        if len(settlements) > SETTLEMENTS_MAX:
            result.settle_error = ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{len(settlements)} runs of offsets are to be settled in one partition; a request may have "
                f"{SETTLEMENTS_MAX}: send several requests",
            )
        elif settlements:
            self._open += 1
            request = Settle(key, self.member, tuple(settlements))
            on_answer = partial(self._on_settled, result, request)
            try:
                self._service.shards.of(key).submit(request, on_answer)
            except ApiError as error:
                on_answer(error)
        if takes:
            self.waits = True
            self._takings.append(Taking(self, self._service, key, partition, result))

    def cancel(self) -> None:
        """The client has disconnected. Settlements are carried out, and nothing is leased."""
        if self.is_done:
            return
        super().cancel()
        takings, self._takings = self._takings, []
        for taking in takings:
            taking.withdraw()
            taking.give_back(taking.leased.deliveries)

    # ---- answers --------------------------------------------------------------------------------

    def _on_settled(self, result: PartResult, request: Settle, answer: LeaseResponse | ApiError) -> None:
        if isinstance(answer, SettleResult):
            result.refused = answer.refused
        elif isinstance(answer, Failed) and answer.failure is Failure.NOT_STARTED:
            # No record of this partition was ever leased to the group, or its queue was removed since.
            result.refused = [Refused(each.first, each.last, Refusal.NEVER_LEASED) for each in request.settlements]
        elif isinstance(answer, Failed):
            result.settle_error = ApiError(ErrorCode.INVALID_REQUEST, answer.failure.value)
        elif isinstance(answer, ApiError) and is_temporary(answer):
            self._service.run(self._settle_again(result, request))
            return
        elif isinstance(answer, ApiError):
            result.settle_error = unavailable(answer)
        else:
            self.fail(answer)
            return
        self._on_answered()

    async def _settle_again(self, result: PartResult, request: Settle) -> None:
        """The shard has no leader, or its answer was lost: to settle once more does no harm."""
        try:
            answer = await self._service.shards.ask(request.key, request)
        except ApiError as error:
            result.settle_error = error
            self._on_answered()
        else:
            self._on_settled(result, request, answer)

    def fail(self, answer: object) -> None:
        """The shard has failed on a bug."""
        if not self.is_done:
            self._takings = []
            self._reject(answer if isinstance(answer, Exception) else AssertionError(answer))

    def on_taken(self) -> None:
        """A shard has answered."""
        if self._is_waiting:
            self._is_waiting = False
            for taking in self._takings:
                taking.withdraw()
            self._open = 1
        self._on_answered()

    def _on_answered(self) -> None:
        self._open -= 1
        if self._open or self.is_done:
            return
        try:
            self._go_on()
        except Exception as error:  # noqa: BLE001  # fails this request only, not all that wait for the same sync
            self.fail(error)

    def _go_on(self) -> None:
        """All shards have answered."""
        if not self.waits:
            self._read()
            return
        found = any(taking.leased.deliveries for taking in self._takings)
        failed = any(result.error is not None for result in self._results)
        if failed and not found and self._pause_s:
            pause_s, self._pause_s = self._pause_s, 0.0
            self._open = 1
            asyncio.get_running_loop().call_later(pause_s, self._on_answered)
            return
        if found or failed or len(self._takings) < 2 or self._wait_ms <= 0:
            self._read()
            return
        wait_ms, self._wait_ms = self._wait_ms, 0
        self._is_waiting = True
        self._open = len(self._takings)
        for taking in self._takings:
            if self._is_waiting:
                taking.ask(self._count_max, wait_ms)

    # ---- records --------------------------------------------------------------------------------

    def _read(self) -> None:
        while self._read_count < len(self._takings):
            taking = self._takings[self._read_count]
            self._read_count += 1
            deliveries = taking.leased.deliveries
            if not deliveries:
                continue
            if self._bytes_left <= 0:
                taking.give_back(deliveries)
                continue
            found = self._service.records.read(taking.partition, deliveries, self._bytes_left)
            if not isinstance(found, Found):
                found.add_done_callback(partial(self._on_read, taking))
                return
            self._take(taking, found)
        results, self._results, self._takings = self._results, [], []
        self._resolve(self._finish(results))

    def _on_read(self, taking: Taking, reading: asyncio.Future[Found]) -> None:
        """The records came from the disk."""
        if self.is_done:
            return
        try:
            self._take(taking, reading.result())
            self._read()
        except Exception as error:  # noqa: BLE001  # the caller is the event loop, which would only log it
            self.fail(error)

    def _take(self, taking: Taking, found: Found) -> None:
        result = taking.result
        self._bytes_left -= found.size
        self._service.count_read(found)
        if found.read:
            result.token, result.duration_ms = taking.leased.token, taking.leased.duration_ms
            result.deliveries, result.records = found.read, found.records
        if found.unread:
            taking.give_back(found.unread)


class Taking:
    """The part of a call that leases records of one partition."""

    __slots__ = ("_asked", "_call", "_is_over", "_service", "_shard", "_ticket", "key", "leased", "partition", "result")

    def __init__(
        self,
        call: LeaseCall[R],
        service: LeaseService,
        key: QueueKey,
        partition: Partition,
        result: PartResult,
    ) -> None:
        self._call = call
        self._service = service
        self.key = key
        self.partition = partition
        self.result = result
        self.leased = _NOTHING
        """What the shard has leased."""
        self._shard: ShardLink | None = None
        self._ticket = 0
        self._asked: tuple[int, int] | None = None
        """How many records, and how long it waits, if the shard has not answered."""
        self._is_over = False
        """Whether the call needs no answer."""

    def ask(self, count_max: int, wait_ms: int) -> None:
        """Ask for records."""
        self._is_over = False
        self._asked = (count_max, wait_ms)
        partition = self.partition
        request = Acquire(
            self.key, self._call.member, count_max, partition.start_offset, partition.high_watermark, wait_ms
        )
        try:
            shard = self._shard = self._service.shards.of(self.key)
        except ApiError as error:
            self._on_answer(error)
            return
        if wait_ms:
            self._service.watch(self)
        self._ticket = shard.submit(request, self._on_answer)

    def _on_answer(self, answer: LeaseResponse | ApiError) -> None:
        asked, self._asked = self._asked, None
        self._service.unwatch(self)
        if isinstance(answer, Acquired):
            self.leased = answer
        if self._is_over:
            self.give_back(self.leased.deliveries)
            return
        assert asked is not None, self.key
        if isinstance(answer, Acquired):
            self._service.note_taken(self, asked[0])
        elif isinstance(answer, Failed) and answer.failure is Failure.NOT_STARTED:
            self._service.run(self._begin(asked))
            return
        elif isinstance(answer, ApiError):
            self.result.error = unavailable(answer)
        else:
            self._call.fail(answer)
            return
        self._call.on_taken()

    async def _begin(self, asked: tuple[int, int]) -> None:
        """Begin the queue, and ask again."""
        try:
            await self._service.start(self.key, self.partition, self._call.caller)
        except ApiError as error:
            if not self._is_over:
                self.result.error = unavailable(error)
                self._call.on_taken()
            return
        if not self._is_over:
            self.ask(*asked)

    def on_lost(self) -> None:
        """This node does not lead the partition any more."""
        if self._asked is not None and not self._is_over:
            self.withdraw()
            self._call.on_taken()

    def withdraw(self) -> None:
        """The call needs no answer. If it was leased for already, that is given back when the answer arrives."""
        if self._is_over:
            return
        self._is_over = True
        self._service.unwatch(self)
        if self._asked is not None and self._shard is not None:
            self._shard.withdraw(self._ticket)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return leased records that do not reach their member. This delivery does not count."""
        token, self.leased = self.leased.token, _NOTHING
        if deliveries:
            self._service.give_back(self.key, self._call.member, deliveries, token)
