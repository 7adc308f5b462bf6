"""Flipped bits, missing files, full and failing disks: what is found, what is repaired, what is refused."""

from __future__ import annotations

import errno
import logging

import pytest

from drmq.model import Offset
from drmq.storage import AppendFailed, DiskFull, LogCorrupt, LogFenced, LogOptions, SegmentLog
from drmq.testing.files import FakeFiles
from support.storage_samples import append, batch, joined, read_all, row

OPTIONS = LogOptions(segment_bytes=1024, index_interval_bytes=128)
ONE_SEGMENT = LogOptions(index_interval_bytes=128)
PATH = "/data/log"
FIRST = f"{PATH}/{0:020d}"


def sealed_log(files: FakeFiles) -> bytes:
    """A log of several segments, closed cleanly; returns its content."""
    log = SegmentLog(PATH, OPTIONS, files)
    batches = append(log, 60, epoch=3)
    log.close()
    return joined(batches)


def test_a_flipped_bit_anywhere_in_an_index_is_repaired() -> None:
    reference = FakeFiles()
    content = sealed_log(reference)
    size = len(reference.content(f"{FIRST}.index"))
    for position in range(size):
        files = FakeFiles()
        sealed_log(files)
        good = files.content(f"{FIRST}.index")
        files.flip_bit(f"{FIRST}.index", position, position % 8)
        log = SegmentLog(PATH, OPTIONS, files)
        assert read_all(log) == content
        assert list(log.epochs) == [(3, 0)]
        assert log.latest_time() == (1059, 59)
        # Rebuilt with the default interval, or read: in both cases sound again.
        assert len(files.content(f"{FIRST}.index")) <= len(good)


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "foreign"])
def test_a_missing_or_cut_index_is_built_again(damage: str) -> None:
    files = FakeFiles()
    content = sealed_log(files)
    for name in files.list(PATH):
        if name.endswith(".index"):
            good = files.content(f"{PATH}/{name}")
            if damage == "missing":
                files.remove(f"{PATH}/{name}")
            else:
                replacement = {"empty": b"", "short": good[:-1], "foreign": files.content(f"{FIRST}.index")}[damage]
                files.replace_content(f"{PATH}/{name}", replacement)
    log = SegmentLog(PATH, OPTIONS, files)
    assert read_all(log) == content
    assert log.latest_time() == (1059, 59)
    assert read_all(SegmentLog(PATH, OPTIONS, files.after_kill()), cached_only=False) == content


def test_an_unreadable_flushed_file_costs_a_walk_and_nothing_else() -> None:
    reference = FakeFiles()
    content = sealed_log(reference)
    for position in range(len(reference.content(f"{PATH}/flushed"))):
        files = FakeFiles()
        sealed_log(files)
        files.flip_bit(f"{PATH}/flushed", position, 3)
        log = SegmentLog(PATH, OPTIONS, files)
        assert read_all(log) == content
        assert not log.recovery.was_clean


def test_a_damaged_start_file_is_refused() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    append(log, 9)
    log.drop_prefix(Offset(4))
    files.flip_bit(f"{PATH}/start", 9)
    with pytest.raises(LogCorrupt, match="start"):
        SegmentLog(PATH, OPTIONS, files)


def test_a_flipped_bit_in_sealed_data_is_found_by_the_first_read_that_meets_it() -> None:
    """Even when the page cache already holds it, since no read that may not block serves unchecked bytes."""
    size = len(batch(0)[1])
    unnoticed = {12, 13, 14, 15}  # the leader epoch lies outside the checksum
    for at in range(size):
        if at in unnoticed:
            continue
        files = FakeFiles()
        sealed_log(files)
        files.flip_bit(f"{FIRST}.log", size + at, at % 8)
        log = SegmentLog(PATH, OPTIONS, files)
        assert log.read(Offset(5), 1, log.flushed_offset), "this loads the index and warms the cache"
        assert log.read(Offset(0), 1000, log.flushed_offset, cached_only=True) is None
        with pytest.raises(LogCorrupt) as caught:
            read_all(log)
        assert caught.value.path == f"{FIRST}.log"
        assert caught.value.position in (0, size)
        assert read_all(log, start=40)


def test_trust_comes_with_the_first_check() -> None:
    files = FakeFiles()
    content = sealed_log(files)
    log = SegmentLog(PATH, OPTIONS, files)
    assert log.read(Offset(0), 300, log.flushed_offset, cached_only=True) is None
    assert read_all(log) == content
    assert read_all(log, cached_only=True) == content
    fresh = append(log, 30, seed=1)
    assert read_all(log, start=60, cached_only=True) == joined(fresh)


def test_nothing_is_served_from_a_cache_that_does_not_hold_it() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, ONE_SEGMENT, files)
    batches = append(log, 60)
    files.drop_caches()
    assert log.read(Offset(5), 1000, log.flushed_offset, cached_only=True) is None
    assert read_all(log) == joined(batches)
    assert log.read(Offset(5), 1, log.flushed_offset, cached_only=True) == batches[5][1]


class Crashed:
    """A log whose process was killed: 10 batches flushed, 5 more only written."""

    def __init__(self) -> None:
        self.files = FakeFiles()
        log = SegmentLog(PATH, ONE_SEGMENT, self.files)
        self.batches = append(log, 10)
        self.batches += append(log, 5, flush=False)
        self.size = len(self.batches[0][1])
        self.disk = self.files.after_kill()

    def open(self) -> SegmentLog:
        return SegmentLog(PATH, ONE_SEGMENT, self.disk)


@pytest.mark.parametrize("number", range(10))
def test_damage_before_the_flushed_offset_is_refused_and_nothing_is_changed(number: int) -> None:
    for at in (0, 7, 8, 11, 16, 17, 20, 21, 60, 100):
        crashed = Crashed()
        crashed.disk.flip_bit(f"{FIRST}.log", number * crashed.size + at)
        before = crashed.disk.content(f"{FIRST}.log")
        with pytest.raises(LogCorrupt) as caught:
            crashed.open()
        assert (caught.value.path, caught.value.position, caught.value.offset) == (
            f"{FIRST}.log",
            number * crashed.size,
            number,
        )
        assert crashed.disk.content(f"{FIRST}.log") == before


@pytest.mark.parametrize("number", range(10, 15))
def test_damage_after_the_flushed_offset_is_cut(number: int) -> None:
    crashed = Crashed()
    crashed.disk.flip_bit(f"{FIRST}.log", number * crashed.size + 70)
    removed = crashed.disk.content(f"{FIRST}.log")[number * crashed.size :]
    log = crashed.open()
    assert read_all(log) == joined(crashed.batches[:number])
    assert log.recovery.cut_bytes == len(removed)
    if number < 14:
        # Sound batches follow the bad one: the bytes are kept, and it is said.
        assert log.recovery.cut_path is not None
        assert crashed.disk.content(log.recovery.cut_path) == removed
    else:
        assert log.recovery.cut_path is None
    again = append(log, 3, seed=4)
    assert read_all(log) == joined([*crashed.batches[:number], *again])


def test_kept_bytes_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    crashed = Crashed()
    crashed.disk.flip_bit(f"{FIRST}.log", 11 * crashed.size + 70)
    with caplog.at_level(logging.ERROR):
        crashed.open()
    assert "kept in" in caplog.text


@pytest.mark.parametrize("cut", [1, 12, 60, 61, 100])
def test_a_torn_last_batch_is_cut(cut: int) -> None:
    crashed = Crashed()
    content = crashed.disk.content(f"{FIRST}.log")
    crashed.disk.replace_content(f"{FIRST}.log", content[: 14 * crashed.size + cut])
    log = crashed.open()
    assert (log.end_offset, log.recovery.cut_bytes, log.recovery.cut_path) == (14, cut, None)


@pytest.mark.parametrize("zeros", [1, 61, 512, 100_000])
def test_zero_bytes_are_no_batch(zeros: int) -> None:
    crashed = Crashed()
    content = crashed.disk.content(f"{FIRST}.log")
    crashed.disk.replace_content(f"{FIRST}.log", content + bytes(zeros))
    log = crashed.open()
    assert (log.end_offset, log.recovery.cut_bytes, log.recovery.cut_path) == (15, zeros, None)


def test_a_stale_batch_with_the_wrong_offset_is_not_taken() -> None:
    crashed = Crashed()
    content = crashed.disk.content(f"{FIRST}.log")
    crashed.disk.replace_content(f"{FIRST}.log", content + batch(3)[1])
    assert crashed.open().end_offset == 15


def test_a_log_that_ends_before_the_flushed_offset_is_refused() -> None:
    crashed = Crashed()
    crashed.disk.replace_content(f"{FIRST}.log", joined(crashed.batches[:9]))
    with pytest.raises(LogCorrupt, match="flushed up to offset 10"):
        crashed.open()


def test_missing_segments_are_refused() -> None:
    files = FakeFiles()
    sealed_log(files)
    last = max(name for name in files.list(PATH) if name.endswith(".log"))
    files.remove(f"{PATH}/{last}")
    with pytest.raises(LogCorrupt):
        SegmentLog(PATH, OPTIONS, files)
    for name in files.list(PATH):
        if name.endswith(".log"):
            files.remove(f"{PATH}/{name}")
    with pytest.raises(LogCorrupt, match="all segments are missing"):
        SegmentLog(PATH, OPTIONS, files)


def test_a_missing_first_segment_is_noticed_once_a_start_is_known() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    append(log, 60)
    log.drop_prefix(Offset(3))
    files.remove(f"{FIRST}.log")
    with pytest.raises(LogCorrupt, match="missing"):
        SegmentLog(PATH, OPTIONS, files.after_kill())


def test_segments_below_the_start_are_removed_at_opening() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    append(log, 60)
    content = files.content(f"{FIRST}.log")
    log.drop_prefix(Offset(40))
    assert not files.exists(f"{FIRST}.log")
    files.close(files.open(f"{FIRST}.log", create=True))
    files.replace_content(f"{FIRST}.log", content)
    files = files.after_kill()
    log = SegmentLog(PATH, OPTIONS, files)
    assert log.start_offset == 40
    assert not files.exists(f"{FIRST}.log")


# Failing calls


def test_a_full_disk_leaves_the_log_as_it_was_and_usable() -> None:
    for partial_bytes in (0, 1, 61, 101, 150):
        files = FakeFiles()
        log = SegmentLog(PATH, ONE_SEGMENT, files)
        kept = append(log, 3)
        files.fail("write", errno.ENOSPC, path_part=".log", partial_bytes=partial_bytes)
        with pytest.raises(DiskFull):
            log.append(row(3, 4, seed=1, epoch=9, timestamp=99999))
        assert (log.end_offset, list(log.epochs), log.latest_time()) == (3, [(0, 0)], (1002, 2))
        assert files.content(f"{FIRST}.log") == joined(kept)
        assert read_all(log) == joined(kept)
        kept += append(log, 4, seed=2)
        assert read_all(log) == joined(kept)
        assert read_all(SegmentLog(PATH, ONE_SEGMENT, files.after_power_cut(0))) == joined(kept)


def test_a_log_grows_again_when_there_is_space() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    kept = append(log, 5)
    files.capacity_bytes = 1200
    kept += append(log, 5)
    with pytest.raises(DiskFull):
        append(log, 6)
    assert read_all(log) == joined(kept)
    files.capacity_bytes = 1 << 20
    kept += append(log, 40)
    assert read_all(log) == joined(kept)


def test_a_failed_roll_can_be_repeated() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    kept = append(log, 5)
    files.fail("create", errno.ENOSPC, path_part=".log")
    with pytest.raises(DiskFull):
        log.roll()
    log.roll()
    kept += append(log, 5)
    assert log.segment_count == 2
    assert read_all(SegmentLog(PATH, OPTIONS, files.after_power_cut(0))) == joined(kept)


def test_an_append_that_fails_after_a_roll_keeps_what_came_before() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    files.fail("write", errno.EIO, path_part=f"{10:020d}.log")
    with pytest.raises(AppendFailed):
        log.append(row(0, 15))
    assert (log.flushed_offset, log.end_offset) == (10, 10)
    assert read_all(log) == joined(row(0, 10))


def test_a_failed_sync_fences_the_log_for_good() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, ONE_SEGMENT, files)
    kept = append(log, 3)
    log.append(row(3, 2))
    files.fail("sync", path_part=".log")
    with pytest.raises(LogFenced):
        log.flush()
    assert log.is_fenced
    for call in (
        log.flush,
        log.roll,
        lambda: log.append(row(5, 1)),
        lambda: log.truncate_suffix(Offset(3)),
        lambda: log.drop_prefix(Offset(1)),
        lambda: log.retention_start(0),
    ):
        with pytest.raises(LogFenced):
            call()
    assert (log.flushed_offset, log.end_offset) == (3, 5)
    assert read_all(log) == joined(kept)
    log.close()
    assert read_all(SegmentLog(PATH, ONE_SEGMENT, files.after_power_cut(0))) == joined(kept)


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_failed_sync_while_rolling_fences_the_log(operation: str) -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    log.append(row(0, 3))
    files.fail(operation)
    with pytest.raises(LogFenced):
        log.append(row(3, 20))
    assert log.is_fenced


def test_a_failed_write_that_cannot_be_undone_fences_the_log() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    files.fail("write", errno.EIO, path_part=".log", partial_bytes=9)
    files.fail("truncate", errno.EIO)
    with pytest.raises(LogFenced):
        log.append(row(0, 1))
    assert log.is_fenced


def test_a_flushed_file_that_cannot_be_written_does_not_stop_the_log() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    files.fail("write", errno.ENOSPC, path_part="flushed", fail_count=99)
    kept = append(log, 30)
    assert read_all(SegmentLog(PATH, OPTIONS, files.after_power_cut(0))) == joined(kept)


def test_an_index_that_cannot_be_written_does_not_stop_the_log() -> None:
    files = FakeFiles()
    log = SegmentLog(PATH, OPTIONS, files)
    files.fail("write", errno.ENOSPC, path_part=".index", partial_bytes=30, fail_count=99)
    kept = append(log, 30)
    log.close()
    log = SegmentLog(PATH, OPTIONS, files.after_kill())
    assert read_all(log) == joined(kept)
    assert list(log.epochs) == [(0, 0)]


def test_an_index_of_what_was_truncated_is_not_taken_for_one_of_what_came_instead() -> None:
    """Same size, same end, other batches: only the removal of the old index at the truncation prevents a mix-up."""
    files = FakeFiles()
    log = SegmentLog(PATH, LogOptions(index_interval_bytes=64), files)
    log.append([batch(0), batch(1, size=100), batch(2, size=300)])
    log.roll()
    log.truncate_suffix(Offset(1))
    instead = [batch(1, size=300, seed=1), batch(2, size=100, seed=1)]
    log.append(instead)
    for operation in ("create", "truncate"):
        files.fail(operation, errno.EIO, path_part=".index")
    log.roll()
    log = SegmentLog(PATH, OPTIONS, files.after_kill())
    assert log.read(Offset(2), 1, log.flushed_offset) == instead[1][1]


def test_the_mark_of_a_clean_shutdown_is_taken_back_before_anything_changes() -> None:
    files = FakeFiles()
    sealed_log(files)
    log = SegmentLog(PATH, OPTIONS, files)
    assert log.recovery.was_clean
    log.append(row(60, 1))
    again = SegmentLog(PATH, OPTIONS, files.after_power_cut(1))
    assert not again.recovery.was_clean
    again.close()
    untouched = SegmentLog(PATH, OPTIONS, again._files)
    untouched.close()
    assert SegmentLog(PATH, OPTIONS, again._files).recovery.was_clean


def test_a_mark_that_cannot_be_taken_back_stops_the_append() -> None:
    files = FakeFiles()
    sealed_log(files)
    log = SegmentLog(PATH, OPTIONS, files)
    files.fail("write", errno.ENOSPC, path_part="flushed")
    with pytest.raises(DiskFull):
        log.append(row(60, 1))
    files.fail("sync", path_part="flushed")
    with pytest.raises(LogFenced):
        log.append(row(60, 1))


def test_what_lies_before_the_damage_can_still_be_read() -> None:
    """One bad batch does not affect the intact ones before it: they are returned, and the next read reports it."""
    files = FakeFiles()
    content = sealed_log(files)
    size = len(batch(0)[1])
    files.flip_bit(f"{FIRST}.log", 2 * size + 70)
    log = SegmentLog(PATH, OPTIONS, files)
    before = log.read(Offset(0), 10 * size, log.flushed_offset)
    assert before is not None
    assert bytes(before) == content[: 2 * size]
    with pytest.raises(LogCorrupt) as caught:
        log.read(Offset(2), 10 * size, log.flushed_offset)
    assert caught.value.position == 2 * size


def test_damage_that_was_noticed_is_not_forgotten_in_a_power_cut() -> None:
    """A partition that is stopped because of damage stays so: cut at the damage, it would vote on what is left."""
    for seed in range(20):
        files = FakeFiles()
        log = SegmentLog(PATH, ONE_SEGMENT, files)
        append(log, 30)
        log.flush()
        files = files.after_kill()
        files.flip_bit(f"{FIRST}.log", 100)
        with pytest.raises(LogCorrupt):
            SegmentLog(PATH, ONE_SEGMENT, files)
        files = files.after_power_cut(seed)
        with pytest.raises(LogCorrupt):
            SegmentLog(PATH, ONE_SEGMENT, files)
