"""The records of redrives: which dead letters are done, and how one redrive moves the others back.

Their keys are those of the reserved group (`queue_key.redrive_key`), with the id of the dead-letter topic. The
partition in the key is the one that the letters are in, and 0 in records about the redrive as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeAlias

from drmq.leases.queue_key import QueueKey
from drmq.model import TopicId

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Runs of offsets, both ends included, in ascending order."""


class Origin(NamedTuple):
    """The partition that a dead letter came from."""

    topic_id: TopicId
    partition: int


class RedriveState(IntEnum):
    """Where a redrive stands."""

    RUNNING = 1
    STOPPING = 2
    """It was asked to stop. Batches that are under way are finished first."""
    FINISHED = 3
    STOPPED = 4


class RedriveStarted(NamedTuple):
    """A redrive begins. It replaces what is known about the one before."""

    key: QueueKey
    number: int
    producer_id: int
    count_max: int
    """Letters to move; 0 for all."""
    started_ms: int
    ends: tuple[int, ...]
    """By partition of the dead-letter topic: letters from this offset on came later, and are not part of it."""
    filter: str
    caller: bytes
    """The client for which letters are moved. It must be allowed to write to their origins."""


class BatchIntended(NamedTuple):
    """These letters are about to be appended to their origin, with exactly these numbers of the redrive's producer."""

    key: QueueKey
    origin: Origin
    epoch: int
    sequence: int
    from_offset: int
    """The batch is not in the origin below this offset."""
    at_ms: int
    """The time of its records."""
    runs: Runs


class BatchEnded(NamedTuple):
    """A batch is committed in its origin, and its letters are done; or it is not there, and they wait again."""

    key: QueueKey
    origin: Origin
    is_done: bool
    new_epoch: bool
    """The sequence numbers of the batch may not be used: the next batch to this origin begins a new epoch."""


class RedriveStopping(NamedTuple):
    """The redrive takes no more letters."""

    key: QueueKey


class RedriveEnded(NamedTuple):
    """The redrive is over, and this is what it left."""

    key: QueueKey
    state: RedriveState
    ended_ms: int
    skipped: int
    failed: int
    reason: str


class LettersPurged(NamedTuple):
    """These letters are done: they are not wanted any more."""

    key: QueueKey
    runs: Runs


class SavedBatch(NamedTuple):
    """A batch under way, in a snapshot."""

    partition: int
    origin: Origin
    epoch: int
    sequence: int
    from_offset: int
    at_ms: int
    runs: Runs


class SavedRedrive(NamedTuple):
    """A redrive, in a snapshot."""

    started: RedriveStarted
    state: RedriveState
    ended_ms: int
    redriven: int
    skipped: int
    failed: int
    reason: str
    sequences: tuple[tuple[Origin, int, int], ...]
    """By origin: the epoch and the sequence number of the next batch."""
    batches: tuple[SavedBatch, ...]


class LettersSnapshot(NamedTuple):
    """Everything that is known about the letters of one topic."""

    key: QueueKey
    last_number: int
    purged: int
    done: tuple[tuple[int, Runs], ...]
    """By partition."""
    redrive: SavedRedrive | None


RedriveRecord: TypeAlias = (
    RedriveStarted | BatchIntended | BatchEnded | RedriveStopping | RedriveEnded | LettersPurged | LettersSnapshot
)

_STARTED, _INTENDED, _BATCH_ENDED, _STOPPING, _ENDED, _PURGED, _SNAPSHOT = range(16, 23)
KINDS: Final = frozenset(range(16, 23))
"""The first bytes of the values of these records."""

_START = Struct(">qqqqIIH")
_END = Struct(">q")
_BATCH = Struct(">16sIhiqq")
_BATCH_END = Struct(">16sI??")
_OUTCOME = Struct(">BqqqI")
_COUNT = Struct(">I")
_RUN = Struct(">qq")
_STATE = Struct(">qqI?")
_REDRIVE = Struct(">BqqqqIII")
_SEQUENCE = Struct(">16sIhi")
_PARTITION = Struct(">I")


def redrive_value(record: RedriveRecord) -> bytes:
    """The value of a record in the log."""
    match record:
        case BatchIntended():
            return bytes([_INTENDED]) + _batch_bytes(record)
        case BatchEnded():
            return bytes([_BATCH_ENDED]) + _BATCH_END.pack(*record.origin, record.is_done, record.new_epoch)
        case RedriveStarted():
            return bytes([_STARTED]) + _started_bytes(record)
        case RedriveStopping():
            return bytes([_STOPPING])
        case RedriveEnded():
            reason = record.reason.encode()
            head = _OUTCOME.pack(record.state, record.ended_ms, record.skipped, record.failed, len(reason))
            return bytes([_ENDED]) + head + reason
        case LettersPurged():
            return bytes([_PURGED]) + _runs_bytes(record.runs)
        case LettersSnapshot():
            return bytes([_SNAPSHOT]) + _snapshot_bytes(record)


def _runs_bytes(runs: Iterable[tuple[int, int]]) -> bytes:
    packed = b"".join(_RUN.pack(*run) for run in runs)
    return _COUNT.pack(len(packed) // _RUN.size) + packed


def _batch_bytes(batch: BatchIntended | SavedBatch) -> bytes:
    head = _BATCH.pack(*batch.origin, batch.epoch, batch.sequence, batch.from_offset, batch.at_ms)
    return head + _runs_bytes(batch.runs)


def _started_bytes(record: RedriveStarted) -> bytes:
    text = record.filter.encode()
    head = _START.pack(
        record.number,
        record.producer_id,
        record.count_max,
        record.started_ms,
        len(record.ends),
        len(text),
        len(record.caller),
    )
    return head + b"".join(map(_END.pack, record.ends)) + text + record.caller


def _snapshot_bytes(record: LettersSnapshot) -> bytes:
    redrive = record.redrive
    parts = [_STATE.pack(record.last_number, record.purged, len(record.done), redrive is not None)]
    for partition, runs in record.done:
        parts += [_PARTITION.pack(partition), _runs_bytes(runs)]
    if redrive is not None:
        reason = redrive.reason.encode()
        parts += [
            _started_bytes(redrive.started),
            _REDRIVE.pack(
                redrive.state,
                redrive.ended_ms,
                redrive.redriven,
                redrive.skipped,
                redrive.failed,
                len(reason),
                len(redrive.sequences),
                len(redrive.batches),
            ),
            reason,
            *(_SEQUENCE.pack(*origin, epoch, sequence) for origin, epoch, sequence in redrive.sequences),
        ]
        for batch in redrive.batches:
            parts += [_PARTITION.pack(batch.partition), _batch_bytes(batch)]
    return b"".join(parts)


class RedriveReader:
    """Reads the value of one record from its start to its end. Raises `struct.error` if it is too short."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.position = 1

    def record(self, key: QueueKey) -> RedriveRecord:
        kind = self._value[0]
        if kind == _INTENDED:
            return BatchIntended(key, *self._batch())
        if kind == _BATCH_ENDED:
            topic_id, partition, is_done, new_epoch = self._take(_BATCH_END)
            return BatchEnded(key, Origin(TopicId(topic_id), partition), is_done, new_epoch)
        if kind == _STARTED:
            return self._started(key)
        if kind == _STOPPING:
            return RedriveStopping(key)
        if kind == _ENDED:
            state, ended_ms, skipped, failed, size = self._take(_OUTCOME)
            return RedriveEnded(key, RedriveState(state), ended_ms, skipped, failed, self._bytes(size).decode())
        if kind == _PURGED:
            return LettersPurged(key, self._runs())
        return self._snapshot(key)

    def _started(self, key: QueueKey) -> RedriveStarted:
        number, producer_id, count_max, started_ms, end_count, text_size, caller_size = self._take(_START)
        ends = tuple(self._take(_END)[0] for _ in range(end_count))
        text = self._bytes(text_size).decode()
        return RedriveStarted(key, number, producer_id, count_max, started_ms, ends, text, self._bytes(caller_size))

    def _batch(self) -> tuple[Origin, int, int, int, int, Runs]:
        topic_id, partition, epoch, sequence, from_offset, at_ms = self._take(_BATCH)
        return Origin(TopicId(topic_id), partition), epoch, sequence, from_offset, at_ms, self._runs()

    def _snapshot(self, key: QueueKey) -> LettersSnapshot:
        last_number, purged, done_count, has_redrive = self._take(_STATE)
        done = tuple((self._take(_PARTITION)[0], self._runs()) for _ in range(done_count))
        return LettersSnapshot(key, last_number, purged, done, self._saved(key) if has_redrive else None)

    def _saved(self, key: QueueKey) -> SavedRedrive:
        started = self._started(key)
        state, ended_ms, redriven, skipped, failed, size, sequence_count, batch_count = self._take(_REDRIVE)
        reason = self._bytes(size).decode()
        sequences = []
        for _ in range(sequence_count):
            topic_id, partition, epoch, sequence = self._take(_SEQUENCE)
            sequences.append((Origin(TopicId(topic_id), partition), epoch, sequence))
        batches = tuple(SavedBatch(self._take(_PARTITION)[0], *self._batch()) for _ in range(batch_count))
        return SavedRedrive(
            started, RedriveState(state), ended_ms, redriven, skipped, failed, reason, tuple(sequences), batches
        )

    def _take(self, layout: Struct) -> tuple[Any, ...]:
        found = layout.unpack_from(self._value, self.position)
        self.position += layout.size
        return found

    def _bytes(self, size: int) -> bytes:
        self.position += size
        if self.position > len(self._value):
            raise StructError(f"{size} bytes do not fit into it")
        return self._value[self.position - size : self.position]

    def _runs(self) -> Runs:
        (count,) = self._take(_COUNT)
        data = self._bytes(count * _RUN.size)
        return tuple((first, last) for first, last in _RUN.iter_unpack(data)) if count else ()
