"""The files and indexes that a node's logs have open are bounded, and no error of a write is lost by that."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from drmq.model import Offset
from drmq.storage import OS_FILES, Journal, Ledger, LedgerBase, Log, LogFenced, LogOptions, SegmentLog, Writer
from drmq.storage.file_pool import FilePool, Unloadable
from drmq.storage.files import make_directories
from drmq.storage.ledger import Ballot
from drmq.testing.files import FakeFiles
from support.storage_samples import append, joined, read_all, row

SMALL = LogOptions(segment_bytes=1024, index_interval_bytes=128)


def open_count(files: FakeFiles) -> int:
    return len(files._open)


def new_logs(files: FakeFiles, pool: FilePool, count: int, journal: Journal | None = None) -> list[SegmentLog]:
    return [SegmentLog(f"/data/{number}", SMALL, files, 0, journal, pool) for number in range(count)]


# Descriptors


def test_many_logs_and_ledgers_have_few_files_open() -> None:
    files = FakeFiles()
    pool = FilePool(files, open_files_max=8)
    logs = new_logs(files, pool, 50)
    ledgers = [Ledger.create(log.name, LedgerBase(0, 0, Offset(0), b""), files, pool) for log in logs]
    batches = [append(log, 30) for log in logs]
    for term, ledger in enumerate(ledgers):
        ledger.save_ballot(Ballot(term, 7))
        assert open_count(files) <= 8
    for log, expected in zip(logs, batches, strict=True):
        assert read_all(log) == joined(expected)
        assert open_count(files) <= 8
    for log in logs:
        log.truncate_suffix(Offset(20))
        log.drop_prefix(Offset(5))
        append(log, 3, seed=1)
        log.close()
    for ledger in ledgers:
        ledger.close()
    assert open_count(files) == 0
    again = new_logs(files, pool, 50)
    assert {(log.start_offset, log.end_offset) for log in again} == {(5, 23)}
    assert [Ledger.open(log.name, files, pool).ballot.term for log in again] == list(range(50))


def test_the_file_that_was_used_last_stays_open() -> None:
    files = FakeFiles()
    pool = FilePool(files, open_files_max=8)
    logs = new_logs(files, pool, 30)
    favourite = logs[0]
    append(favourite, 3)
    for log in logs[1:]:
        append(log, 3)
        opened = files.counts["open"]
        assert favourite.read(Offset(0), 100, Offset(3), cached_only=True) is not None
        assert files.counts["open"] == opened


def test_a_read_that_may_not_wait_opens_no_file() -> None:
    files = FakeFiles()
    pool = FilePool(files, open_files_max=1)
    log, other = new_logs(files, pool, 2)
    append(log, 3)
    append(other, 3)
    opened = files.counts["open"]
    assert log.read(Offset(0), 1000, Offset(3), cached_only=True) is None
    assert files.counts["open"] == opened
    assert log.read(Offset(0), 1000, Offset(3)) is not None
    assert log.read(Offset(0), 1000, Offset(3), cached_only=True) is not None


def test_a_failed_write_is_reported_though_many_other_files_were_used() -> None:
    """The kernel tells of it only to handles that were open at that time."""
    files = FakeFiles()
    pool = FilePool(files, open_files_max=4)
    log, *others = new_logs(files, pool, 30)
    append(log, 3, flush=False)
    for other in others:
        append(other, 3)
        read_all(other)
    files.fail_writeback(f"{log.name}/{0:020d}.log")
    with pytest.raises(LogFenced):
        log.flush()


def test_a_journaled_log_stays_open_until_it_is_synced() -> None:
    files = FakeFiles()
    make_directories(files, "/data")
    pool = FilePool(files, open_files_max=4)
    journal = Journal(files, "/data", "secret")
    log, *others = new_logs(files, pool, 30, journal)
    append(log, 3, flush=False)
    assert journal.take([log])
    for other in others:
        append(other, 3)
    files.fail_writeback(f"{log.name}/{0:020d}.log")
    with pytest.raises(LogFenced):
        log.sync()


def test_a_log_that_was_appended_to_during_a_sync_stays_open() -> None:
    files = FakeFiles()
    make_directories(files, "/data")
    pool = FilePool(files, open_files_max=4)
    journal = Journal(files, "/data", "secret")
    log, *others = new_logs(files, pool, 30, journal)
    append(log, 3, flush=False)
    assert journal.take([log])
    sync = log.begin_sync()
    assert sync is not None
    sync.run()
    append(log, 3, flush=False)
    assert journal.take([log])
    log.end_sync()
    assert log.synced_offset < log.flushed_offset
    for other in others:
        append(other, 3)
    files.fail_writeback(f"{log.name}/{0:020d}.log")
    with pytest.raises(LogFenced):
        log.sync()


def test_a_file_is_pinned_only_while_it_has_unsynced_bytes() -> None:
    files = FakeFiles()
    pool = FilePool(files)
    (log,) = new_logs(files, pool, 1)
    append(log, 3, flush=False)
    assert pool.pinned_count == 1
    log.flush()
    assert pool.pinned_count == 0
    append(log, 40, flush=False)
    assert pool.pinned_count == 1, "the sealed ones are synced"
    log.truncate_suffix(Offset(2))
    assert pool.pinned_count == 0
    files.fail("write", errno.ENOSPC, path_part=".log", partial_bytes=30)
    with pytest.raises(Exception, match="No space"):
        append(log, 3)
    assert pool.pinned_count == 0
    append(log, 3, flush=False)
    log.close(clean=False)
    assert pool.open_count == open_count(files) == 0


def test_without_descriptors_the_pool_gives_up_its_own() -> None:
    files = FakeFiles()
    pool = FilePool(files)
    logs = new_logs(files, pool, 10)
    batches = [append(log, 3) for log in logs]
    before = pool.open_count
    logs[0]._active.close()
    files.fail("open", errno.EMFILE, path_part="/data/0/")
    assert read_all(logs[0]) == joined(batches[0])
    assert pool.open_count < before


def test_an_append_without_descriptors_fails_and_leaves_the_log_usable() -> None:
    files = FakeFiles()
    pool = FilePool(files, open_files_max=1)
    log, other = new_logs(files, pool, 2)
    append(log, 3)
    append(other, 3)
    files.fail("open", errno.EMFILE, path_part=log.name, fail_count=2)
    with pytest.raises(Exception, match="Too many open files"):
        append(log, 3)
    assert not log.is_fenced
    append(log, 3)
    assert log.end_offset == 6


def test_files_are_opened_and_closed_beside_readers(tmp_path: Path) -> None:
    """A handle that is closed during a read would be an error, or the bytes of another file."""
    pool = FilePool(OS_FILES, open_files_max=2)
    logs = [SegmentLog(f"{tmp_path}/{number}", SMALL, pool=pool) for number in range(6)]
    expected = [joined(append(log, 60, seed=number)) for number, log in enumerate(logs)]
    problems: list[object] = []

    def read(turn: int) -> None:
        try:
            for number in range(60):
                which = (number * turn) % len(logs)
                if read_all(logs[which], max_bytes=300) != expected[which]:
                    problems.append(f"other bytes in {which}")
        except BaseException as error:  # noqa: BLE001 - reported below
            problems.append(error)

    threads = [threading.Thread(target=read, args=(turn,)) for turn in (1, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert pool.open_count <= 2
    assert len([1 for name in os.listdir("/proc/self/fd") if _points_to(name, tmp_path)]) <= 2


def _points_to(descriptor: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(path))
    except FileNotFoundError:
        return False


# The writer


class NoEvents:
    """Hears of everything, and notes what has failed."""

    def __init__(self) -> None:
        self.failures: list[object] = []

    def on_written(self, results: Sequence[tuple[Log, Offset]]) -> None:
        return

    def on_flushed(self, results: Sequence[tuple[Log, Offset]]) -> None:
        return

    def on_failed(self, log: Log, error: object, end_offset: Offset) -> None:
        self.failures.append(error)

    def on_crashed(self, error: object) -> None:
        self.failures.append(error)


class FewFiles(FakeFiles):
    """Refuses to open more files than a process may."""

    limit = 24

    def open(self, path: str, *, create: bool = False) -> int:
        if open_count(self) >= self.limit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create)


@pytest.mark.parametrize("with_journal", [True, False])
def test_a_cycle_that_appends_to_more_logs_than_files_may_be_open(with_journal: bool) -> None:
    files = FewFiles()
    make_directories(files, "/data")
    events = NoEvents()
    pool = FilePool(files, open_files_max=16)
    journal = Journal(files, "/data", "secret")
    journal.pinned_share = lambda: pool.pinned_share
    logs = new_logs(files, pool, 100, journal if with_journal else None)
    writer = Writer(events, sync_threads=1)
    writer.journal = journal if with_journal else None
    writer.logs_per_sync_max = 4
    for _ in range(3):
        for log in logs:
            for header, data in row(log.end_offset, 2):
                writer.submit(log, header, data)
        writer.run_cycle()
    assert events.failures == []
    assert {log.flushed_offset for log in logs} == {6}
    assert pool.open_count <= 16
    if with_journal:
        assert journal.record_count > 2, "the journal is used while there is room"


def test_a_journal_is_used_again_when_fewer_logs_are_unsynced() -> None:
    files = FakeFiles()
    make_directories(files, "/data")
    pool = FilePool(files, open_files_max=16)
    journal = Journal(files, "/data", "secret")
    journal.pinned_share = lambda: pool.pinned_share
    logs = new_logs(files, pool, 20, journal)
    for log in logs:
        append(log, 1, flush=False)
        if not journal.take([log]):
            log.sync()
    assert pool.pinned_count == 12
    append(logs[-1], 1, flush=False)
    assert not journal.take([logs[-1]])
    for _ in range(20):
        for due in journal.due(4):
            due.sync()
    assert pool.pinned_count < 7
    assert journal.take([logs[-1]])


# Indexes


def test_loaded_indexes_are_bounded_and_read_again() -> None:
    files = FakeFiles()
    pool = FilePool(files, index_bytes_max=1000)
    log = SegmentLog("/data/log", SMALL, files, pool=pool)
    batches = append(log, 400)
    assert pool.index_bytes <= 1000, "a segment that is sealed counts"
    log.close()
    assert pool.index_bytes == 0
    log = SegmentLog("/data/log", SMALL, files, pool=pool)
    for _ in range(2):
        assert read_all(log) == joined(batches)
        assert 0 < pool.index_bytes <= 1000
    sealed = [segment for segment in log._view.segments[:-1] if segment.index is not None]
    assert sum(len(segment.load()) * 16 for segment in sealed) == pool.index_bytes
    assert log.latest_time().base_offset == 399
    assert log.batch_at_time(1000, log.flushed_offset) is not None
    log.drop_prefix(Offset(399))
    log.close()
    assert pool.index_bytes == 0


class DroppingPool(FilePool):
    """Drops each index as soon as it is loaded, as another thread might."""

    def on_index_loaded(self, owner: Unloadable, size_bytes: int) -> None:
        super().on_index_loaded(owner, size_bytes)
        owner.unload()


def test_an_index_that_is_dropped_at_once_can_be_used_once() -> None:
    files = FakeFiles()
    log = SegmentLog("/data/log", SMALL, files)
    batches = append(log, 100)
    log.close()
    log = SegmentLog("/data/log", SMALL, files, pool=DroppingPool(files))
    assert read_all(log) == joined(batches)
    assert log.batch_at_time(1050, log.flushed_offset) is not None
    assert len(list(log.headers(Offset(0), Offset(100)))) == 100
    assert len(log.epochs) == 1
    log.truncate_suffix(Offset(50))
    append(log, 60, seed=2)
    assert log.latest_time().timestamp == 1059
