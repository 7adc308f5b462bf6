"""One partition: offsets given out, batches queued for the disk, readers and writers woken.

A partition lives on the event loop and never touches a file there: it checks a batch, stamps it,
hands it to the `Writer` thread, and hears back when it is written and when it is durable. Between
those moments three offsets describe it:

    high_watermark  <=  log.end_offset  <=  next_offset
    durable, visible    written             given out, perhaps still queued

Readers see what is below the high watermark, whatever the producer asked for: `acks` decides when a
producer hears, never what a consumer sees. With one replica, durable on this disk is durable on a
majority.

When an append fails, everything queued behind it fails too, since its offsets are void; the
producers' table is then rebuilt from the log, and the partition goes on. When a sync fails, the
partition takes no more appends until the broker is restarted: what the disk holds is not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from drmq.broker.producers import ProducerTable
from drmq.catalog import TimestampType, TopicConfig
from drmq.model import ApiError, ErrorCode, LeaderEpoch, Offset, TopicId
from drmq.model.names import is_internal
from drmq.records import BatchHeader, InvalidBatch, check_batch, read_header, stamp, stamp_append_time
from drmq.storage import Log, Writer

Done = Callable[[ErrorCode], None]


class Appended(NamedTuple):
    """Where a batch is: newly placed, or found again."""

    base_offset: Offset
    next_offset: Offset
    append_time_ms: int
    """-1 where the producer's timestamps count."""


class ProgressWatcher(Protocol):
    """Something that waits for the high watermark to move, such as a parked fetch."""

    def on_progress(self, partition: Partition) -> None: ...


class Partition:
    """The leader of one partition. Owned by the broker; every method runs on the event loop."""

    __slots__ = (
        "_flush_waiters",
        "_in_flight",
        "_watchers",
        "_write_waiters",
        "_writer",
        "committed_bytes",
        "config",
        "failure",
        "high_watermark",
        "index",
        "is_closed",
        "is_internal",
        "leader_epoch",
        "log",
        "next_offset",
        "producers",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: TopicId,
        index: int,
        log: Log,
        writer: Writer,
        config: TopicConfig,
        producers: ProducerTable,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.is_closed = False
        self.is_internal = is_internal(topic)
        self.log = log
        self.config = config
        self.producers = producers
        self.leader_epoch = LeaderEpoch(0)
        self.next_offset = log.end_offset
        self.high_watermark = log.flushed_offset
        self.committed_bytes = 0
        """Bytes that became visible since the start; parked fetches count by it."""
        self.failure: str | None = None
        """Why appends are refused, if they are."""
        self._writer = writer
        self._in_flight: deque[tuple[Offset, int]] = deque()
        self._write_waiters: deque[tuple[Offset, Done]] = deque()
        self._flush_waiters: deque[tuple[Offset, Done]] = deque()
        self._watchers: set[ProgressWatcher] = set()

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index})"

    # ---- writing --------------------------------------------------------------------------------

    def append(self, batch: memoryview, now_ms: int, *, wants_written: bool = False) -> Appended:
        """Check a producer's batch, give it offsets and queue it for the disk.

        `wants_written` must be set if `when_written` is going to be asked about it. The batch is
        changed in place and must not be touched by the caller again. Raises `ApiError` with nothing
        changed.
        """
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        if self.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{self.topic} is one of DRMQ's own topics")
        try:
            header = check_batch(batch)
        except InvalidBatch as error:
            raise ApiError(error.code, str(error)) from error
        size_max = self.config.max_message_bytes
        if len(batch) > size_max:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {len(batch)} bytes; {self.topic} takes {size_max} (max.message.bytes)",
            )
        if header.is_transactional:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "transactions are not offered")
        if header.producer_id >= 0:
            if header.base_sequence < 0:
                raise ApiError(ErrorCode.INVALID_RECORD, "a batch with a producer id has no sequence number")
            repeat = self.producers.find_repeat(header)
            if repeat is not None:
                return Appended(repeat.base_offset, repeat.next_offset, -1)
        append_time_ms = -1
        if self.config.timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time_ms = now_ms
            stamp_append_time(batch, now_ms)
            header = read_header(batch)
        return self._place(batch, header, now_ms, append_time_ms, wants_written)

    def append_own(self, batch: bytearray) -> Appended:
        """Append a batch that the broker itself made: a state machine's records."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        return self._place(memoryview(batch), read_header(batch), 0, -1, False)

    def _place(
        self, batch: memoryview, header: BatchHeader, now_ms: int, append_time_ms: int, wants_written: bool
    ) -> Appended:
        base_offset = self.next_offset
        stamp(batch, base_offset, self.leader_epoch)
        # The quick way to make a named tuple: this runs for every batch.
        header = tuple.__new__(BatchHeader, (base_offset, header[1], self.leader_epoch, *header[3:]))
        if header.producer_id >= 0:
            self.producers.apply(header, now_ms)
        next_offset = self.next_offset = header.next_offset
        self._in_flight.append((next_offset, len(batch)))
        self._writer.submit(self.log, header, batch, wants_written)
        return Appended(base_offset, next_offset, append_time_ms)

    def when_written(self, next_offset: Offset, done: Done) -> None:
        """Call `done` once everything below `next_offset` is in the log, durable or not."""
        if self.log.end_offset >= next_offset and not self._write_waiters:
            done(ErrorCode.NONE)
        elif self.failure is not None:
            done(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._write_waiters.append((next_offset, done))

    def when_durable(self, next_offset: Offset, done: Done) -> None:
        """Call `done` once everything below `next_offset` is on the disk: committed."""
        if self.high_watermark >= next_offset:
            done(ErrorCode.NONE)
        elif self.failure is not None:
            # Its offsets may be void by now. Nobody may wait for them: other batches will get them.
            done(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._flush_waiters.append((next_offset, done))

    # ---- what the writer reports ----------------------------------------------------------------

    def on_written(self, end_offset: Offset) -> None:
        _release(self._write_waiters, end_offset)

    def on_flushed(self, flushed_offset: Offset) -> None:
        _release(self._write_waiters, flushed_offset)
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] <= flushed_offset:
            self.committed_bytes += in_flight.popleft()[1]
        self.high_watermark = flushed_offset
        _release(self._flush_waiters, flushed_offset)
        if self._watchers:
            for watcher in tuple(self._watchers):
                watcher.on_progress(self)

    def on_failed(self, reason: str, end_offset: Offset) -> None:
        """Nothing at or beyond `end_offset` was kept: refuse appends, and tell everyone who waits for that."""
        self.failure = reason
        for waiters in (self._write_waiters, self._flush_waiters):
            all_waiters = list(waiters)
            waiters.clear()
            for next_offset, done in all_waiters:
                if next_offset <= self.high_watermark:
                    # A retry of a durable batch, which stood behind newer ones. Nothing else would wake it.
                    done(ErrorCode.NONE)
                elif next_offset <= end_offset:
                    waiters.append((next_offset, done))
                else:
                    done(ErrorCode.KAFKA_STORAGE_ERROR)

    def recover(self, producers: ProducerTable) -> None:
        """Go on after a failed append, from what the log holds."""
        self.failure = None
        self.producers = producers
        self.next_offset = self.log.end_offset
        while self._in_flight and self._in_flight[-1][0] > self.next_offset:
            self._in_flight.pop()

    # ---- reading --------------------------------------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        return self.log.start_offset

    def watch(self, watcher: ProgressWatcher) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: ProgressWatcher) -> None:
        self._watchers.discard(watcher)

    def close(self) -> None:
        """The topic is gone or the broker stops: nobody waits any longer."""
        self.is_closed = True
        self.failure = f"{self.topic}-{self.index} is closed"
        for waiters in (self._write_waiters, self._flush_waiters):
            while waiters:
                waiters.popleft()[1](ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for watcher in tuple(self._watchers):
            watcher.on_progress(self)


def _release(waiters: deque[tuple[Offset, Done]], reached: Offset) -> None:
    while waiters and waiters[0][0] <= reached:
        waiters.popleft()[1](ErrorCode.NONE)
