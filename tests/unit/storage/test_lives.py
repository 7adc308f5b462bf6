"""Many runs of three logs and their journal, from a seed.

Logs are appended to, truncated, reset, deleted and created again, on a disk that refuses writes and syncs. A kill or
the loss of power may end a run at any step, also during its start.

What each run must find: everything acknowledged in earlier runs, what was appended, in whole batches, and nothing else.
Scripts in `test_crash` and `test_journal` try every step of a few scenarios; here are many scenarios.

`DRMQ_LIVES=5000 pytest tests/unit/storage/test_lives.py` tries that many seeds.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from drmq.model import Offset
from drmq.storage import AppendFailed, Journal, LogFenced, LogOptions, SegmentLog, remove_log_files, segment_log
from drmq.storage.files import make_directories
from drmq.storage.journal import PAGE_BYTES
from drmq.testing.files import FakeFiles, PowerCut
from support.storage_samples import Batch, joined, read_all, row

ROOT = "/data"
NAMES = ("a", "b", "c")
OPTIONS = LogOptions(segment_bytes=2048, index_interval_bytes=128)
JOURNAL_BYTES = 6 * PAGE_BYTES
STEPS = 40
LIVES = int(os.environ.get("DRMQ_LIVES", "120"))
PARTS = 4


@dataclass
class Promised:
    """What the users of a log know of it."""

    start: int = 0
    acked: int = 0
    batches: list[Batch] = field(default_factory=list)
    """All that was handed in and not refused, durable or not."""
    cut_maybe: int | None = None
    """Where a truncation that has begun would end the log."""
    start_maybe: int | None = None
    """Where a removal that has begun would let it start."""
    redo: Callable[[], SegmentLog] | None = None
    """What the code that discards or resets the log repeats at the start after a crash."""


class Lives:
    """The story of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = FakeFiles()
        self.journal: Journal
        self.logs: dict[str, SegmentLog] = {}
        self.promised = {name: Promised() for name in NAMES}
        self.batch_seed = 0
        self.aside_count = 0

    def run(self) -> None:
        self.begin()
        for _ in range(STEPS):
            if self.random.random() < 0.25:
                self.files.crash_at = self.files.step + self.random.randint(1, 30)
            try:
                self.step()
            except PowerCut:
                self.end()
                self.begin()
            self.files.crash_at = None
            self.files.forget_faults()

    # ---- lives ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start, and start again until no crash comes in between."""
        while True:
            if self.random.random() < 0.15:
                self.files.crash_at = self.files.step + self.random.randint(1, 25)
            else:
                self.maybe_fail(0.2, "journal-", "write", "sync")
            with suppress(PowerCut):
                make_directories(self.files, ROOT)
                self.journal = Journal(self.files, ROOT, "secret", JOURNAL_BYTES)
                self.files.forget_faults()
                for name in NAMES:
                    self.open(name)
                return
            self.end()

    def end(self) -> None:
        """The process is gone, and perhaps the machine without power."""
        self.logs.clear()
        is_kill = self.random.random() < 0.5
        self.files = self.files.after_kill() if is_kill else self.files.after_power_cut(self.random.getrandbits(30))

    def open(self, name: str) -> None:
        promised = self.promised[name]
        if promised.redo is not None:
            self.logs[name] = promised.redo()
            promised.redo = None
            return
        log = self.logs[name] = self.new_log(name)
        floor = promised.acked if promised.cut_maybe is None else min(promised.acked, promised.cut_maybe)
        assert log.end_offset >= floor, f"{name}: acknowledged up to {floor}, found {log.end_offset}"
        assert log.start_offset in (promised.start, promised.start_maybe), (log, promised.start, promised.start_maybe)
        kept = [one for one in promised.batches if one[0].next_offset <= log.end_offset]
        end = kept[-1][0].next_offset if kept else promised.start
        assert log.end_offset == max(end, log.start_offset), f"{name}: appended up to {end}, found {log.end_offset}"
        assert read_all(log) == joined([one for one in kept if one[0].next_offset > log.start_offset]), name
        self.promised[name] = Promised(log.start_offset, log.flushed_offset, kept)

    def new_log(self, name: str, first_offset: int = 0) -> SegmentLog:
        return SegmentLog(f"{ROOT}/{name}", OPTIONS, self.files, first_offset, self.journal)

    # ---- steps ----------------------------------------------------------------------------------

    def step(self) -> None:
        name = self.random.choice(NAMES)
        can_change = not self.logs[name].is_fenced
        number = self.random.randrange(24)
        if number < 10:
            self.write_some()
        elif number < 12:
            if self.append(name):
                self.sync(name)
        elif number < 18 and can_change:
            change = self.random.choice([self.truncate, self.truncate, self.reset, self.roll, self.drop])
            change(name)
        elif number < 20:
            self.delete(name)
        elif number < 21:
            self.set_aside(name)
        elif number < 22 and can_change:
            self.logs[name].close(clean=self.random.random() < 0.5)
            self.promised[name].acked = max(self.promised[name].acked, self.logs[name].synced_offset)
            self.open(name)
        else:
            if number == 23:
                self.stop()
            self.end()
            self.begin()

    def maybe_fail(self, chance: float, path_part: str, *operations: str) -> None:
        """The disk refuses something, perhaps after a part of it."""
        if self.random.random() < chance:
            reason = self.random.choice((errno.ENOSPC, errno.EIO))
            operation = self.random.choice(operations)
            self.files.fail(operation, reason, path_part=path_part, partial_bytes=self.random.randint(0, 5000))

    def write_some(self) -> None:
        """A cycle of the writer."""
        names = [name for name in self.random.sample(NAMES, self.random.randint(1, 3)) if self.append(name)]
        self.maybe_fail(0.03, "journal-", "write", "sync")
        taken = self.journal.take([self.logs[name] for name in names])
        self.files.forget_faults()
        for name in names:
            if not taken:
                self.sync(name)
            self.promised[name].acked = self.logs[name].flushed_offset
        for log in self.journal.due(2):
            self.sync(log.name.rpartition("/")[2])

    def append(self, name: str) -> bool:
        log, promised = self.logs[name], self.promised[name]
        if log.is_fenced:
            return False
        self.batch_seed += 1
        size = self.random.choice((60, 60, 60, 300))
        batches = row(log.end_offset, self.random.randint(1, 4), size=size, seed=self.batch_seed)
        promised.batches = promised.batches + batches
        self.maybe_fail(0.08, f"/{name}/0", "write")
        try:
            log.append(batches)
        except (AppendFailed, LogFenced):
            promised.batches = [one for one in promised.batches if one[0].next_offset <= log.end_offset]
        self.files.forget_faults()
        return not log.is_fenced

    def sync(self, name: str) -> None:
        self.maybe_fail(0.04, f"/{name}/0", "sync")
        with suppress(LogFenced):
            self.logs[name].sync()
        self.files.forget_faults()
        self.promised[name].acked = self.logs[name].flushed_offset

    def truncate(self, name: str) -> None:
        log, promised = self.logs[name], self.promised[name]
        promised.cut_maybe = self.random.randint(log.start_offset, log.end_offset)
        self.maybe_fail(0.1, self.random.choice(("forgotten", f"/{name}")), "write", "sync", "sync_directory")
        try:
            log.truncate_suffix(Offset(promised.cut_maybe))
        except AppendFailed:
            assert log.end_offset == (promised.batches[-1][0].next_offset if promised.batches else log.start_offset)
        except LogFenced:
            self.end()
            self.begin()
            return
        promised.cut_maybe = None
        promised.batches = [one for one in promised.batches if one[0].next_offset <= log.end_offset]
        promised.acked = min(promised.acked, log.flushed_offset)

    def reset(self, name: str) -> None:
        offset = self.random.randint(0, 9)
        self.promised[name] = Promised(offset, offset, redo=partial(self._begin_anew, name, offset))
        self.logs[name].reset(Offset(offset))
        self.promised[name].redo = None

    def _begin_anew(self, name: str, offset: int) -> SegmentLog:
        remove_log_files(f"{ROOT}/{name}", self.files)
        return self.new_log(name, offset)

    def roll(self, name: str) -> None:
        self.logs[name].roll()
        self.promised[name].acked = self.logs[name].flushed_offset

    def drop(self, name: str) -> None:
        log, promised = self.logs[name], self.promised[name]
        ends = [one[0].next_offset for one in promised.batches]
        promised.start_maybe = self.random.choice(
            [log.start_offset, *(end for end in ends if log.start_offset <= end <= log.flushed_offset)]
        )
        log.drop_prefix(Offset(promised.start_maybe))
        promised.start, promised.start_maybe = log.start_offset, None

    def delete(self, name: str) -> None:
        """Delete a log, and make another one in its place."""
        self.promised[name] = Promised(redo=partial(self._make_again, name))
        self.maybe_fail(0.1, "forgotten", "write", "sync")
        self.logs[name].delete()
        self.files.forget_faults()
        self.open(name)

    def _make_again(self, name: str) -> SegmentLog:
        path = f"{ROOT}/{name}"
        if self.files.is_directory(path):
            for found in self.files.list(path):
                self.files.remove(f"{path}/{found}")
        return self.new_log(name)

    def set_aside(self, name: str) -> None:
        """Put the files of a log out of the way, and make another one in their place."""
        self.promised[name] = Promised(redo=partial(self._make_again, name))
        self.logs[name].close(clean=self.random.random() < 0.5)
        self.aside_count += 1
        self.files.rename(f"{ROOT}/{name}", f"{ROOT}/{name}.{self.aside_count}.lost")
        self.files.sync_directory(ROOT)
        self.open(name)

    def stop(self) -> None:
        """Shut down cleanly."""
        for name, log in self.logs.items():
            if not log.is_fenced:
                log.close()
                self.promised[name].acked = log.flushed_offset
        self.maybe_fail(0.2, "journal-", "write", "sync")
        self.journal.close()
        self.files.forget_faults()


@pytest.fixture(autouse=True)
def checkpoint_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small, so that each log has many checkpoints."""
    monkeypatch.setattr(segment_log, "CHECKPOINT_BYTES", 100)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_life_finds_what_the_lives_before_have_promised(part: int) -> None:
    for seed in range(part, LIVES, PARTS):
        try:
            Lives(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
