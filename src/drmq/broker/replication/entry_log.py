"""Indexes and offsets: the only module that translates between them.

A partition's log is a Raft log. Consensus counts *indexes*; clients count *offsets*. A batch covers as many indexes as
it has records. Own entries, which no client sent (a new leader's first entry, a change of members, a trim), cover one
index and no offset:

    index     1    2 3 4    5    6 7        8
            [own][ batch ][own][batch]    [own]
    offset         0 1 2         3 4

So an index and an offset differ by the number of own entries before them, and nothing else is needed to convert them.
Batches are in the segment log. Own entries, which are few, are in the ledger, each with the offset of the record that
follows it. Every term begins with an own entry of its leader, so the own entries also define the terms.

`EntryLog` is the log that consensus reads (`raft.LogReader`). It describes what is durable: its driver reports every
write to it once that is durable, and not before. Entries that a leader has just appended are read from memory
(`recent`), all others from the files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from drmq.broker.replication.recent_entries import RecentEntries, RecentMemory
from drmq.model import ErrorCode, Offset, UnknownFormat
from drmq.raft import Entry, EntryKind, LogIndex, ProtocolError, SnapshotMeta, Term, configuration_from_bytes
from drmq.records import HEADER_SIZE, BatchHeader, Buffer, InvalidBatch, check_replicated_batch, iter_batches
from drmq.storage import LedgerBase, Log, LogCorrupt, OwnEntry

_OFFSET = Struct(">q")
_OWN_TYPE_MAX = 31
"""The highest type that later releases may use. A higher number is not a type, but an invalid entry."""


class Batch:
    """A batch as an entry's payload: stamped bytes and their header."""

    __slots__ = ("data", "header", "is_received", "wants_written")

    def __init__(
        self, header: BatchHeader, data: memoryview, wants_written: bool = False, *, is_received: bool = False
    ) -> None:
        self.header = header
        self.data = data
        self.is_received = is_received
        """Whether another leader created it: then this node's partition does not know of it yet."""
        self.wants_written = wants_written
        """Whether a request waits until it is in the leader's log, durable or not (acks=1)."""

    def __len__(self) -> int:
        return len(self.data)


def encode_offset(offset: Offset) -> bytes:
    """Encode the offset in the data of a snapshot."""
    return _OFFSET.pack(offset)


def decode_offset(data: bytes) -> Offset:
    return Offset(_OFFSET.unpack(data)[0])


class OwnType(IntEnum):
    """The type of an own entry with a payload: the first byte, followed by the body. The numbers are stored and sent.

    No batch begins with one of them. The first byte of a batch is the most significant byte of its base offset, and
    that of a trim without a type is the same of the trim's offset. Both are zero in any realistic log.
    """

    TRIM = 1
    """Removes the records below an offset. The body is the offset."""


class UnknownEntry(UnknownFormat):
    """An own entry of a type that this release does not know."""


def encode_trim(offset: Offset, *, typed: bool = False) -> bytes:
    """The payload of an entry that removes the records below `offset`. Older releases read it only without a type."""
    return bytes((OwnType.TRIM,)) + encode_offset(offset) if typed else encode_offset(offset)


def decode_trim(payload: bytes) -> Offset:
    return decode_offset(payload[-_OFFSET.size :])


def is_batch(payload: Buffer) -> bool:
    """Whether a payload is a batch of records, and not an own entry."""
    return len(payload) >= HEADER_SIZE and payload[0] == 0


def check_own(index: int, kind: int, payload: Buffer) -> None:
    """Raise `UnknownEntry` for an own entry of a later release, and `ProtocolError` for an invalid one."""
    if kind != EntryKind.PAYLOAD:
        if kind not in list(EntryKind):
            raise _unknown(index, f"kind {kind}")
    elif len(payload) != _OFFSET.size or payload[0] != 0:
        if not payload or not 0 < payload[0] <= _OWN_TYPE_MAX:
            raise ProtocolError(f"entry {index} is neither a batch nor one of the group's own")
        if payload[0] not in list(OwnType):
            raise _unknown(index, f"type {payload[0]}")
        if len(payload) != 1 + _OFFSET.size:
            raise ProtocolError(f"entry {index} is a trim of {len(payload)} bytes")


def _unknown(index: int, what: str) -> UnknownEntry:
    return UnknownEntry(
        f"entry {index} of its replica group has {what}, which this release does not know; "
        "start the release that wrote it, or a later one"
    )


def received(entry: Entry) -> Entry:
    """Check the payload of an entry from a peer, and return the entry with it.

    Raises `ProtocolError` or `UnknownEntry`.
    """
    payload = entry.payload
    assert isinstance(payload, bytes | bytearray | memoryview), payload
    if entry.kind is not EntryKind.PAYLOAD or not is_batch(payload):
        span, checked = 1, bytes(payload)
        check_own(entry.index, entry.kind, checked)
        if entry.index - entry.first + 1 != span:
            raise ProtocolError(f"entry {entry.first} to {entry.index} should cover one index")
        return Entry(entry.first, entry.index, entry.term, entry.kind, checked, len(checked))
    try:
        header = check_replicated_batch(payload)
    except InvalidBatch as error:
        raise ProtocolError(f"entry {entry.index} holds a damaged batch: {error}") from error
    if (
        header.next_offset - header.base_offset != entry.index - entry.first + 1
        or int(header.leader_epoch) != entry.term
    ):
        raise ProtocolError(
            f"entry {entry.first} to {entry.index} of term {entry.term} does not fit its batch {header}"
        )
    batch = Batch(header, memoryview(payload), is_received=True)
    return Entry(entry.first, entry.index, entry.term, entry.kind, batch, len(payload))


class EntryLog:
    """A segment log and the own entries between its batches, by index. Used on the event loop."""

    def __init__(
        self,
        log: Log,
        base: LedgerBase,
        own: Sequence[OwnEntry],
        snapshot: SnapshotMeta | None = None,
        memory: RecentMemory | None = None,
    ) -> None:
        """Raises `UnknownEntry` if the ledger contains an entry of a later release."""
        for entry in own:
            check_own(entry.index, entry.kind, entry.payload)
        self.log = log
        self.recent = RecentEntries(memory or RecentMemory(bytes_max=0))
        """Entries that this node has appended as a leader and may have to send again."""
        self._base = base
        self._own = list(own)
        self._own_indexes = [entry.index for entry in own]
        self._own_offsets = [entry.offset for entry in own]
        self.end_offset = log.flushed_offset
        """The end of the durable batches."""
        self.snapshot = snapshot or self.base_snapshot()
        self.missing: tuple[Offset, Offset, int] | None = None
        """A read that `entries` could not do without waiting for the disk."""
        self.damage: str | None = None
        """Damage that `entries` has found. The driver reports and clears it."""

    @property
    def base(self) -> LedgerBase:
        return self._base

    def base_snapshot(self) -> SnapshotMeta:
        """The snapshot that represents everything before the log: its position and members."""
        base = self._base
        configuration = configuration_from_bytes(base.configuration)
        return SnapshotMeta(LogIndex(base.index), Term(base.term), configuration, _OFFSET.pack(base.offset))

    # ---- translation ----------------------------------------------------------------------------

    def next_offset(self, index: LogIndex) -> Offset:
        """The offset that follows all entries up to `index`."""
        base = self._base
        return Offset(base.offset + index - base.index - bisect_right(self._own_indexes, index))

    def index_of(self, offset: Offset) -> LogIndex:
        """The index of the record at `offset`."""
        base = self._base
        return LogIndex(base.index + offset - base.offset + bisect_right(self._own_offsets, offset) + 1)

    def last_index_before(self, offset: Offset) -> LogIndex:
        """The last index before the record at `offset` and before the own entries directly in front of it."""
        base = self._base
        return LogIndex(base.index + offset - base.offset + bisect_left(self._own_offsets, offset))

    def own_between(self, start: LogIndex, end: LogIndex) -> Sequence[OwnEntry]:
        """The own entries from `start` up to, but not including, `end`."""
        if not self._own_indexes or self._own_indexes[-1] < start:
            return ()
        return self._own[bisect_left(self._own_indexes, start) : bisect_left(self._own_indexes, end)]

    # ---- the interface of consensus (raft.LogReader) --------------------------------------------

    @property
    def first_index(self) -> LogIndex:
        return LogIndex(self._base.index + 1)

    @property
    def last_index(self) -> LogIndex:
        base = self._base
        return LogIndex(base.index + self.end_offset - base.offset + len(self._own))

    def term_at(self, index: LogIndex) -> Term | None:
        if not self._base.index <= index <= self.last_index:
            return None
        position = bisect_right(self._own_indexes, index)
        return Term(self._own[position - 1].term if position else self._base.term)

    def configuration_entries(self) -> Sequence[Entry]:
        return [
            _entry_of(entry)
            for entry in self._own
            if entry.kind == EntryKind.CONFIGURATION and entry.index > self.snapshot.index
        ]

    def entries(self, start: LogIndex, end: LogIndex, size_bytes_max: int, count_max: int) -> Sequence[Entry]:
        recent = self.recent.read(start, end, size_bytes_max, count_max)
        if recent:
            return recent
        found: list[Entry] = []
        size_bytes = 0
        index = start
        while index < end and len(found) < count_max and (not found or size_bytes < size_bytes_max):
            position = bisect_left(self._own_indexes, index)
            if position < len(self._own) and self._own_indexes[position] == index:
                own = _entry_of(self._own[position])
                if found and size_bytes + own.size_bytes > size_bytes_max:
                    return found
                found.append(own)
                size_bytes += own.size_bytes
                index = LogIndex(index + 1)
                continue
            batches = self._batches(index, position, size_bytes_max - size_bytes)
            if batches is None:
                break
            for entry in batches:
                if found and (size_bytes + entry.size_bytes > size_bytes_max or len(found) == count_max):
                    return found
                if entry.first >= end:
                    return found
                found.append(entry)
                size_bytes += entry.size_bytes
            index = LogIndex(found[-1].index + 1)
        return found

    def _batches(self, index: LogIndex, own_before: int, size_bytes_max: int) -> Sequence[Entry] | None:
        """The batches from the one at `index` to the next own entry, as far as they fit; None if not in memory."""
        base = self._base
        up_to = self.end_offset
        if own_before < len(self._own):
            up_to = min(up_to, Offset(self._own_offsets[own_before]))
        offset = Offset(base.offset + index - 1 - base.index - own_before)
        try:
            data = self.log.read(offset, max(1, size_bytes_max), up_to, True)
        except LogCorrupt as error:
            self.damage = str(error)
            return None
        except OSError:
            data = None  # The read that may wait for the disk will report the error.
        if data is None:
            self.missing = (offset, up_to, size_bytes_max)
            return None
        term = Term(self._own[own_before - 1].term if own_before else base.term)
        shift = base.index + 1 - base.offset + own_before
        view = memoryview(data)
        entries: list[Entry] = []
        problem = "no whole batch"
        assert len(view), (self.log.name, offset, up_to)
        try:
            for position, header in iter_batches(view):
                # The position that a batch claims is not covered by a checksum, and the rest is not checked here.
                follows = header.base_offset == offset if entries else header.base_offset <= offset
                if not follows or not offset < header.next_offset <= up_to or int(header.leader_epoch) != term:
                    raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of term {term} should be there: {header}")
                offset, size = header.next_offset, header.size
                entries.append(
                    Entry(
                        LogIndex(header.base_offset + shift),
                        LogIndex(header.next_offset - 1 + shift),
                        term,
                        EntryKind.PAYLOAD,
                        Batch(header, view[position : position + size]),
                        size,
                    )
                )
        except InvalidBatch as error:
            problem = str(error)
        if not entries:
            self.damage = f"{self.log.name}, offset {offset}: {problem}"
            return None
        # The batches before the damage are intact. The next read finds the damage.
        return entries

    # ---- reports of the driver ------------------------------------------------------------------

    def on_own_appended(self, entries: Sequence[OwnEntry]) -> None:
        """Own entries have become durable."""
        self._own += entries
        self._own_indexes += [entry.index for entry in entries]
        self._own_offsets += [entry.offset for entry in entries]

    def on_truncated(self, index: LogIndex, offset: Offset) -> None:
        """Everything from `index` on was removed; the batches end at `offset`."""
        self.recent.clear()
        position = bisect_left(self._own_indexes, index)
        del self._own[position:], self._own_indexes[position:], self._own_offsets[position:]
        self.end_offset = min(self.end_offset, offset)

    def on_rebased(self, base: LedgerBase, snapshot: SnapshotMeta | None = None) -> None:
        """The log now begins later: `base` represents everything before it."""
        self.recent.release(LogIndex(base.index))
        position = bisect_right(self._own_indexes, base.index)
        del self._own[:position], self._own_indexes[:position], self._own_offsets[:position]
        self._base = base
        self.snapshot = snapshot or self.base_snapshot()

    def on_installed(self, base: LedgerBase, snapshot: SnapshotMeta) -> None:
        """A snapshot has replaced the whole log."""
        self.recent.clear()
        self.end_offset = Offset(base.offset)
        self._own, self._own_indexes, self._own_offsets = [], [], []
        self._base = base
        self.snapshot = snapshot


def own_entry(entry: Entry, offset: Offset) -> OwnEntry:
    """An entry as stored in the ledger; `offset` is that of the record which follows."""
    return OwnEntry(entry.index, entry.term, int(entry.kind), offset, bytes(entry.payload))  # type: ignore[call-overload]


def _entry_of(own: OwnEntry) -> Entry:
    index = LogIndex(own.index)
    return Entry(index, index, Term(own.term), EntryKind(own.kind), own.payload, len(own.payload))
