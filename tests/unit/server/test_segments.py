"""Segment files seen from outside: what is sound, what is torn, what is damaged."""

import random
from pathlib import Path

import pytest

from drmq.model import Offset
from drmq.records import Record, encode_batch
from drmq.server.segments import Damage, FoundBatch, LogChecker, NoSegments, find_segments, read_batches
from drmq.storage import OsFiles
from drmq.storage.checkpoint import Flushed, FlushedFile


def batch(base_offset: int, count: int = 2) -> bytes:
    records = [Record(Offset(base_offset + i), 1000 + i, b"k", b"v" * 20, ()) for i in range(count)]
    return bytes(encode_batch(records, base_offset=Offset(base_offset)))


def write_log(folder: Path, segments: dict[int, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for base_offset, content in segments.items():
        (folder / f"{base_offset:020d}.log").write_bytes(content)
    return folder


def check(path: Path) -> LogChecker:
    checker = LogChecker()
    segments = find_segments(path)
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments) or segments[number + 1].parent != segment.parent
        for _ in checker.check(segment, is_last=is_last):
            pass
    return checker


def test_sound_log(tmp_path: Path) -> None:
    """Batches and records of all segments are counted, and nothing is found."""
    write_log(tmp_path / "0", {0: batch(0) + batch(2), 4: batch(4, 3)})
    write_log(tmp_path / "1", {7: batch(7)})
    checker = check(tmp_path)
    assert (checker.segments, checker.batches, checker.records) == (3, 4, 9)
    assert checker.damage == []
    assert checker.is_sound


@pytest.mark.parametrize("kept", [1, 60, 61, 100])
def test_torn_tail_of_the_last_segment_is_no_damage(tmp_path: Path, kept: int) -> None:
    """A crash leaves an unfinished batch; wherever it is cut, it is reported and forgiven."""
    write_log(tmp_path, {0: batch(0) + batch(2)[:kept]})
    checker = check(tmp_path)
    assert checker.is_sound
    assert [damage.is_torn_tail for damage in checker.damage] == [True]


def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    """A file whose length outlived its data ends in zeros."""
    write_log(tmp_path, {0: batch(0) + bytes(500)})
    assert check(tmp_path).is_sound


def test_random_bytes_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    """Opening the log would cut them, whatever they are, as long as nothing sound is among them."""
    garbage = random.Random(1).randbytes(5000)
    write_log(tmp_path, {0: batch(0) + garbage})
    checker = check(tmp_path)
    assert checker.is_sound
    assert [(damage.position, damage.is_torn_tail) for damage in checker.damage] == [(len(batch(0)), True)]
    assert (checker.batches, checker.records) == (1, 2)


def test_last_batch_with_a_bad_checksum_is_torn_unless_it_was_promised(tmp_path: Path) -> None:
    """The `flushed` file says what was acknowledged: below it, the same bytes are damage."""
    content = bytearray(batch(0) + batch(2))
    content[-1] ^= 1
    for name in ("torn", "promised"):
        write_log(tmp_path / name, {0: bytes(content)})
    assert check(tmp_path / "torn").is_sound
    FlushedFile(OsFiles(), str(tmp_path / "torn" / "flushed")).write(Flushed(False, Offset(2), Offset(0), 0))
    assert check(tmp_path / "torn").is_sound
    FlushedFile(OsFiles(), str(tmp_path / "promised" / "flushed")).write(Flushed(False, Offset(4), Offset(0), 0))
    checker = check(tmp_path / "promised")
    assert not checker.is_sound
    assert (checker.batches, checker.records) == (1, 2)


def test_garbage_with_something_sound_behind_it_is_damage(tmp_path: Path) -> None:
    """More than a torn write: a person should look."""
    write_log(tmp_path, {0: batch(0) + b"\xff" * 200 + batch(4)})
    assert not check(tmp_path).is_sound


def test_promised_batches_that_are_missing_are_damage(tmp_path: Path) -> None:
    """A log that was cut by someone reads well to its end, and is still not whole."""
    write_log(tmp_path, {0: batch(0)})
    FlushedFile(OsFiles(), str(tmp_path / "flushed")).write(Flushed(False, Offset(4), Offset(0), 0))
    assert [damage.problem for damage in check(tmp_path).damage] == [
        "the log was flushed up to offset 4, but ends here"
    ]


def test_checking_writes_nothing(tmp_path: Path) -> None:
    """Not even an empty `flushed` file."""
    write_log(tmp_path, {0: batch(0)})
    check(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".log"]


def test_torn_tail_of_an_earlier_segment_is_damage(tmp_path: Path) -> None:
    """What was sealed was whole."""
    write_log(tmp_path, {0: batch(0) + batch(2)[:70], 4: batch(4)})
    assert not check(tmp_path).is_sound


def test_flipped_bit_is_found_and_the_rest_still_checked(tmp_path: Path) -> None:
    """One bad checksum does not hide the batches behind it, and its records are not counted."""
    content = bytearray(batch(0) + batch(2) + batch(4))
    content[len(batch(0)) + 70] ^= 1
    write_log(tmp_path, {0: bytes(content)})
    checker = check(tmp_path)
    assert not checker.is_sound
    assert (checker.batches, checker.records) == (2, 4)
    assert [damage.position for damage in checker.damage] == [len(batch(0))]


def test_gap_between_batches_and_between_segments_is_damage(tmp_path: Path) -> None:
    """Offsets of a log are dense; a missing batch is missed even if all that is there is sound."""
    write_log(tmp_path / "a", {0: batch(0) + batch(4)})
    write_log(tmp_path / "b", {0: batch(0), 5: batch(5)})
    checker = check(tmp_path)
    assert [damage.path.parent.name for damage in checker.damage] == ["a", "b"]


def test_foreign_bytes_end_the_file(tmp_path: Path) -> None:
    """Where no batch begins, reading stops and says where."""
    path = write_log(tmp_path, {0: batch(0) + b"\xff" * 200}) / f"{0:020d}.log"
    first, second = read_batches(path)
    assert isinstance(first, FoundBatch)
    assert first.crc_ok
    assert isinstance(second, Damage)
    assert (second.position, second.is_torn_tail) == (len(batch(0)), False)


def test_path_without_segments(tmp_path: Path) -> None:
    """Nothing to read is an error: a monitor that checks the wrong path must not report a sound log."""
    (tmp_path / "server.log").write_text("not a segment")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "server.log"):
        if path.name == "server.log":
            assert find_segments(path) == [path]
            continue
        with pytest.raises(NoSegments):
            find_segments(path)
