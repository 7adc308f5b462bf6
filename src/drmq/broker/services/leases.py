"""Taking work by lease: acquire offsets from the shard that decides about a queue, and read their records here.

The leader of a data partition serves the members of lease groups. For each request (`lease_calls`) it asks the shard of
the queue (`lease_shards`), which may be on another node, to settle offsets and to lease others. Both are committed
before the shard answers. Then the records are read from the log (`leased_records`).

While a request waits in a shard, the shard is told when the high watermark moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from drmq.broker.partitions.partition import Partition
from drmq.broker.services.lease_calls import LeaseCall, Part, PartResult, Place, Taking
from drmq.broker.services.lease_shards import LeaseShards
from drmq.broker.services.leased_records import Found, LeasedRecords
from drmq.broker.services.queue_starts import QueueStarts
from drmq.leases import (
    Advance,
    Delivery,
    Failed,
    LeaseResponse,
    Outcome,
    QueueKey,
    ReleaseMember,
    Settle,
    Settlement,
    StartQueue,
)
from drmq.model import ApiError, ErrorCode

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

R = TypeVar("R")

_ADVANCES_MAX = 8
"""Messages about one queue that are on their way to its shard. What changes meanwhile is sent afterwards."""
_DRY_MAX = 10_000


class LeaseService:
    """Leases and settles records of partitions that this node leads. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.shards = LeaseShards(broker)
        self.records = LeasedRecords(broker)
        self.starts = QueueStarts(broker, self.shards)
        self.starts_at: Callable[[str, Partition, str], int | Awaitable[int]] = self.starts.offset_of
        """The offset at which a group begins in a partition that it has not worked on."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: dict[QueueKey, _Watch] = {}
        """Of the queues for whose records this node waits."""
        self._dry: dict[QueueKey, int] = {}
        """Queues that had fewer records than were asked for, with the high watermark of that time."""
        self._turn = 0

    # ---- requests -------------------------------------------------------------------------------

    def call(
        self,
        group: str,
        member: str,
        caller: str,
        parts: Sequence[Part],
        count_max: int,
        bytes_max: int,
        wait_ms: int,
        finish: Callable[[list[PartResult]], R],
    ) -> LeaseCall[R]:
        """Settle, then lease up to `count_max` records of all partitions together, and read them.

        `caller` is the address of the client.
        """
        call = LeaseCall(self, group, member, caller, finish)
        if self.shards.exist:
            call.start(parts, count_max, bytes_max, wait_ms)
        else:
            self.run(self._create_and_start(call, parts, count_max, bytes_max, wait_ms))
        return call

    async def _create_and_start(
        self, call: LeaseCall[R], parts: Sequence[Part], count_max: int, bytes_max: int, wait_ms: int
    ) -> None:
        with suppress(ApiError):  # Each part of the call says so.
            await self.shards.create()
        if not call.is_done:
            call.start(parts, count_max, bytes_max, wait_ms)

    async def release(self, group: str, member: str, places: Sequence[Place]) -> None:
        """Give back everything that a member holds. What cannot be given back now returns when its lease ends."""
        keys = [QueueKey(group, *place) for place in places]
        await asyncio.gather(
            *(self.shards.ask(key, ReleaseMember(key, member)) for key in keys), return_exceptions=True
        )

    # ---- for calls ------------------------------------------------------------------------------

    def led(self, place: Place) -> Partition:
        """A partition that this node leads. Raises `ApiError`."""
        partition = self._broker.partitions.by_id(*place)
        partition.check_serving()
        return partition

    async def start(self, key: QueueKey, partition: Partition, caller: str) -> None:
        """Begin a queue where its group begins. Raises `ApiError`."""
        found = self.starts_at(key.group, partition, caller)
        offset = found if isinstance(found, int) else await found
        answer = await self.shards.ask(key, StartQueue(key, offset, caller=caller))
        if isinstance(answer, Failed):
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"group {key.group} cannot begin in {partition.topic}-{partition.index}: {answer.failure.value}",
            )

    def give_back(self, key: QueueKey, member: str, deliveries: Sequence[Delivery], token: int) -> None:
        """Give back what was leased and does not reach its member. If that fails, the lease runs out."""
        back = tuple(Settlement(each.first, each.last, Outcome.GIVE_BACK, None, token) for each in deliveries)
        try:
            self.shards.of(key).submit(Settle(key, member, back), lambda _: None)
        except ApiError:
            return

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that a call needs and that takes its time."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def count_read(self, found: Found) -> None:
        reads = self._broker.services.reads
        reads.read_bytes += found.size
        reads.read_records += sum([each.last - each.first + 1 for each in found.read])

    # ---- several partitions ---------------------------------------------------------------------

    def shares(self, takings: Sequence[Taking], count_max: int) -> Iterator[tuple[Taking, int]]:
        """How many records to ask of each of several partitions, together `count_max` at most.

        A partition that had fewer than were asked for, and has not grown, is asked for one: what was released may be
        there. The others share the rest. Each call begins with another partition.
        """
        self._turn += 1
        begin = self._turn % len(takings)
        takings = [*takings[begin:], *takings[:begin]]
        dry = [each for each in takings if self._dry.get(each.key) == each.partition.high_watermark]
        wet = [each for each in takings if each not in dry] or dry
        spared = 0 if wet is dry else min(len(dry), count_max // 2)
        share = max(1, (count_max - spared) // len(wet))
        left = count_max
        for taking in wet if wet is dry else [*wet, *dry]:
            count = min(left, share if taking in wet else 1)
            if count <= 0:
                return
            left -= count
            yield taking, count

    def note_taken(self, taking: Taking, asked: int) -> None:
        """A shard has leased so many for a request that asked for `asked`."""
        count = sum([each.last - each.first + 1 for each in taking.leased.deliveries])
        if count >= asked:
            self._dry.pop(taking.key, None)
        else:
            if len(self._dry) >= _DRY_MAX:
                self._dry.clear()
            self._dry[taking.key] = taking.partition.high_watermark

    # ---- waiting --------------------------------------------------------------------------------

    def watch(self, taking: Taking) -> None:
        """Tell the shard of a queue how far its partition goes, while a request waits there."""
        watch = self._watches.get(taking.key)
        if watch is None:
            watch = self._watches[taking.key] = _Watch(self, taking.key, taking.partition)
            taking.partition.watch(watch)
        watch.takings[taking] = None

    def unwatch(self, taking: Taking) -> None:
        watch = self._watches.get(taking.key)
        if watch is None:
            return
        watch.takings.pop(taking, None)
        if not watch.takings:
            del self._watches[taking.key]
            watch.partition.unwatch(watch)


class _Watch:
    """Watches a partition for the requests that wait for its records in one queue. A `partition.ProgressWatcher`."""

    def __init__(self, service: LeaseService, key: QueueKey, partition: Partition) -> None:
        self._service = service
        self._key = key
        self.partition = partition
        self.takings: dict[Taking, None] = {}
        self._sent_count = 0
        """Messages that the shard has not answered yet."""
        self._sent = -1
        """The high watermark that was sent last."""

    def on_progress(self, partition: Partition) -> None:
        """The high watermark has moved, or the partition is not led here any more."""
        if not partition.is_leader:
            for taking in list(self.takings):
                taking.on_lost()
        elif self._sent_count < _ADVANCES_MAX and partition.high_watermark != self._sent:
            self._sent_count += 1
            self._sent = partition.high_watermark
            advance = Advance(self._key, partition.start_offset, self._sent)
            try:
                self._service.shards.of(self._key).submit(advance, self._on_advanced)
            except ApiError:
                self._sent_count -= 1

    def _on_advanced(self, answer: LeaseResponse | ApiError) -> None:
        self._sent_count -= 1
        if self.takings and self.partition.high_watermark != self._sent:
            self.on_progress(self.partition)
