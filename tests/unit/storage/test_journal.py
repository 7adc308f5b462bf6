"""The journal: what it has taken survives the loss of power at any step, and brings back nothing that is gone.

Scripts run over several logs that share a journal of very small files, so that these change places all the time. As in
`test_crash`, each is repeated with the power cut at its first change to the disk, its second, and so on.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from drmq.storage import DirectoryUnreadable, DiskFull, Journal, LogCorrupt, LogFenced, LogOptions, SegmentLog
from drmq.storage.journal import (
    FORGOTTEN_NAME,
    JOURNAL_NAMES,
    PAGE_BYTES,
    STEPS,
    TAKEN_BYTES_MAX,
    counting_records,
    read_records,
)
from drmq.testing.files import FakeFiles, PowerCut
from support.journaled_logs import FILE_BYTES, OPTIONS, ROOT, SECRET, JournaledLogs
from support.storage_samples import row

SEEDS = range(3)


Script = Callable[[JournaledLogs], None]


def script_appends(shelf: JournaledLogs) -> None:
    shelf.open("a", "b", "c")
    for number in range(14):
        names = [name for at, name in enumerate("abc") if (number >> at) % 2]
        for name in names:
            shelf.append(name, 1 + number % 3)
        shelf.take(*names)


def script_goes_back(shelf: JournaledLogs) -> None:
    """Bytes that were journaled and truncated must not reappear, however the bytes after them became durable."""
    shelf.open("a", "b")
    shelf.append("a", 6)
    shelf.append("b", 2)
    shelf.take("a", "b")
    shelf.truncate("a", 2)
    shelf.append("a", 3)
    shelf.logs["a"].sync()
    shelf.flushed["a"] = shelf.logs["a"].flushed_offset
    shelf.append("b", 1)
    shelf.take("b")
    shelf.recreate("b")
    shelf.append("b", 4)
    shelf.logs["b"].sync()
    shelf.flushed["b"] = shelf.logs["b"].flushed_offset
    shelf.truncate("a", 1)
    shelf.append("a", 5)
    shelf.take("a")
    shelf.truncate("a", 3)
    shelf.append("b", 1)
    shelf.take("b")
    shelf.reset("a", 2)
    shelf.append("a", 1)
    shelf.take("a")


def script_set_aside(shelf: JournaledLogs) -> None:
    """A log in the directory of another, whose files were moved away."""
    shelf.open("a")
    shelf.append("a", 5)
    shelf.take("a")
    shelf.logs["a"].close(clean=False)
    shelf.cut_maybe["a"] = 0
    shelf.files.rename(f"{ROOT}/a", f"{ROOT}/a.lost")
    shelf.files.sync_directory(ROOT)
    shelf.appended["a"], shelf.flushed["a"] = [], 0
    shelf.open("a")
    del shelf.cut_maybe["a"]
    for _ in range(4):
        shelf.append("a", 1)
        shelf.logs["a"].sync()
        shelf.flushed["a"] = shelf.logs["a"].flushed_offset


def script_stops_and_starts(shelf: JournaledLogs) -> None:
    shelf.open("a", "b")
    shelf.append("a", 2)
    shelf.append("b", 2)
    shelf.take("a", "b")
    shelf.close()
    shelf.journal = Journal(shelf.files, ROOT, SECRET, FILE_BYTES)
    shelf.open("a", "b")
    shelf.truncate("b", 1)
    shelf.append("b", 3)
    shelf.logs["b"].sync()
    shelf.append("a", 20)
    shelf.take("a", "b")


def script_of(seed: int) -> Script:
    """Anything in any order."""

    def script(shelf: JournaledLogs) -> None:
        random = Random(seed)
        shelf.open("a", "b", "c", "d")
        for _ in range(25):
            name = random.choice("abcd")
            kind = random.randrange(10)
            if kind < 6:
                names = random.sample("abcd", random.randint(1, 4))
                for one in names:
                    shelf.append(one, random.randint(1, 4), size=random.choice((30, 200, 900)))
                shelf.take(*names)
            elif kind == 6:
                shelf.truncate(name, random.randint(shelf.logs[name].start_offset, shelf.logs[name].end_offset))
            elif kind == 7:
                shelf.recreate(name)
            elif kind == 8:
                shelf.logs[name].roll()
                shelf.flushed[name] = shelf.logs[name].flushed_offset
            else:
                shelf.reset(name, random.randint(0, 9))

    return script


SCRIPTS = [script_appends, script_goes_back, script_set_aside, script_stops_and_starts, *map(script_of, range(4))]


def runs(script: Script) -> Iterator[JournaledLogs]:
    crash_at = 0
    while True:
        crash_at += 1
        files = FakeFiles()
        shelf = JournaledLogs(files)
        files.crash_at = files.step + crash_at
        try:
            script(shelf)
        except PowerCut:
            yield shelf
        else:
            assert crash_at > 20
            return


@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_is_lost_and_nothing_comes_back_after_a_power_cut_at_any_step(script: Script) -> None:
    for shelf in runs(script):
        for seed in SEEDS:
            shelf.check(shelf.files.after_power_cut(seed))


@pytest.mark.parametrize("script", SCRIPTS)
def test_putting_back_survives_a_power_cut_at_any_step_too(script: Script) -> None:
    for number, shelf in enumerate(runs(script)):
        if number % 11:
            continue
        disk = shelf.files.after_power_cut(1)
        for crash_at in range(1, 60):
            again = disk.after_power_cut(0)  # nothing has happened on it: the same once more
            again.crash_at = again.step + crash_at
            try:
                Journal(again, ROOT, SECRET, FILE_BYTES)
            except PowerCut:
                shelf.check(again.after_power_cut(2))
            else:
                break


def test_one_sync_makes_all_of_them_durable() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a", "b", "c")
    for name in "abc":
        shelf.append(name, 2)
    before = shelf.files.counts["sync"]
    assert shelf.journal.take(list(shelf.logs.values()))
    assert shelf.files.counts["sync"] == before + 1
    assert [log.flushed_offset for log in shelf.logs.values()] == [2, 2, 2]
    assert [log.synced_offset for log in shelf.logs.values()] == [0, 0, 0]
    assert not shelf.files.durable_files(f"{ROOT}/a")[f"{0:020d}.log"]
    for name in "abc":
        shelf.flushed[name] = 2
    shelf.check(shelf.files.after_power_cut(0))


def test_what_is_large_is_left_to_the_logs() -> None:
    shelf = JournaledLogs(FakeFiles())
    log = SegmentLog(f"{ROOT}/a", LogOptions(), shelf.files, journal=shelf.journal)
    log.append(row(0, 1, size=TAKEN_BYTES_MAX))
    assert not shelf.journal.take([log])
    assert log.flushed_offset == 0


def test_after_a_clean_end_there_is_nothing_to_put_back() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.append("a", 3)
    shelf.take("a")
    shelf.close()
    contents = [shelf.files.content(f"{ROOT}/{name}") for name in JOURNAL_NAMES]
    seed = shelf.journal.seed
    records = [record for file, data in enumerate(contents) for record in read_records(data, file, seed)]
    counting, missing_count = counting_records(records)
    assert [record.entries for record in counting] == [[]]
    assert missing_count == 0
    assert not shelf.journal.take([])


def test_a_journal_that_cannot_be_written_is_given_up_and_nothing_with_it() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a", "b")
    shelf.append("a", 1)
    assert shelf.take("a")
    shelf.files.fail("sync", errno.EIO, path_part="journal")
    shelf.append("a", 1)
    shelf.append("b", 1)
    assert not shelf.take("a", "b")
    shelf.append("b", 1)
    assert not shelf.take("b")
    for seed in SEEDS:
        shelf.check(shelf.files.after_power_cut(seed))


def test_a_record_whose_sync_has_failed_brings_nothing_back_either() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.files.fail("sync", errno.EIO, path_part="journal")
    shelf.append("a", 3)
    assert not shelf.take("a")
    shelf.truncate("a", 0)
    shelf.append("a", 3)
    shelf.take("a")
    shelf.check(shelf.files.after_kill())


def test_a_full_disk_keeps_nobody_from_starting() -> None:
    files = FakeFiles()
    files.make_directory(ROOT)
    files.fail("write", errno.ENOSPC, path_part="journal")
    shelf = JournaledLogs(files)
    shelf.open("a")
    shelf.append("a", 1)
    assert not shelf.take("a")
    shelf.check(files.after_power_cut(0))


def test_a_journal_that_cannot_be_made_keeps_nobody_from_starting() -> None:
    for name in JOURNAL_NAMES:
        files = FakeFiles()
        files.make_directory(ROOT)
        files.fail("create", errno.ENOSPC, path_part=name)
        shelf = JournaledLogs(files)
        shelf.open("a")
        shelf.append("a", 1)
        assert not shelf.take("a")
        shelf.check(files.after_power_cut(0))


@pytest.mark.parametrize("changes_later", range(1, 7))
def test_a_journal_that_is_given_up_is_so_at_every_step(changes_later: int) -> None:
    """After a crash both files count. The start puts all back, finds no room for its first record, removes the files,
    and ends in the middle of that: what is left of the journal is no reason to refuse the directory.
    """
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    while shelf.journal._current == 0 or not shelf.journal._present[0]:
        shelf.append("a", 1)
        assert shelf.journal.take([shelf.logs["a"]])
        shelf.flushed["a"] = shelf.logs["a"].flushed_offset
    for seed in range(10):
        disk = shelf.files.after_kill()
        disk.fail("write", errno.ENOSPC, path_part="journal")
        disk.crash_near("journal", changes_later)
        with suppress(PowerCut):
            Journal(disk, ROOT, SECRET, FILE_BYTES)
        shelf.check(disk.after_kill())
        shelf.check(disk.after_power_cut(seed))


def test_a_full_disk_does_not_keep_a_log_from_being_deleted() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.append("a", 20)
    assert shelf.take("a")
    shelf.files.capacity_bytes = 1
    shelf.logs["a"].delete()
    assert not shelf.files.exists(f"{ROOT}/a")
    shelf.files.capacity_bytes = 1 << 30
    shelf.appended["a"], shelf.flushed["a"] = [], 0
    shelf.open("a")
    shelf.append("a", 1)
    shelf.take("a")
    for seed in SEEDS:
        shelf.check(shelf.files.after_power_cut(seed))


def closed_in_order() -> FakeFiles:
    """A log of two batches and its journal after a clean stop, with the mark of it on the disk."""
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.append("a", 2)
    assert shelf.take("a")
    shelf.close()
    mark = shelf.files.open(f"{ROOT}/a/flushed")
    shelf.files.sync(mark)
    shelf.files.close(mark)
    return shelf.files


def index_lost(files: FakeFiles, seed: int) -> FakeFiles:
    """The power goes after the stop, and with it the index, which was not synced: the start walks the log."""
    return files.after_power_cut(seed)


def killed_while_the_mark_is_taken_back(files: FakeFiles, seed: int) -> FakeFiles:
    shelf = JournaledLogs(files)
    shelf.open("a")
    files.crash_near("/a/flushed", 1)
    with pytest.raises(PowerCut):
        shelf.append("a", 1)
    return files.after_kill()


def taking_the_mark_back_fails(files: FakeFiles, seed: int) -> FakeFiles:
    shelf = JournaledLogs(files)
    shelf.open("a")
    files.fail("sync", path_part="/a/flushed")
    with pytest.raises(LogFenced):
        shelf.append("a", 1)
    return files.after_kill()


@pytest.mark.parametrize("accident", [index_lost, killed_while_the_mark_is_taken_back, taking_the_mark_back_fails])
def test_an_old_mark_of_a_clean_stop_hides_nothing(accident: Callable[[FakeFiles, int], FakeFiles]) -> None:
    """The mark is on the disk, a start has taken it back in memory only, and appends since then are in the journal."""
    for seed in range(40):
        files = accident(closed_in_order(), seed)
        shelf = JournaledLogs(files)
        shelf.open("a")
        assert shelf.logs["a"].flushed_offset == 2
        shelf.append("a", 3)
        assert shelf.journal.take([shelf.logs["a"]])
        disk = files.after_power_cut(seed)
        journal = Journal(disk, ROOT, SECRET, FILE_BYTES)
        assert SegmentLog(f"{ROOT}/a", OPTIONS, disk, journal=journal).end_offset == 5


def test_what_a_failed_write_left_does_not_follow_what_the_journal_puts_back() -> None:
    """The disk is full within the third batch. Another leader's, of the same size, comes to the place of the first."""
    refused, kept = row(1, 3, epoch=1, seed=7), row(1, 1, epoch=2, seed=8)
    for seed in range(40):
        files = FakeFiles()
        shelf = JournaledLogs(files)
        shelf.open("a")
        shelf.append("a", 1, size=40)
        shelf.logs["a"].sync()
        files.fail("write", errno.ENOSPC, path_part="/a/", partial_bytes=2 * len(refused[0][1]) + 10)
        with pytest.raises(DiskFull):
            shelf.logs["a"].append(refused)
        shelf.logs["a"].append(kept)
        shelf.appended["a"] += kept
        shelf.take("a")
        shelf.check(files.after_power_cut(seed))


def test_a_log_whose_own_sync_fails_keeps_what_the_journal_has() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a", "b")
    shelf.append("a", 2)
    assert shelf.take("a")
    shelf.files.fail("sync", errno.EIO, path_part="/a/")
    with pytest.raises(Exception, match="sync failed"):
        shelf.logs["a"].sync()
    for _ in range(40):
        shelf.append("b", 1)
        shelf.take("b")
    # Its entries stay, so that no file could be begun anew, and b was synced by itself.
    assert shelf.journal.due(9) == []
    for seed in SEEDS:
        shelf.check(shelf.files.after_power_cut(seed))


def damaged(shelf: JournaledLogs, page: int) -> FakeFiles:
    disk = shelf.files.after_power_cut(0)
    disk.flip_bit(f"{ROOT}/{JOURNAL_NAMES[0]}", page * PAGE_BYTES + 50, 3)
    return disk


def test_damage_to_the_journal_is_refused_and_damage_behind_its_end_is_none() -> None:
    shelf = JournaledLogs(FakeFiles(), STEPS * FILE_BYTES)
    shelf.open("a")
    for _ in range(3):
        shelf.append("a", 1)
        assert shelf.take("a")
    # Page 0 is the record of the start, 1 to 3 are those of a.
    for page in (1, 2):
        with pytest.raises(DirectoryUnreadable, match=r"1 records of journal-0 and journal-1 are damaged.*removed"):
            Journal(damaged(shelf, page), ROOT, SECRET, FILE_BYTES)
    shelf.check(damaged(shelf, 4))
    disk = shelf.files.after_power_cut(0)
    disk.close(disk.open(f"{ROOT}/{FORGOTTEN_NAME}", create=True))
    with pytest.raises(DirectoryUnreadable, match=FORGOTTEN_NAME):
        Journal(disk, ROOT, SECRET, FILE_BYTES)


def test_a_log_that_is_shorter_than_the_journal_says_is_corrupt() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.append("a", 2)
    shelf.logs["a"].sync()
    shelf.append("a", 2)
    assert shelf.take("a")
    disk = shelf.files.after_power_cut(0)
    disk.replace_content(f"{ROOT}/a/{0:020d}.log", b"")
    journal = Journal(disk, ROOT, SECRET, FILE_BYTES)
    with pytest.raises(LogCorrupt):
        SegmentLog(f"{ROOT}/a", OPTIONS, disk, journal=journal)


def test_damage_to_a_log_where_the_journal_has_the_same_bytes_is_mended() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.append("a", 4)
    assert shelf.take("a")
    disk = shelf.files.after_kill()
    disk.flip_bit(f"{ROOT}/a/{0:020d}.log", 100, 3)
    shelf.check(disk)


def test_a_record_made_by_a_client_is_no_record() -> None:
    """Bytes of a client lie in the journal, at places that it can guess: they must not pass for a record of ours."""
    other = JournaledLogs(FakeFiles())
    other.journal = Journal(other.files, ROOT, "another secret", FILE_BYTES)
    other.open("a")
    other.append("a", 1)
    assert other.take("a")
    forged = other.files.content(f"{ROOT}/{JOURNAL_NAMES[0]}")
    assert list(read_records(forged, 0, other.journal.seed))
    assert not list(read_records(forged, 0, JournaledLogs(FakeFiles()).journal.seed))
