"""Taking work by lease: acquire offsets from the shard that decides about a queue, and read their records here.

The leader of a data partition serves the members of lease groups. For each of them it asks the shard of the queue
(`lease_shards`), which may be on another node, for offsets to lease. The lease is committed before the shard answers.
Then the records are read from the log, as whole batches: a batch may hold records that were not leased, which the
client skips.

A request that finds nothing waits in the shard. While it waits, the shard is told when the high watermark moves. When
one of several partitions has records, the requests to the others are withdrawn. What a shard leases for a request that
is withdrawn at the same moment, or whose client disconnects before its records are read, is given back. If the client
disconnects later, the lease runs out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from drmq.broker.partitions.partition import Partition
from drmq.broker.services.lease_shards import LeaseShards, ShardLink, resolve, unavailable
from drmq.broker.services.queue_starts import QueueStarts
from drmq.broker.services.reads import WantedPartition
from drmq.leases import (
    Acquire,
    Acquired,
    Advance,
    Delivery,
    Failed,
    Failure,
    LeaseResponse,
    Outcome,
    QueueKey,
    ReleaseMember,
    Settle,
    Settlement,
    SettleResult,
    StartQueue,
)
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.records import iter_batches

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

_NOTHING = Acquired(0, 0, ())
SETTLEMENTS_MAX = 10_000
"""Runs of offsets that one request may settle in one partition: each takes a few microseconds on the event loop."""
_PAUSE_S = 0.2
"""A member that finds no shard is answered with nothing after this pause, and asks again."""


class Place(NamedTuple):
    """A partition that a member works on."""

    topic_id: TopicId
    partition: int


class Taken(NamedTuple):
    """What a member got from one partition."""

    place: Place
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    records: bytes = b""
    deliveries: tuple[Delivery, ...] = ()
    token: int = 0
    duration_ms: int = 0


class LeaseService:
    """Leases and settles records of partitions that this node leads. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.shards = LeaseShards(broker)
        self._tasks: set[asyncio.Task[None]] = set()
        """What is given back, so that it is not collected while it waits."""
        self.starts = QueueStarts(broker, self.shards)
        self.starts_at: Callable[[str, Partition], int | Awaitable[int]] = self.starts.offset_of
        """The offset at which a group begins in a partition that it has not worked on."""

    # ---- settling -------------------------------------------------------------------------------

    async def settle(
        self, group: str, member: str, place: Place, settlements: Sequence[Settlement]
    ) -> SettleResult | Failed:
        """Settle leased records of one partition. Raises `ApiError`."""
        self._led(place)
        if len(settlements) > SETTLEMENTS_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{len(settlements)} runs of offsets are to be settled in one partition; a request may have "
                f"{SETTLEMENTS_MAX}: send several requests",
            )
        key = QueueKey(group, *place)
        answer = await self.shards.ask(key, Settle(key, member, tuple(settlements)))
        assert isinstance(answer, (SettleResult, Failed)), answer
        return answer

    async def release(self, group: str, member: str, places: Sequence[Place]) -> None:
        """Give back everything that a member holds. What cannot be given back now returns when its lease ends."""
        keys = [QueueKey(group, *place) for place in places]
        await asyncio.gather(
            *(self.shards.ask(key, ReleaseMember(key, member)) for key in keys), return_exceptions=True
        )

    # ---- taking ---------------------------------------------------------------------------------

    async def take(
        self, group: str, member: str, places: Sequence[Place], count_max: int, bytes_max: int, wait_ms: int
    ) -> list[Taken]:
        """Lease up to about `count_max` records, and read them; waits for the first ones up to `wait_ms`."""
        results: list[Taken] = []
        partitions: dict[Place, Partition] = {}
        for place in places:
            try:
                partitions[place] = self._led(place)
            except ApiError as error:
                results.append(Taken(place, error.code, error.message))
        if not partitions:
            return results
        share = max(1, count_max // len(partitions))
        acquired = await self._acquire(group, member, partitions, share, 0 if results else wait_ms)
        left = bytes_max
        try:
            for place, answer in list(acquired.items()):
                if isinstance(answer, ApiError):
                    results.append(Taken(place, answer.code, answer.message))
                elif answer.deliveries:
                    taken = await self._read(QueueKey(group, *place), member, place, answer, left)
                    left -= len(taken.records)
                    results.append(taken)
        except asyncio.CancelledError:
            for place, answer in acquired.items():
                if isinstance(answer, Acquired) and answer.deliveries:
                    self.give_back(group, member, place, answer.deliveries)
            raise
        return results

    def give_back(self, group: str, member: str, place: Place, deliveries: Sequence[Delivery]) -> None:
        """Give back what was leased and did not reach its member. If that fails, the lease runs out."""
        key = QueueKey(group, *place)
        back = tuple(Settlement(each.first, each.last, Outcome.GIVE_BACK) for each in deliveries)

        async def settle() -> None:
            with suppress(ApiError):
                await self.shards.ask(key, Settle(key, member, back))

        task = asyncio.ensure_future(settle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _led(self, place: Place) -> Partition:
        partition = self._broker.partitions.by_id(*place)
        partition.check_serving()
        return partition

    async def _acquire(
        self, group: str, member: str, partitions: dict[Place, Partition], count_max: int, wait_ms: int
    ) -> dict[Place, Acquired | ApiError]:
        """Ask the shards of all partitions; the answers that arrive until there is something."""
        waiting = [
            _Acquisition(self, QueueKey(group, *place), member, place, partition, count_max)
            for place, partition in partitions.items()
        ]
        found = await asyncio.gather(*(each.run(0) for each in waiting))
        if wait_ms > 0 and not any(isinstance(answer, Acquired) and answer.deliveries for answer in found):
            tasks = {asyncio.ensure_future(each.run(wait_ms)): each for each in waiting}
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task, each in tasks.items():
                    if not task.done():
                        each.withdraw()
            found = await asyncio.gather(*tasks)
        return {each.place: answer for each, answer in zip(waiting, found, strict=True)}

    async def _read(self, key: QueueKey, member: str, place: Place, acquired: Acquired, bytes_max: int) -> Taken:
        """Read what was leased. What does not fit, or cannot be read, is given back."""
        parts: list[bytes] = []
        read: list[Delivery] = []
        unread: list[Settlement] = []
        left = bytes_max
        end = -1
        """The offset after what was read: one batch may hold several deliveries."""
        for delivery in acquired.deliveries:
            while end <= delivery.last and (left > 0 or not parts):
                wanted = WantedPartition(*place, max(delivery.first, end), max(1, left))
                [result] = await self._broker.services.reads.read([wanted], max_bytes=max(1, left))
                found = _up_to(result.data, delivery.last) if result.error is ErrorCode.NONE else None
                if found is None:
                    break
                size, end = found
                parts.append(bytes(result.data[:size]))
                left -= size
            if end > delivery.first:
                read.append(delivery._replace(last=min(delivery.last, end - 1)))
            if end <= delivery.last:
                unread.append(Settlement(max(delivery.first, end), delivery.last, Outcome.GIVE_BACK))
        if unread:
            await self.shards.ask(key, Settle(key, member, tuple(unread)))
        return Taken(place, ErrorCode.NONE, None, b"".join(parts), tuple(read), acquired.token, acquired.duration_ms)

    async def start(self, key: QueueKey, partition: Partition) -> None:
        """Begin a queue where its group begins. Raises `ApiError`."""
        found = self.starts_at(key.group, partition)
        offset = found if isinstance(found, int) else await found
        answer = await self.shards.ask(key, StartQueue(key, offset))
        if isinstance(answer, Failed):
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"group {key.group} cannot begin in {partition.topic}-{partition.index}: {answer.failure.value}",
            )


class _Acquisition:
    """A request for records of one partition. Implements `partition.ProgressWatcher` while it waits."""

    def __init__(
        self, service: LeaseService, key: QueueKey, member: str, place: Place, partition: Partition, count_max: int
    ) -> None:
        self._service = service
        self._key = key
        self._member = member
        self.place = place
        self._partition = partition
        self._count_max = count_max
        self._shard: ShardLink | None = None
        self._future: asyncio.Future[LeaseResponse] | None = None
        self._cancel: Callable[[], None] = lambda: None
        self._is_withdrawn = False
        self._is_advancing = False

    async def run(self, wait_ms: int) -> Acquired | ApiError:
        """What was leased; nothing if the shard lost its leader meanwhile; the reason if it cannot be asked."""
        try:
            answer = await self._ask(wait_ms)
            if isinstance(answer, Failed) and answer.failure is Failure.NOT_STARTED:
                await self._service.start(self._key, self._partition)
                answer = await self._ask(wait_ms)
        except ApiError as error:
            await asyncio.sleep(min(wait_ms / 1000, _PAUSE_S))
            return unavailable(error)
        return answer if isinstance(answer, Acquired) else _NOTHING

    async def _ask(self, wait_ms: int) -> LeaseResponse:
        partition = self._partition
        shard = self._shard = await self._service.shards.find(self._key)
        if self._is_withdrawn:
            return _NOTHING
        request = Acquire(
            self._key, self._member, self._count_max, partition.start_offset, partition.high_watermark, wait_ms
        )
        future: asyncio.Future[LeaseResponse] = asyncio.get_running_loop().create_future()
        self._future = future
        self._cancel = shard.submit(request, self._on_answer)
        if wait_ms:
            partition.watch(self)
        try:
            return await future
        finally:
            partition.unwatch(self)

    def _on_answer(self, answer: LeaseResponse | ApiError) -> None:
        assert self._future is not None
        if not self._future.done():
            resolve(self._future, answer)
        elif isinstance(answer, Acquired) and answer.deliveries:
            # It was withdrawn when the lease was on its way to the log.
            back = tuple(Settlement(each.first, each.last, Outcome.GIVE_BACK) for each in answer.deliveries)
            assert self._shard is not None
            self._shard.submit(Settle(self._key, self._member, back), lambda _: None)

    def on_progress(self, partition: Partition) -> None:
        """The high watermark has moved, or the partition is not led here any more."""
        if not partition.is_leader:
            self.withdraw()
        elif self._shard is not None and not self._is_advancing:
            self._is_advancing = True
            advance = Advance(self._key, partition.start_offset, partition.high_watermark)
            self._shard.submit(advance, self._on_advanced)

    def _on_advanced(self, answer: LeaseResponse | ApiError) -> None:
        self._is_advancing = False

    def withdraw(self) -> None:
        """Stop waiting."""
        self._is_withdrawn = True
        if self._future is not None and not self._future.done():
            self._future.set_result(_NOTHING)
            self._cancel()


def _up_to(data: bytes | bytearray | memoryview, last: int) -> tuple[int, int] | None:
    """How many of these bytes are batches with offsets up to `last`, and the offset after them; None if none is."""
    size, end = 0, -1
    for position, header in iter_batches(data):
        if header.base_offset > last:
            break
        size, end = position + header.size, header.next_offset
    return None if end < 0 else (size, end)
