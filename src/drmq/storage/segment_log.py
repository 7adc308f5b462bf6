"""A log on disk: a sequence of segments, of which the last is written to.

Readers and the writer share one tuple of segments, which is replaced as a whole when a segment is added or removed, and
inside the active segment data that only grows. A reader that still holds a removed segment continues to read through
the open file.

The order of steps that makes a crash at any point harmless:

- *append*: write the bytes, sync, move `flushed_offset`, write the `flushed` file, answer; or write the bytes, write
  the same bytes to the journal, sync the journal, move `flushed_offset` and answer, and sync the log's own file some
  time later. Each of the following operations begins with that sync if it is still due;
- *roll*: sync the old segment, create the new one, sync the directory, then append to it;
- *drop*: record the new start durably, then remove files. Opening the log removes files below the start;
- *truncate*: make the log's entries in the journal void, lower the `flushed` file durably, remove later segments from
  the end with a directory sync each, then cut. At every point the remaining segments have no gap.

After a failed sync the log is fenced until it is reopened: see `LogFenced`.
"""

from __future__ import annotations

import errno
import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, TypeVar

from drmq.model import NO_LEADER_EPOCH, LeaderEpoch, Offset
from drmq.records import LENGTH_OVERHEAD, BatchHeader, Buffer
from drmq.storage.checkpoint import Flushed, write_start
from drmq.storage.epochs import EpochStart, EpochTable
from drmq.storage.errors import AppendFailed, DiskFull, LogClosed, LogCorrupt, LogFenced, OffsetOutOfRange
from drmq.storage.file_pool import FilePool
from drmq.storage.files import IOV_MAX, OS_FILES, BackgroundSync, Files, remove_tree
from drmq.storage.journal import Journal
from drmq.storage.log import LatestTime, LogOptions, StoredBatch, Unflushed
from drmq.storage.recovery import START_NAME, Recovery, holds_segments, open_log
from drmq.storage.retention import start_to_keep
from drmq.storage.segment import Segment
from drmq.storage.view import View
from drmq.telemetry.system_errors import in_words

_logger = logging.getLogger(__name__)
T = TypeVar("T")

RELATIVE_OFFSET_MAX = 0xFFFF_FFFF
"""The index stores offsets relative to the first of the segment in 32 bits."""
CHECKPOINT_BYTES = 256 << 10
"""When this much was synced since the index of the active segment was last saved, it is saved again, but only if it is
at least an eighth of the segment: all checkpoints of a segment together are then a few times as large as its index. An
opening after a crash walks what was appended since."""
_CHECKPOINT_PART = 8
_FULL = (errno.ENOSPC, errno.EDQUOT)


class _BegunSync(NamedTuple):
    """A sync that another thread performs, and what it will make durable."""

    sync: BackgroundSync
    flushed: Flushed


class SegmentLog:
    """A log in a directory of its own; implements `Log`."""

    def __init__(
        self,
        directory: str,
        options: LogOptions | None = None,
        files: Files = OS_FILES,
        first_offset: int = 0,
        journal: Journal | None = None,
        pool: FilePool | None = None,
    ) -> None:
        """Open the log in `directory`, or create one that starts at `first_offset`. Raises `LogCorrupt`.

        `journal` is the journal that makes appends of this log durable, if there is one. `pool` bounds the open files
        of all logs of a node.
        """
        self.options = options or LogOptions()
        self._files = files
        self._directory = directory
        self._journal = journal
        if journal is not None and not holds_segments(files, directory):
            # An earlier log in this directory may have had other bytes at the same positions.
            journal.forget(directory)
        self._pool = pool or FilePool(files)
        opened = open_log(self._pool, directory, self.options, Offset(first_offset))
        self.recovery: Recovery = opened.recovery
        self._flushed_file = opened.flushed_file
        self._start_offset = opened.start_offset
        self._is_marked_clean = opened.is_marked_clean
        self._fenced: str | None = None
        self._is_closed = False
        self._publish(opened.segments)
        self._end_offset = self._flushed_offset = self._synced_offset = self._active.end_offset
        self._unflushed: list[Buffer] = []
        self._begun: _BegunSync | None = None
        for segment in opened.leftovers:
            segment.remove_files()

    def _publish(self, segments: Sequence[Segment]) -> None:
        """Make these segments visible to readers."""
        self._view = View(segments)
        self._active = segments[-1]
        self._sealed_bytes = sum(segment.size_bytes for segment in segments[:-1])

    def __repr__(self) -> str:
        return f"SegmentLog({self._directory!r}, {self._start_offset}..{self._flushed_offset}..{self._end_offset})"

    # State

    @property
    def name(self) -> str:
        return self._directory

    @property
    def start_offset(self) -> Offset:
        return self._start_offset

    @property
    def end_offset(self) -> Offset:
        return self._end_offset

    @property
    def flushed_offset(self) -> Offset:
        return self._flushed_offset

    @property
    def synced_offset(self) -> Offset:
        return self._synced_offset

    @property
    def unsynced_bytes(self) -> int:
        return self._active.flushed_bytes - self._active.synced_bytes

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self._active.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._view.segments)

    @property
    def is_fenced(self) -> bool:
        return self._fenced is not None

    @property
    def epochs(self) -> EpochTable:
        return self._ask(View.epochs).without_prefix(self._start_offset)

    def _ask(self, question: Callable[[View], T]) -> T:
        """Compute a value from the segments. Retried if a segment was removed before its file was opened."""
        while True:
            view = self._view
            try:
                return question(view)
            except FileNotFoundError:
                if view is self._view:
                    raise

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        return self.epochs.at(offset) if offset < self._end_offset else NO_LEADER_EPOCH

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochStart:
        return self.epochs.end_of(epoch, self._end_offset)

    def latest_time(self, up_to: Offset | None = None) -> LatestTime:
        end = self._end_offset if up_to is None else up_to
        return self._ask(lambda view: view.latest_time(end))

    # Appending

    def append(self, batches: Sequence[tuple[BatchHeader, Buffer]]) -> None:
        self._before_change()
        done = 0
        while done < len(batches):
            count = self._append_run(batches, done)
            if count == 0:
                self.roll()
            done += count

    def _append_run(self, batches: Sequence[tuple[BatchHeader, Buffer]], skip: int) -> int:
        """Write as many batches as one system call takes and the active segment has room for; returns their number.

        Changes are kept in local variables until the bytes are written, so that a failed write leaves the segment
        unchanged. This is `Segment.note` for many batches at a time.
        """
        segment = self._active
        index = segment.load()
        interval, entries = index.interval_bytes, []
        first_position = position = segment.size_bytes
        next_entry = index.positions[-1] + interval if index.positions else 0
        offset, max_timestamp = self._end_offset, segment.max_timestamp
        max_timestamp_offset, epoch, new_epochs = segment.max_timestamp_offset, segment.epochs.latest, []
        segment_bytes, offset_max = self.options.segment_bytes, segment.base_offset + RELATIVE_OFFSET_MAX
        buffers: list[Buffer] = []
        for header, batch in islice(batches, skip, skip + IOV_MAX):
            size = len(batch)
            if position and (position + size > segment_bytes or offset > offset_max):
                break
            assert header.base_offset == offset, (self, header, offset)
            assert header.length + LENGTH_OVERHEAD == size, (self, header, size)
            if position >= next_entry:
                entries.append((offset, position, max_timestamp))
                next_entry = position + interval
            if header.max_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = header.max_timestamp, offset
            if header.leader_epoch > epoch:
                epoch = header.leader_epoch
                new_epochs.append((epoch, offset))
            buffers.append(batch)
            position += size
            offset = Offset(offset + header.last_offset_delta + 1)
        if not buffers:
            return 0
        try:
            file = segment.file_to_append()
        except OSError as error:
            raise self._append_failed(error) from error
        try:
            self._files.write(file.handle, buffers, first_position)
        except OSError as error:
            self._cut_partial(segment, first_position)
            raise self._append_failed(error) from error
        for entry in entries:
            index.add(*entry)
        if first_position == 0:
            segment.first_timestamp = batches[skip][0].max_timestamp
        segment.max_timestamp, segment.max_timestamp_offset = max_timestamp, max_timestamp_offset
        if new_epochs:
            segment.epochs = segment.epochs.with_batches(new_epochs)
        segment.end_offset = self._end_offset = offset
        segment.size_bytes = position
        self._unflushed += buffers
        return len(buffers)

    def _append_failed(self, error: OSError) -> AppendFailed:
        return (DiskFull if error.errno in _FULL else AppendFailed)(self._directory, error)

    def _cut_partial(self, segment: Segment, position: int) -> None:
        """Remove durably what a failed write left, before anything else is appended there.

        If these bytes reappeared after a power cut, they would follow what the journal writes back, or stay at the end
        of a segment that recovery does not walk.
        """
        try:
            file = segment.file
            self._files.truncate(file.handle, position)
            self._files.sync(file.handle)
        except OSError as error:
            raise self._fence(f"a failed write could not be undone: {error.strerror}") from error
        segment.on_synced()

    def flush(self) -> None:
        if self._end_offset != self._flushed_offset:
            self.sync()

    def unflushed(self) -> Unflushed:
        segment = self._active
        position = segment.flushed_bytes
        return Unflushed(
            segment.base_offset, position, self._end_offset, self._unflushed, segment.size_bytes - position
        )

    def on_journaled(self, unflushed: Unflushed) -> None:
        self._active.flushed_bytes = unflushed.position + unflushed.size_bytes
        self._flushed_offset = unflushed.end_offset
        self._unflushed = []

    def sync(self) -> None:
        self.end_sync()
        segment, end_offset = self._active, self._end_offset
        if end_offset == self._synced_offset:
            return
        if self._is_closed:
            raise LogClosed(self._directory)
        if self._fenced is not None:
            raise LogFenced(self._directory, self._fenced)
        size_bytes = segment.size_bytes
        try:
            file = segment.file
            self._files.sync(file.handle)
        except OSError as error:
            raise self._fence(f"sync failed: {error.strerror}") from error
        segment.flushed_bytes = segment.synced_bytes = size_bytes
        segment.on_synced()
        self._flushed_offset = self._synced_offset = end_offset
        self._unflushed = []
        self._write_flushed(self._flushed())
        self._maybe_save_index()

    def begin_sync(self) -> BackgroundSync | None:
        if self._begun is not None or self._is_closed or self.is_fenced or self._synced_offset == self._flushed_offset:
            return None
        self._begun = _BegunSync(BackgroundSync(self._files, self._active.file), self._flushed())
        return self._begun.sync

    def end_sync(self) -> None:
        begun, self._begun = self._begun, None
        if begun is None or self._fenced is not None:
            return
        try:
            begun.sync.wait()
        except OSError as error:
            raise self._fence(f"sync failed: {error.strerror}") from error
        # The active segment is still the same: `roll` syncs the log first, which would have ended this sync.
        self._active.synced_bytes = begun.flushed.position
        self._active.on_synced()
        self._synced_offset = begun.flushed.offset
        self._write_flushed(begun.flushed)
        self._maybe_save_index()

    def _maybe_save_index(self) -> None:
        """Save the index of the active segment if much was synced since the last time."""
        segment = self._active
        unsaved_bytes = segment.synced_bytes - segment.saved_bytes
        if unsaved_bytes < max(CHECKPOINT_BYTES, segment.synced_bytes // _CHECKPOINT_PART):
            return
        try:
            segment.save_checkpoint(self._synced_offset)
        except (OSError, LogCorrupt) as error:
            # Only a hint: without it, an opening after a crash walks more. The next attempt is made later.
            segment.saved_bytes = segment.synced_bytes
            _logger.warning("%s: cannot save the index: %s", segment.index_path, in_words(error))

    def _flushed(self, *, is_clean: bool = False) -> Flushed:
        return Flushed(is_clean, self._flushed_offset, self._active.base_offset, self._active.flushed_bytes)

    def _write_flushed(self, flushed: Flushed) -> None:
        try:
            self._flushed_file.write(flushed)
        except OSError as error:
            # The log itself is durable. An old value in the file is still a lower bound.
            _logger.warning("%s: cannot note the flushed offset: %s", self._directory, in_words(error))

    def _fence(self, reason: str) -> LogFenced:
        self._fenced = reason
        return LogFenced(self._directory, reason)

    def _before_change(self) -> None:
        """Raise if the log accepts no changes; otherwise remove the mark of a clean shutdown, durably."""
        if self._is_closed:
            raise LogClosed(self._directory)
        if self._fenced is not None:
            raise LogFenced(self._directory, self._fenced)
        if self._is_marked_clean:
            try:
                written = self._flushed_file.write(self._flushed())
            except OSError as error:
                raise self._append_failed(error) from error
            try:
                self._flushed_file.sync(written)
            except OSError as error:
                raise self._fence(f"sync failed: {error.strerror}") from error
            self._is_marked_clean = False

    # Segments

    def maybe_roll(self, now_ms: int) -> bool:
        segment = self._active
        if segment.size_bytes == 0:
            return False
        first_ms = segment.first_timestamp if segment.first_timestamp >= 0 else segment.modified_ms()
        if now_ms - first_ms <= self.options.segment_ms:
            return False
        self.roll()
        return True

    def roll(self) -> None:
        self._before_change()
        old = self._active
        if old.size_bytes == 0:
            return
        # Recovery walks only the last segment. This is safe because a segment is created only when the
        # one before it is durable to its end.
        self.sync()
        new = Segment(self._pool, self._directory, self._end_offset, self.options.index_interval_bytes)
        try:
            new.create()
        except OSError as error:
            raise self._append_failed(error) from error
        try:
            # Without this, a power cut could lose the new file's name, and with it batches that were synced and
            # acknowledged.
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise self._fence(f"sync failed: {error.strerror}") from error
        try:
            old.save_index()
        except OSError as error:
            _logger.warning("%s: cannot save the index: %s", old.index_path, in_words(error))
        old.on_sealed()
        self._publish([*self._view.segments, new])
        self._write_flushed(self._flushed())

    def drop_prefix(self, offset: Offset) -> None:
        self._before_change()
        assert offset <= self._flushed_offset, (self, offset)
        if offset <= self._start_offset:
            return
        if offset == self._end_offset:
            self.roll()
        self._record_start(offset)
        self._free_below_start()

    def _record_start(self, offset: Offset) -> None:
        try:
            write_start(self._files, f"{self._directory}/{START_NAME}", offset)
        except OSError as error:
            raise self._append_failed(error) from error
        self._start_offset = offset

    def _free_below_start(self) -> None:
        """Remove the sealed segments that lie wholly below the start."""
        segments = self._view.segments
        freed = [segment for segment in segments[:-1] if segment.end_offset <= self._start_offset]
        if freed:
            self._publish(segments[len(freed) :])
            for segment in freed:
                segment.remove_files()

    def reset(self, offset: Offset) -> None:
        self._before_change()
        self._leave_journal()
        new = Segment(self._pool, self._directory, offset, self.options.index_interval_bytes)
        try:
            for segment in reversed(self._view.segments):
                segment.remove_files()
            new.create()
            write_start(self._files, f"{self._directory}/{START_NAME}", offset)
            self._files.sync_directory(self._directory)
            self._flushed_file.sync(
                self._flushed_file.write(Flushed(False, offset, new.base_offset, new.flushed_bytes))
            )
        except OSError as error:
            raise self._fence(f"resetting the log failed: {error.strerror}") from error
        self._publish([new])
        self._unflushed = []
        self._start_offset = self._flushed_offset = self._synced_offset = self._end_offset = offset

    def retention_start(
        self, now_ms: int, retention_ms: int = -1, retention_bytes: int = -1, keep_from: Offset | None = None
    ) -> Offset:
        self._before_change()
        keep_from = self._flushed_offset if keep_from is None else min(keep_from, self._flushed_offset)
        self.maybe_roll(now_ms)
        surplus_bytes = self.size_bytes - retention_bytes if retention_bytes >= 0 else 0
        return start_to_keep(
            self._view.segments, self._active, self._start_offset, keep_from, surplus_bytes, now_ms, retention_ms
        )

    def truncate_suffix(self, offset: Offset) -> None:
        self._before_change()
        if offset >= self._end_offset:
            return
        assert offset >= self._start_offset, (self, offset)
        self._leave_journal()
        view = self._view
        at = bisect_right(view.bases, offset) - 1
        segment = view.segments[at]
        position, end_offset = segment.size_bytes, segment.end_offset
        for batch_position, header in segment.headers(offset, segment.end_offset):
            if header.base_offset >= offset:
                position, end_offset = batch_position, header.base_offset
                break
        cut = segment.cut(position, end_offset)
        self._flushed_offset = min(self._flushed_offset, end_offset)
        self._synced_offset = min(self._synced_offset, end_offset)
        self._end_offset = end_offset
        self._unflushed = []
        self._publish([*view.segments[:at], cut])
        try:
            lowered = Flushed(False, self._flushed_offset, cut.base_offset, cut.flushed_bytes)
            written = self._flushed_file.write(lowered)
            self._flushed_file.sync(written)
            for later in reversed(view.segments[at + 1 :]):
                later.remove_files()
                self._files.sync_directory(self._directory)
            cut.remove_index()
            # If the old index reappeared after a power cut, its size might match the new batches, and it would mislead
            # readers.
            self._files.sync_directory(self._directory)
            file = cut.file
            self._files.truncate(file.handle, position)
            self._files.sync(file.handle)
        except OSError as error:
            raise self._fence(f"truncation failed: {error.strerror}") from error
        cut.on_synced()

    def _leave_journal(self) -> None:
        """Make the log durable in its own files and void its journal entries, before any of its bytes change."""
        if self._journal is None:
            return
        self.sync()
        try:
            self._journal.forget(self._directory)
        except OSError as error:
            raise self._append_failed(error) from error

    # Reading

    def _view_of(self, offset: Offset) -> View:
        """The segments, if `offset` is within them."""
        view = self._view
        if not view.segments:
            raise LogClosed(self._directory)
        if not self._start_offset <= offset <= self._end_offset:
            raise OffsetOutOfRange(offset, self._start_offset, self._end_offset)
        return view

    def read(self, offset: Offset, max_bytes: int, up_to: Offset, cached_only: bool = False) -> Buffer | None:
        view = self._view_of(offset)
        assert up_to <= self._flushed_offset, (self, offset, up_to)
        if offset >= up_to:
            return b""
        segment = view.segments[bisect_right(view.bases, offset) - 1]
        try:
            return segment.read(offset, max_bytes, up_to, cached_only)
        except (FileNotFoundError, LogCorrupt):
            # Retention or truncation may have removed the segment meanwhile.
            self._view_of(offset)
            if segment in self._view.segments:
                raise
            raise OffsetOutOfRange(offset, self._start_offset, self._end_offset) from None

    def batch_at_time(self, timestamp: int, up_to: Offset, start: Offset | None = None) -> StoredBatch | None:
        assert up_to <= self._flushed_offset, (self, up_to)
        return self._ask(lambda view: view.batch_at_time(timestamp, max(start or Offset(0), self._start_offset), up_to))

    def headers(self, start: Offset, end: Offset) -> Iterator[tuple[BatchHeader, int]]:
        view = self._view_of(start)
        for segment in view.segments[max(bisect_right(view.bases, start) - 1, 0) :]:
            if segment.base_offset >= end:
                return
            for _, header in segment.headers(start, end):
                yield header, header.size

    # The end

    def close(self, clean: bool = True) -> None:
        if self._is_closed:
            return
        if not clean and self._fenced is None and self._synced_offset < self._flushed_offset:
            with suppress(LogFenced):
                # The journal cannot free its file before this sync.
                self.sync()
        if clean and self._fenced is None and not self._is_marked_clean:
            self.sync()
            try:
                if self._active.size_bytes:
                    self._active.save_index()
                self._write_flushed(self._flushed(is_clean=True))
            except OSError as error:
                _logger.warning("%s: cannot mark as closed: %s", self._directory, in_words(error))
        self._is_closed = True
        # Readers may still hold segments. A file that is being read is closed when the last reader is done.
        segments, self._view = self._view.segments, View(())
        for segment in segments:
            segment.close()
        self._active = Segment(self._pool, self._directory, self._end_offset, self.options.index_interval_bytes)
        self._flushed_file.close()

    def delete(self) -> None:
        if self._journal is not None:
            with suppress(OSError):
                # A full disk must not prevent the removal of a log. Journal entries of a removed log have no effect,
                # and a new log in the same place makes them void first.
                self._journal.forget(self._directory)
        self.close(clean=False)
        aside, number = f"{self._directory}.deleted", 0
        while self._files.exists(aside):
            number += 1
            aside = f"{self._directory}.{number}.deleted"
        # One atomic step: a crash while files are removed must not leave half of a log under its name.
        self._files.rename(self._directory, aside)
        self._files.sync_directory(os.path.dirname(self._directory) or ".")
        remove_tree(self._files, aside)
