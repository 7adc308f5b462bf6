"""What clients do in a simulation: they produce, consume, commit and request ends, and record all of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from drmq.model import ErrorCode, Offset, ProducerId
from drmq.records import Buffer, Record, batch_is_intact, decode_batch, encode_batch, iter_batches
from drmq.testing.simulation.client import Client, Connector, Unavailable
from drmq.testing.simulation.history import History, Outcome, Place, Sent
from drmq.testing.simulation.node import SimulatedNode
from drmq.testing.simulation.world import World
from drmq.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from drmq.wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from drmq.wire.messages.init_producer_id import InitProducerIdRequest
from drmq.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsRequestPartition, ListOffsetsRequestTopic
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic

_PRODUCE, _FETCH, _LIST_OFFSETS, _COMMIT, _COMMITTED, _INIT, _CREATE = 9, 12, 6, 8, 6, 4, 5
EARLIEST, LATEST = -2, -1
_IN_FLIGHT_MAX = 5
_DECOMPRESSED_MAX = 1 << 24

FOLLOWER_READ = "read from a follower"
"""The name under which such reads are counted."""
_READS_AGAIN = 0.15
"""The probability that such a consumer goes back to older records."""

_SURE_TO_FAIL = frozenset(
    {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_REQUEST}
)
_NEVER_ALLOWED = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, *_SURE_TO_FAIL})
"""Error codes that these clients must never receive: they send only valid requests."""


@dataclass(slots=True)
class _Batch:
    """A batch that was sent at least once and is not acknowledged."""

    records: list[Sent]
    data: bytes
    sequence: int = -1
    times_sent: int = 0
    doubted: bool = field(default=False)


class Worker:
    """Something that a client does throughout a run."""

    def __init__(self, world: World, connector: Connector, history: History, name: str) -> None:
        self.world = world
        self.history = history
        self.name = name
        self.random = Random(world.random.getrandbits(64))
        self.client = Client(connector, name, self.random)
        self.is_stopping = False
        """No new work; unfinished work is completed."""
        self.successes = 0
        self.healed_us: int | None = None
        """When all faults were repaired; None before."""
        self.pause_s = 0.25

    async def run(self) -> None:
        while not self.is_done:
            try:
                await self.work()
            except Unavailable:
                await asyncio.sleep(self.random.uniform(0.02, 0.3))
            await asyncio.sleep(self.random.uniform(0, 2 * self.pause_s))

    @property
    def is_done(self) -> bool:
        return self.is_stopping

    async def work(self) -> None:
        raise NotImplementedError

    def check_end(self, nodes: Iterable[SimulatedNode]) -> None:
        """Check what this client received against the final state, after all faults are repaired."""

    def check_code(self, code: int, what: str) -> ErrorCode:
        """The error code of a response, which must be one that is allowed."""
        error = ErrorCode(code)
        self.world.require(
            error not in _NEVER_ALLOWED, "sound-answers", f"{self.name}: {what} was answered with {error.name}"
        )
        return error


class Producer(Worker):
    """Writes to one partition, batch after batch, and repeats what was not acknowledged.

    An idempotent producer has up to five batches in flight, as Kafka's clients do.
    """

    def __init__(
        self,
        world: World,
        connector: Connector,
        history: History,
        name: str,
        place: Place,
        *,
        acks: int = -1,
        idempotent: bool = True,
    ) -> None:
        super().__init__(world, connector, history, name)
        self.place = place
        self._acks = acks
        self._is_idempotent = idempotent
        self._in_flight_max = self.random.choice((1, 3, _IN_FLIGHT_MAX)) if idempotent else 1
        self._producer_id = -1
        self._sequence = 0
        self._count = 0
        self._pending: list[_Batch] = []

    @property
    def is_done(self) -> bool:
        return self.is_stopping and not self._pending

    async def work(self) -> None:
        if self._is_idempotent and self._producer_id < 0:
            await self._get_id()
        while not self.is_stopping and len(self._pending) < self.random.randint(1, self._in_flight_max):
            self._pending.append(self._new_batch())
        if self._pending:
            await self._attempt()

    async def _get_id(self) -> None:
        answer = await self.client.ask_any(InitProducerIdRequest(), _INIT, 5.0)
        if self.check_code(answer.error_code, "InitProducerId") is not ErrorCode.NONE:
            raise Unavailable("no producer id")
        self._producer_id = answer.producer_id

    def _new_batch(self) -> _Batch:
        random, sent = self.random, []
        for _ in range(random.choice((1, 1, 2, 5))):
            self._count += 1
            value = f"{self.name}:{self._count}:".encode() + bytes(random.randrange(150))
            sent.append(
                self.history.on_send(self.place, value, is_durable=self._acks == -1, is_idempotent=self._is_idempotent)
            )
        sequence = -1
        if self._is_idempotent:
            sequence, self._sequence = self._sequence, self._sequence + len(sent)
        timestamp_ms = self.world.now_us // 1_000 + 1_700_000_000_000
        data = encode_batch(
            [Record(Offset(index), timestamp_ms, None, one.value) for index, one in enumerate(sent)],
            producer_id=ProducerId(self._producer_id),
            producer_epoch=0 if self._is_idempotent else -1,
            base_sequence=sequence,
        )
        return _Batch(sent, bytes(data), sequence)

    def _request(self, batch: _Batch) -> ProduceRequest:
        partition = ProduceRequestPartition(self.place.partition, batch.data)
        return ProduceRequest(
            None, self._acks, 5_000, [ProduceRequestTopic(self.place.topic, partition_data=[partition])]
        )

    async def _attempt(self) -> None:
        """Send everything that is not acknowledged, in order, and handle the responses."""
        leader = await self.client.leader(self.place)
        connection = self.client.connection(leader.node)
        batches = list(self._pending)
        answers = [connection.send(self._request(batch), _PRODUCE) for batch in batches]
        patience_s = self.random.choice((1.0, 3.0, 6.0))
        try:
            async with asyncio.timeout(patience_s):
                for batch, answer in zip(batches, answers, strict=True):
                    self._on_answer(batch, await answer)
        except (TimeoutError, Unavailable):
            self.client.disconnect(leader.node)
            self.client.mark_stale(self.place)
            for answer in answers:
                if not answer.done():
                    answer.cancel()

    def _on_answer(self, batch: _Batch, answer: object) -> None:
        result = answer.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        error = self.check_code(result.error_code, f"a batch for {self.place}")
        if error is ErrorCode.NONE:
            for index, sent in enumerate(batch.records):
                self.history.on_acked(sent, result.base_offset + index)
            self._pending.remove(batch)
            self.successes += 1
            self.on_written(batch, result.base_offset)
            return
        if error in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # After a failed batch this is correct. But everything before the first pending batch was acknowledged.
            self.world.require(
                batch is not self._pending[0],
                "producers-are-remembered",
                f"{self.name} (id {self._producer_id}): batch {batch.sequence} of {self.place} is the next one, but "
                f"was answered with {error.name}",
            )
        self.client.mark_stale(self.place)

    def on_written(self, batch: _Batch, offset: int) -> None:
        """A batch was acknowledged at this offset."""


class Repeater(Producer):
    """Repeats batches that were acknowledged long ago, as if the response had been lost.

    However many records were removed since, and whichever node leads now: each of the last five batches must still be
    known, at its offset.
    """

    def __init__(self, world: World, connector: Connector, history: History, name: str, place: Place) -> None:
        super().__init__(world, connector, history, name, place)
        self._in_flight_max = 1
        self.pause_s = 1.0
        self._written: deque[tuple[_Batch, int]] = deque(maxlen=_IN_FLIGHT_MAX)

    async def work(self) -> None:
        if not self._pending and self._written and self.random.random() < 0.6:
            await self._repeat(*self.random.choice(self._written))
        else:
            await super().work()

    def on_written(self, batch: _Batch, offset: int) -> None:
        self._written.append((batch, offset))

    async def _repeat(self, batch: _Batch, offset: int) -> None:
        leader = await self.client.leader(self.place)
        try:
            answer = await self.client.ask(leader.node, self._request(batch), _PRODUCE, 3.0)
        except Unavailable:
            self.client.mark_stale(self.place)
            raise
        result = answer.responses[0].partition_responses[0]
        error = self.check_code(result.error_code, f"a batch for {self.place}")
        forgotten = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        self.world.require(
            error not in forgotten and (error is not ErrorCode.NONE or result.base_offset == offset),
            "producers-are-remembered",
            f"{self.name} (id {self._producer_id}): batch {batch.sequence} of {self.place} was written at {offset}, "
            f"but when repeated, the response was {error.name} and {result.base_offset}",
        )
        if error is not ErrorCode.NONE:
            self.client.mark_stale(self.place)
            raise Unavailable(error.name)
        self.successes += 1


class Consumer(Worker):
    """Reads a partition from its start, continuously."""

    def __init__(self, world: World, connector: Connector, history: History, name: str, place: Place) -> None:
        super().__init__(world, connector, history, name)
        self.place = place
        self.position = 0
        self._ends: dict[tuple[int, int], int] = {}

    async def work(self) -> None:
        leader = await self.client.leader(self.place)
        result = await self._fetch(leader.node, leader.epoch)
        if result is not None:
            self._check_end(leader.node, leader.epoch, result.high_watermark)
            self._take(result.records or b"", result.high_watermark)
            self.successes += 1

    async def _fetch(self, node: int, epoch: int, rack: str = "") -> FetchResponsePartition | None:
        """Request the next records; None if the partition starts later than this consumer assumed."""
        partition = FetchRequestPartition(
            self.place.partition,
            current_leader_epoch=epoch,
            fetch_offset=self.position,
            partition_max_bytes=self.random.choice((200, 4_000, 100_000)),
        )
        request = FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchRequestTopic(self.place.topic, partitions=[partition])],
            rack_id=rack,
        )
        try:
            answer = await self.client.ask(node, request, _FETCH)
        except Unavailable:
            self.client.mark_stale(self.place)
            raise
        result: FetchResponsePartition = answer.responses[0].partitions[0]
        error = self.check_code(result.error_code, f"a fetch of {self.place}")
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.world.require(
                0 <= self.position < result.log_start_offset or result.log_start_offset < 0,
                "valid-offsets-stay-valid",
                f"{self.name} received that {self.position} of {self.place} is out of range "
                f"({result.log_start_offset} to {result.high_watermark})",
            )
            self.position = max(self.position, result.log_start_offset)
            return None
        if error is not ErrorCode.NONE:
            self.client.mark_stale(self.place)
            raise Unavailable(error.name)
        return result

    def _check_end(self, node: int, epoch: int, end: int) -> None:
        before = self._ends.get((node, epoch), 0)
        self.world.require(
            end >= before,
            "high-watermark-monotone",
            f"{self.name}: the high watermark of {self.place} fell from {before} to {end} in epoch {epoch}",
        )
        self._ends[node, epoch] = end
        self.history.learn_end(self.place, end)

    def _take(self, data: Buffer, end: int) -> None:
        view = memoryview(data)
        for at, header in iter_batches(view):
            batch = view[at : at + header.size]
            if not batch_is_intact(batch):
                self.world.break_rule(
                    "nothing-invented", f"{self.name} got a damaged batch at {self.place} {header.base_offset}"
                )
                return
            for record in decode_batch(batch, decompressed_size_max=_DECOMPRESSED_MAX):
                if record.offset < self.position:
                    continue
                self.world.require(
                    record.offset < end,
                    "no-uncommitted-record-seen",
                    f"{self.name} received {self.place} {record.offset}, but the high watermark is {end}",
                )
                self.history.on_read(self.name, self.place, record.offset, record.value or b"")
                self.position = record.offset + 1


class NearConsumer(Consumer):
    """Reads from the replica in its rack that the leader names (KIP-392), and sometimes reads older records again.

    After any error it returns to the leader, as Kafka's clients do. What it receives must be the same as what others
    receive, and committed, although the replica may lag. The end of the log that the replica reports may be earlier
    than before: a restarted process knows less. During a process run, the invariants check it.
    """

    def __init__(
        self, world: World, connector: Connector, history: History, name: str, place: Place, rack: str
    ) -> None:
        super().__init__(world, connector, history, name, place)
        self.pause_s = 0.1
        self._rack = rack
        self._near: int | None = None

    async def work(self) -> None:
        leader = await self.client.leader(self.place)
        near, self._near = self._near, None
        result = await self._fetch(leader.node if near is None else near, leader.epoch, self._rack)
        if result is None:
            return
        if result.preferred_read_replica >= 0:
            self._near = result.preferred_read_replica
            return
        self._near = near
        if near is None:
            self._check_end(leader.node, leader.epoch, result.high_watermark)
        else:
            self.world.counts[FOLLOWER_READ] += 1
            self.history.learn_end(self.place, result.high_watermark)
        self._take(result.records or b"", result.high_watermark)
        self.successes += 1
        if self.random.random() < _READS_AGAIN:
            self.position = self.random.choice((0, self.random.randrange(self.position + 1)))


class EndWatcher(Worker):
    """Requests the end of a partition, which must include everything that any client received before."""

    def __init__(self, world: World, connector: Connector, history: History, name: str, place: Place) -> None:
        super().__init__(world, connector, history, name)
        self.place = place
        self.pause_s = 0.1

    async def work(self) -> None:
        leader = await self.client.leader(self.place)
        floor = self.history.known_end.get(self.place, 0)
        partition = ListOffsetsRequestPartition(self.place.partition, -1, LATEST)
        request = ListOffsetsRequest(topics=[ListOffsetsRequestTopic(self.place.topic, [partition])])
        try:
            answer = await self.client.ask(leader.node, request, _LIST_OFFSETS)
        except Unavailable:
            self.client.mark_stale(self.place)
            raise
        result = answer.topics[0].partitions[0]
        error = self.check_code(result.error_code, f"ListOffsets of {self.place}")
        if error is not ErrorCode.NONE:
            self.client.mark_stale(self.place)
            raise Unavailable(error.name)
        self.history.on_end_answered(self.place, result.offset, floor)
        self.successes += 1


class Committer(Worker):
    """The only member of a group, which assigns partitions itself: it commits increasing offsets, and reads them."""

    def __init__(self, world: World, connector: Connector, history: History, name: str, place: Place) -> None:
        super().__init__(world, connector, history, name)
        self.place = place
        self._next = 0
        self._coordinator: int | None = None

    async def work(self) -> None:
        if self._coordinator is None:
            self._coordinator = await self.client.coordinator(self.name)
        try:
            if self.random.random() < 0.6:
                await self._commit(self._coordinator)
            else:
                await self._look(self._coordinator)
        except Unavailable:
            self._coordinator = None
            raise
        self.successes += 1

    async def _commit(self, node: int) -> None:
        key = (self.name, self.place)
        self._next += 1
        offset = self.history.asked[key] = self._next
        partition = OffsetCommitRequestPartition(self.place.partition, offset, committed_metadata="")
        request = OffsetCommitRequest(
            self.name, topics=[OffsetCommitRequestTopic(self.place.topic, partitions=[partition])]
        )
        answer = await self.client.ask(node, request, _COMMIT)
        error = self.check_code(answer.topics[0].partitions[0].error_code, "an offset commit")
        if error is not ErrorCode.NONE:
            raise Unavailable(error.name)
        self.history.on_committed(self.name, self.place, offset)

    async def _look(self, node: int) -> None:
        floor = self.history.committed.get((self.name, self.place), -1)
        request = OffsetFetchRequest(self.name, [OffsetFetchRequestTopic(self.place.topic, [self.place.partition])])
        answer = await self.client.ask(node, request, _COMMITTED)
        error = self.check_code(answer.error_code, "an offset fetch")
        if error is not ErrorCode.NONE:
            raise Unavailable(error.name)
        result = answer.topics[0].partitions[0]
        if self.check_code(result.error_code, "an offset fetch") is not ErrorCode.NONE:
            raise Unavailable(ErrorCode(result.error_code).name)
        self.history.on_committed_read(self.name, self.place, result.committed_offset, floor)


class Reader(Worker):
    """Reads some partitions completely, once, after all faults are repaired."""

    def __init__(self, world: World, connector: Connector, history: History, places: list[Place]) -> None:
        super().__init__(world, connector, history, "the final reader")
        self._left = list(places)
        self.pause_s = 0.005

    @property
    def is_done(self) -> bool:
        return not self._left

    async def work(self) -> None:
        place = self._left[0]
        final: dict[int, bytes] = {}
        leader = await self.client.leader(place)
        try:
            start, end = [await self._end(leader.node, place, which) for which in (EARLIEST, LATEST)]
            position = start
            while position < end:
                position = await self._fetch(leader.node, place, position, final)
        except Unavailable:
            self.client.mark_stale(place)
            raise
        self.history.start[place], self.history.final[place] = start, final
        missing = [offset for offset in range(start, end) if offset not in final]
        self.world.require(not missing, "offsets-are-dense", f"{place} has no record at {missing[:10]}")
        self._left.pop(0)

    async def _end(self, node: int, place: Place, which: int) -> int:
        partition = ListOffsetsRequestPartition(place.partition, -1, which)
        request = ListOffsetsRequest(topics=[ListOffsetsRequestTopic(place.topic, [partition])])
        answer = await self.client.ask(node, request, _LIST_OFFSETS)
        result = answer.topics[0].partitions[0]
        if result.error_code:
            raise Unavailable(ErrorCode(result.error_code).name)
        return int(result.offset)

    async def _fetch(self, node: int, place: Place, position: int, final: dict[int, bytes]) -> int:
        partition = FetchRequestPartition(place.partition, fetch_offset=position, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchRequestTopic(place.topic, partitions=[partition])],
        )
        answer = await self.client.ask(node, request, _FETCH)
        result = answer.responses[0].partitions[0]
        if result.error_code:
            raise Unavailable(ErrorCode(result.error_code).name)
        view = memoryview(result.records or b"")
        for at, header in iter_batches(view):
            for record in decode_batch(view[at : at + header.size], decompressed_size_max=_DECOMPRESSED_MAX):
                if record.offset >= position:
                    final[record.offset] = record.value or b""
                    position = record.offset + 1
        return position


async def create_topic(
    client: Client, name: str, partitions: int, replicas: int, configs: dict[str, str] | None = None
) -> None:
    """Create a topic, and retry until that succeeds."""
    settings = [CreateTopicsRequestConfig(key, value) for key, value in (configs or {}).items()]
    topic = CreateTopicsRequestTopic(name, partitions, replicas, configs=settings)
    while True:
        try:
            answer = await client.ask_any(CreateTopicsRequest([topic], 5_000), _CREATE, 6.0)
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
        except Unavailable:
            pass
        await asyncio.sleep(0.2)


__all__ = [
    "FOLLOWER_READ",
    "Committer",
    "Consumer",
    "EndWatcher",
    "NearConsumer",
    "Outcome",
    "Producer",
    "Reader",
    "Repeater",
    "Worker",
    "create_topic",
]
