"""Recompresses produced batches for topics that require a codec (`compression.type`), and appends them in order.

Most topics keep batches as they come, and none of this concerns them. A batch for a topic that requires a codec, and
that has another one, is copied, waits for its turn, is recompressed on a thread, and is appended on the event loop.

Order: the batches of one client address are appended in the order in which they came, because one at a time is worked
on. A batch that has the right codec already waits too if another batch of its partition does.

Limits: a caller waits for itself (`FairQueue`). All batches that wait have at most `QUEUED_BYTES_MAX` bytes together;
beyond it a door stops to read from the clients that send them, and beyond twice as much a batch is refused, when it is
its turn: what follows it from the same producer must find it refused. Only one
batch of a node is decompressed at a time, lookups by timestamp included, so `decompressed_bytes_max` limits the memory
of the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import nullcontext
from typing import Final

from drmq.broker.clock import Clock
from drmq.broker.partitions.partition import Appended, Partition
from drmq.broker.partitions.produced_batch import recompress
from drmq.broker.services.fair_queue import FairQueue
from drmq.catalog import Compression
from drmq.model import ApiError, ErrorCode
from drmq.records import HEADER_SIZE, Codec, read_header

log = logging.getLogger("drmq.broker")

QUEUED_BYTES_MAX: Final = 33_554_432
_JOBS_MAX = 2

Outcome = Appended | ApiError
Append = Callable[[Partition, memoryview], Appended]


class Recompression:
    """The queue of batches that wait for another codec. Lives on the event loop."""

    def __init__(self, pool: Executor, decompressing: asyncio.Lock, decompressed_bytes_max: int, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._decompressing = decompressing
        # Half: for a moment, a batch is in memory twice.
        self._size_max = decompressed_bytes_max // 2
        self._queue = FairQueue(_JOBS_MAX, 1)
        self._waiting: Counter[Partition] = Counter()
        """The batches of each partition that wait or are being recompressed."""
        self._room_waiters: list[Callable[[], None]] = []
        self._stops = False
        self.queued_bytes = 0
        self.recompressed_count = 0

    def is_needed(self, partition: Partition, batch: memoryview | None) -> bool:
        """Whether a batch must go through the queue. False for one that will be refused anyway."""
        compression = partition.config.compression
        if compression is None or batch is None or not partition.is_leader:
            return False
        if not HEADER_SIZE < len(batch) <= partition.config.max_message_bytes:
            return False
        return read_header(batch).codec != compression.codec or bool(self._waiting[partition])

    @property
    def is_full(self) -> bool:
        return self.queued_bytes > QUEUED_BYTES_MAX

    def when_room(self, call: Callable[[], None]) -> None:
        """Call `call` once half of the queue is free."""
        self._room_waiters.append(call)

    def submit(
        self, partition: Partition, batch: memoryview, caller: str, append: Append, placed: Callable[[Outcome], None]
    ) -> None:
        """Copy a batch, recompress and append it later, and tell `placed` its place in the log or why it has none."""
        compression = partition.config.compression
        assert compression is not None
        # The frame that the batch came in may be one of the few buffers that all connections share. If too much waits,
        # only the header is kept.
        has_room = self.queued_bytes + len(batch) <= 2 * QUEUED_BYTES_MAX
        held = bytearray(batch if has_room else batch[:HEADER_SIZE])
        self.queued_bytes += len(held)
        self._waiting[partition] += 1
        self._queue.submit(caller, lambda: self._work(partition, held, compression, append, placed))

    def stop(self) -> None:
        """The node stops: batches that still wait are refused, and their clients send them to the next leader."""
        self._stops = True

    async def _work(
        self,
        partition: Partition,
        held: bytearray,
        compression: Compression,
        append: Append,
        placed: Callable[[Outcome], None],
    ) -> None:
        size = len(held)
        try:
            outcome: Outcome
            try:
                outcome = append(partition, memoryview(await self._recompressed(partition, held, compression)))
            except ApiError as refused:
                outcome = refused
            except Exception:  # a bug must not leave the producer without an answer
                log.exception("a batch for %r was not recompressed because of a bug in this node", partition)
                outcome = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch was not recompressed; see the node's log")
            placed(outcome)
        finally:
            self.queued_bytes -= size
            self._waiting[partition] -= 1
            if not self._waiting[partition]:
                del self._waiting[partition]
            if self._room_waiters and self.queued_bytes <= QUEUED_BYTES_MAX // 2:
                waiters, self._room_waiters = self._room_waiters, []
                for call in waiters:
                    call()

    async def _recompressed(self, partition: Partition, held: bytearray, compression: Compression) -> bytearray:
        if len(held) == HEADER_SIZE:
            raise self._turned_away(
                partition,
                held,
                ErrorCode.REQUEST_TIMED_OUT,
                f"more than {2 * QUEUED_BYTES_MAX} bytes waited to be recompressed on this node; send the batch again, "
                f"with the codec of the topic (compression.type), {compression.codec.name.lower()}, if possible",
            )
        codec = read_header(held).codec
        if codec == compression.codec:
            return held
        loop = asyncio.get_running_loop()
        async with nullcontext() if codec == Codec.NONE else self._decompressing:
            if self._stops:
                raise self._turned_away(partition, held, ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node stops")
            done = await loop.run_in_executor(self._pool, recompress, held, compression, self._size_max)
        self.recompressed_count += 1
        size_max = partition.config.max_message_bytes
        if len(done) > size_max:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {len(held)} bytes has {len(done)} with the codec of {partition.topic} (compression.type), "
                f"which takes {size_max} (max.message.bytes); send smaller batches",
            )
        return done

    def _turned_away(self, partition: Partition, held: bytearray, code: ErrorCode, why: str) -> ApiError:
        """The refusal of a batch that its producer sends again."""
        partition.turn_away(read_header(held).producer_id, self._clock.wall_ms())
        return ApiError(code, why)
