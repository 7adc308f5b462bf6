"""What only a log on disk has: opening without reading, files that go, readers beside the writer."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drmq.model import Offset
from drmq.records import iter_batches
from drmq.storage import LogCorrupt, LogOptions, OffsetOutOfRange, OsFiles, SegmentLog
from drmq.storage.walk import check
from drmq.testing.files import FakeFiles
from support.storage_samples import append, apply_retention, batch, joined, read_all, row

SMALL = LogOptions(segment_bytes=1024, index_interval_bytes=128)


class CountingFiles(OsFiles):
    """Counts what is opened and how much is read."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.read_bytes = 0
        self.reads = 0

    def open(self, path: str, *, create: bool = False) -> int:
        self.opened.append(os.path.basename(path))
        return super().open(path, create=create)

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        self.read_bytes += len(data)
        self.reads += 1
        return data


@pytest.mark.parametrize("clean", [True, False])
def test_opening_reads_nothing_of_sealed_segments(tmp_path: Path, clean: bool) -> None:
    path = f"{tmp_path}/log"
    log = SegmentLog(path, SMALL)
    append(log, 295, epoch=1)
    tail = f"{log._active.base_offset:020d}"
    log.close(clean)
    files = CountingFiles()
    log = SegmentLog(path, SMALL, files)
    assert log.recovery.was_clean == clean
    assert log.size_bytes == 295 * len(batch(0)[1])
    assert {name for name in files.opened if not name.startswith(tail)} <= {"flushed"}
    assert files.read_bytes < 2000
    append(log, 1, epoch=1)
    assert {name for name in files.opened if not name.startswith(tail)} <= {"flushed"}


def test_a_clean_opening_walks_only_what_follows_the_last_index_entry(tmp_path: Path) -> None:
    log = SegmentLog(f"{tmp_path}/log")
    append(log, 2000)
    log.close()
    log = SegmentLog(f"{tmp_path}/log")
    assert log.recovery.was_clean
    assert log.recovery.walked_bytes < 2 * 4096
    assert read_all(log) == joined(row(0, 2000))


def test_retention_reads_only_the_heads_of_indexes(tmp_path: Path) -> None:
    log = SegmentLog(f"{tmp_path}/log", SMALL)
    append(log, 300)
    log.close()
    files = CountingFiles()
    log = SegmentLog(f"{tmp_path}/log", SMALL, files)
    files.opened.clear()
    assert apply_retention(log, 1299, retention_ms=100) > 0
    assert not [name for name in files.opened if name.endswith(".log")]


def test_a_read_is_one_pread_whatever_the_number_of_batches(tmp_path: Path) -> None:
    files = CountingFiles()
    log = SegmentLog(f"{tmp_path}/log", LogOptions(), files)
    append(log, 5000, size=10)
    for offset in (0, 1, 700, 2500, 4999):
        for max_bytes in (100, 10_000, 200_000):
            files.reads = files.read_bytes = 0
            data = log.read(Offset(offset), max_bytes, Offset(4999 if offset < 4000 else 5000))
            assert data
            assert files.reads == 1
            assert files.read_bytes <= max_bytes + 4096 + 61


def test_the_hot_path_does_not_walk_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that may not block checks no checksum: bytes that this process wrote are trusted."""
    log = SegmentLog(f"{tmp_path}/log")
    batches = append(log, 5000, size=10)

    def never(*_: object) -> None:
        raise AssertionError("walked")

    monkeypatch.setattr("drmq.storage.segment.check", never)
    assert log.read(Offset(0), 100_000, log.flushed_offset, cached_only=True)
    with pytest.raises(AssertionError, match="walked"):
        log.read(Offset(0), 100_000, log.flushed_offset)
    assert check(joined(batches), 0, Offset(0)) is None  # type: ignore[func-returns-value]


def test_a_removed_segment_can_be_read_on_by_those_who_read_it(tmp_path: Path) -> None:
    log = SegmentLog(f"{tmp_path}/log", SMALL)
    batches = append(log, 40)
    headers = log.headers(Offset(0), Offset(40))
    found = [next(headers)]
    before = open_files()
    log.drop_prefix(Offset(30))
    with pytest.raises(OffsetOutOfRange):
        log.read(Offset(0), 300, log.flushed_offset)
    found += [next(headers), next(headers)]
    assert [header.base_offset for header, _ in found] == [header.base_offset for header, _ in batches[:3]]
    del headers
    assert open_files() < before


class Meanwhile(OsFiles):
    """Calls back when a file is opened, before it is: the moment in which another thread may act."""

    action: Callable[[], None] | None = None

    def open(self, path: str, *, create: bool = False) -> int:
        if self.action is not None:
            action, self.action = self.action, None
            action()
        return super().open(path, create=create)


def test_a_segment_that_goes_before_it_is_opened_is_out_of_range(tmp_path: Path) -> None:
    """Retention removes it between the moment a reader has chosen it and the moment it opens the file."""
    log = SegmentLog(f"{tmp_path}/log", SMALL)
    append(log, 40, epoch=2)
    log.close()

    def reopened() -> SegmentLog:
        files = Meanwhile()
        log = SegmentLog(f"{tmp_path}/log", SMALL, files)
        files.action = lambda: log.drop_prefix(Offset(log.start_offset + 10))
        return log

    with pytest.raises(OffsetOutOfRange):
        reopened().read(Offset(0), 300, Offset(40))
    assert list(reopened().epochs) == [(2, 20)]
    found = reopened().batch_at_time(1000, Offset(40))
    assert found is not None
    assert found.header.base_offset >= 20
    assert reopened().latest_time() == (1039, 39)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_closed_log_holds_no_files(tmp_path: Path) -> None:
    before = open_files()
    log = SegmentLog(f"{tmp_path}/log", SMALL)
    batches = append(log, 40)
    assert read_all(log) == joined(batches)
    log.close()
    assert open_files() == before
    assert log.size_bytes == 0 or log.end_offset == 40


def test_a_deleted_log_leaves_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        log = SegmentLog(f"{tmp_path}/topic/0", SMALL)
        append(log, 40)
        (tmp_path / "topic" / "0.deleted").mkdir(exist_ok=True)
        log.delete()
    assert os.listdir(tmp_path / "topic") == ["0.deleted"]


def test_files_have_the_documented_names(tmp_path: Path) -> None:
    log = SegmentLog(f"{tmp_path}/log", SMALL)
    append(log, 12)
    log.drop_prefix(Offset(1))
    log.close()
    assert sorted(os.listdir(tmp_path / "log")) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000010.index",
        "00000000000000000010.log",
        "flushed",
        "start",
    ]
    assert (tmp_path / "log" / "00000000000000000010.log").read_bytes() == joined(row(0, 12)[10:])


def test_records_without_a_timestamp_age_by_file_time() -> None:
    files = FakeFiles()
    log = SegmentLog("/log", LogOptions(segment_ms=500), files)
    files.now_ms = 10_000
    log.append([batch(0, timestamp=-1)])
    log.flush()
    assert apply_retention(log, 10_400, retention_ms=1000) == 0
    assert not log.maybe_roll(10_500)
    assert log.maybe_roll(10_501)
    assert apply_retention(log, 11_000, retention_ms=1000) == 0
    assert apply_retention(log, 11_001, retention_ms=1000) == 1


def test_a_corrupt_segment_without_an_index_ages_by_file_time() -> None:
    """Retention must be able to remove what cannot be read."""
    files = FakeFiles()
    log = SegmentLog("/log", SMALL, files)
    files.now_ms = 5000
    append(log, 40)
    log.close()
    files.remove(f"/log/{0:020d}.index")
    files.flip_bit(f"/log/{0:020d}.log", 70)
    log = SegmentLog("/log", SMALL, files)
    with pytest.raises(LogCorrupt):
        log.read(Offset(0), 100, log.flushed_offset)
    assert apply_retention(log, 5500, retention_ms=1000) == 0
    assert apply_retention(log, 9000, retention_ms=1000) == 4


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns fifty times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_readers_on_many_threads_see_only_whole_and_right_batches(tmp_path: Path) -> None:
    """Four readers run beside a writer that appends, rolls and drops; no reader sees a wrong byte."""
    log = SegmentLog(f"{tmp_path}/log", LogOptions(segment_bytes=16_384, index_interval_bytes=512))
    expected = {header.base_offset: data for header, data in row(0, 3000)}
    done = threading.Event()
    problems: list[Exception] = []
    batches_read = [0] * 4

    def read(reader: int) -> None:
        offset = 0
        try:
            while not (done.is_set() and offset >= 3000):
                up_to = log.flushed_offset
                try:
                    data = log.read(Offset(offset), 1000 * (reader + 1), up_to, cached_only=reader % 2 == 0)
                except OffsetOutOfRange as error:
                    offset = error.start_offset
                    continue
                for position, header in iter_batches(data or b""):
                    assert header.base_offset == offset
                    assert bytes(data or b"")[position : position + header.size] == expected[header.base_offset]
                    offset = header.next_offset
                    batches_read[reader] += 1
        except Exception as error:  # noqa: BLE001 - a thread's failure is told by the test
            problems.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    batches = row(0, 3000)
    for start in range(0, 3000, 10):
        log.append(batches[start : start + 10])
        log.flush()
        if start % 500 == 490:
            log.drop_prefix(Offset(start - 250))
    done.set()
    for thread in threads:
        thread.join(30)
    assert not problems, problems
    assert all(count > 100 for count in batches_read)
