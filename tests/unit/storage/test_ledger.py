"""The ledger: a vote that was saved is never forgotten, whatever happens to the process, the power or the disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from drmq.storage.errors import DiskFull, LogClosed, LogFenced
from drmq.storage.files import OS_FILES, Files
from drmq.storage.ledger import (
    RESERVE_BYTES,
    REWRITE_BYTES,
    Ballot,
    Ledger,
    LedgerBase,
    LedgerMissing,
    OwnEntry,
)
from drmq.testing.files import FakeFiles
from support.ledger_samples import BASE, DIRECTORY, PATH, SEEDS, Shown, changes, entry, shown

# ---- what it does ------------------------------------------------------------------------------------


@pytest.fixture(params=["fake", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Files]:
    return (DIRECTORY, FakeFiles()) if request.param == "fake" else (f"{tmp_path}/topics/orders-0", OS_FILES)


def test_what_was_stored_is_there_when_it_is_opened_again(place: tuple[str, Files]) -> None:
    directory, files = place
    ledger = Ledger.create(directory, BASE, files)
    assert shown(ledger) == (BASE, Ballot(0, -1), ())
    ledger.save_ballot(Ballot(3, 1 << 40))
    ledger.append([entry(1, 3), entry(5, 3, b"voters", 2)])
    ledger.append([entry(9, 4)])
    ledger.truncate(9)
    ledger.append([entry(8, 5, b"\0\0", 255, offset=6)])
    ledger.rebase(LedgerBase(5, 3, 3, b"voters"))
    ledger.note_commit(7)
    expected = (LedgerBase(5, 3, 3, b"voters"), Ballot(3, 1 << 40), (entry(8, 5, b"\0\0", 255, offset=6),))
    assert shown(ledger) == expected
    ledger.close()
    for _ in range(2):
        ledger = Ledger.open(directory, files)
        assert shown(ledger) == expected
        assert ledger.commit == 7
        ledger.close()


def test_a_snapshot_replaces_everything_but_the_ballot(place: tuple[str, Files]) -> None:
    directory, files = place
    ledger = Ledger.create(directory, BASE, files)
    ledger.save_ballot(Ballot(3, 2))
    ledger.append([entry(1, 3), entry(90, 3)])
    first, second = LedgerBase(40, 3, 39, b"four voters"), LedgerBase(80, 6, 77, b"")
    ledger.reset(first)
    assert shown(ledger) == shown(Ledger.open(directory, files)) == (first, Ballot(3, 2), ())
    assert ledger.commit == 40
    ledger.reset(second, Ballot(6))
    assert shown(ledger) == shown(Ledger.open(directory, files)) == (second, Ballot(6, -1), ())
    ledger.append([entry(81, 6)])
    assert Ledger.open(directory, files).entries == (entry(81, 6),)


def test_a_call_costs_one_sync_and_one_that_changes_nothing_none() -> None:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)

    def syncs(call: Callable[[], None]) -> int:
        before = files.counts.get("sync", 0)
        call()
        return files.counts["sync"] - before

    assert syncs(lambda: ledger.save_ballot(Ballot(1, 1))) == 1
    assert syncs(lambda: ledger.save_ballot(Ballot(1, 1))) == 0
    assert syncs(lambda: ledger.append([entry(index, 1) for index in range(1, 9)])) == 1
    assert syncs(lambda: ledger.append([])) == 0
    assert syncs(lambda: ledger.truncate(9)) == 0
    assert syncs(lambda: ledger.truncate(8)) == 1
    assert syncs(lambda: ledger.rebase(BASE)) == 0
    assert syncs(lambda: ledger.rebase(LedgerBase(2, 1, 1, b""))) == 1
    assert syncs(lambda: ledger.note_commit(5)) == 0
    assert syncs(lambda: ledger.reset(LedgerBase(20, 1, 9, b""))) == 1


def test_the_commit_index_rises_and_outlives_the_process() -> None:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, LedgerBase(4, 1, 3, b""), files)
    assert ledger.commit == 4
    ledger.note_commit(9)
    ledger.note_commit(6)
    assert ledger.commit == 9
    assert Ledger.open(DIRECTORY, files.after_kill()).commit == 9


def test_entries_that_were_handed_out_do_not_change() -> None:
    ledger = Ledger.create(DIRECTORY, BASE, FakeFiles())
    ledger.append([entry(1, 1)])
    handed_out = ledger.entries
    ledger.append([entry(2, 1)])
    ledger.truncate(1)
    assert handed_out == (entry(1, 1),)


@pytest.mark.parametrize(
    "call",
    [
        lambda ledger: ledger.save_ballot(Ballot(4, 1)),
        lambda ledger: ledger.save_ballot(Ballot(5, 2)),
        lambda ledger: ledger.save_ballot(Ballot(5)),
        lambda ledger: ledger.append([entry(12, 5)]),
        lambda ledger: ledger.append([entry(13, 4)]),
        lambda ledger: ledger.append([entry(13, 5, offset=10)]),
        lambda ledger: ledger.append([entry(14, 5), entry(14, 5)]),
        lambda ledger: ledger.append([entry(14, 6), entry(15, 5)]),
        lambda ledger: ledger.truncate(10),
        lambda ledger: ledger.rebase(LedgerBase(9, 4, 9, b"")),
        lambda ledger: ledger.rebase(LedgerBase(11, 3, 9, b"")),
        lambda ledger: ledger.rebase(LedgerBase(11, 4, 8, b"")),
        lambda ledger: ledger.rebase(LedgerBase(11, 6, 9, b"")),
        lambda ledger: ledger.reset(LedgerBase(9, 4, 9, b"")),
        lambda ledger: ledger.reset(LedgerBase(30, 5, 9, b""), Ballot(4)),
    ],
)
def test_what_no_correct_replica_does_fails_before_anything_changes(call: Callable[[Ledger], None]) -> None:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, LedgerBase(10, 4, 9, b""), files)
    ledger.save_ballot(Ballot(5, 1))
    ledger.append([entry(12, 5)])
    before, content = shown(ledger), files.content(PATH)
    with pytest.raises(AssertionError):
        call(ledger)
    assert shown(ledger) == before
    assert files.content(PATH) == content
    assert not ledger.is_fenced


def test_a_vote_may_be_given_later_in_its_term() -> None:
    ledger = Ledger.create(DIRECTORY, BASE, FakeFiles())
    ledger.save_ballot(Ballot(5))
    ledger.save_ballot(Ballot(5, 2))
    ledger.save_ballot(Ballot(6))
    assert ledger.ballot == Ballot(6, -1)


def test_a_ledger_is_never_created_over_another() -> None:
    files = FakeFiles()
    Ledger.create(DIRECTORY, BASE, files).save_ballot(Ballot(1, 1))
    with pytest.raises(AssertionError, match="exists"):
        Ledger.create(DIRECTORY, BASE, files)
    assert Ledger.open(DIRECTORY, files).ballot == Ballot(1, 1)


def test_a_missing_ledger_is_not_a_new_one(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        with pytest.raises(LedgerMissing, match="is missing; if this replica is new"):
            Ledger.open(str(directory))


def test_a_closed_ledger_is_readable_and_takes_nothing() -> None:
    ledger = Ledger.create(DIRECTORY, BASE, FakeFiles())
    ledger.close()
    ledger.close()
    assert ledger.base == BASE
    for call in changes():
        with pytest.raises(LogClosed):
            call(ledger)


# ---- the model ---------------------------------------------------------------------------------------


class LedgerMachine(RuleBasedStateMachine):
    """A ledger beside a dict of its entries by index, a base and a ballot, across reopening and crashes."""

    @initialize(index=st.sampled_from([0, 7, 1 << 40]), term=st.integers(0, 3), configuration=st.binary(max_size=20))
    def begin(self, index: int, term: int, configuration: bytes) -> None:
        self.files = FakeFiles()
        self.base = LedgerBase(index, term, index, configuration)
        self.ballot = Ballot(0)
        self.entries: dict[int, OwnEntry] = {}
        self.commit = index
        self.ledger = Ledger.create(DIRECTORY, self.base, self.files)

    def last(self) -> OwnEntry | LedgerBase:
        return self.entries[max(self.entries)] if self.entries else self.base

    @rule(terms=st.integers(0, 3), vote=st.integers(-1, 1 << 62))
    def vote(self, terms: int, vote: int) -> None:
        if terms == 0 and self.ballot.vote != -1:
            vote = self.ballot.vote
        self.ballot = Ballot(self.ballot.term + terms, vote)
        self.ledger.save_ballot(self.ballot)

    @rule(
        steps=st.lists(
            st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(0, 255), st.integers(0, 9)), max_size=4
        ),
        payload=st.one_of(st.binary(max_size=30), st.sampled_from([3_000, 30_000]).map(bytes)),
    )
    def append(self, steps: list[tuple[int, int, int, int]], payload: bytes) -> None:
        added: list[OwnEntry] = []
        for indexes, terms, kind, offsets in steps:
            last: OwnEntry | LedgerBase = added[-1] if added else self.last()
            added.append(OwnEntry(last.index + indexes, last.term + terms, kind, last.offset + offsets, payload))
        self.ledger.append(added)
        self.entries |= {one.index: one for one in added}

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.base.index + 1, self.last().index + 3))
        self.ledger.truncate(start)
        self.entries = {index: one for index, one in self.entries.items() if index < start}

    @rule(data=st.data(), configuration=st.binary(max_size=20))
    def rebase(self, data: st.DataObject, configuration: bytes) -> None:
        index = data.draw(st.integers(self.base.index, self.last().index + 5))
        before = [one for one in self.entries.values() if one.index <= index]
        last = before[-1] if before else self.base
        self.base = LedgerBase(index, last.term, last.offset, configuration)
        self.ledger.rebase(self.base)
        self.entries = {index: one for index, one in self.entries.items() if index > self.base.index}

    @rule(indexes=st.integers(1, 50), terms=st.integers(0, 2), gives_ballot=st.booleans())
    def reset(self, indexes: int, terms: int, gives_ballot: bool) -> None:
        last = self.last()
        self.base = LedgerBase(last.index + indexes, last.term + terms, last.offset + 1, b"installed")
        if gives_ballot:
            self.ballot = Ballot(self.ballot.term + 1)
        self.ledger.reset(self.base, self.ballot if gives_ballot else None)
        self.entries = {}

    @rule(indexes=st.integers(-3, 9))
    def note_commit(self, indexes: int) -> None:
        index = max(self.commit + indexes, 0)
        self.ledger.note_commit(index)
        self.commit = max(self.commit, index)

    @rule()
    def kill_and_reopen(self) -> None:
        self.files = self.files.after_kill()
        self.ledger = Ledger.open(DIRECTORY, self.files)

    @rule(seed=st.integers(0, 1000))
    def cut_power_and_reopen(self, seed: int) -> None:
        self.files = self.files.after_power_cut(seed)
        self.ledger = Ledger.open(DIRECTORY, self.files)
        assert self.base.index <= self.ledger.commit <= max(self.commit, self.base.index)
        self.commit = self.ledger.commit

    @invariant()
    def both_agree(self) -> None:
        assert shown(self.ledger) == (self.base, self.ballot, tuple(self.entries.values()))
        self.commit = max(self.commit, self.base.index)
        assert self.ledger.commit == self.commit


TestLedgerModel = LedgerMachine.TestCase
TestLedgerModel.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


# ---- failing disks -----------------------------------------------------------------------------------


def failing(operation: str, partial_bytes: int, change: Callable[[Ledger], None]) -> tuple[FakeFiles, Ledger, Shown]:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    ledger.save_ballot(Ballot(8, 1))
    ledger.append([entry(1, 8)])
    before = shown(ledger)
    files.fail(operation, path_part="ledger", partial_bytes=partial_bytes)
    with pytest.raises(LogFenced, match="failed: Input/output error; restart the broker"):
        change(ledger)
    return files, ledger, before


@pytest.mark.parametrize("change", changes()[:-1])
@pytest.mark.parametrize(("operation", "partial_bytes"), [("write", 0), ("write", 9), ("write", 1100), ("sync", 0)])
def test_a_failed_write_or_sync_fences_for_good(
    operation: str, partial_bytes: int, change: Callable[[Ledger], None]
) -> None:
    files, ledger, before = failing(operation, partial_bytes, change)
    assert ledger.is_fenced
    assert shown(ledger) == before
    steps = files.step
    for call in changes():
        with pytest.raises(LogFenced):
            call(ledger)
    assert files.step == steps
    assert shown(ledger) == before
    # What opening finds is what a power cut leaves, although the kernel takes the failed pages for clean.
    found = shown(Ledger.open(DIRECTORY, files))
    assert found in (before, expected_after(before, change))
    for seed in SEEDS:
        assert shown(Ledger.open(DIRECTORY, files.after_power_cut(seed))) == found


def expected_after(before: Shown, change: Callable[[Ledger], None]) -> Shown:
    ledger = Ledger.create(DIRECTORY, BASE, FakeFiles())
    ledger.reset(before[0], before[1])
    ledger.append(before[2])
    change(ledger)
    return shown(ledger)


def test_a_failed_note_of_the_commit_index_fences() -> None:
    _, ledger, _ = failing("write", 3, lambda ledger: ledger.note_commit(4))
    assert ledger.is_fenced


def test_failing_to_make_durable_what_was_found_is_no_success() -> None:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    files.fail("sync")
    with pytest.raises(LogFenced):
        ledger.save_ballot(Ballot(1, 1))
    for operation in ("write", "sync", "sync_directory"):
        files.fail(operation)
        with pytest.raises(LogFenced, match="making durable what was found failed"):
            Ledger.open(DIRECTORY, files)
        if operation == "write":
            assert Ledger.open(DIRECTORY, files.after_kill()).ballot == Ballot(1, 1)
            files = FakeFiles()
            ledger = Ledger.create(DIRECTORY, BASE, files)
            files.fail("sync")
            with pytest.raises(LogFenced):
                ledger.save_ballot(Ballot(1, 1))


def test_votes_and_no_ops_are_stored_on_a_full_disk() -> None:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    for term in range(1, 300):
        files.capacity_bytes = 0
        for election in range(20):
            ledger.save_ballot(Ballot(100 * term + election, 2))
            ledger.append([entry(100 * term + election, 100 * term + election)])
        files.capacity_bytes = 1 << 40
        ledger.save_ballot(Ballot(100 * term + 50))
    assert shown(Ledger.open(DIRECTORY, files.after_power_cut(1))) == shown(ledger)


def vote_forever(ledger: Ledger) -> None:
    while True:
        ledger.save_ballot(Ballot(ledger.ballot.term + 1, 2))


def test_what_does_not_fit_on_a_full_disk_is_refused_and_harms_nothing() -> None:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    ledger.save_ballot(Ballot(1, 1))
    before = shown(ledger)
    for spare in (0, 1, 300, 5000):
        files.capacity_bytes = len(files.content(PATH)) + spare
        with pytest.raises(DiskFull):
            ledger.append([entry(1, 1, b"x" * 3 * RESERVE_BYTES)])
        assert not ledger.is_fenced
        assert shown(ledger) == before
    ledger.save_ballot(Ballot(2, 2))
    with pytest.raises(DiskFull):
        vote_forever(ledger)
    votes = ledger.ballot.term
    assert votes > 100
    assert shown(ledger) == shown(Ledger.open(DIRECTORY, files)) == (BASE, Ballot(votes, 2), ())
    files.capacity_bytes = 1 << 40
    ledger.append([entry(1, 1, b"x" * 3 * RESERVE_BYTES)])
    for seed in SEEDS:
        assert shown(Ledger.open(DIRECTORY, files.after_power_cut(seed))) == shown(ledger)


# ---- rewriting ---------------------------------------------------------------------------------------


def test_a_file_of_dead_records_is_rewritten_and_one_of_live_ones_is_not() -> None:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    ledger.append([entry(1, 1, b"live")])
    for term in range(1, 10_000):
        ledger.save_ballot(Ballot(term, 1))
        assert len(files.content(PATH)) < REWRITE_BYTES + 2 * RESERVE_BYTES
    assert 3 <= files.counts["rename"] <= 8
    assert files.list(DIRECTORY) == ["ledger"]
    assert shown(Ledger.open(DIRECTORY, files)) == (BASE, Ballot(9999, 1), (entry(1, 1, b"live"),))
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    for index in range(1, 40):
        ledger.append([entry(index, 1, b"x" * 10_000)])
    assert files.counts["rename"] == 1
    assert shown(Ledger.open(DIRECTORY, files)) == shown(ledger)


def grown(files: FakeFiles) -> Ledger:
    """A ledger that is rewritten by its next call."""
    ledger = Ledger.create(DIRECTORY, BASE, files)
    ledger.append([entry(1, 1, b"live"), entry(2, 1, b"x" * REWRITE_BYTES)])
    ledger.truncate(2)
    return Ledger.open(DIRECTORY, files)


@pytest.mark.parametrize("operation", ["create", "write", "sync"])
def test_a_rewrite_that_fails_leaves_the_old_file_in_use(operation: str) -> None:
    for step in range(2):
        files = FakeFiles()
        ledger = grown(files)
        files.fail(operation, errno.ENOSPC, path_part=".tmp", partial_bytes=100)
        renames = files.counts["rename"]
        for term in range(2, 3 + 4000 * step):
            ledger.save_ballot(Ballot(term, 1))
        assert not ledger.is_fenced
        # It is tried again only when the file has grown as much once more.
        assert files.counts["rename"] == renames + step
        assert files.list(DIRECTORY) == ["ledger"]
        assert shown(Ledger.open(DIRECTORY, files.after_power_cut(3))) == shown(ledger)


@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
def test_a_rewrite_that_may_be_undone_fences_after_the_call(operation: str) -> None:
    files = FakeFiles()
    ledger = grown(files)
    files.fail(operation)
    ledger.save_ballot(Ballot(2, 1))
    assert ledger.is_fenced
    with pytest.raises(LogFenced, match="replacing the file failed"):
        ledger.save_ballot(Ballot(3, 1))
    for seed in SEEDS:
        assert shown(Ledger.open(DIRECTORY, files.after_power_cut(seed))) == shown(ledger)
