"""The power goes at every single step of what a ledger does: what was answered for is there, and nothing by halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from drmq.storage.ledger import Ballot, Ledger, LedgerMissing
from drmq.testing.files import FakeFiles, PowerCut
from support.ledger_samples import BASE, DIRECTORY, SEEDS, Shown, changes, entry, go_on, shown


class Promises:
    """What a ledger has answered for, and what it was asked for since."""

    def __init__(self) -> None:
        self.done: Shown | None = None
        self.asked: Shown | None = (BASE, Ballot(0), ())
        self.commit = 0

    def create(self, files: FakeFiles) -> Ledger:
        ledger = Ledger.create(DIRECTORY, BASE, files)
        self.done = self.asked
        return ledger

    def call(self, ledger: Ledger, change: Callable[[Ledger], None]) -> None:
        # What the change leads to is found on another disk.
        other = FakeFiles()
        other.make_directory("/data")
        other.make_directory("/data/topics")
        copy = Ledger.create(DIRECTORY, ledger.base, other)
        copy.reset(ledger.base, ledger.ballot)
        copy.append(ledger.entries)
        change(copy)
        self.asked = shown(copy)
        self.commit = max(self.commit, copy.commit)
        change(ledger)
        assert shown(ledger) == self.asked
        self.done = self.asked

    def check(self, files: FakeFiles) -> Ledger | None:
        """Open the ledger: it is as before the unfinished call, or as after it."""
        try:
            ledger = Ledger.open(DIRECTORY, files)
        except LedgerMissing:
            assert self.done is None, f"{self.done} was promised"
            return None
        assert shown(ledger) in (self.done, self.asked)
        assert ledger.base.index <= ledger.commit <= max(self.commit, ledger.base.index)
        return ledger


Script = Callable[[FakeFiles, Promises], None]


def script_elections(files: FakeFiles, promises: Promises) -> None:
    ledger = promises.create(files)
    for term in range(1, 9):
        promises.call(ledger, lambda ledger, term=term: ledger.save_ballot(Ballot(term)))  # type: ignore[misc]
        promises.call(ledger, lambda ledger, term=term: ledger.save_ballot(Ballot(term, 7)))  # type: ignore[misc]
        promises.call(ledger, lambda ledger, term=term: ledger.append([entry(term, term)]))  # type: ignore[misc]
        promises.call(ledger, lambda ledger, term=term: ledger.note_commit(term))  # type: ignore[misc]


def script_all_kinds(files: FakeFiles, promises: Promises) -> None:
    ledger = promises.create(files)
    promises.call(ledger, lambda ledger: ledger.append([entry(1, 1), entry(2, 1, b"c" * 3000), entry(3, 1)]))
    for change in changes():
        promises.call(ledger, change)
    ledger.close()
    ledger = Ledger.open(DIRECTORY, files)
    promises.call(ledger, lambda ledger: ledger.save_ballot(Ballot(10, 3)))


def script_rewrite(files: FakeFiles, promises: Promises) -> None:
    ledger = promises.create(files)
    promises.call(ledger, lambda ledger: ledger.save_ballot(Ballot(1, 3)))
    promises.call(ledger, lambda ledger: ledger.append([entry(1, 1, b"kept")]))
    renames = files.counts.get("rename", 0)
    for _ in range(4):
        promises.call(ledger, lambda ledger: ledger.append([entry(2, 1, b"g" * 20_000)]))
        promises.call(ledger, lambda ledger: ledger.truncate(2))
        promises.call(ledger, lambda ledger: ledger.note_commit(1))
    assert files.counts["rename"] == renames + 1
    promises.call(ledger, lambda ledger: ledger.save_ballot(Ballot(2, 1)))
    promises.call(ledger, lambda ledger: ledger.append([entry(2, 2)]))


SCRIPTS = pytest.mark.parametrize("script", [script_elections, script_all_kinds, script_rewrite])


def runs(script: Script) -> Iterator[tuple[FakeFiles, Promises]]:
    """The script with the power cut at its first step, its second, and so on."""
    crash_at = 0
    while True:
        crash_at += 1
        files, promises = FakeFiles(crash_at=crash_at), Promises()
        try:
            script(files, promises)
        except PowerCut:
            yield files, promises
        else:
            assert crash_at > 20
            return


@SCRIPTS
def test_a_power_cut_at_any_step_leaves_what_was_before_a_call_or_after_it(script: Script) -> None:
    for files, promises in runs(script):
        for seed in SEEDS:
            disk = files.after_power_cut(seed)
            ledger = promises.check(disk)
            if ledger is not None:
                promised = go_on(ledger)
                for later_seed in range(seed, seed + 2):
                    assert shown(Ledger.open(DIRECTORY, disk.after_power_cut(later_seed))) == promised


@SCRIPTS
def test_what_a_killed_process_left_is_safe_from_a_power_cut_once_it_was_opened(script: Script) -> None:
    """A vote that is stored is not repeated, so what opening shows must be durable."""
    for files, promises in runs(script):
        disk = files.after_kill()
        ledger = promises.check(disk)
        if ledger is not None:
            promised = shown(ledger)
            for seed in SEEDS:
                assert shown(Ledger.open(DIRECTORY, disk.after_power_cut(seed))) == promised


def test_a_ledger_that_was_created_after_a_kill_is_safe_from_a_power_cut() -> None:
    for crash_at in range(1, 12):
        files, promises = FakeFiles(crash_at=crash_at), Promises()
        with pytest.raises(PowerCut):
            script_elections(files, promises)
        disk = files.after_kill()
        ledger = promises.check(disk) or Ledger.create(DIRECTORY, BASE, disk)
        promised = go_on(ledger)
        for seed in SEEDS:
            assert shown(Ledger.open(DIRECTORY, disk.after_power_cut(seed))) == promised


def test_a_power_cut_while_opening_is_recovered_from() -> None:
    cuts = 0
    for torn, promises in runs(script_all_kinds):
        for crash_at in range(1, 5):
            disk = torn.after_power_cut(crash_at)
            disk.crash_at = crash_at
            try:
                promises.check(disk)
            except PowerCut:
                cuts += 1
            for seed in SEEDS:
                promises.check(disk.after_power_cut(seed))
    assert cuts > 50
