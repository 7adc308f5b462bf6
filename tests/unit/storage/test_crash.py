"""The power goes at every single step of a scripted run, and everything acknowledged is there again.

Each run is repeated with the power cut at its first change to the disk, its second, and so on, until
the script ends before the cut. For each cut, several seeds decide what becomes of unsynced changes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from drmq.model import Offset
from drmq.storage import DiskFull, Log, LogFenced, LogOptions, SegmentLog, SnapshotStore, segment_log
from drmq.testing.files import FakeFiles, PowerCut
from support.storage_samples import Batch, apply_retention, batch, joined, read_all, row

OPTIONS = LogOptions(segment_bytes=1024, index_interval_bytes=128)
PATH = "/data/topics/log"
SEEDS = range(6)


@pytest.fixture(autouse=True, params=[segment_log.CHECKPOINT_BYTES, 100], ids=["", "checkpoints"])
def checkpoint_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything also with checkpoints in segments that are as small as these."""
    monkeypatch.setattr(segment_log, "CHECKPOINT_BYTES", request.param)


class Promises:
    """What the log has answered for, as its user saw it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        """Everything appended, whether durable or not."""
        self.flushed = 0
        self.start = 0
        self.start_maybe = 0
        """A start that was asked for and not yet confirmed."""
        self.cut_maybe: int | None = None
        """A truncation that was asked for and not yet confirmed."""

    def check(self, log: Log) -> None:
        floor = self.flushed if self.cut_maybe is None else min(self.flushed, self.cut_maybe)
        assert log.end_offset >= floor, f"acknowledged up to {floor}, found {log.end_offset}"
        assert log.flushed_offset == log.end_offset
        assert self.start <= log.start_offset <= max(self.start, self.start_maybe)
        kept = [one for one in self.batches if log.start_offset < one[0].next_offset <= log.end_offset]
        assert read_all(log) == joined(kept)

    def append(self, log: Log, batch_count: int, **options: int) -> None:
        batches = row(log.end_offset, batch_count, **options)
        self.batches = [one for one in self.batches if one[0].base_offset < log.end_offset] + batches
        log.append(batches)

    def flush(self, log: Log) -> None:
        log.flush()
        self.flushed = log.flushed_offset

    def drop(self, log: Log, offset: int) -> None:
        self.start_maybe = offset
        log.drop_prefix(Offset(offset))
        self.start = offset

    def retain(self, log: Log, retention_bytes: int) -> None:
        self.start_maybe = log.flushed_offset
        apply_retention(log, 0, retention_bytes=retention_bytes)
        self.start, self.flushed = log.start_offset, log.flushed_offset

    def truncate(self, log: Log, offset: int) -> None:
        self.cut_maybe = offset
        log.truncate_suffix(Offset(offset))
        self.cut_maybe = None
        self.flushed = min(self.flushed, log.flushed_offset)


Script = Callable[[FakeFiles, Promises], None]


def script_appends(files: FakeFiles, promises: Promises) -> None:
    log = SegmentLog(PATH, OPTIONS, files)
    for number in range(12):
        promises.append(log, 1 + number % 5, size=30 + 17 * number, count=2)
        if number % 3:
            promises.flush(log)
    log.close()
    promises.flushed = log.flushed_offset
    log = SegmentLog(PATH, OPTIONS, files)
    promises.append(log, 2)
    promises.flush(log)


def script_shortens(files: FakeFiles, promises: Promises) -> None:
    log = SegmentLog(PATH, OPTIONS, files)
    promises.append(log, 40)
    promises.flush(log)
    promises.drop(log, 13)
    promises.truncate(log, 35)
    promises.append(log, 4, seed=1)
    promises.flush(log)
    promises.truncate(log, 15)
    promises.append(log, 30, seed=2)
    promises.flush(log)
    promises.retain(log, 700)
    promises.append(log, 3, seed=3)
    promises.drop(log, log.flushed_offset)
    promises.flush(log)
    log.close()


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


@pytest.mark.parametrize("script", [script_appends, script_shortens])
def test_nothing_acknowledged_is_lost_by_a_power_cut_at_any_step(script: Script) -> None:
    for files, promises in runs(script):
        for seed in SEEDS:
            check_and_go_on(files.after_power_cut(seed), promises, seed)


@pytest.mark.parametrize("script", [script_appends, script_shortens])
def test_nothing_acknowledged_is_lost_when_the_process_dies_first_and_the_power_goes_later(script: Script) -> None:
    for files, promises in runs(script):
        check_and_go_on(files.after_kill(), promises, seed=5)


def check_and_go_on(disk: FakeFiles, promises: Promises, seed: int) -> None:
    """The log is as promised, accepts appends, and keeps these too."""
    log = SegmentLog(PATH, OPTIONS, disk)
    promises.check(log)
    later = Promises()
    later.batches, later.start, later.start_maybe = promises.batches, log.start_offset, log.start_offset
    later.append(log, 3, seed=99)
    later.flush(log)
    for second_seed in range(seed, seed + 2):
        later.check(SegmentLog(PATH, OPTIONS, disk.after_power_cut(second_seed)))


def test_a_crash_while_recovering_is_recovered_from() -> None:
    files, promises = FakeFiles(), Promises()
    log = SegmentLog(PATH, OPTIONS, files)
    promises.append(log, 5)
    promises.flush(log)
    promises.append(log, 6, size=100)
    for seed in SEEDS:
        crash_at = 0
        while True:
            crash_at += 1
            disk = files.after_power_cut(seed)
            disk.crash_at = crash_at
            try:
                SegmentLog(PATH, OPTIONS, disk)
            except PowerCut:
                promises.check(SegmentLog(PATH, OPTIONS, disk.after_power_cut(seed)))
            else:
                break
        assert crash_at > 2


def test_a_deletion_cut_short_leaves_the_whole_log_or_none_of_it() -> None:
    outcomes = set()
    for crash_at in range(1, 200):
        files = FakeFiles()
        log = SegmentLog(PATH, OPTIONS, files)
        batches = row(0, 40)
        log.append(batches)
        log.flush()
        files.crash_at = files.step + crash_at
        try:
            log.delete()
        except PowerCut:
            pass
        else:
            assert files.list("/data/topics") == []
            break
        for seed in SEEDS:
            disk = files.after_power_cut(seed)
            outcomes.add(disk.is_directory(PATH))
            if disk.is_directory(PATH):
                assert read_all(SegmentLog(PATH, OPTIONS, disk)) == joined(batches)
    assert outcomes == {True, False}


def test_a_snapshot_is_there_whole_or_not_at_all() -> None:
    for crash_at in range(1, 100):
        files = FakeFiles(crash_at=crash_at)
        store = SnapshotStore("/data/snapshots", files)
        saved = -1
        try:
            for offset in range(4):
                store.save("producers", Offset(offset), b"state %d" % offset * 100)
                saved = offset
        except PowerCut:
            pass
        else:
            break
        for seed in SEEDS:
            found = SnapshotStore("/data/snapshots", files.after_power_cut(seed)).load_latest("producers")
            if saved >= 0:
                assert found is not None
            if found is not None:
                assert found.offset in (saved, saved + 1)
                assert found.payload == b"state %d" % found.offset * 100
    assert crash_at > 10


def test_what_a_failed_sync_left_is_not_taken_for_stored() -> None:
    """The process is restarted, not the machine: the page cache shows the batch, and takes it for written."""
    for seed in range(20):
        files = FakeFiles()
        log = SegmentLog(PATH, OPTIONS, files)
        log.append(row(0, 1))
        log.flush()
        log.append(row(1, 1))
        files.fail("sync", path_part=".log")
        with pytest.raises(LogFenced):
            log.flush()
        again = files.after_kill()
        log = SegmentLog(PATH, OPTIONS, again)
        assert log.flushed_offset == 2
        assert SegmentLog(PATH, OPTIONS, again.after_power_cut(seed)).end_offset == 2


def test_what_a_failed_write_left_is_not_at_the_end_of_a_sealed_segment() -> None:
    """Recovery does not walk that segment. A reader would find bytes after its last batch."""
    for seed in range(20):
        files = FakeFiles()
        log = SegmentLog(PATH, OPTIONS, files)
        log.append(row(0, 2))
        log.flush()
        files.fail("write", errno.ENOSPC, path_part=".log", partial_bytes=50)
        with pytest.raises(DiskFull):
            log.append(row(2, 1))
        log.roll()
        log.append(row(2, 1))
        log.flush()
        assert read_all(SegmentLog(PATH, OPTIONS, files.after_power_cut(seed))) == joined(row(0, 2) + row(2, 1))


def test_an_index_of_what_was_cut_does_not_come_back() -> None:
    """What is appended then has the same end and size, and its batches are at other places."""
    options = LogOptions(index_interval_bytes=64)
    new = [batch(offset, size=size, seed=2) for offset, size in enumerate((200, 60, 40))]
    for seed in range(20):
        files = FakeFiles()
        log = SegmentLog(PATH, options, files)
        log.append([batch(offset, size=size, seed=1) for offset, size in enumerate((60, 200, 40))])
        log.close()
        for name in files.list(PATH):
            handle = files.open(f"{PATH}/{name}")
            files.sync(handle)
            files.close(handle)
        files.sync_directory(PATH)
        log = SegmentLog(PATH, options, files)
        log.truncate_suffix(Offset(0))
        log.append(new)
        log.close()
        assert read_all(SegmentLog(PATH, options, files.after_power_cut(seed)), max_bytes=1) == joined(new)
