"""The records of lease groups, as values and as bytes.

One record holds everything that one request changed in one queue (`queue_key`). Its key names the queue. Its value is
binary: a byte for the kind, fixed fields, and then entries of a fixed size, so that a record with a thousand ranges is
packed by one call. A byte that this release does not know raises `UnknownFormat`.

Times in records are wall-clock times, or those of the shard, which follow them (`shard`). They decide when a parked
record returns and what a dead letter says, and never which member holds a lease.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from itertools import chain
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from drmq.leases.queue_key import QueueKey
from drmq.leases.redrive_records import KINDS as REDRIVE_KINDS
from drmq.leases.redrive_records import RedriveReader, RedriveRecord, redrive_value
from drmq.model import TopicId, UnknownFormat


class Fate(IntEnum):
    """What becomes of offsets whose lease ends."""

    DONE = 0
    """Accepted, or given up without a dead letter. They never return."""
    RETURNED = 1
    """Available again."""
    PARKED = 2
    """Available again at a time."""
    DYING = 3
    """Given up. They stay until their dead letter is committed."""


class Reason(IntEnum):
    """Why a record was given up."""

    NONE = 0
    REJECTED = 1
    ATTEMPTS = 2
    """It was delivered as often as the group allows."""


class Leased(NamedTuple):
    """Offsets that a lease covers, with the number of this delivery."""

    first: int
    last: int
    attempt: int
    failed_ms: int
    """When the first delivery failed; 0 if none did."""


class Settled(NamedTuple):
    """Offsets whose lease has ended, and what becomes of them."""

    first: int
    last: int
    fate: Fate
    attempt: int
    """Deliveries that count."""
    failed_ms: int
    at_ms: int
    """PARKED: when they return. DYING: when the last delivery ended. Otherwise 0."""
    reason: Reason


class QueueStarted(NamedTuple):
    """The queue begins at `start`, for the first time or again. Everything known about it before is void."""

    key: QueueKey
    start: int


class LeaseGranted(NamedTuple):
    """A member has leased these offsets. From now on, `end` is the first offset that was never leased."""

    key: QueueKey
    token: int
    member: str
    duration_ms: int
    end: int
    offsets: tuple[Leased, ...]


class LeaseEnded(NamedTuple):
    """Leases have ended for these offsets. `member` settled them; it is empty if their time ran out."""

    key: QueueKey
    member: str
    offsets: tuple[Settled, ...]
    time_ms: int
    """The time in the shard, by which parked offsets are due."""


class LeaseRenewed(NamedTuple):
    """These offsets have a lease of their own, `lease`, with a full duration from now on. Their tokens stay."""

    key: QueueKey
    lease: int
    member: str
    duration_ms: int
    ranges: tuple[tuple[int, int], ...]


class Unparked(NamedTuple):
    """Parked offsets that were due until `due_ms` are available again, the first `count_max` of them."""

    key: QueueKey
    due_ms: int
    count_max: int


class Buried(NamedTuple):
    """The dead letters of these offsets are committed, or the offsets are gone from the log."""

    key: QueueKey
    ranges: tuple[tuple[int, int], ...]


class LogTrimmed(NamedTuple):
    """The log begins at `start` now. Offsets below it are gone."""

    key: QueueKey
    start: int


class QueueRemoved(NamedTuple):
    """The queue does not exist any more."""

    key: QueueKey


class SavedLease(NamedTuple):
    """A lease in a snapshot."""

    lease: int
    member: str
    duration_ms: int


class SavedHold(NamedTuple):
    """Leased offsets in a snapshot."""

    first: int
    last: int
    attempt: int
    failed_ms: int
    token: int
    lease: int


class QueueSnapshot(NamedTuple):
    """The whole state of one queue."""

    key: QueueKey
    end: int
    last_token: int
    time_ms: int
    leases: tuple[SavedLease, ...]
    held: tuple[SavedHold, ...]
    waiting: tuple[Settled, ...]
    """What is returned, parked or dying."""
    recent: tuple[tuple[str, tuple[tuple[int, int, Fate], ...]], ...]
    """What each member settled recently, and how."""


LeaseRecord: TypeAlias = (
    QueueStarted
    | LeaseGranted
    | LeaseEnded
    | LeaseRenewed
    | Unparked
    | Buried
    | LogTrimmed
    | QueueRemoved
    | QueueSnapshot
    | RedriveRecord
)

_STARTED, _GRANTED, _ENDED, _RENEWED, _UNPARKED, _BURIED, _TRIMMED, _SNAPSHOT = range(1, 9)
_KINDS: Final = frozenset(range(1, 9)) | REDRIVE_KINDS

_KEY = Struct(">B16sI")
_KEY_VERSION = 1
_OFFSET = Struct(">Bq")
_GRANT = Struct(">BqIqHI")
_ENDING = Struct(">BqHI")
_RENEWAL = Struct(">BqIHI")
_UNPARKING = Struct(">BqI")
_COUNTED = Struct(">BI")
_LEASED = Struct(">qqHq")
_SETTLED = Struct(">qqBHqqB")
_HELD = Struct(">qqHqqq")
_RANGE = Struct(">qq")
_RECENT = Struct(">qqB")
_QUEUE = Struct(">BqqqIIII")
_LEASE = Struct(">qIH")
_MEMBER = Struct(">HI")


def record_to_bytes(record: LeaseRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record in the log. The value is None for a queue that is removed."""
    key = record.key
    return _KEY.pack(_KEY_VERSION, key.topic_id, key.partition) + key.group.encode(), _value_of(record)


def _value_of(record: LeaseRecord) -> bytes | None:
    match record:
        case LeaseGranted():
            member = record.member.encode()
            head = _GRANT.pack(_GRANTED, record.token, record.duration_ms, record.end, len(member), len(record.offsets))
            return head + member + _pack_all(_LEASED, record.offsets)
        case LeaseEnded():
            member = record.member.encode()
            head = _ENDING.pack(_ENDED, record.time_ms, len(member), len(record.offsets))
            return head + member + _pack_all(_SETTLED, record.offsets)
        case LeaseRenewed():
            member = record.member.encode()
            head = _RENEWAL.pack(_RENEWED, record.lease, record.duration_ms, len(member), len(record.ranges))
            return head + member + _pack_all(_RANGE, record.ranges)
        case Unparked():
            return _UNPARKING.pack(_UNPARKED, record.due_ms, record.count_max)
        case Buried():
            return _COUNTED.pack(_BURIED, len(record.ranges)) + _pack_all(_RANGE, record.ranges)
        case QueueStarted():
            return _OFFSET.pack(_STARTED, record.start)
        case LogTrimmed():
            return _OFFSET.pack(_TRIMMED, record.start)
        case QueueSnapshot():
            return _snapshot_to_bytes(record)
        case QueueRemoved():
            return None
        case _:
            return redrive_value(record)


def _snapshot_to_bytes(record: QueueSnapshot) -> bytes:
    counts = (len(record.leases), len(record.held), len(record.waiting), len(record.recent))
    parts = [_QUEUE.pack(_SNAPSHOT, record.end, record.last_token, record.time_ms, *counts)]
    for lease in record.leases:
        name = lease.member.encode()
        parts += [_LEASE.pack(lease.lease, lease.duration_ms, len(name)), name]
    parts += [_pack_all(_HELD, record.held), _pack_all(_SETTLED, record.waiting)]
    for member, ranges in record.recent:
        name = member.encode()
        parts += [_MEMBER.pack(len(name), len(ranges)), name, _pack_all(_RECENT, ranges)]
    return b"".join(parts)


def _pack_all(layout: Struct, entries: Iterable[tuple[int, ...]]) -> bytes:
    """All entries, one after the other, packed by one call."""
    rows = list(entries)
    if len(rows) == 1:
        return layout.pack(*rows[0])
    return Struct(">" + layout.format[1:] * len(rows)).pack(*chain.from_iterable(rows))


def record_from_bytes(key: bytes, value: bytes | None) -> LeaseRecord:
    """The record in these bytes. Raises `UnknownFormat` for a record of a later release."""
    if not key or key[0] != _KEY_VERSION:
        raise UnknownFormat(f"a record of lease groups has the key format {key[:1].hex() or 'none'}")
    try:
        _, topic_id, partition = _KEY.unpack_from(key)
        queue = QueueKey(key[_KEY.size :].decode(), TopicId(topic_id), partition)
        if value is None:
            return QueueRemoved(queue)
        if not value or value[0] not in _KINDS:
            raise UnknownFormat(f"a record of lease groups has the kind {value[:1].hex() or 'none'}")
        reader = RedriveReader(value) if value[0] in REDRIVE_KINDS else _Reader(value)
        record = reader.record(queue)
    except StructError as error:
        raise ValueError(f"a record of lease groups is too short: {error}") from error
    if reader.position != len(value):
        raise ValueError(f"a record of lease groups has {len(value) - reader.position} bytes too many")
    return record


class _Reader:
    """Reads one value from its start to its end."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.position = 0

    def record(self, key: QueueKey) -> LeaseRecord:
        kind = self._value[0]
        if kind == _GRANTED:
            _, token, duration_ms, end, size, count = self._take(_GRANT)
            member = self._text(size)
            offsets = tuple(map(Leased._make, self._all(_LEASED, count)))
            return LeaseGranted(key, token, member, duration_ms, end, offsets)
        if kind == _ENDED:
            _, time_ms, size, count = self._take(_ENDING)
            return LeaseEnded(key, self._text(size), self._settled(count), time_ms)
        if kind == _RENEWED:
            _, lease, duration_ms, size, count = self._take(_RENEWAL)
            return LeaseRenewed(key, lease, self._text(size), duration_ms, self._ranges(count))
        if kind == _UNPARKED:
            _, due_ms, count = self._take(_UNPARKING)
            return Unparked(key, due_ms, count)
        if kind == _BURIED:
            _, count = self._take(_COUNTED)
            return Buried(key, self._ranges(count))
        if kind == _SNAPSHOT:
            return self._snapshot(key)
        _, start = self._take(_OFFSET)
        return QueueStarted(key, start) if kind == _STARTED else LogTrimmed(key, start)

    def _snapshot(self, key: QueueKey) -> QueueSnapshot:
        _, end, last_token, time_ms, lease_count, held_count, waiting_count, member_count = self._take(_QUEUE)
        leases = []
        for _ in range(lease_count):
            lease, duration_ms, size = self._take(_LEASE)
            leases.append(SavedLease(lease, self._text(size), duration_ms))
        held = tuple(map(SavedHold._make, self._all(_HELD, held_count)))
        waiting = self._settled(waiting_count)
        recent = []
        for _ in range(member_count):
            size, count = self._take(_MEMBER)
            name = self._text(size)
            recent.append((name, tuple((first, last, Fate(fate)) for first, last, fate in self._all(_RECENT, count))))
        return QueueSnapshot(key, end, last_token, time_ms, tuple(leases), held, waiting, tuple(recent))

    def _take(self, layout: Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self._value, self.position)
        self.position += layout.size
        return found

    def _all(self, layout: Struct, count: int) -> list[tuple[int, ...]]:
        end = self.position + layout.size * count
        if end > len(self._value):
            raise StructError(f"{count} entries do not fit into it")
        found = list(layout.iter_unpack(self._value[self.position : end])) if count else []
        self.position = end
        return found

    def _text(self, size: int) -> str:
        self.position += size
        if self.position > len(self._value):
            raise StructError(f"a name of {size} bytes does not fit into it")
        return self._value[self.position - size : self.position].decode()

    def _ranges(self, count: int) -> tuple[tuple[int, int], ...]:
        return tuple((first, last) for first, last in self._all(_RANGE, count))

    def _settled(self, count: int) -> tuple[Settled, ...]:
        return tuple(
            Settled(first, last, Fate(fate), attempt, failed_ms, at_ms, Reason(reason))
            for first, last, fate, attempt, failed_ms, at_ms, reason in self._all(_SETTLED, count)
        )
