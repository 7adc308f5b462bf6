"""The writer thread: one sync for many appends, reports in order, failures that stay where they belong."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from drmq.model import Offset
from drmq.storage import (
    AppendFailed,
    Journal,
    Log,
    LogClosed,
    LogFenced,
    LogOptions,
    MemoryLog,
    SegmentLog,
    StorageError,
    Writer,
    WriterStopped,
)
from drmq.storage.journal import PAGE_BYTES
from drmq.testing.files import FakeFiles
from support.polling import eventually
from support.storage_samples import joined, read_all, row


class Recorder:
    """Writes down what the writer reports."""

    def __init__(self) -> None:
        self.story: list[tuple[Any, ...]] = []
        self.crashed = threading.Event()

    def on_written(self, results: list[tuple[Log, Offset]]) -> None:
        self.story.append(("written", *((log.name, offset) for log, offset in results)))

    def on_flushed(self, results: list[tuple[Log, Offset]]) -> None:
        self.story.append(("flushed", *sorted((log.name, offset) for log, offset in results)))

    def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None:
        self.story.append(("failed", log.name, type(error), end_offset))

    def on_crashed(self, error: BaseException) -> None:
        self.story.append(("crashed", type(error)))
        self.crashed.set()


def submit(writer: Writer, log: Log, start: int, count: int, wants_written: bool = False) -> None:
    for header, data in row(start, count):
        writer.submit(log, header, data, wants_written)


def make(files: FakeFiles, name: str = "a", options: LogOptions | None = None) -> SegmentLog:
    return SegmentLog(f"/{name}", options, files)


def test_many_appends_share_one_sync_and_one_write() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log = Writer(events), make(files)
    submit(writer, log, 0, 500)
    before = dict(files.counts)
    writer.run_cycle()
    assert files.counts["sync"] - before.get("sync", 0) == 1
    assert files.counts["write"] - before["write"] == 2  # the batches, and the flushed file
    assert events.story == [("flushed", ("/a", 500))]
    assert read_all(log) == joined(row(0, 500))


def test_written_is_reported_before_the_sync_and_only_where_asked() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log, other = Writer(events), make(files), make(files, "b")
    submit(writer, log, 0, 2, wants_written=True)
    submit(writer, other, 0, 3)
    files.fail("sync", path_part="/a/")
    writer.run_cycle()
    assert events.story == [
        ("written", ("/a", 2)),
        ("flushed", ("/b", 3)),
        ("failed", "/a", LogFenced, 0),
    ]


def test_each_log_is_synced_once_in_a_cycle_and_reported_together() -> None:
    files, events = FakeFiles(), Recorder()
    writer = Writer(events)
    logs = [make(files, f"log{number:02}") for number in range(16)]
    for start in range(3):
        for log in logs:
            submit(writer, log, start, 1)
    before = files.counts.get("sync", 0)
    writer.run_cycle()
    assert files.counts["sync"] - before == 16
    assert events.story == [("flushed", *((log.name, 3) for log in logs))]
    writer.stop()


def test_queued_bytes_count_what_waits() -> None:
    writer, log = Writer(Recorder()), MemoryLog()
    submit(writer, log, 0, 3)
    assert writer.queued_bytes == len(joined(row(0, 3)))
    writer.run_cycle()
    assert writer.queued_bytes == 0


def test_a_failed_append_is_reported_once_and_nothing_behind_it_is_taken() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log, other = Writer(events), make(files), make(files, "b")
    submit(writer, log, 0, 2)
    writer.run_cycle()
    files.fail("write", errno.EIO, path_part="/a/", partial_bytes=50)
    submit(writer, log, 2, 2)
    submit(writer, other, 0, 1)
    writer.run_cycle()
    submit(writer, log, 4, 2)  # the submitter does not know yet
    writer.run_cycle()
    assert events.story[1:] == [
        ("failed", "/a", AppendFailed, 2),
        ("flushed", ("/b", 1)),
    ]
    submit(writer, log, 6, 1)  # still not
    writer.resume(log)
    submit(writer, log, 2, 3)
    writer.run_cycle()
    assert events.story[-1] == ("flushed", ("/a", 5))
    assert read_all(log) == joined([*row(0, 2), *row(2, 3)])


def test_a_failed_sync_ends_one_log_and_no_other() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log, other = Writer(events), make(files), make(files, "b")
    files.fail("sync", path_part="/a/")
    submit(writer, log, 0, 1)
    submit(writer, other, 0, 1)
    writer.run_cycle()
    writer.resume(log)
    submit(writer, log, 0, 1)
    submit(writer, other, 1, 1)
    writer.run_cycle()
    assert events.story == [
        ("flushed", ("/b", 1)),
        ("failed", "/a", LogFenced, 0),
        ("flushed", ("/b", 2)),
        ("failed", "/a", LogFenced, 0),
    ]
    writer.stop()


def test_a_function_runs_in_order_with_the_appends_of_its_log() -> None:
    events = Recorder()
    writer, log, other = Writer(events), MemoryLog("a"), MemoryLog("b")
    submit(writer, log, 0, 2)
    submit(writer, other, 0, 1)
    seen = writer.run(log, lambda: log.end_offset)
    cut = writer.run(log, lambda: log.truncate_suffix(Offset(1)))
    submit(writer, log, 1, 5)
    failing = writer.run(log, lambda: 1 // 0)
    writer.run_cycle()
    assert seen.result(0) == 2
    assert cut.result(0) is None
    with pytest.raises(ZeroDivisionError):
        failing.result(0)
    assert (log.end_offset, other.end_offset) == (6, 1)


def test_what_a_function_flushes_is_reported() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log = Writer(events), make(files)
    submit(writer, log, 0, 2)
    writer.run(log, log.roll)
    writer.run_cycle()
    assert events.story == [("flushed", ("/a", 2))]


def test_no_acknowledgement_waits_for_a_job_that_stands_behind_it() -> None:
    events = Recorder()
    writer, log, other = Writer(events), MemoryLog("a"), MemoryLog("b")
    submit(writer, log, 0, 1)
    writer.run(log, lambda: events.story.append(("job", log.flushed_offset)))
    submit(writer, log, 1, 1)
    submit(writer, other, 0, 1)
    writer.run_cycle()
    assert events.story == [("flushed", ("a", 1), ("b", 1)), ("job", 1), ("flushed", ("a", 2))]
    writer.stop()


def test_what_an_append_flushes_on_its_way_is_reported() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log = Writer(events), make(files, options=LogOptions(segment_bytes=1024))
    files.fail("write", path_part=f"{10:020d}.log")
    submit(writer, log, 0, 15)
    writer.run_cycle()
    assert events.story == [("failed", "/a", AppendFailed, 10), ("flushed", ("/a", 10))]


def test_a_closed_log_fails_what_is_queued_behind() -> None:
    events = Recorder()
    writer, log = Writer(events), make(FakeFiles())
    submit(writer, log, 0, 2)
    writer.run(log, log.close)
    submit(writer, log, 2, 1)
    writer.run_cycle()
    assert events.story == [("flushed", ("/a", 2)), ("failed", "/a", LogClosed, 2)]


def test_the_thread_works_until_it_is_stopped_and_finishes_what_is_queued() -> None:
    events = Recorder()
    writer, log = Writer(events), MemoryLog("a")
    writer.start()
    for start in range(200):
        submit(writer, log, start, 1)
    assert writer.run(log, lambda: log.end_offset).result(10) == 200
    submit(writer, log, 200, 100)
    writer.stop()
    assert log.flushed_offset == 300
    assert events.story[-1] == ("flushed", ("a", 300))
    with pytest.raises(WriterStopped):
        submit(writer, log, 300, 1)
    with pytest.raises(WriterStopped):
        writer.run(log, lambda: None).result(0)
    writer.stop()


def test_a_bug_stops_the_writer_and_fails_everything_queued() -> None:
    events = Recorder()
    writer, log = Writer(events), MemoryLog("a")
    submit(writer, log, 7, 1)  # not the end of the log
    behind = writer.run(log, lambda: None)
    writer.start()
    assert events.crashed.wait(10)
    with pytest.raises(WriterStopped) as caught:
        behind.result(10)
    assert isinstance(caught.value.__cause__, AssertionError)
    assert events.story == [("crashed", AssertionError)]
    with pytest.raises(WriterStopped):
        submit(writer, log, 0, 1)
    writer.stop()


def test_a_cancelled_function_does_not_run() -> None:
    writer, log = Writer(Recorder()), MemoryLog("a")
    future = writer.run(log, lambda: log.append(row(0, 1)))
    assert future.cancel()
    writer.run_cycle()
    assert log.end_offset == 0
    with pytest.raises(CancelledError):
        future.result(0)


def test_many_logs_are_synced_in_parallel_by_real_threads() -> None:
    """Four syncs meet at a barrier: they could not, were they made one after the other."""
    files, events = FakeFiles(), Recorder()
    barrier = threading.Barrier(4)

    class Meeting(SegmentLog):
        def flush(self) -> None:
            barrier.wait(10)
            super().flush()

    logs = [Meeting(f"/log{number}", None, files) for number in range(4)]
    writer = Writer(events)
    for log in logs:
        submit(writer, log, 0, 1)
    writer.run_cycle()
    assert events.story == [("flushed", *((log.name, 1) for log in logs))]
    writer.stop()


def test_everything_before_a_function_is_synced_also_behind_another_function() -> None:
    """All in one cycle. After the report of the second function, everything queued before it is durable."""
    files, events = FakeFiles(), Recorder()
    writer, log = Writer(events), make(files)
    synced: list[Offset] = []
    for start in (0, 2, 4):
        submit(writer, log, start, 2)
        writer.run(log, lambda: synced.append(log.flushed_offset))
    writer.run_cycle()
    assert synced == [2, 4, 6]
    assert events.story == [("flushed", ("/a", 2)), ("flushed", ("/a", 4)), ("flushed", ("/a", 6))]


def test_what_stands_behind_a_failed_step_is_dropped_until_the_log_is_resumed() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log, other = Writer(events), make(files), make(files, "b")

    def fail() -> None:
        raise LogFenced("ledger", "no room")

    ran: list[str] = []
    submit(writer, log, 0, 1)
    failed = writer.run_step(log, fail)
    submit(writer, log, 1, 1)
    behind = writer.run_step(log, lambda: ran.append("step"))
    writer.run(log, lambda: ran.append("function"))
    submit(writer, other, 0, 1)
    writer.run_cycle()
    assert isinstance(failed.exception(), LogFenced)
    assert isinstance(behind.exception(), StorageError)
    assert ran == ["function"]
    assert (log.end_offset, other.end_offset) == (1, 1)
    submit(writer, log, 1, 1)
    writer.run_cycle()
    assert log.end_offset == 1
    writer.resume(log)
    submit(writer, log, 1, 1)
    writer.run_cycle()
    assert log.end_offset == 2


def test_no_step_runs_behind_a_failed_append() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log = Writer(events), make(files)
    files.fail("write", errno.ENOSPC, path_part="/a")
    submit(writer, log, 0, 1)
    ran: list[str] = []
    step = writer.run_step(log, lambda: ran.append("step"))
    writer.run_cycle()
    assert isinstance(step.exception(), StorageError)
    assert ran == []


def test_a_failed_function_that_is_no_step_stops_nothing() -> None:
    files, events = FakeFiles(), Recorder()
    writer, log = Writer(events), make(files)

    def fail() -> None:
        raise LogFenced("snapshot", "no room")

    writer.run(log, fail)
    submit(writer, log, 0, 1)
    writer.run_cycle()
    assert log.end_offset == 1


class Counter:
    """Lets a test wait for what a real thread reports."""

    def __init__(self) -> None:
        self.reports: list[Offset] = []
        self._changed = threading.Condition()

    def on_written(self, results: list[tuple[Log, Offset]]) -> None: ...

    def on_flushed(self, results: list[tuple[Log, Offset]]) -> None:
        with self._changed:
            self.reports += [offset for _, offset in results]
            self._changed.notify()

    def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None: ...

    def on_crashed(self, error: BaseException) -> None: ...

    def wait_for(self, offset: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: offset in self.reports, timeout=20), (offset, self.reports[-1:])


def test_the_thread_wakes_for_each_batch_however_soon_it_comes() -> None:
    """An item that is queued just as the thread goes to sleep would wait for the next one, or for ever."""
    events = Counter()
    writer, log = Writer(events), MemoryLog("a")
    writer.start()
    for offset, (header, data) in enumerate(row(0, 3_000)):
        writer.submit(log, header, data)
        events.wait_for(offset + 1)
    writer.stop()
    assert len(events.reports) == 3_000


def test_what_is_queued_while_the_thread_is_held_shares_a_sync() -> None:
    events = Counter()
    writer, log, other = Writer(events), MemoryLog("a"), MemoryLog("b")
    writer.start()
    writer.run(other, lambda: None).result(timeout=20)
    writer.hold()
    writer.hold()
    submit(writer, log, 0, 100)
    writer.release()
    submit(writer, log, 100, 100)
    assert writer.has_work
    writer.release()
    events.wait_for(200)
    writer.stop()
    assert events.reports == [200]


def test_a_writer_that_is_held_can_be_stopped() -> None:
    events = Counter()
    writer, log = Writer(events), MemoryLog("a")
    writer.start()
    writer.hold()
    submit(writer, log, 0, 10)
    writer.stop()
    assert log.flushed_offset == 10


def journaled(
    names: str, pages: int = 5, files: FakeFiles | None = None, sync_threads: int = 1
) -> tuple[FakeFiles, Recorder, Writer, list[SegmentLog]]:
    """A writer without a thread, with a small journal and some logs."""
    files, events = files or FakeFiles(), Recorder()
    files.make_directory("/data")
    writer = Writer(events, sync_threads)
    writer.journal = Journal(files, "/data", "secret", pages * PAGE_BYTES)
    logs = [SegmentLog(f"/data/{name}", None, files, journal=writer.journal) for name in names]
    return files, events, writer, logs


def test_with_a_journal_one_sync_is_for_all_logs() -> None:
    files, events, writer, logs = journaled("abc", pages=500)
    before = files.counts["sync"]
    for log in logs:
        submit(writer, log, 0, 2)
    writer.run_cycle()
    assert files.counts["sync"] == before + 1
    assert events.story == [("flushed", ("/data/a", 2), ("/data/b", 2), ("/data/c", 2))]
    assert [log.synced_offset for log in logs] == [0, 0, 0]


def test_logs_are_synced_behind_the_journal_and_without_it_at_once() -> None:
    files, events, writer, (first, second) = journaled("ab")
    submit(writer, first, 0, 1)
    writer.run_cycle()
    for number in range(20):
        submit(writer, second, number, 1)
        writer.run_cycle()
        assert second.flushed_offset == number + 1
    # The file that `first` is in was full long ago, and has been begun anew since.
    assert first.synced_offset == 1
    assert second.synced_offset > 10
    files.fail("sync", errno.EIO, path_part="journal")
    submit(writer, second, 20, 1)
    writer.run_cycle()
    assert second.synced_offset == 21
    assert ("failed", "/data/b") not in [one[:2] for one in events.story]


def test_a_log_that_cannot_be_synced_behind_the_journal_is_reported_once() -> None:
    files, events, writer, (first, second) = journaled("ab")
    submit(writer, first, 0, 1)
    files.fail("sync", errno.EIO, path_part="/data/a/")
    for number in range(20):
        submit(writer, second, number, 1)
        writer.run_cycle()
    assert [one for one in events.story if one[0] == "failed"] == [("failed", "/data/a", LogFenced, 1)]
    assert second.flushed_offset == 20


class StuckFiles(FakeFiles):
    """A disk that takes its time over the syncs of one log."""

    def __init__(self, stuck: str) -> None:
        super().__init__()
        self.stuck = stuck
        self.is_syncing, self.may_end = threading.Event(), threading.Event()
        self._paths: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        handle = super().open(path, create=create)
        self._paths[handle] = path
        return handle

    def sync(self, handle: int) -> None:
        if self._paths[handle].startswith(self.stuck):
            self.is_syncing.set()
            assert self.may_end.wait(10)
        super().sync(handle)


def test_no_acknowledgement_waits_for_a_log_that_is_synced_behind_the_journal() -> None:
    files = StuckFiles("/data/a/")
    _, events, writer, (log,) = journaled("a", pages=500, files=files, sync_threads=4)
    count = 0
    while not files.is_syncing.wait(0.01):
        submit(writer, log, count, 1)
        writer.run_cycle()
        count += 1
    for number in range(5):
        submit(writer, log, count + number, 1)
        writer.run_cycle()
    assert log.flushed_offset == count + 5
    assert log.synced_offset == 0
    files.may_end.set()
    writer.stop()
    log.close()
    assert log.synced_offset == count + 5
    assert [one for one in events.story if one[0] == "failed"] == []


def test_what_fails_in_the_background_is_reported_by_a_writer_that_has_nothing_else_to_do() -> None:
    files = StuckFiles("/data/a/")
    _, events, writer, (log,) = journaled("a", pages=500, files=files, sync_threads=4)
    failed = threading.Event()
    writer.start()
    count = 0
    while not files.is_syncing.wait(0.01):
        submit(writer, log, count, 1)
        count += 1
    assert writer.run(log, lambda: log.flushed_offset).result(10) == count
    on_failed = events.on_failed

    def tell(log: Log, error: StorageError, end_offset: Offset) -> None:
        on_failed(log, error, end_offset)
        failed.set()

    events.on_failed = tell  # type: ignore[method-assign]
    files.fail("sync", errno.EIO, path_part="/data/a/")
    files.may_end.set()
    assert failed.wait(10)
    assert events.story[-1] == ("failed", "/data/a", LogFenced, count)
    writer.stop()


def test_what_a_job_is_told_of_a_sync_in_the_background_is_reported_too() -> None:
    """A job that needs the log synced meets the failure first, and may keep it to itself."""
    files, events, writer, (log,) = journaled("a", pages=500)
    submit(writer, log, 0, 1)
    writer.run_cycle()
    writer._syncing[log] = log.begin_sync()  # type: ignore[assignment]
    files.fail("sync", errno.EIO, path_part="/data/a/")
    job = writer.run(log, log.roll)
    writer.run_cycle()
    with pytest.raises(LogFenced):
        job.result(0)
    assert events.story[-1] == ("failed", "/data/a", LogFenced, 1)
    writer.run_cycle()
    assert len([one for one in events.story if one[0] == "failed"]) == 1


def test_a_bug_in_the_background_ends_the_writer() -> None:
    _, events, writer, (log,) = journaled("a", pages=5, sync_threads=4)
    assert writer.journal is not None

    def fail() -> None:
        raise AssertionError

    writer.journal.begin_lengthening = lambda: fail  # type: ignore[method-assign]
    submit(writer, log, 0, 1)
    assert writer.run_cycle()
    eventually(lambda: writer._background_error)
    assert not writer.run_cycle()
    assert events.story[-1] == ("crashed", AssertionError)
    writer.stop()


def test_a_writer_works_without_the_journal_that_could_not_be_made() -> None:
    files = FakeFiles()
    files.fail("create", errno.ENOSPC, path_part="journal-1")
    _, events, writer, (log,) = journaled("a", files=files)
    submit(writer, log, 0, 2)
    assert writer.run_cycle()
    assert events.story == [("flushed", ("/data/a", 2))]
    assert log.synced_offset == 2
