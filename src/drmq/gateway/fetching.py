"""Reading partitions by offset, on the event loop: a few records for one call, or all of a topic for a stream.

A broker answers the requests of a connection in their order, and a request for records may wait. So each call has a
connection for itself while it lasts; those that are free again are kept for the next calls.

A stream has one task for each broker that leads any of its partitions. When a leader moves, cannot be reached, or some
time has passed, all tasks end and begin again with the leaders of that moment, which also finds partitions that were
added. What has arrived waits in a short queue: a reader that is slow makes the tasks wait, and nothing else.

Batches are decompressed on the event loop, and each is read in pieces, as its reader takes them. A few streams may keep
their batch decompressed meanwhile, each as long as its reader takes what is there within a moment. So a batch is
decompressed once for a reader that is not slow, and the loop does other work between pieces. The other streams decode
as much as may wait, give up the rest, and later decompress again.

All streams together have a limit for what waits: decoded records and answers of brokers. Beyond it each stream asks for
little and gets small pieces, so that slow readers do not stop others. A large answer is then given up as well if
its reader does not read, and what is left of it is requested again.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from drmq.client import ClientError, Unreachable
from drmq.client.errors import WRONG_NODE
from drmq.client.leases.brokers import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Brokers
from drmq.client.leases.link import Link
from drmq.client.topics import topic_refusal
from drmq.columnar import Columns, iter_columns
from drmq.gateway.problems import ProblemError
from drmq.model import ErrorCode
from drmq.model.address import Address
from drmq.records import InvalidBatch
from drmq.wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)

DECOMPRESSED_BYTES_MAX: Final = 64 * 1_048_576
PATIENCE_S: Final = 15.0
"""How long a partition may have no leader before its readers are told."""
_CLIENT_ID: Final = "drmq-gateway"
_IDLE_LINKS_MAX: Final = 8
_KNOWN_S: Final = 10.0
"""How long leaders are believed in, if no broker says otherwise."""
_STREAM_WAIT_MS: Final = 500
_QUEUED_PIECES: Final = 4
QUEUED_BYTES_MIN: Final = 1_048_576
"""What waits for the client of one stream, however small its pieces are. Less would mean to decompress more often."""
QUEUED_BYTES_MAX: Final = 8 * 1_048_576
HELD_BYTES_MAX: Final = 64 * 1_048_576
"""Of records that wait for the clients of all streams, and of answers that are not decoded to their end."""
SMALL_BYTES: Final = 131_072
"""Of one piece or answer beyond that, unless a single record or batch is larger."""
LARGE_HELD_BYTES_MAX: Final = 256 * 1_048_576
"""Beyond that a stream has one piece that waits, and ends if it comes to a record larger than twice such a piece."""
OPEN_BATCHES_MAX: Final = 4
"""Decompressed batches that are kept between pieces, for all streams."""
KEPT_S: Final = 0.25
"""How long such a batch is kept for a client that does not read. Beyond the limit of bytes, a large answer as well."""
_BACKOFF_S: Final = 0.2
UNKNOWN_GRACE_S: Final = 2.0
"""How long a topic that a node does not know may be known to another one: it has just been created, perhaps."""
_READ_COMMITTED: Final = 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """A topic as the metadata has it: its id, and the leader of each partition, -1 for none."""

    name: str
    topic_id: bytes
    leaders: Mapping[int, int]


class Chunk(NamedTuple):
    """Consecutive records of a partition, and the offset after them."""

    partition: int
    columns: Columns
    next_offset: int


class Fetched(NamedTuple):
    """The answer to one call: records, where to go on, and the end of the partition."""

    columns: Columns | None
    next_offset: int
    end_offset: int


class StreamMemory:
    """What all streams together keep for clients that have not read it."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.open_batches = 0

    @property
    def has_room(self) -> bool:
        return self.held_bytes < HELD_BYTES_MAX

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= LARGE_HELD_BYTES_MAX


class Fetcher:
    """Connections for reading, and what is known of topics. Owned by the gateway."""

    def __init__(self, bootstrap: str) -> None:
        self._brokers = Brokers(bootstrap, _CLIENT_ID)
        self._idle: dict[Address, list[Link]] = defaultdict(list)
        self._topics: dict[str, tuple[float, TopicLeaders]] = {}
        self.memory = StreamMemory()

    def close(self) -> None:
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()
        self._brokers.close()

    async def topic(self, name: str, *, fresh: bool = False) -> TopicLeaders:
        """The leaders of a topic. Raises `ClientError`."""
        now_s = time.monotonic()
        known_s, known = self._topics.get(name, (0.0, None))
        if known is not None and not fresh and now_s - known_s < _KNOWN_S:
            return known
        self._topics = {key: each for key, each in self._topics.items() if now_s - each[0] < _KNOWN_S}
        for topic in (await self._brokers.metadata([name])).topics:
            if topic.error_code:
                raise topic_refusal(topic.error_code, name)
            leaders = {part.partition_index: part.leader_id for part in topic.partitions}
            found = TopicLeaders(name, topic.topic_id, leaders)
            self._topics[name] = now_s, found
            return found
        raise topic_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)

    @asynccontextmanager
    async def link(self, node_id: int) -> AsyncIterator[Link]:
        """A connection to a broker, for the caller alone. Raises `ClientError`."""
        address = self._brokers.address_of(node_id)
        idle = self._idle[address]
        link = idle.pop() if idle else None
        if link is None or not link.is_open:
            link = await Link.open(address, _CLIENT_ID, CONNECT_TIMEOUT_S)
        is_quiet = False
        try:
            yield link
            is_quiet = True
        finally:
            # After an exception an answer may still be on its way, for which the next user would wait.
            if is_quiet and link.is_open and len(idle) < _IDLE_LINKS_MAX:
                idle.append(link)
            else:
                link.close()

    async def fetch(
        self, name: str, partition: int, offset: int, *, records_max: int, bytes_max: int, wait_ms: int
    ) -> Fetched:
        """Some records of a partition. Follows its leader. Raises `ClientError`."""
        started_s = time.monotonic()
        is_again = False
        while True:
            try:
                topic = await self.topic(name, fresh=is_again)
                leader = topic.leaders.get(partition)
                if leader is None:
                    raise topic_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, partition=partition)
                if leader < 0:
                    raise topic_refusal(ErrorCode.LEADER_NOT_AVAILABLE, name, partition=partition)
                async with self.link(leader) as link:
                    [part] = await ask(link, topic, {partition: offset}, bytes_max, wait_ms)
                raise_refusal(part, name)
                break
            except ClientError as error:
                if time.monotonic() - started_s > patience_s(error):
                    raise
            is_again = True
            await asyncio.sleep(_BACKOFF_S)
        first = next(pieces(part, offset, records_max, bytes_max), None)
        end_offset = max(end_of(part), offset)
        return Fetched(first, offset if first is None else first.next_offset, end_offset)


async def ask(
    link: Link, topic: TopicLeaders, positions: Mapping[int, int], bytes_max: int, wait_ms: int
) -> list[FetchResponsePartition]:
    """One request for records of some partitions that a broker leads. Errors of partitions are in their parts."""
    wanted = [
        FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
        for index, offset in positions.items()
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=_READ_COMMITTED,
        topics=[FetchRequestTopic(topic=topic.name, topic_id=topic.topic_id, partitions=wanted)],
    )
    answer = await link.call(request, FetchResponse, wait_ms / 1000 + REQUEST_TIMEOUT_S)
    if answer.error_code:
        raise topic_refusal(answer.error_code, topic.name, doing="be read")
    return [part for each in answer.responses for part in each.partitions]


def raise_refusal(part: FetchResponsePartition, topic: str) -> None:
    if part.error_code:
        raise topic_refusal(part.error_code, topic, partition=part.partition_index, doing="be read")


def end_of(part: FetchResponsePartition) -> int:
    """The offset after the last record that a reader may see."""
    return part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark


def pieces(part: FetchResponsePartition, offset: int, records_max: int, bytes_max: int) -> Iterator[Columns]:
    """The records of an answer from `offset` on, in pieces of a limited size."""
    if not part.records:
        return
    aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
    try:
        yield from iter_columns(
            part.records,
            start_offset=offset,
            end_offset=_INT64_MAX,
            decompressed_size_max=DECOMPRESSED_BYTES_MAX,
            include_headers=True,
            aborted=aborted,
            rows_max=records_max,
            bytes_max=bytes_max,
        )
    except InvalidBatch as error:
        raise ProblemError(422, f"a batch of partition {part.partition_index} cannot be decoded: {error}") from None


def patience_s(error: ClientError) -> float:
    """How long to try again after an error: a leader that moves and a broker that is gone need some time."""
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UNKNOWN_GRACE_S
    return PATIENCE_S if isinstance(error, Unreachable) or error.code in WRONG_NODE or error.retriable else -1.0


class TopicReader:
    """Reads partitions of a topic for one stream. Owned by its caller, which runs `run`, takes one chunk after the
    other, and closes it."""

    def __init__(
        self,
        fetcher: Fetcher,
        topic: str,
        positions: Mapping[int, int],
        *,
        ends: Mapping[int, int] | None,
        finds_new: bool,
        records_max: int,
        bytes_max: int,
    ) -> None:
        self._fetcher = fetcher
        self._topic = topic
        self._positions = dict(positions)
        self._ends = ends
        """Where to stop; None to go on for ever."""
        self._finds_new = finds_new
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._is_stale = False
        self._failed_since_s: float | None = None
        self._memory = fetcher.memory
        self._chunks: asyncio.Queue[Chunk | None] = asyncio.Queue()
        """None is the end."""
        self._queued_bytes = 0
        self._queued_bytes_max = min(max(_QUEUED_PIECES * bytes_max, QUEUED_BYTES_MIN), QUEUED_BYTES_MAX)
        self._taken_bytes = 0
        """Of the chunk that was taken last."""
        self._held_bytes = 0
        """Of these chunks, and of answers that are not decoded to their end."""

    async def next_chunk(self) -> Chunk | None:
        """The next chunk, None at the end. The one before is done with."""
        self._hold(-self._taken_bytes)
        self._taken_bytes = 0
        chunk = await self._chunks.get()
        self._chunks.task_done()
        if chunk is not None:
            self._taken_bytes = chunk.columns.nbytes
            self._queued_bytes -= self._taken_bytes
        return chunk

    def close(self) -> None:
        """Nothing is read any more: `run` has ended."""
        self._hold(-self._held_bytes)

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        self._memory.held_bytes += size

    async def run(self) -> None:
        """Read until everything is read, if there is an end. Raises `ClientError`."""
        while open_partitions := self._open():
            try:
                topic = await self._fetcher.topic(self._topic, fresh=True)
            except ClientError as error:
                await self._on_failed(error)
                continue
            if self._finds_new:
                self._positions = dict.fromkeys(topic.leaders, 0) | self._positions
                open_partitions = self._open()
            shares: dict[int, list[int]] = defaultdict(list)
            for partition in open_partitions:
                shares[topic.leaders.get(partition, -1)].append(partition)
            self._is_stale = False
            leaderless = shares.pop(-1, None)
            async with asyncio.TaskGroup() as tasks:
                for node_id, partitions in shares.items():
                    tasks.create_task(self._read(node_id, topic, partitions))
                if leaderless:
                    place = leaderless[0]
                    await self._on_failed(topic_refusal(ErrorCode.LEADER_NOT_AVAILABLE, self._topic, partition=place))
        await self._chunks.put(None)

    def _open(self) -> list[int]:
        """The partitions that are not read to their end."""
        if self._ends is None:
            return list(self._positions)
        return [index for index, offset in self._positions.items() if offset < self._ends.get(index, 0)]

    async def _on_failed(self, error: ClientError) -> None:
        """Begin again after a moment, unless this goes on for too long."""
        self._is_stale = True
        now_s = time.monotonic()
        self._failed_since_s = self._failed_since_s or now_s
        if now_s - self._failed_since_s > patience_s(error):
            raise error
        await asyncio.sleep(_BACKOFF_S)

    async def _read(self, node_id: int, topic: TopicLeaders, partitions: list[int]) -> None:
        """Read partitions from their leader for a while."""
        until_s = time.monotonic() + _KNOWN_S
        try:
            async with self._fetcher.link(node_id) as link:
                while not self._is_stale and time.monotonic() < until_s:
                    while self._is_full() and not self._memory.has_room:
                        await self._chunks.join()
                    still_open = set(self._open())
                    wanted = {index: self._positions[index] for index in partitions if index in still_open}
                    if not wanted:
                        return
                    await self._put_all(await ask(link, topic, wanted, self._piece_bytes(), _STREAM_WAIT_MS))
                    self._failed_since_s = None
        except ClientError as error:
            await self._on_failed(error)

    def _piece_bytes(self) -> int:
        return self._bytes_max if self._memory.has_room else min(self._bytes_max, SMALL_BYTES)

    def _is_full(self) -> bool:
        """Whether the client has to read before more is decoded."""
        if self._memory.has_room:
            return self._queued_bytes >= self._queued_bytes_max
        return self._queued_bytes >= (1 if self._memory.is_full else QUEUED_BYTES_MIN)

    async def _put_all(self, parts: list[FetchResponsePartition]) -> None:
        """Decode an answer, or its beginning if the memory for the rest is needed: that can be requested again."""
        # All parts are views of one answer, so it is there until the last one is decoded.
        size = sum(len(part.records) for part in parts if part.records)
        self._hold(size)
        try:
            for part in parts:
                raise_refusal(part, self._topic)
                while not await self._decode(part):
                    if await self._must_drop(size):
                        return
        finally:
            self._hold(-size)

    async def _must_drop(self, size: int) -> bool:
        """Wait until there is something to do about an answer. Returns whether that is to give it up."""
        is_large = size > SMALL_BYTES
        if is_large and self._memory.is_full:
            return True
        while self._is_full():
            if not is_large:
                await self._chunks.join()
            elif not await self._is_read() and not self._memory.has_room:
                return True
        return False

    async def _is_read(self) -> bool:
        """Whether the client soon takes all that waits for it."""
        try:
            async with asyncio.timeout(KEPT_S):
                await self._chunks.join()
        except TimeoutError:
            return False
        return True

    async def _decode(self, part: FetchResponsePartition) -> bool:
        """Decode records until the client has to read first. Returns whether that was all."""
        if self._is_full():
            return False
        keeps = self._memory.open_batches < OPEN_BATCHES_MAX
        self._memory.open_batches += keeps
        try:
            return await self._decode_pieces(part, keeps)
        finally:
            self._memory.open_batches -= keeps

    async def _decode_pieces(self, part: FetchResponsePartition, keeps: bool) -> bool:
        """The same. A batch that may be kept is kept while the client reads, and other work is done between pieces."""
        index, bytes_max, step_bytes = part.partition_index, self._piece_bytes(), 0
        for columns in pieces(part, self._positions[index], self._records_max, bytes_max):
            self._positions[index] = columns.next_offset
            step_bytes += columns.nbytes
            if columns.row_count:
                self._put(index, columns)
            del columns  # It is not held any longer than the client needs it.
            if keeps and step_bytes >= SMALL_BYTES:
                step_bytes = 0
                await asyncio.sleep(0)
            if self._is_full() and not (keeps and await self._is_read()):
                return False
            if bytes_max > self._piece_bytes():
                return False
        return True

    def _put(self, partition: int, columns: Columns) -> None:
        # A row needs some bytes of its own, so pieces of many small records are large too.
        if columns.row_count == 1 and columns.nbytes > 2 * SMALL_BYTES and self._memory.is_full:
            raise ProblemError(
                503,
                "the records that wait for slow clients take too much memory for one more that is large",
                retriable=True,
            )
        self._hold(columns.nbytes)
        self._queued_bytes += columns.nbytes
        self._chunks.put_nowait(Chunk(partition, columns, columns.next_offset))
