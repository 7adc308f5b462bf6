"""The format of a ledger: its records, the facts that they define, and the rules that no record may violate.

    head      magic, version, checksum of both
    marks     commit index, how far the file is durable, checksum; overwritten in place, not synced
    records   [length u32, crc32c u32, type u8, body], from the second sector on
    zeros     reserved space

A record is one change, complete or not there at all. Its checksum also covers its position: bytes are a record only
where they were written, not inside the payload of another record. Zeros are never a record, because no length is zero.
The first record contains the whole state, so that a file can start from any state.

`after` is the only function that changes facts. Changes pass through it before they are written, and again when they
are read, so reading finds exactly what was accepted. The files themselves are handled in `ledger`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from drmq.storage.errors import FormatTooNew, StorageError

NO_VOTE = -1

_HEAD = Struct("<4sII")
"""Magic, version, checksum of these two."""
_MARKS = Struct("<QQI")
"""Commit index, durable bytes, checksum of these two."""
_FRAME = Struct("<II")
"""Length of what follows, checksum."""
_PLACE = Struct("<QI")
"""Position of a record, length of its body: what the checksum covers besides the body."""
_MAGIC = b"DMQL"
_VERSION = 1
MARKS_AT = 16
_RECORDS_AT = 512
"""Records begin in a sector of their own, so that overwriting the marks never touches a sector with a record."""

_WHOLE, _BALLOT, _ENTRIES, _TRUNCATE, _REBASE = range(1, 6)
"""The types of records. The numbers are stored, so they never change."""
_TYPES = frozenset((_WHOLE, _BALLOT, _ENTRIES, _TRUNCATE, _REBASE))
_WHOLE_FIELDS = Struct("<QqQQQI")
"""Term, vote; index, term, offset of the base, length of its configuration. That and the entries follow."""
_BALLOT_FIELDS = Struct("<Qq")
_ENTRY_FIELDS = Struct("<QQBQI")
"""Index, term, kind, offset, length of the payload that follows."""
_INDEX_FIELD = Struct("<Q")
_BASE_FIELDS = Struct("<QQQ")
"""Index, term, offset; the rest of the record is the configuration."""

_ADVICE = (
    "nothing was changed; do not restore an older copy, which would lose votes: remove this replica's data, "
    "so that it joins again as a new member and copies the partition from the others"
)


class LedgerMissing(StorageError):
    """There is no ledger in the directory. Only a caller that knows the replica to be new may create one."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is missing; if this replica is new, it has not been created yet; if it has ever voted, remove the "
            "rest of its data, so that it joins again as a new member"
        )
        self.path = path


class LedgerCorrupt(StorageError):
    """A ledger that cannot be read back as it was written, so that this replica's votes are unknown."""

    def __init__(self, path: str, position: int, problem: str) -> None:
        self.finding = f"{path}, position {position}: {problem}"
        """The message without the advice, for callers that give better advice."""
        super().__init__(f"{self.finding}; {_ADVICE}")
        self.path = path
        self.position = position
        self.problem = problem


class LedgerTooNew(FormatTooNew):
    """A ledger in a format that this version does not know. It may be intact."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(path, version, _VERSION)


@dataclass(frozen=True, slots=True)
class OwnEntry:
    """An internal entry of the replica group's log: one that is not a batch."""

    index: int
    term: int
    kind: int
    """A number from 0 to 255 that has no meaning in this package."""
    offset: int
    """The log's next offset when the entry was appended."""
    payload: bytes


@dataclass(frozen=True, slots=True)
class LedgerBase:
    """The position before the log's first entry."""

    index: int
    term: int
    offset: int
    configuration: bytes


class Ballot(NamedTuple):
    """The latest known term, and the node that this replica voted for in it."""

    term: int
    vote: int = NO_VOTE


class Facts(NamedTuple):
    """The state that the records of a ledger define."""

    base: LedgerBase
    ballot: Ballot
    entries: tuple[OwnEntry, ...]


NO_FACTS = Facts(LedgerBase(0, 0, 0, b""), Ballot(0), ())


class RuleBroken(AssertionError):
    """A change that no correct replica makes: a bug when it is requested, damage when it is read."""


# Writing


def ballot_record(ballot: Ballot) -> bytes:
    """The body of the record that stores a term and a vote."""
    return _body(_BALLOT, _BALLOT_FIELDS.pack(*ballot))


def entries_record(entries: Sequence[OwnEntry]) -> bytes:
    """The body of the record that adds entries."""
    return _body(_ENTRIES, *_packed_entries(entries))


def truncation_record(from_index: int) -> bytes:
    """The body of the record that removes entries."""
    return _body(_TRUNCATE, _INDEX_FIELD.pack(from_index))


def rebase_record(base: LedgerBase) -> bytes:
    """The body of the record that moves the base."""
    return _body(_REBASE, _BASE_FIELDS.pack(base.index, base.term, base.offset), base.configuration)


def whole_record(facts: Facts) -> bytes:
    """The body of the record that contains the whole state, independent of earlier records."""
    base = facts.base
    fields = _WHOLE_FIELDS.pack(*facts.ballot, base.index, base.term, base.offset, len(base.configuration))
    return _body(_WHOLE, fields, base.configuration, *_packed_entries(facts.entries))


def _body(kind: int, *parts: bytes) -> bytes:
    return b"".join((bytes((kind,)), *parts))


def _packed_entries(entries: Iterable[OwnEntry]) -> list[bytes]:
    parts = []
    for entry in entries:
        parts.append(_ENTRY_FIELDS.pack(entry.index, entry.term, entry.kind, entry.offset, len(entry.payload)))
        parts.append(entry.payload)
    return parts


def _checksum(position: int, body: bytes) -> int:
    return crc32c(body, crc32c(_PLACE.pack(position, len(body))))


def framed(position: int, body: bytes) -> bytes:
    """The record with this body, valid only at `position`."""
    return _FRAME.pack(len(body), _checksum(position, body)) + body


def packed_marks(commit: int, durable: int) -> bytes:
    """The marks, to be written at `MARKS_AT`."""
    checksum = crc32c(_MARKS.pack(commit, durable, 0)[:-4])
    return _MARKS.pack(commit, durable, checksum)


def _packed_head() -> bytes:
    checksum = crc32c(_HEAD.pack(_MAGIC, _VERSION, 0)[:-4])
    return _HEAD.pack(_MAGIC, _VERSION, checksum)


def whole_file(facts: Facts, commit: int) -> bytes:
    """The content of a new file. All of it must be durable before the file gets its name."""
    record = framed(_RECORDS_AT, whole_record(facts))
    head = _packed_head().ljust(MARKS_AT, b"\0") + packed_marks(commit, _RECORDS_AT + len(record))
    return head.ljust(_RECORDS_AT, b"\0") + record


# Reading


def check_head(path: str, data: bytes) -> None:
    """Raise `LedgerCorrupt` or `LedgerTooNew` unless the file begins like a ledger of this version."""
    if len(data) < _RECORDS_AT:
        raise LedgerCorrupt(path, len(data), "the file ends within its head")
    magic, version, _ = _HEAD.unpack_from(data)
    if magic != _MAGIC or data[: _HEAD.size] != _HEAD.pack(magic, version, crc32c(data[: _HEAD.size - 4])):
        raise LedgerCorrupt(path, 0, "the head is not that of a ledger")
    if version != _VERSION:
        raise LedgerTooNew(path, version)


def read_marks(data: bytes) -> tuple[int, int]:
    """The commit index and how far the file is durable. Both are lower bounds, and the lowest possible if torn."""
    commit, durable, _ = _MARKS.unpack_from(data, MARKS_AT)
    if data[MARKS_AT : MARKS_AT + _MARKS.size] != packed_marks(commit, durable) or durable < _RECORDS_AT:
        return 0, _RECORDS_AT
    return commit, durable


def _record_at(data: bytes, position: int) -> bytes | None:
    """The body of the valid record at `position`, or None if there is none."""
    start = position + _FRAME.size
    if start > len(data):
        return None
    length, checksum = _FRAME.unpack_from(data, position)
    if length == 0 or start + length > len(data):
        return None
    body = data[start : start + length]
    return body if _checksum(position, body) == checksum else None


def read_records(path: str, data: bytes) -> tuple[Facts, int]:
    """The facts that the valid records define, and where these records end."""
    facts, position = NO_FACTS, _RECORDS_AT
    while (body := _record_at(data, position)) is not None:
        try:
            facts = after(facts, body)
        except (RuleBroken, StructError) as error:
            raise LedgerCorrupt(path, position, f"an impossible record: {error}") from error
        position += _FRAME.size + len(body)
    return facts, position


def check_end(path: str, data: bytes, end: int, durable: int) -> None:
    """Raise `LedgerCorrupt` unless everything after `end` can be an unfinished last write."""
    if end == _RECORDS_AT:
        # A file gets its name only after its first record is durable.
        raise LedgerCorrupt(path, end, "the first record is unreadable")
    if end < durable:
        raise LedgerCorrupt(path, end, f"the record here is unreadable, and the file was durable up to {durable}")
    for position in range(end + 1, min(len(data.rstrip(b"\0")), len(data) - _FRAME.size)):
        # The type is checked first, which avoids nearly all of the checksums.
        if data[position + _FRAME.size] in _TYPES and _record_at(data, position) is not None:
            raise LedgerCorrupt(path, end, f"the record here is unreadable, and a sound one follows at {position}")


def after(facts: Facts, body: bytes) -> Facts:
    """The facts after a record was added. Raises `RuleBroken`."""
    kind = body[0]
    if kind == _WHOLE:
        term, vote, base_index, base_term, base_offset, size = _WHOLE_FIELDS.unpack_from(body, 1)
        start = 1 + _WHOLE_FIELDS.size
        base = LedgerBase(base_index, base_term, base_offset, body[start : start + size])
        new = Facts(base, Ballot(term, vote), _read_entries(body, start + size))
        _check_order(base, (), new.entries)
    elif kind == _BALLOT:
        new = facts._replace(ballot=Ballot(*_BALLOT_FIELDS.unpack_from(body, 1)))
    elif kind == _ENTRIES:
        added = _read_entries(body, 1)
        _check_order(facts.base, facts.entries, added)
        new = facts._replace(entries=facts.entries + added)
    elif kind == _TRUNCATE:
        (from_index,) = _INDEX_FIELD.unpack_from(body, 1)
        new = facts._replace(entries=tuple(entry for entry in facts.entries if entry.index < from_index))
    elif kind == _REBASE:
        base_index, base_term, base_offset = _BASE_FIELDS.unpack_from(body, 1)
        base = LedgerBase(base_index, base_term, base_offset, body[1 + _BASE_FIELDS.size :])
        new = Facts(base, facts.ballot, tuple(entry for entry in facts.entries if entry.index > base.index))
        _check_order(base, (), new.entries[:1])
    else:
        raise RuleBroken(f"a record of type {kind} is not known")
    _check_base(facts.base, new.base)
    _check_ballot(facts.ballot, new.ballot)
    return new


def _read_entries(body: bytes, position: int) -> tuple[OwnEntry, ...]:
    entries = []
    while position < len(body):
        index, term, kind, offset, size = _ENTRY_FIELDS.unpack_from(body, position)
        position += _ENTRY_FIELDS.size
        entries.append(OwnEntry(index, term, kind, offset, body[position : position + size]))
        position += size
    return tuple(entries)


def _check_order(base: LedgerBase, before: Sequence[OwnEntry], added: Sequence[OwnEntry]) -> None:
    previous: LedgerBase | OwnEntry = before[-1] if before else base
    for entry in added:
        if entry.index <= previous.index or entry.term < previous.term or entry.offset < previous.offset:
            raise RuleBroken(f"{entry} after {previous}: indexes rise, terms and offsets never fall")
        previous = entry


def _check_base(old: LedgerBase, new: LedgerBase) -> None:
    if new.index < old.index or new.term < old.term or new.offset < old.offset:
        raise RuleBroken(f"{new} after {old}: the base never moves back")


def _check_ballot(old: Ballot, new: Ballot) -> None:
    if new.term < old.term or (new.term == old.term and old.vote not in (NO_VOTE, new.vote)):
        raise RuleBroken(f"{new} after {old}: terms never fall, and there is one vote in each")
