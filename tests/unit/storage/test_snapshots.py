"""Snapshot files: the newest intact one is found, old ones are removed, damaged ones are skipped."""

from __future__ import annotations

import errno

import pytest

from drmq.model import Offset
from drmq.storage import InvalidName, SnapshotStore
from drmq.storage.files import KnownDirectories, make_directories, remove_tree
from drmq.testing.files import FakeFiles

PATH = "/data/log"


def test_what_was_saved_last_is_loaded() -> None:
    store = SnapshotStore(PATH, FakeFiles())
    assert store.load_latest("producers") is None
    store.save("producers", Offset(5), b"five")
    store.save("producers", Offset(40), memoryview(b"forty"))
    store.save("other", Offset(99), b"")
    assert store.load_latest("producers") == (40, b"forty")
    assert store.load_latest("producers", Offset(39)) == (5, b"five")
    assert store.load_latest("producers", Offset(4)) is None
    assert store.load_latest("other") == (99, b"")


def test_two_of_a_kind_are_kept() -> None:
    files = FakeFiles()
    store = SnapshotStore(PATH, files)
    for offset in (1, 20, 300):
        store.save("producers", Offset(offset), b"x")
        store.save("other", Offset(offset), b"y")
    assert store.offsets("producers") == store.offsets("other") == [20, 300]
    assert len(files.list(PATH)) == 4


class CountingFiles(FakeFiles):
    """Keeps which directories were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().sync_directory(path)


def test_the_first_of_a_kind_syncs_no_directory_that_is_known_to_be_durable() -> None:
    """A node that stops writes the first snapshots of thousands of partitions. All are below the same directories."""
    files, known = CountingFiles(), KnownDirectories()
    for index in range(3):
        path = f"/data/topic/{index}"
        make_directories(files, path)
        files.synced.clear()
        SnapshotStore(path, files, known=known).save("producers", Offset(1), b"x")
        assert files.synced == ([path, "/data/topic", "/data", "/"] if index == 0 else [path, "/data/topic"])
        files.synced.clear()
        SnapshotStore(path, files, known=known).save("other", Offset(1), b"x")
        assert files.synced == [path]
    files.synced.clear()
    SnapshotStore("/data/topic/0", files).save("third", Offset(1), b"x")
    assert files.synced == ["/data/topic/0", "/data/topic", "/data", "/"], "nothing is known"


def test_a_directory_that_was_removed_is_not_known_any_more() -> None:
    """It is created again, and the power fails before its name is durable: the next snapshot must not trust it."""
    files, known = FakeFiles(), KnownDirectories()
    store = SnapshotStore(PATH, files, known=known)
    store.save("producers", Offset(1), b"x")
    assert PATH in known
    remove_tree(files, PATH)
    files.fail("sync_directory", errno.EIO, path_part="/data", fail_count=1)
    with pytest.raises(OSError, match="error"):
        store.save("producers", Offset(2), b"x")
    assert PATH not in known
    store.save("producers", Offset(2), b"x")
    for seed in range(20):
        assert SnapshotStore(PATH, files.after_power_cut(seed)).load_latest("producers") == (2, b"x")


def test_saving_at_the_same_offset_replaces() -> None:
    store = SnapshotStore(PATH, FakeFiles())
    store.save("producers", Offset(1), b"old")
    store.save("producers", Offset(1), b"new")
    assert store.load_latest("producers") == (1, b"new")


def test_a_damaged_snapshot_is_stepped_over(caplog: pytest.LogCaptureFixture) -> None:
    size = len(b"state") + 28
    for position in range(size):
        files = FakeFiles()
        store = SnapshotStore(PATH, files)
        store.save("producers", Offset(1), b"older")
        store.save("producers", Offset(2), b"state")
        path = f"{PATH}/{files.list(PATH)[-1]}"
        assert len(files.content(path)) == size
        files.flip_bit(path, position, position % 8)
        assert store.load_latest("producers") == (1, b"older")
        files.replace_content(path, files.content(path)[:position])
        assert store.load_latest("producers") == (1, b"older")
    assert "damaged" in caplog.text


def test_snapshots_beyond_a_cut_are_removed() -> None:
    store = SnapshotStore(PATH, FakeFiles())
    store.save("producers", Offset(10), b"x")
    store.save("producers", Offset(20), b"y")
    store.remove_after("producers", Offset(15))
    assert store.offsets("producers") == [10]


def test_what_was_removed_stays_removed() -> None:
    """A snapshot of what the log no longer is must not be there again after a power cut."""
    files = FakeFiles()
    store = SnapshotStore(PATH, files)
    store.save("install", Offset(10), b"x")
    store.remove_after("install", Offset(-1))
    for seed in range(20):
        assert SnapshotStore(PATH, files.after_power_cut(seed)).load_latest("install") is None


def test_a_failed_save_leaves_the_last_one() -> None:
    for operation in ("write", "sync", "rename", "sync_directory"):
        files = FakeFiles()
        store = SnapshotStore(PATH, files)
        store.save("producers", Offset(1), b"one")
        files.fail(operation)
        with pytest.raises(OSError, match="error"):
            store.save("producers", Offset(2), b"two")
        found = SnapshotStore(PATH, files.after_kill()).load_latest("producers")
        assert found is not None
        assert found.payload in (b"one", b"two")


@pytest.mark.parametrize("prefix", ["", "../x", "a/b", "A", "a-b", "a" * 65])
def test_a_kind_is_a_plain_word(prefix: str) -> None:
    store = SnapshotStore(PATH, FakeFiles())
    with pytest.raises(InvalidName):
        store.save(prefix, Offset(0), b"")
    with pytest.raises(InvalidName):
        store.load_latest(prefix)
