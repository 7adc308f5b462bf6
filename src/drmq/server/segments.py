"""Reads segment files from outside the broker, for dumps and checks.

A file is read front to back, with one batch in memory at a time, and opened for reading only. This allows reading the
directory of a running broker, or a disk that has become read-only.

Each batch is checked by itself and in its place: header, checksum, increasing offsets, and segments that follow each
other without a gap. The end of the last segment of a log may be torn: a crash leaves it so, and opening the log
truncates it. Torn tails and damage are told apart by the same rule as when a log is opened: a torn tail starts at or
after the offset in the `flushed` file, up to which the log was promised to be durable, and no intact batch follows it.
Anything else is damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drmq.model import DrmqError, Offset
from drmq.records import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, batch_is_intact, read_header
from drmq.storage import OsFiles
from drmq.storage.checkpoint import FlushedFile
from drmq.storage.directory import LOST_SUFFIX
from drmq.storage.recovery import FLUSHED_NAME
from drmq.storage.walk import find_batch

LOG_SUFFIX = ".log"
BATCH_BYTES_MAX = 1 << 30
"""A header that claims a larger batch is not a header."""


class NoSegments(DrmqError):
    """A path without segment files."""


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch in a file. `data` is the whole batch, including the header."""

    position: int
    header: BatchHeader
    data: bytes
    crc_ok: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged or torn place in a file, and what is wrong there."""

    path: Path
    position: int
    problem: str
    is_torn_tail: bool = False


def find_segments(path: Path) -> list[Path]:
    """The segment file at `path`, or all segment files below it, grouped by log and in order."""
    if path.is_file():
        if path.suffix != LOG_SUFFIX:
            raise NoSegments(f"{path} is not a segment file. Names of segment files end in {LOG_SUFFIX}.")
        return [path]
    if not path.exists():
        raise NoSegments(f"{path} does not exist.")
    found = sorted(file for file in path.rglob(f"*{LOG_SUFFIX}") if is_segment(file))
    if not found:
        raise NoSegments(f"There are no segment files in {path}.")
    return found


@dataclass(frozen=True, slots=True)
class SetAside:
    """A damaged copy of a partition that has been replaced, and that is kept for inspection."""

    path: Path
    size_bytes: int


def find_set_aside(path: Path) -> list[SetAside]:
    """The copies below `path` that were set aside, without `path` itself, which was named explicitly."""
    found = sorted(
        directory
        for directory in path.rglob(f"*{LOST_SUFFIX}")
        if directory.is_dir() and directory.name.removesuffix(LOST_SUFFIX).isdigit()
    )
    return [SetAside(one, sum(file.stat().st_size for file in one.rglob("*") if file.is_file())) for one in found]


def is_segment(path: Path) -> bool:
    """Whether a file is named like a segment: the twenty digits of its first offset."""
    return path.suffix == LOG_SUFFIX and len(path.stem) == 20 and path.stem.isdigit()


def read_batches(path: Path) -> Iterator[FoundBatch | Damage]:
    """Each batch of a file in order, also those with a wrong checksum. Ends with `Damage` where no batch begins."""
    size = path.stat().st_size
    position = 0
    with path.open("rb") as file:
        while position < size:
            start = file.read(HEADER_SIZE)
            if len(start) < HEADER_SIZE:
                yield Damage(path, position, f"the file ends after {len(start)} bytes of a batch header", True)
                return
            header = read_header(start)
            if header.magic != MAGIC or not HEADER_SIZE - LENGTH_OVERHEAD <= header.length <= BATCH_BYTES_MAX:
                torn = _only_zeros_follow(start, file.read(1 << 20))
                problem = "zeros instead of a batch" if torn else "no record batch begins here"
                yield Damage(path, position, problem, torn)
                return
            data = start + file.read(header.size - HEADER_SIZE)
            if len(data) < header.size:
                yield Damage(path, position, f"the batch has {header.size} bytes, the file only {len(data)} more", True)
                return
            yield FoundBatch(position, header, data, batch_is_intact(data))
            position += header.size


def _only_zeros_follow(start: bytes, after: bytes) -> bool:
    """Whether only zeros follow. A file whose size became durable before its bytes ends in zeros: also a torn tail."""
    return not any(start) and not any(after)


class _ReadOnlyFiles(OsFiles):
    """Read-only access to the files of a log that belongs to another process."""

    def open(self, path: str, *, create: bool = False) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def promised_offset(log_directory: Path) -> Offset | None:
    """The offset up to which a log is known to be durable; None if unknown, as for a copy of a single segment."""
    try:
        flushed = FlushedFile(_ReadOnlyFiles(), str(log_directory / FLUSHED_NAME)).read()
    except OSError:
        return None
    return flushed.offset if flushed is not None else None


class LogChecker:
    """Checks segment files one after the other, in the order of `find_segments`, and counts intact batches."""

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.segments = 0
        self.damage: list[Damage] = []
        self._log: Path | None = None
        self._next_offset: Offset | None = None

    def check(self, path: Path, *, is_last: bool) -> Iterator[int]:
        """Check one file. Yields the size of each batch in bytes, for a progress bar.

        `is_last`: no other segment of the same log follows.
        """
        self.segments += 1
        promised = promised_offset(path.parent) if is_last and is_segment(path) else None
        if path.parent != self._log:
            self._log, self._next_offset = path.parent, None
        if is_segment(path) and self._next_offset is not None and int(path.stem) != self._next_offset:
            self._report(path, 0, f"the segment before it ends with offset {self._next_offset - 1}")
        if is_segment(path):
            self._next_offset = Offset(int(path.stem))
        for found in read_batches(path):
            problem = found.problem if isinstance(found, Damage) else self._problem(found)
            if problem is not None:
                torn = is_last and self._is_torn_tail(path, found.position, promised)
                self.damage.append(Damage(path, found.position, problem, torn))
                if torn or isinstance(found, Damage):
                    return
            assert isinstance(found, FoundBatch)
            if found.crc_ok:
                self.batches += 1
                self.records += max(0, found.header.record_count)
            self._next_offset = found.header.next_offset
            yield found.header.size
        if promised is not None and self._next_offset is not None and self._next_offset < promised:
            self._report(path, path.stat().st_size, f"the log was flushed up to offset {promised}, but ends here")

    def _problem(self, found: FoundBatch) -> str | None:
        header = found.header
        if not found.crc_ok:
            return f"the checksum of the batch at offset {header.base_offset} is wrong"
        if self._next_offset is not None and header.base_offset != self._next_offset:
            return f"the batch begins with offset {header.base_offset}, not {self._next_offset}"
        return None

    def _is_torn_tail(self, path: Path, position: int, promised: Offset | None) -> bool:
        """Whether opening the log would truncate it here without loss: nothing promised and nothing intact follows."""
        expected = self._next_offset if self._next_offset is not None else Offset(-1)
        if promised is not None and expected < promised:
            return False
        with path.open("rb") as file:
            file.seek(position)
            return find_batch(file.read(), expected) is None

    def _report(self, path: Path, position: int, problem: str) -> None:
        self.damage.append(Damage(path, position, problem))

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged. A torn tail is not damage."""
        return all(damage.is_torn_tail for damage in self.damage)
