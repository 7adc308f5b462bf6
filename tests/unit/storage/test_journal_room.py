"""The journal's two files: how long they are, when they are switched, and how logs are synced for that."""

from __future__ import annotations

import errno

import pytest

from drmq.storage import Journal, LogFenced, LogOptions, SegmentLog
from drmq.storage.checkpoint import FlushedFile
from drmq.storage.journal import FREE_FILES_MIN, JOURNAL_NAMES, PAGE_BYTES, PINNED_SHARE_MAX, STEPS
from drmq.storage.recovery import FLUSHED_NAME
from drmq.testing.files import FakeFiles
from support.journaled_logs import FILE_BYTES, ROOT, SECRET, JournaledLogs
from support.storage_samples import joined


def test_a_file_that_is_used_gets_its_length_while_the_other_one_is_in_use() -> None:
    shelf = JournaledLogs(FakeFiles(), STEPS * FILE_BYTES)
    shelf.open("a")

    def sizes() -> list[int]:
        return [len(shelf.files.content(f"{ROOT}/{name}")) for name in JOURNAL_NAMES]

    shelf.append("a", 1)
    assert shelf.take("a")
    assert sizes() == [FILE_BYTES, FILE_BYTES]
    for _ in range(FILE_BYTES // PAGE_BYTES // 2):
        shelf.append("a", 1)
        assert shelf.journal.take([shelf.logs["a"]])
    lengthen = shelf.journal.begin_lengthening()
    assert lengthen is not None
    assert shelf.journal.begin_lengthening() is None  # one at a time: zeros of a second one could meet records
    lengthen()
    assert sizes() == [FILE_BYTES, STEPS * FILE_BYTES]
    for _ in range(STEPS * FILE_BYTES // PAGE_BYTES):
        shelf.append("a", 1)
        assert shelf.take("a")
    assert sizes() == [STEPS * FILE_BYTES] * 2
    shelf.check(shelf.files.after_power_cut(0))


def test_a_journal_that_cannot_be_made_longer_goes_on_as_it_is_and_is_made_longer_later() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.files.fail("write", errno.ENOSPC, path_part="journal-1")

    def append() -> None:
        shelf.append("a", 1)
        assert shelf.take("a")

    append()  # one page in use of three
    assert shelf.journal.begin_lengthening() is None
    assert len(shelf.files.content(f"{ROOT}/{JOURNAL_NAMES[1]}")) == 3 * PAGE_BYTES
    for _ in range(20):
        append()
    assert len(shelf.files.content(f"{ROOT}/{JOURNAL_NAMES[1]}")) == FILE_BYTES
    shelf.check(shelf.files.after_power_cut(0))


def test_a_journal_stays_small_where_there_is_little_space() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.files.capacity_bytes = (FREE_FILES_MIN + 1) * FILE_BYTES
    for _ in range(20):
        shelf.append("a", 1)
        assert shelf.take("a")
    assert len(shelf.files.content(f"{ROOT}/{JOURNAL_NAMES[1]}")) == 3 * PAGE_BYTES


def test_a_file_that_is_too_short_for_a_record_is_made_longer() -> None:
    shelf = JournaledLogs(FakeFiles(), STEPS * FILE_BYTES)
    shelf.open("a")
    shelf.append("a", 1, size=FILE_BYTES)
    assert not shelf.take("a")
    shelf.append("a", 1, size=FILE_BYTES)
    assert shelf.take("a")
    shelf.check(shelf.files.after_power_cut(0))


def test_starts_do_not_make_it_longer() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    shelf.append("a", 2)
    shelf.take("a")
    for _ in range(20):
        shelf.close()
        shelf.journal = Journal(shelf.files, ROOT, SECRET, FILE_BYTES)
        shelf.open("a")
    sizes = [len(shelf.files.content(f"{ROOT}/{name}")) for name in JOURNAL_NAMES]
    assert max(sizes) <= FILE_BYTES
    shelf.check(shelf.files.after_power_cut(0))


def test_who_appends_helps_when_the_other_file_is_needed_soon() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a", "b")
    shelf.append("a", 1)
    assert shelf.take("a")
    pressed = []
    for _ in range(5):
        shelf.append("b", 1)
        assert shelf.journal.take([shelf.logs["b"]])
        pressed.append(shelf.journal.is_pressed)
    assert pressed == [False, False, False, False, True]
    shelf.logs["a"].sync()
    assert not shelf.journal.is_pressed


def with_long_files() -> JournaledLogs:
    """The files have their full size from the start."""
    files = FakeFiles()
    files.make_directory(ROOT)
    for name in JOURNAL_NAMES:
        files.write(files.open(f"{ROOT}/{name}", create=True), [bytes(STEPS * FILE_BYTES)], 0)
    return JournaledLogs(files, STEPS * FILE_BYTES)


def test_a_log_with_much_to_sync_is_synced_before_the_file_is_full() -> None:
    shelf = with_long_files()
    shelf.open("a", "b")
    for opened in shelf.logs.values():
        opened.options = LogOptions()  # a new segment is a reason for a sync too
    due: list[str] = []
    for number in range(15):
        # Two pages of the journal each time, and a step is six.
        shelf.append("a", 1, size=3000)
        shelf.append("b", 1, size=4000 if number < 9 else 100)
        assert shelf.journal.take(list(shelf.logs.values()))
        for log in shelf.journal.due(9):
            due.append(log.name)
            log.sync()
    assert due == [f"{ROOT}/b", f"{ROOT}/a"]


def test_what_comes_while_a_log_is_synced_is_not_taken_for_synced() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    log = shelf.logs["a"]
    shelf.append("a", 2)
    assert shelf.journal.take([log])
    sync = log.begin_sync()
    assert sync is not None
    assert log.begin_sync() is None
    sync.run()
    shelf.append("a", 3)
    assert shelf.journal.take([log])
    assert log.synced_offset == 0
    log.end_sync()
    assert (log.synced_offset, log.flushed_offset) == (2, 5)
    shelf.flushed["a"] = 5
    flushed = FlushedFile(shelf.files, f"{ROOT}/a/{FLUSHED_NAME}").read()
    assert flushed is not None
    assert (flushed.offset, flushed.position) == (2, len(joined(shelf.appended["a"][:2])))
    shelf.check(shelf.files.after_power_cut(0))


def test_an_error_in_the_background_is_not_lost_to_a_sync_that_comes_before_it_is_seen() -> None:
    """The kernel reports a failed sync once. A second sync reports no error, and the bytes are lost."""
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a")
    log = shelf.logs["a"]
    shelf.append("a", 2)
    assert shelf.journal.take([log])
    shelf.flushed["a"] = 2
    sync = log.begin_sync()
    assert sync is not None
    shelf.files.fail("sync", errno.EIO, path_part="/a/")
    sync.run()
    with pytest.raises(LogFenced):
        log.roll()
    log.end_sync()
    assert log.synced_offset == 0
    shelf.check(shelf.files.after_power_cut(0))


def test_a_file_is_not_begun_anew_before_its_logs_are_synced() -> None:
    shelf = JournaledLogs(FakeFiles())
    shelf.open("a", "b")
    shelf.append("a", 1)
    assert shelf.journal.take([shelf.logs["a"]])
    shelf.lengthen()
    taken = 0
    while True:
        shelf.append("b", 1)
        if not shelf.journal.take([shelf.logs["b"]]):
            break
        shelf.lengthen()
        taken += 1
    # The file in use is full of b, and the other one has a, which nobody has synced.
    assert taken >= FILE_BYTES // PAGE_BYTES - 2
    assert {log.name for log in shelf.journal.due(9)} == {f"{ROOT}/a"}
    shelf.logs["b"].sync()
    shelf.append("b", 1)
    assert not shelf.journal.take([shelf.logs["b"]])
    shelf.logs["a"].sync()
    assert shelf.journal.take([shelf.logs["b"]])


@pytest.mark.parametrize("pinned_share", [0, PINNED_SHARE_MAX], ids=["few files", "many files"])
def test_a_cycle_costs_what_it_writes(monkeypatch: pytest.MonkeyPatch, pinned_share: float) -> None:
    """Thousands of logs may have entries in both files. A cycle that writes to one of them must not look at all."""
    shelf = with_long_files()
    names = [f"log-{number}" for number in range(50)]
    shelf.open(*names)
    looks: list[str] = []

    def counted(name: str) -> property:
        looked_up = vars(SegmentLog)[name].fget

        def look(log: SegmentLog) -> object:
            looks.append(log.name)
            return looked_up(log)

        return property(look)

    for name in ("synced_offset", "unsynced_bytes"):
        monkeypatch.setattr(SegmentLog, name, counted(name))

    def cycle(*written: str) -> int:
        """As the writer does it; how many logs are looked at."""
        for name in written:
            shelf.append(name, 1)
        looks.clear()
        is_taken = shelf.journal.take([shelf.logs[name] for name in written])
        shelf.journal.due(2)
        assert shelf.journal.is_pressed or is_taken
        return len(looks)

    def fill() -> list[int]:
        """Fill the file in use; what each cycle costs."""
        current = shelf.journal._current
        costs: list[int] = []
        while len(costs) < STEPS * FILE_BYTES // PAGE_BYTES and shelf.journal._current == current:
            costs.append(cycle(names[0]))
        return costs

    shelf.journal.pinned_share = lambda: pinned_share
    cycle(*names)
    *costs, switch = fill()
    assert switch >= len(names), "all logs in the file that was full must be synced now"
    cycle(*names)
    costs += fill()
    assert len(costs) > STEPS
    assert max(costs) <= 10
