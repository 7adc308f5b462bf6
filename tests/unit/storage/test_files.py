"""What storage expects of a file system, checked for the real one and for the fake."""

from __future__ import annotations

import errno
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drmq.storage import Files, OsFiles
from drmq.storage.files import KnownDirectories, OpenFile, make_directories, remove_tree, replace_file
from drmq.testing.files import FakeFiles, PowerCut


@pytest.fixture(params=["os", "fake"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system and a directory in it."""
    if request.param == "os":
        return OsFiles(), str(tmp_path)
    fake = FakeFiles()
    fake.make_directory("/d")
    return fake, "/d"


def put(files: Files, path: str, content: bytes) -> None:
    handle = files.open(path, create=True)
    files.write(handle, [content], 0)
    files.close(handle)


def get(files: Files, path: str) -> bytes:
    handle = files.open(path)
    data = files.read(handle, 1 << 20, 0)
    files.close(handle)
    return data


def test_what_is_written_can_be_read(disk: tuple[Files, str]) -> None:
    files, d = disk
    handle = files.open(f"{d}/a", create=True)
    files.write(handle, [b"abc", bytearray(b"de"), memoryview(b"f")], 0)
    files.write(handle, [b"X"], 1)
    files.write(handle, [b"tail"], 8)
    assert files.read(handle, 100, 0) == b"aXcdef\0\0tail"
    assert files.read(handle, 3, 2) == b"cde"
    assert files.read(handle, 3, 50) == b""
    assert bytes(files.read_cached(handle, 100, 0)) == b"aXcdef\0\0tail"
    assert files.size(handle) == files.status(f"{d}/a").size_bytes == 12
    files.sync(handle)
    files.close(handle)


def test_more_buffers_than_one_call_takes_are_all_written(disk: tuple[Files, str]) -> None:
    files, d = disk
    handle = files.open(f"{d}/a", create=True)
    buffers = [b"%05d" % number for number in range(3000)]
    files.write(handle, buffers, 10)
    assert files.read(handle, 1 << 20, 10) == b"".join(buffers)
    files.close(handle)


def test_truncation_cuts_and_extends(disk: tuple[Files, str]) -> None:
    files, d = disk
    handle = files.open(f"{d}/a", create=True)
    files.write(handle, [b"abcdef"], 0)
    files.truncate(handle, 2)
    files.truncate(handle, 4)
    assert files.read(handle, 10, 0) == b"ab\0\0"
    files.close(handle)


def test_threads_that_create_the_same_thing_all_find_it(disk: tuple[Files, str]) -> None:
    """The partitions of a topic are made side by side, and each makes the topic's directory if it is missing."""
    files, d = disk
    together = threading.Barrier(4)

    def create(number: int, thread: int) -> int:
        together.wait(30)
        files.make_directory(f"{d}/{number}")
        handle = files.open(f"{d}/{number}/file", create=True)
        files.write(handle, [b"x"], thread)
        files.close(handle)
        return thread

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for number in range(500):
                assert sorted(pool.map(create, [number] * 4, range(4))) == [0, 1, 2, 3]
                assert get(files, f"{d}/{number}/file") == b"xxxx"
    finally:
        sys.setswitchinterval(interval)


def test_names(disk: tuple[Files, str]) -> None:
    files, d = disk
    put(files, f"{d}/b", b"1")
    put(files, f"{d}/a", b"2")
    files.make_directory(f"{d}/c")
    files.make_directory(f"{d}/c")
    files.sync_directory(d)
    assert files.list(d) == ["a", "b", "c"]
    assert (files.exists(f"{d}/a"), files.exists(f"{d}/c"), files.exists(f"{d}/x")) == (True, True, False)
    assert (files.is_directory(f"{d}/a"), files.is_directory(f"{d}/c"), files.is_directory(f"{d}/x")) == (
        False,
        True,
        False,
    )
    files.rename(f"{d}/a", f"{d}/b")
    assert files.list(d) == ["b", "c"]
    assert get(files, f"{d}/b") == b"2"
    put(files, f"{d}/c/deep", b"3")
    files.rename(f"{d}/c", f"{d}/e")
    assert get(files, f"{d}/e/deep") == b"3"
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(f"{d}/e")
    remove_tree(files, f"{d}/e")
    files.remove(f"{d}/b")
    assert files.list(d) == []


def test_missing_things_are_reported(disk: tuple[Files, str]) -> None:
    files, d = disk
    for call in (files.open, files.status, files.list, files.remove, files.remove_directory, files.sync_directory):
        with pytest.raises(FileNotFoundError):
            call(f"{d}/x")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{d}/x", f"{d}/y")
    with pytest.raises(FileNotFoundError):
        files.open(f"{d}/x/y", create=True)
    put(files, f"{d}/file", b"")
    with pytest.raises(FileExistsError):
        files.make_directory(f"{d}/file")


def test_a_removed_file_can_be_read_through_an_open_handle(disk: tuple[Files, str]) -> None:
    files, d = disk
    put(files, f"{d}/a", b"still here")
    file = OpenFile(files, files.open(f"{d}/a"))
    files.remove(f"{d}/a")
    assert files.read(file.handle, 100, 0) == b"still here"


def test_a_lock_is_held_by_one_until_it_is_closed(disk: tuple[Files, str]) -> None:
    files, d = disk
    handle = files.lock(f"{d}/lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{d}/lock")
    files.close(handle)
    files.close(files.lock(f"{d}/lock"))


def test_there_is_space(disk: tuple[Files, str]) -> None:
    files, d = disk
    assert files.free_bytes(d) > 0


def test_replacing_a_file_leaves_the_new_content_alone(disk: tuple[Files, str]) -> None:
    files, d = disk
    put(files, f"{d}/a.tmp", b"left by a crash, and longer than what is to come")
    replace_file(files, f"{d}/a", b"one")
    replace_file(files, f"{d}/a", b"two")
    assert get(files, f"{d}/a") == b"two"
    assert files.list(d) == ["a"]


def test_directories_are_made_down_to_the_last(disk: tuple[Files, str]) -> None:
    files, d = disk
    make_directories(files, f"{d}/x/y/z")
    make_directories(files, f"{d}/x/y/z")
    assert files.is_directory(f"{d}/x/y/z")


# The fake alone: the tool must lose exactly what it should.


def test_the_fake_loses_what_was_not_synced_and_keeps_what_was() -> None:
    fates = set()
    for seed in range(60):
        files = FakeFiles()
        handle = files.open("/a", create=True)
        files.write(handle, [b"safe"], 0)
        files.sync(handle)
        files.sync_directory("/")
        files.write(handle, [b"risk"], 4)
        found = get(files.after_power_cut(seed), "/a")
        assert found[:4] == b"safe"
        fates.add(found[4:])
    assert {b"", b"risk", b"\0\0\0\0"} < fates
    assert any(b"risk".startswith(fate) and 0 < len(fate) < 4 for fate in fates)


def test_the_fake_undoes_names_that_were_not_synced() -> None:
    fates = set()
    for seed in range(60):
        files = FakeFiles()
        put(files, "/old", b"x")
        files.sync_directory("/")
        files.rename("/old", "/new")
        put(files, "/extra", b"y")
        fates.add(tuple(files.after_power_cut(seed).list("/")))
    assert fates == {("old",), ("new",), ("extra", "old"), ("extra", "new")}


def test_the_fake_makes_the_same_disk_of_the_same_seed() -> None:
    def run() -> list[bytes]:
        files = FakeFiles()
        for name in "abc":
            put(files, f"/{name}", bytes(2000))
        files.sync_directory("/")
        return [get(files.after_power_cut(5), f"/{name}") for name in "abc"]

    assert run() == run()


def test_a_power_cut_can_be_planned_for_what_follows_a_name() -> None:
    files = FakeFiles()
    files.make_directory("/d")
    files.crash_near("/install-", 2)
    files.open("/d/other", create=True)
    files.open("/d/install-1", create=True)
    handle = files.open("/d/third", create=True)
    with pytest.raises(PowerCut):
        files.write(handle, (b"x",), 0)
    assert files.is_off


def test_after_a_power_cut_every_call_fails() -> None:
    files = FakeFiles(crash_at=2)
    handle = files.open("/a", create=True)
    for _ in range(2):
        with pytest.raises(PowerCut):
            files.write(handle, [b"x"], 0)
    with pytest.raises(PowerCut):
        files.list("/")
    files.close(handle)


def test_a_process_that_dies_loses_nothing_but_its_locks() -> None:
    files = FakeFiles()
    files.lock("/lock")
    put(files, "/a", b"unsynced")
    survivor = files.after_kill()
    assert get(survivor, "/a") == b"unsynced"
    survivor.lock("/lock")


def test_a_failed_sync_forgets_its_changes_for_good() -> None:
    """As Linux does: the second sync succeeds, and proves nothing."""
    for seed in range(20):
        files = FakeFiles()
        handle = files.open("/a", create=True)
        files.sync_directory("/")
        files.write(handle, [b"lost"], 0)
        files.fail("sync")
        with pytest.raises(OSError, match="Input/output"):
            files.sync(handle)
        assert files.read(handle, 10, 0) == b"lost"
        files.sync(handle)
        assert get(files.after_power_cut(seed), "/a") == b""


def test_planned_failures_meet_the_chosen_call() -> None:
    files = FakeFiles()
    handle, other = files.open("/a", create=True), files.open("/b", create=True)
    files.fail("write", errno.ENOSPC, path_part="a", skip_count=1, partial_bytes=2)
    files.write(other, [b"fine"], 0)
    files.write(handle, [b"fine"], 0)
    with pytest.raises(OSError, match="No space") as caught:
        files.write(handle, [b"more"], 4)
    assert caught.value.errno == errno.ENOSPC
    assert files.content("/a") == b"finemo"
    files.write(handle, [b"re"], 6)


def test_a_full_disk_takes_what_fits() -> None:
    files = FakeFiles(capacity_bytes=10)
    put(files, "/a", b"12345")
    handle = files.open("/b", create=True)
    with pytest.raises(OSError, match="No space"):
        files.write(handle, [b"67890123"], 0)
    assert files.content("/b") == b"67890"
    files.write(handle, [b"over"], 0)
    files.capacity_bytes = 100
    files.write(handle, [b"67890123"], 0)
    assert files.free_bytes("/") == 87


def test_dropped_caches_are_filled_by_reading() -> None:
    files = FakeFiles()
    put(files, "/a", b"x")
    files.drop_caches()
    handle = files.open("/a")
    assert files.read_cached(handle, 1, 0) == b""
    assert files.read(handle, 1, 0) == b"x"
    assert files.read_cached(handle, 1, 0) == b"x"


def test_a_directory_that_is_in_use_is_not_made_again() -> None:
    """Somebody has moved it. What would be written to a new one of its name, the next start would not find."""
    files, known = FakeFiles(), KnownDirectories()
    make_directories(files, "/nodes/data", known)
    known.root = "/nodes/data"
    make_directories(files, "/nodes/data/topics/a", known)
    files.rename("/nodes/data", "/nodes/moved")
    with pytest.raises(FileNotFoundError, match="was moved or removed while its node runs"):
        make_directories(files, "/nodes/data/topics/b", known)
    assert not files.is_directory("/nodes/data")
    make_directories(files, "/nodes/moved/topics/b", known)
