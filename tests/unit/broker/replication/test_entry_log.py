"""Indexes and offsets against a model that is too plain to be wrong: a list of entries, searched from its start."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.broker.replication.entry_log import Batch, EntryLog, decode_trim, encode_trim, own_entry, received
from drmq.broker.replication.recent_entries import RecentMemory
from drmq.model import LeaderEpoch, NodeId, Offset
from drmq.raft import (
    Configuration,
    Entry,
    EntryKind,
    LogIndex,
    ProtocolError,
    SnapshotMeta,
    Term,
    configuration_to_bytes,
)
from drmq.records import BatchHeader, read_header, stamp
from drmq.storage import LedgerBase, MemoryLog
from support.batches import a_batch

MEMBERS = configuration_to_bytes(Configuration.of([NodeId(1)]))
NO_LIMIT = 1 << 30


@dataclass(frozen=True)
class Kept:
    """One entry as the model keeps it."""

    first: int
    last: int
    term: int
    offset: int
    """Of its first record, or of the record that follows."""
    is_own: bool

    @property
    def next_offset(self) -> int:
        return self.offset if self.is_own else self.offset + self.last - self.first + 1


def a_stamped(offset: int, term: int, count: int) -> tuple[BatchHeader, memoryview]:
    batch = a_batch([b"value"] * count)
    stamp(batch, Offset(offset), LeaderEpoch(term))
    return read_header(batch), batch


class Model:
    """A log of entries, and the `EntryLog` that should say the same."""

    def __init__(self, base_index: int = 0, base_offset: int = 0, memory_bytes: int = 0) -> None:
        self.base = Kept(base_index, base_index, 0, base_offset, True)
        self.kept: list[Kept] = []
        self.log = MemoryLog("model", first_offset=base_offset)
        self.entries = EntryLog(
            self.log, LedgerBase(base_index, 0, base_offset, MEMBERS), (), None, RecentMemory(memory_bytes)
        )

    @property
    def last(self) -> Kept:
        return self.kept[-1] if self.kept else self.base

    def append_own(self, term: int, kind: EntryKind = EntryKind.NOTHING, payload: bytes = b"") -> None:
        index = LogIndex(self.last.last + 1)
        entry = Entry(index, index, Term(term), kind, payload, len(payload))
        own = own_entry(entry, Offset(self.last.next_offset))
        self.kept.append(Kept(index, index, term, own.offset, True))
        self.entries.on_own_appended((own,))
        self.entries.recent.extend((entry,))

    def append_batch(self, count: int) -> None:
        offset, term, first = self.last.next_offset, self.last.term, self.last.last + 1
        self.kept.append(Kept(first, first + count - 1, term, offset, False))
        header, data = a_stamped(offset, term, count)
        self.log.append([(header, data)])
        self.log.flush()
        self.entries.end_offset = self.log.flushed_offset
        last = LogIndex(first + count - 1)
        batch = Batch(header, data)
        self.entries.recent.extend((Entry(LogIndex(first), last, Term(term), EntryKind.PAYLOAD, batch, len(data)),))

    def truncate(self, position: int) -> None:
        gone = self.kept[position]
        self.entries.on_truncated(LogIndex(gone.first), Offset(gone.offset))
        self.log.truncate_suffix(Offset(gone.offset))
        del self.kept[position:]

    def rebase(self, position: int) -> None:
        """Begin the log at a batch, with the own entries right before it."""
        start = self.kept[position].offset
        index = self.entries.last_index_before(Offset(start))
        covered = [kept for kept in self.kept if kept.last <= index]
        assert (covered[-1] if covered else self.base).last == index
        assert all(kept.offset >= start for kept in self.kept if kept.last > index)
        if not covered:
            return
        self.base, self.kept = covered[-1], self.kept[len(covered) :]
        self.base = Kept(index, index, self.base.term, start, True)
        self.entries.on_rebased(LedgerBase(index, self.base.term, start, MEMBERS))
        self.log.drop_prefix(Offset(start))

    def check(self) -> None:
        entries = self.entries
        assert (entries.first_index, entries.last_index) == (self.base.last + 1, self.last.last)
        assert (entries.term_at(LogIndex(self.base.last)), entries.next_offset(LogIndex(self.base.last))) == (
            self.base.term,
            self.base.next_offset,
        )
        assert entries.term_at(LogIndex(self.base.last - 1)) is None
        assert entries.term_at(LogIndex(self.last.last + 1)) is None
        for kept in self.kept:
            for index in range(kept.first, kept.last + 1):
                assert entries.term_at(LogIndex(index)) == kept.term
                behind = kept.offset if kept.is_own else kept.offset + index - kept.first + 1
                assert entries.next_offset(LogIndex(index)) == behind
                if not kept.is_own:
                    assert entries.index_of(Offset(behind - 1)) == index
        owns = [kept.first for kept in self.kept if kept.is_own]
        everywhere = entries.own_between(entries.first_index, LogIndex(entries.last_index + 1))
        assert [own.index for own in everywhere] == owns
        self.check_reading()

    def check_reading(self) -> None:
        end = LogIndex(self.last.last + 1)
        for position, kept in enumerate(self.kept):
            whole = self.entries.entries(LogIndex(kept.first), end, NO_LIMIT, NO_LIMIT)
            assert [seen(entry) for entry in whole] == [
                (each.first, each.last, each.term, each.is_own) for each in self.kept[position:]
            ]
            for entry in whole:
                if isinstance(entry.payload, Batch):
                    assert read_header(entry.payload.data) == entry.payload.header
            # At least one, however small the limits are, and never more than they allow.
            [first] = self.entries.entries(LogIndex(kept.first), end, 1, NO_LIMIT)[:1]
            assert seen(first) == (kept.first, kept.last, kept.term, kept.is_own)
            assert len(self.entries.entries(LogIndex(kept.first), end, NO_LIMIT, 1)) == 1
            up_to_next = self.entries.entries(LogIndex(kept.first), LogIndex(kept.last + 1), NO_LIMIT, NO_LIMIT)
            assert len(up_to_next) == 1
            for limit in (80, 200):
                some = self.entries.entries(LogIndex(kept.first), end, limit, NO_LIMIT)
                assert len(some) == 1 or sum(entry.size_bytes for entry in some) <= limit


def seen(entry: Entry) -> tuple[int, int, int, bool]:
    return entry.first, entry.index, entry.term, not isinstance(entry.payload, Batch)


Steps = list[tuple[str, int]]
steps = st.lists(
    st.tuples(st.sampled_from(["term", "own", "batch", "batch", "batch", "truncate", "rebase"]), st.integers(0, 30)),
    max_size=25,
)


@given(steps, st.sampled_from([(0, 0), (7, 3), (40, 0)]), st.sampled_from([0, 2_500, 1 << 20]))
def test_every_translation_is_that_of_the_model(script: Steps, base: tuple[int, int], memory_bytes: int) -> None:
    """Also of what is read, wherever it comes from: the file, memory, or one after the other."""
    model = Model(*base, memory_bytes)
    term = 1
    model.append_own(term)
    for step, number in script:
        if step == "term":
            term += 1 + number % 3
            model.append_own(term)
        elif step == "own":
            if model.kept:
                model.append_own(term, EntryKind.PAYLOAD, encode_trim(Offset(number)))
        elif step == "batch":
            if model.last.term == term:
                model.append_batch(1 + number % 5)
        elif step == "truncate" and model.kept:
            # As a new leader does it: what it removes is replaced by entries of its own term.
            model.truncate(number % len(model.kept))
            term += 1
            model.append_own(term)
        elif step == "rebase":
            batches = [position for position, kept in enumerate(model.kept) if not kept.is_own]
            if batches:
                model.rebase(batches[number % len(batches)])
        model.check()


def test_own_entries_right_before_a_record_stay_with_it() -> None:
    """Were they to go with what is before them, the record would lose its term."""
    model = Model()
    model.append_own(1)
    model.append_batch(3)
    model.append_own(2)
    model.append_own(3)
    model.append_batch(1)
    assert model.entries.last_index_before(Offset(3)) == 4
    model.rebase(4)
    assert [own.term for own in model.entries.own_between(LogIndex(0), LogIndex(99))] == [2, 3]
    model.check()


def test_a_cold_read_is_noted_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    model.append_own(1)
    model.append_batch(2)
    monkeypatch.setattr(model.log, "read", lambda *arguments: None)
    assert model.entries.entries(LogIndex(2), LogIndex(4), 500, 10) == []
    assert model.entries.missing == (0, 2, 500)
    [own] = model.entries.entries(LogIndex(1), LogIndex(4), 500, 10)
    assert own.kind is EntryKind.NOTHING


def test_what_is_not_durable_is_not_read() -> None:
    model = Model()
    model.append_own(1)
    model.append_batch(2)
    model.log.append([a_stamped(2, 1, 4)])
    model.log.flush()
    assert model.entries.last_index == 3
    assert [entry.index for entry in model.entries.entries(LogIndex(2), LogIndex(4), NO_LIMIT, 10)] == [3]


def test_a_snapshot_in_place_of_everything() -> None:
    model = Model()
    model.append_own(1)
    model.append_batch(2)
    meta = SnapshotMeta(LogIndex(50), Term(4), Configuration.of([NodeId(2)]), encode_trim(Offset(30)))
    model.entries.on_installed(LedgerBase(50, 4, 30, MEMBERS), meta)
    entries = model.entries
    assert (entries.first_index, entries.last_index, entries.snapshot) == (51, 50, meta)
    assert (entries.term_at(LogIndex(50)), entries.term_at(LogIndex(49))) == (4, None)
    assert (entries.next_offset(LogIndex(50)), entries.index_of(Offset(30))) == (30, 51)
    assert entries.own_between(LogIndex(0), LogIndex(99)) == ()


def test_only_configurations_behind_the_snapshot_are_told() -> None:
    model = Model()
    one, two = (configuration_to_bytes(Configuration.of([NodeId(number)])) for number in (1, 2))
    model.append_own(1, EntryKind.CONFIGURATION, one)
    model.append_batch(1)
    model.append_own(1, EntryKind.CONFIGURATION, two)
    assert [entry.index for entry in model.entries.configuration_entries()] == [1, 3]
    model.entries.snapshot = SnapshotMeta(LogIndex(2), Term(1), Configuration.of([NodeId(1)]))
    assert [entry.payload for entry in model.entries.configuration_entries()] == [two]


# ---- entries from a peer ---------------------------------------------------------------------------


def sent(first: int, last: int, term: int, kind: EntryKind, payload: bytes) -> Entry:
    return Entry(LogIndex(first), LogIndex(last), Term(term), kind, payload, len(payload))


def test_sound_entries_of_a_peer_are_taken() -> None:
    header, batch = a_stamped(7, 3, 2)
    taken = received(sent(10, 11, 3, EntryKind.PAYLOAD, bytes(batch)))
    assert isinstance(taken.payload, Batch)
    assert (taken.payload.header, bytes(taken.payload.data)) == (header, bytes(batch))
    trim = received(sent(12, 12, 3, EntryKind.PAYLOAD, encode_trim(Offset(5))))
    assert decode_trim(bytes(trim.payload)) == 5  # type: ignore[call-overload]
    assert received(sent(13, 13, 4, EntryKind.NOTHING, b"")).payload == b""


@pytest.mark.parametrize(
    "entry",
    [
        sent(10, 12, 3, EntryKind.PAYLOAD, bytes(a_stamped(7, 3, 2)[1])),
        sent(10, 11, 4, EntryKind.PAYLOAD, bytes(a_stamped(7, 3, 2)[1])),
        sent(10, 11, 3, EntryKind.PAYLOAD, bytes(a_stamped(7, 3, 2)[1])[:-1]),
        sent(10, 11, 3, EntryKind.PAYLOAD, bytes(a_stamped(7, 3, 2)[1])[:-1] + b"?"),
        sent(10, 10, 3, EntryKind.PAYLOAD, b"too short"),
        sent(10, 11, 3, EntryKind.NOTHING, b""),
        sent(10, 11, 3, EntryKind.PAYLOAD, encode_trim(Offset(1))),
    ],
    ids=["wrong span", "wrong term", "cut", "damaged", "neither", "wide no-op", "wide trim"],
)
def test_unsound_entries_of_a_peer_are_refused(entry: Entry) -> None:
    with pytest.raises(ProtocolError):
        received(entry)
