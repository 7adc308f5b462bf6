"""Opening a log: what is there, what was acknowledged, and what a crash left behind.

All segments but the last were synced before the next one was created, so they are accepted without reading them. Only
the last one is walked, and only from its checkpoint on: the last batch below the flushed position that is in its index
file, which is saved from time to time. Bytes before that were synced and are checked when they are read, as those of
sealed segments. If the log does not continue there as the index says, all of it is walked. What the walk can find, and
what it means:

- the end of the file: the log is complete;
- something other than the next batch, below the flushed offset: those bytes were acknowledged. This is
  `LogCorrupt`, and nothing is changed;
- the same at or above the flushed offset: a torn tail, never acknowledged. It is cut off. If an intact
  batch follows the bad one, this was no ordinary torn write, and the removed bytes are kept
  in a `.cut` file beside the segment and reported;
- an end below the flushed offset: acknowledged batches are missing. `LogCorrupt`.

Everything that remains after the flushed position is written again and synced before the log is used: after `kill -9`
the bytes are there, but perhaps only in the page cache. After a clean shutdown the index of the last segment is on disk
too, and only the batches from its last entry on are walked.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import pairwise

from drmq.model import Offset
from drmq.storage.checkpoint import Flushed, FlushedFile, read_start
from drmq.storage.errors import LogCorrupt, LogFenced
from drmq.storage.file_pool import FilePool
from drmq.storage.files import OS_FILES, Files, make_directories, sync_ancestors
from drmq.storage.log import LogOptions
from drmq.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from drmq.storage.walk import BadBatch, find_batch, walk

_logger = logging.getLogger(__name__)

FLUSHED_NAME = "flushed"
START_NAME = "start"
CUT_SUFFIX = ".cut"
_DIGITS = 20
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """What happened when a log was opened, for the operator."""

    was_clean: bool
    """The log was closed cleanly, so that at most the end of the last segment had to be walked."""
    walked_bytes: int
    """How much of the last segment was read."""
    cut_bytes: int
    """How much of an unacknowledged tail was removed."""
    cut_path: str | None
    """Where the removed bytes were saved, if an intact batch was among them."""


@dataclass(slots=True)
class OpenedLog:
    """The parts from which a `SegmentLog` is made."""

    segments: list[Segment]
    start_offset: Offset
    flushed_file: FlushedFile
    recovery: Recovery
    is_marked_clean: bool = False
    """The `flushed` file still has the mark of a clean shutdown."""
    leftovers: list[Segment] = field(default_factory=list)
    """Segments below the start offset that were not removed because of a crash."""


def remove_log_files(directory: str, files: Files = OS_FILES) -> None:
    """Remove all files of a log, and no other file in the directory."""
    if not files.is_directory(directory):
        return
    for name in files.list(directory):
        if name in (FLUSHED_NAME, START_NAME) or name.endswith((LOG_SUFFIX, INDEX_SUFFIX, CUT_SUFFIX)):
            files.remove(f"{directory}/{name}")
    files.sync_directory(directory)


def holds_records(directory: str, files: Files = OS_FILES) -> bool:
    """Whether any segment in a directory has bytes. Does not read them, so damaged ones count."""
    return files.is_directory(directory) and any(
        name.endswith(LOG_SUFFIX) and files.status(f"{directory}/{name}").size_bytes > 0
        for name in files.list(directory)
    )


def segment_bases(files: Files, directory: str) -> list[Offset]:
    """The base offsets of the segments in a directory, in order."""
    return [
        Offset(int(name[:_DIGITS]))
        for name in files.list(directory)
        if len(name) == _DIGITS + len(LOG_SUFFIX) and name.endswith(LOG_SUFFIX) and name[:_DIGITS].isdigit()
    ]


def holds_segments(files: Files, directory: str) -> bool:
    """Whether there is a log in a directory, possibly an empty one."""
    return files.is_directory(directory) and bool(segment_bases(files, directory))


def open_log(pool: FilePool, directory: str, options: LogOptions, first_offset: Offset) -> OpenedLog:
    """Find or create the log in `directory`; a new one starts at `first_offset`."""
    files = pool.files
    make_directories(files, directory, pool.known_directories)
    flushed_file = FlushedFile(files, f"{directory}/{FLUSHED_NAME}", pool)
    flushed = flushed_file.read()
    start = read_start(files, f"{directory}/{START_NAME}")
    bases = segment_bases(files, directory)
    if not bases:
        if flushed is not None and flushed.offset > first_offset:
            raise LogCorrupt(directory, 0, flushed.offset, "all segments are missing")
        return _create(pool, directory, options, first_offset if start is None else start, flushed_file)
    if start is not None and bases[0] > start:
        raise LogCorrupt(directory, 0, start, f"the segments before offset {bases[0]} are missing")
    sealed = [
        Segment.sealed(pool, directory, base, end, files.status(f"{directory}/{base:020d}{LOG_SUFFIX}").size_bytes)
        for base, end in pairwise(bases)
    ]
    try:
        tail, recovery = _open_tail(pool, directory, options, bases[-1], flushed)
    except LogCorrupt:
        # The `flushed` file may be in a page that was never written to the disk. If it were lost in a power cut, the
        # next start would take the damage for an unfinished write, and cut off batches that were acknowledged.
        flushed_file.sync()
        raise
    opened = OpenedLog([], bases[0] if start is None else start, flushed_file, recovery, recovery.was_clean)
    for segment in sealed:
        (opened.leftovers if segment.end_offset <= opened.start_offset else opened.segments).append(segment)
    opened.segments.append(tail)
    if tail.end_offset < opened.start_offset:
        raise LogCorrupt(tail.path, tail.size_bytes, tail.end_offset, f"offset {opened.start_offset} is missing")
    if not recovery.was_clean:
        _settle(files, directory, tail, flushed, flushed_file)
    return opened


def _create(
    pool: FilePool, directory: str, options: LogOptions, first_offset: Offset, flushed_file: FlushedFile
) -> OpenedLog:
    files = pool.files
    segment = Segment(pool, directory, first_offset, options.index_interval_bytes)
    segment.create()
    files.sync_directory(directory)
    sync_ancestors(files, directory, pool.known_directories)
    flushed_file.write(Flushed(False, first_offset, first_offset, 0))
    return OpenedLog([segment], first_offset, flushed_file, Recovery(True, 0, 0, None))


def _settle(files: Files, directory: str, tail: Segment, flushed: Flushed | None, flushed_file: FlushedFile) -> None:
    """Make the found bytes durable, and the name of their file.

    Bytes that are not known to be on the disk are written again. If an earlier sync of them failed, the page cache
    still holds them marked as clean, and another sync alone would prove nothing.
    """
    found = Flushed(False, tail.end_offset, tail.base_offset, tail.size_bytes)
    position = flushed.position if flushed is not None and flushed.segment == tail.base_offset else 0
    file = tail.file
    handle = file.handle
    try:
        while position < tail.size_bytes:
            data = files.read(handle, min(_CHUNK_BYTES, tail.size_bytes - position), position)
            files.write(handle, (data,), position)
            position += len(data)
        if found != flushed:
            # Otherwise this is what was synced before the `flushed` file was written.
            files.sync(handle)
        # A name may be new in any case, such as that of the file `start`.
        files.sync_directory(directory)
    except OSError as error:
        raise LogFenced(tail.path, f"what was found cannot be made durable: {error.strerror}") from error
    if found != flushed:
        flushed_file.write(found)


def _open_tail(
    pool: FilePool, directory: str, options: LogOptions, base: Offset, flushed: Flushed | None
) -> tuple[Segment, Recovery]:
    """Open the last segment, ready for appends."""
    files = pool.files
    tail = Segment(pool, directory, base, options.index_interval_bytes)
    file = tail.file
    handle = file.handle
    size_bytes = files.size(handle)
    if flushed is not None and flushed.is_clean and flushed.segment == base and flushed.position == size_bytes:
        found = _open_clean(files, tail, flushed)
        if found is not None:
            return found
    # A segment is created only after the one before it was synced, so its base is a lower bound even without the file.
    promised = max(base, flushed.offset if flushed is not None else base)
    bad, walked_from = None, 0
    part = _from_checkpoint(tail, flushed, size_bytes)
    if part is not None:
        walked_from = part.size_bytes
        bad = _walk_on(files, part, handle, size_bytes)
    if part is not None and part.end_offset >= promised:
        tail = part
    else:
        bad, walked_from = _walk_on(files, tail, handle, size_bytes), 0
    if tail.end_offset < promised:
        if bad is None:
            bad = BadBatch(size_bytes, tail.end_offset, f"the log was flushed up to offset {promised}, but ends here")
        raise tail.corrupt(bad)
    cut_path = _cut_tail(files, directory, tail, size_bytes, bad) if bad is not None else None
    tail.flushed_bytes = tail.synced_bytes = tail.size_bytes
    return tail, Recovery(False, size_bytes - walked_from, size_bytes - tail.size_bytes, cut_path)


def _from_checkpoint(tail: Segment, flushed: Flushed | None, size_bytes: int) -> Segment | None:
    """The part of the last segment that need not be walked; None if all of it must be."""
    if flushed is None or flushed.segment != tail.base_offset or flushed.position > size_bytes:
        return None
    try:
        return tail.from_checkpoint(flushed.position)
    except LogCorrupt:
        # A walk of the whole segment shows whether the index or the log is wrong.
        return None


def _walk_on(files: Files, tail: Segment, handle: int, size_bytes: int) -> BadBatch | None:
    """Register the batches that follow in the file; returns what ended the walk early."""
    try:
        for position, header in walk(files, handle, tail.size_bytes, size_bytes, tail.end_offset):
            tail.note(header, position)
    except BadBatch as error:
        return error
    return None


def _open_clean(files: Files, tail: Segment, flushed: Flushed) -> tuple[Segment, Recovery] | None:
    """The last segment after a clean shutdown, or None if its index does not match."""
    size_bytes = flushed.position
    if size_bytes == 0:
        return tail, Recovery(True, 0, 0, None)
    found = tail.as_sealed(flushed.offset, size_bytes)
    index = found.index = found.load_index_file()
    if index is None or not len(index):
        return None
    last = index.positions[-1]
    offset = Offset(found.base_offset + index.offsets[-1])
    file = found.file
    try:
        for _, header in walk(files, file.handle, last, size_bytes, offset):
            offset = header.next_offset
    except BadBatch:
        # A walk of the whole segment shows whether the index or the log is wrong.
        return None
    return (found, Recovery(True, size_bytes - last, 0, None)) if offset == flushed.offset else None


def _cut_tail(files: Files, directory: str, tail: Segment, size_bytes: int, bad: BadBatch) -> str | None:
    """Cut the file where the bad batch begins; save the removed bytes if an intact batch is among them."""
    position = tail.size_bytes
    file = tail.file
    handle = file.handle
    removed = files.read(handle, size_bytes - position, position)
    cut_path = None
    if find_batch(removed, tail.end_offset) is not None:
        cut_path = f"{tail.path}.{position}{CUT_SUFFIX}"
        copy = files.open(cut_path, create=True)
        try:
            files.truncate(copy, 0)
            files.write(copy, (removed,), 0)
            files.sync(copy)
        finally:
            files.close(copy)
        files.sync_directory(directory)
        _logger.error(
            "%s: cut %d bytes at position %d (offset %d: %s) although sound batches follow; kept in %s",
            tail.path, len(removed), position, bad.offset, bad.problem, cut_path,
        )  # fmt: skip
    else:
        _logger.warning("%s: cut a torn tail of %d bytes at offset %d", tail.path, len(removed), bad.offset)
    files.truncate(handle, position)
    return cut_path
