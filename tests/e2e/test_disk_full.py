"""A disk that is really full: appends fail and leave nothing, reads go on, and all is well once there is space.

Runs on a small tmpfs, and is skipped where one cannot be mounted.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from drmq.model import Offset
from drmq.storage import DiskFull, Log, LogOptions, SegmentLog, StorageError, Writer
from support.storage_samples import batch, joined, read_all, row


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_stops_appends_and_nothing_else(small_disk: Path) -> None:
    log = SegmentLog(f"{small_disk}/log", LogOptions(segment_bytes=256 * 1024))
    kept = []

    def fill() -> None:
        for one in row(0, 1000, size=50_000):
            log.append([one])
            kept.append(one)

    with pytest.raises(DiskFull):
        fill()
    assert len(kept) > 30
    log.flush()
    assert read_all(log) == joined(kept)
    for _ in range(3):
        with pytest.raises(DiskFull):
            log.append([batch(log.end_offset, size=1_900_000)])
    assert log.apply_retention(0, retention_bytes=600_000) > 0
    again = row(log.end_offset, 5, size=50_000)
    log.append(again)
    log.flush()
    log.close()
    log = SegmentLog(f"{small_disk}/log", LogOptions(segment_bytes=256 * 1024))
    assert read_all(log) == joined([one for one in kept if one[0].base_offset >= log.start_offset] + again)


def test_the_writer_serves_other_disks_and_resumes_when_there_is_space(small_disk: Path, tmp_path: Path) -> None:
    story: list[tuple[str, int]] = []

    class Events:
        def on_written(self, results: list[tuple[Log, Offset]]) -> None:
            raise AssertionError(results)

        def on_flushed(self, results: list[tuple[Log, Offset]]) -> None:
            story.extend((os.path.basename(log.name), offset) for log, offset in results)

        def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None:
            assert isinstance(error, DiskFull)
            story.append((f"{os.path.basename(log.name)} failed", end_offset))

        def on_crashed(self, error: BaseException) -> None:
            raise AssertionError from error

    full, other = SegmentLog(f"{small_disk}/full"), SegmentLog(f"{tmp_path}/other")
    writer = Writer(Events())
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1_500_000))
    for header, data in row(0, 3, size=400_000):
        writer.submit(full, header, data)
        writer.submit(other, header, data)
    writer.run_cycle()
    assert story == [("full failed", 0), ("other", 3)]
    filler.unlink()
    writer.resume(full)
    for header, data in row(0, 3, size=400_000):
        writer.submit(full, header, data)
    writer.run_cycle()
    assert story[-1] == ("full", 3)
    writer.stop()
    assert read_all(full) == read_all(other)
