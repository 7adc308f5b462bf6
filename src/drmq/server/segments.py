"""Segment files read from outside: for dumps and checks, never by a broker.

A file is read front to back, one batch in memory at a time, and opened for reading only, so that
the directory of a running broker may be looked at, and a disk that refuses to be written.

What is looked at here is each batch by itself and its place in the row: header, checksum, offsets that
increase, and segments that follow each other without a gap. The end of the last segment of a
log may be torn: a crash leaves it so, and opening the log cuts it. What is torn and what is damaged is
decided as opening decides it: torn is what lies behind the offset in the `flushed` file, up to which
the log was promised, with nothing sound after it. Anything else is damage.
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
"""A header that claims more is not a header."""


class NoSegments(DrmqError):
    """A path under which there is nothing to read."""


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch in a file. `data` is the whole batch, header included."""

    position: int
    header: BatchHeader
    data: bytes
    crc_ok: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong, and where."""

    path: Path
    position: int
    problem: str
    is_torn_tail: bool = False


def find_segments(path: Path) -> list[Path]:
    """The segment file at `path`, or all below it, those of one log together and in order."""
    if path.is_file():
        if path.suffix != LOG_SUFFIX:
            raise NoSegments(f"{path} is not a segment file: these end in {LOG_SUFFIX}.")
        return [path]
    if not path.exists():
        raise NoSegments(f"{path} does not exist.")
    found = sorted(file for file in path.rglob(f"*{LOG_SUFFIX}") if is_segment(file))
    if not found:
        raise NoSegments(f"There are no segment files in {path}.")
    return found


@dataclass(frozen=True, slots=True)
class SetAside:
    """A damaged copy of a partition that another has taken the place of, kept for whoever wants to look at it."""

    path: Path
    size_bytes: int


def find_set_aside(path: Path) -> list[SetAside]:
    """The copies below `path` that were set aside; not `path` itself, which somebody asks for by its name."""
    found = sorted(
        directory
        for directory in path.rglob(f"*{LOST_SUFFIX}")
        if directory.is_dir() and directory.name.removesuffix(LOST_SUFFIX).isdigit()
    )
    return [SetAside(one, sum(file.stat().st_size for file in one.rglob("*") if file.is_file())) for one in found]


def is_segment(path: Path) -> bool:
    """Whether a file is named like a segment: twenty digits, its first offset."""
    return path.suffix == LOG_SUFFIX and len(path.stem) == 20 and path.stem.isdigit()


def read_batches(path: Path) -> Iterator[FoundBatch | Damage]:
    """Each batch of a file in order, bad checksums included; ends with `Damage` where no batch begins."""
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
    """A file whose size became durable before its bytes ends in zeros: a torn tail too."""
    return not any(start) and not any(after)


class _ReadOnlyFiles(OsFiles):
    """Files of a log that belongs to someone else: nothing is created, nothing can be written."""

    def open(self, path: str, *, create: bool = False) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def promised_offset(log_directory: Path) -> Offset | None:
    """How far a log is known to be durable; None where that is not told, as for a segment that was copied away."""
    try:
        flushed = FlushedFile(_ReadOnlyFiles(), str(log_directory / FLUSHED_NAME)).read()
    except OSError:
        return None
    return flushed.offset if flushed is not None else None


class LogChecker:
    """Checks segment files one after the other, in the order of `find_segments`. Counts what is sound."""

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.segments = 0
        self.damage: list[Damage] = []
        self._log: Path | None = None
        self._next_offset: Offset | None = None

    def check(self, path: Path, *, is_last: bool) -> Iterator[int]:
        """Check one file; yields the bytes of each batch as it is done, for a progress bar.

        `is_last` says that no other segment of the same log follows.
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
        """Whether opening the log would cut it here without a loss: nothing promised, nothing sound behind."""
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
        """Whether nothing is damaged; a torn tail is no damage."""
        return all(damage.is_torn_tail for damage in self.damage)
