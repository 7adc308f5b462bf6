"""What is kept of a transfer that arrives in parts: valid parts only."""

from __future__ import annotations

import errno

import pytest

from drmq.storage import Incoming, IncomingFile
from drmq.testing.files import FakeFiles, PowerCut

DIRECTORY = "/log"
PATH = f"{DIRECTORY}/incoming"
PARTS = [b"first part ", b"and the second, which is longer ", b"and the third"]
WHOLE = b"".join(PARTS)


def a_disk() -> FakeFiles:
    files = FakeFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


def keep_all(file: IncomingFile, description: bytes = b"snapshot 7") -> list[int]:
    """Keep all parts; where each began."""
    starts = [len(b"".join(PARTS[:count])) for count in range(len(PARTS))]
    for start, part in zip(starts, PARTS, strict=True):
        file.keep(description, start, part)
    return starts


def test_parts_are_found_again_and_added_to() -> None:
    files = a_disk()
    first = IncomingFile(DIRECTORY, files)
    assert first.load() is None
    first.keep(b"snapshot 7", 0, PARTS[0])
    second = IncomingFile(DIRECTORY, files.after_power_cut(1))
    assert second.load() == Incoming(b"snapshot 7", bytearray(PARTS[0]))
    second.keep(b"snapshot 7", len(PARTS[0]), memoryview(PARTS[1]))
    third = IncomingFile(DIRECTORY, second._files.after_power_cut(2))  # type: ignore[attr-defined]
    assert third.load() == Incoming(b"snapshot 7", bytearray(PARTS[0] + PARTS[1]))


def test_a_first_part_begins_anew() -> None:
    files = a_disk()
    file = IncomingFile(DIRECTORY, files)
    keep_all(file)
    file.keep(b"snapshot 8", 0, b"other")
    assert IncomingFile(DIRECTORY, files.after_kill()).load() == Incoming(b"snapshot 8", bytearray(b"other"))


@pytest.mark.parametrize(
    ("description", "position"),
    [(b"snapshot 8", len(PARTS[0])), (b"snapshot 7", len(PARTS[0]) + 1), (b"snapshot 7", 1)],
)
def test_what_does_not_follow_is_not_kept_nor_what_comes_behind_it(description: bytes, position: int) -> None:
    """The writer drops what is queued after a failure, so a part may be missing in between."""
    files = a_disk()
    file = IncomingFile(DIRECTORY, files)
    file.keep(b"snapshot 7", 0, PARTS[0])
    file.keep(description, position, b"stray")
    file.keep(b"snapshot 7", len(PARTS[0]), PARTS[1])
    found = IncomingFile(DIRECTORY, files.after_kill()).load()
    assert found == Incoming(b"snapshot 7", bytearray(PARTS[0]))


def test_a_power_cut_at_any_step_takes_no_part_that_was_kept_and_leaves_none_that_is_torn() -> None:
    crash_at, is_finished = 0, False
    while not is_finished:
        crash_at += 1
        files = a_disk()
        files.crash_at = files.step + crash_at
        file = IncomingFile(DIRECTORY, files)
        kept = 0
        try:
            for part in PARTS:
                file.keep(b"snapshot 7", kept, part)
                kept += len(part)
            is_finished = True
        except PowerCut:
            pass
        for seed in range(20):
            found = IncomingFile(DIRECTORY, files.after_power_cut(seed)).load()
            data = found.data if found is not None else b""
            assert len(data) >= kept
            assert WHOLE.startswith(data)
    assert crash_at > 8


def test_a_power_cut_while_one_transfer_takes_the_place_of_another_never_mixes_them() -> None:
    other = [bytes([255]) * len(part) for part in PARTS]
    outcomes, crash_at, is_finished = set(), 0, False
    while not is_finished:
        crash_at += 1
        files = a_disk()
        file = IncomingFile(DIRECTORY, files)
        starts = keep_all(file)
        files.crash_at = files.step + crash_at
        try:
            for start, part in zip(starts, other, strict=True):
                file.keep(b"snapshot 8", start, part)
            is_finished = True
        except PowerCut:
            pass
        for seed in range(20):
            found = IncomingFile(DIRECTORY, files.after_power_cut(seed)).load()
            if found is not None:
                whole = {b"snapshot 7": WHOLE, b"snapshot 8": b"".join(other)}[found.description]
                assert whole.startswith(found.data)
                outcomes.add(found.description)
    assert outcomes == {b"snapshot 7", b"snapshot 8"}


def test_damage_anywhere_costs_what_lies_behind_it() -> None:
    files = a_disk()
    keep_all(IncomingFile(DIRECTORY, files))
    handle = files.open(PATH)
    size = files.size(handle)
    content = files.read(handle, size, 0)
    starts = {len(b"".join(PARTS[:count])) for count in range(1, len(PARTS))}
    for position in range(size):
        damaged = a_disk()
        again = damaged.open(PATH, create=True)
        damaged.write(again, (content,), 0)
        damaged.flip_bit(PATH, position)
        found = IncomingFile(DIRECTORY, damaged).load()
        if found is None:
            assert not damaged.exists(PATH)
            continue
        assert found.description == b"snapshot 7"
        assert len(found.data) in starts
        assert WHOLE.startswith(found.data)


def test_what_follows_a_torn_part_is_written_in_its_place() -> None:
    files = a_disk()
    starts = keep_all(IncomingFile(DIRECTORY, files))
    handle = files.open(PATH)
    files.truncate(handle, files.size(handle) - 1)
    file = IncomingFile(DIRECTORY, files)
    found = file.load()
    assert found is not None
    assert len(found.data) == starts[2]
    file.keep(b"snapshot 7", starts[2], PARTS[2])
    assert IncomingFile(DIRECTORY, files.after_kill()).load() == Incoming(b"snapshot 7", bytearray(WHOLE))


@pytest.mark.parametrize("content", [b"", b"DMQI", bytes(200)])
def test_a_file_that_is_none_is_removed(content: bytes) -> None:
    files = a_disk()
    files.write(files.open(PATH, create=True), (content,), 0)
    assert IncomingFile(DIRECTORY, files).load() is None
    assert not files.exists(PATH)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_after_a_failure_nothing_more_is_kept_until_the_next_beginning(operation: str) -> None:
    files = a_disk()
    file = IncomingFile(DIRECTORY, files)
    file.keep(b"snapshot 7", 0, PARTS[0])
    files.fail(operation, errno.ENOSPC, path_part="incoming")
    with pytest.raises(OSError, match="No space"):
        file.keep(b"snapshot 7", len(PARTS[0]), PARTS[1])
    file.keep(b"snapshot 7", len(PARTS[0]) + len(PARTS[1]), PARTS[2])
    assert not files.exists(PATH)
    keep_all(file)
    assert IncomingFile(DIRECTORY, files.after_kill()).load() == Incoming(b"snapshot 7", bytearray(WHOLE))


def test_a_file_that_cannot_be_read_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    files = a_disk()
    keep_all(IncomingFile(DIRECTORY, files))
    files.fail("open", errno.EIO, path_part="incoming")
    assert IncomingFile(DIRECTORY, files).load() is None
    assert "requested again" in caplog.text
