"""Opening a log after a crash reads what follows its checkpoint, and a checkpoint never hides what a crash left."""

from __future__ import annotations

import pytest

from drmq.model import Offset
from drmq.storage import Journal, LogCorrupt, LogOptions, SegmentLog, segment_log
from drmq.storage.files import make_directories
from drmq.storage.index import Summary, decode_header
from drmq.testing.files import FakeFiles
from support.storage_samples import append, joined, read_all

PATH = "/data/log"
FIRST = f"{PATH}/{0:020d}"
OPTIONS = LogOptions(segment_bytes=1 << 30, index_interval_bytes=128)


@pytest.fixture(autouse=True)
def checkpoint_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "CHECKPOINT_BYTES", 2000)


def new_log(files: FakeFiles, journal: Journal | None = None) -> SegmentLog:
    return SegmentLog(PATH, OPTIONS, files, 0, journal)


def checkpoint(files: FakeFiles) -> Summary:
    """What the index file of the active segment covers."""
    header = decode_header(files.content(f"{FIRST}.index"))
    assert header is not None
    return header.summary


def filled(files: FakeFiles, rounds: int = 200) -> SegmentLog:
    log = new_log(files)
    for number in range(rounds):
        append(log, 3, timestamp=5000 + number, epoch=number // 50)
    return log


def test_an_opening_after_a_crash_walks_what_follows_the_checkpoint() -> None:
    files = FakeFiles()
    log = filled(files)
    expected, latest, epochs = read_all(log), log.latest_time(), list(log.epochs)
    size = log.size_bytes
    again = new_log(files.after_kill())
    assert not again.recovery.was_clean
    assert again.recovery.walked_bytes < size / 6
    assert (again.end_offset, again.flushed_offset, again.size_bytes) == (600, 600, size)
    assert read_all(again) == expected
    assert again.latest_time() == latest
    assert list(again.epochs) == epochs
    assert again._active.first_timestamp == 5000
    for offset in range(0, 600, 7):
        batch = again.read(Offset(offset), 1, Offset(600))
        assert batch is not None
        found = again.batch_at_time(5000 + offset // 3, Offset(600))
        assert found is not None
        assert found.header.max_timestamp >= 5000 + offset // 3
    more = append(again, 30, timestamp=9000)
    assert read_all(again) == expected + joined(more)


def test_the_bytes_that_checkpoints_write_are_few() -> None:
    files = FakeFiles()
    log = filled(files, 1000)
    saved = files.counts["truncate"] - 1
    assert 10 < saved < 60, "one of 1000 syncs in about twenty saves the index"
    assert log.size_bytes > 300_000


def test_damage_before_the_checkpoint_is_found_when_it_is_read() -> None:
    files = FakeFiles()
    log = filled(files)
    end = bytes(log.read(Offset(590), 1 << 20, Offset(600)) or b"")
    disk = files.after_kill()
    disk.flip_bit(f"{FIRST}.log", 1000)
    again = new_log(disk)
    assert again.end_offset == log.end_offset
    assert again.read(Offset(0), 1000, Offset(600), cached_only=True) is None, "nothing unchecked is returned"
    with pytest.raises(LogCorrupt):
        read_all(again)
    assert bytes(again.read(Offset(590), 1 << 20, Offset(600)) or b"") == end


def test_damage_between_checkpoint_and_flushed_position_stops_the_log() -> None:
    files = FakeFiles()
    log = filled(files)
    disk = files.after_kill()
    disk.flip_bit(f"{FIRST}.log", log.size_bytes - 5)
    with pytest.raises(LogCorrupt):
        new_log(disk)


def test_a_file_that_is_shorter_than_promised_stops_the_log() -> None:
    files = FakeFiles()
    log = filled(files)
    for size in (0, 50, log.size_bytes // 2, log.size_bytes - 1):
        disk = files.after_kill()
        content = disk.content(f"{FIRST}.log")
        disk.replace_content(f"{FIRST}.log", content[:size])
        with pytest.raises(LogCorrupt):
            new_log(disk)
        disk.replace_content(f"{FIRST}.log", content)


@pytest.mark.parametrize("damage", [0, 40, -1])
def test_without_a_valid_checkpoint_all_is_walked(damage: int) -> None:
    files = FakeFiles()
    log = filled(files)
    disk = files.after_kill()
    index = disk.content(f"{FIRST}.index")
    disk.replace_content(f"{FIRST}.index", index[:damage] if damage >= 0 else index[:-1] + bytes([index[-1] ^ 1]))
    again = new_log(disk)
    assert again.recovery.walked_bytes == log.size_bytes
    assert again.end_offset == 600


def test_a_checkpoint_that_covers_more_than_was_synced_hides_no_torn_batch() -> None:
    """The index is a hint: whatever it claims, all bytes after the flushed position are walked."""
    files = FakeFiles()
    log = filled(files, 20)
    synced_bytes = log.size_bytes
    append(log, 200, flush=False)
    log._active.save_index()
    disk = files.after_kill()
    assert checkpoint(disk).size_bytes > synced_bytes
    disk.flip_bit(f"{FIRST}.log", synced_bytes + 300)
    again = new_log(disk)
    assert again.recovery.cut_bytes > 0
    assert again.end_offset == 62
    read_all(again)


def test_a_checkpoint_covers_what_is_synced_and_no_more() -> None:
    files = FakeFiles()
    make_directories(files, "/data")
    journal = Journal(files, "/data", "secret")
    log = new_log(files, journal)
    append(log, 60, flush=False)
    assert journal.take([log])
    sync = log.begin_sync()
    assert sync is not None
    sync.run()
    synced_bytes = log.size_bytes
    append(log, 60, flush=False, timestamp=99_000)
    assert journal.take([log])
    log.end_sync()
    found = checkpoint(files)
    assert (found.size_bytes, found.end_offset) == (synced_bytes, 60)
    assert found.max_timestamp < 99_000
    for seed in range(5):
        disk = files.after_power_cut(seed)
        journal = Journal(disk, "/data", "secret")
        assert new_log(disk, journal).end_offset == 120


def test_a_truncated_log_has_no_checkpoint_of_what_was_cut() -> None:
    files = FakeFiles()
    log = filled(files)
    log.truncate_suffix(Offset(30))
    append(log, 300, seed=7, size=40)
    expected = read_all(log)
    for seed in range(5):
        assert read_all(new_log(files.after_power_cut(seed))) == expected


def test_a_new_segment_removes_the_index_of_an_earlier_one() -> None:
    files = FakeFiles()
    log = filled(files)
    stale = files.content(f"{FIRST}.index")
    log.delete()
    make_directories(files, PATH)
    files.close(files.open(f"{FIRST}.index", create=True))
    files.replace_content(f"{FIRST}.index", stale)
    log = new_log(files)
    assert not files.exists(f"{FIRST}.index")


def test_a_log_that_was_synced_to_its_end_is_not_synced_again_when_it_is_opened() -> None:
    """Thousands of idle partitions start faster."""
    files = FakeFiles()
    filled(files)
    disk = files.after_kill()
    new_log(disk)
    assert "sync" not in disk.counts
    assert "write" not in disk.counts


def test_an_index_that_does_not_belong_to_the_log_is_not_believed() -> None:
    files, other_files = FakeFiles(), FakeFiles()
    expected = read_all(filled(files))
    other = new_log(other_files)
    for _ in range(200):
        append(other, 3, size=77)
    disk = files.after_kill()
    disk.replace_content(f"{FIRST}.index", other_files.content(f"{FIRST}.index"))
    again = new_log(disk)
    assert again.end_offset == 600
    assert read_all(again) == expected
