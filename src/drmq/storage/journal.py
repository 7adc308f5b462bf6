"""The journal: one sync for the small appends of many logs.

A sync of a file that has grown makes the file system commit its own books, which takes several times as long as the
flush of the disk, and every log has a file of its own. So what one cycle of the writer has added to all of its logs, if
that is little, is written a second time, into one file that has its size already, and that file is synced. The logs'
own files are synced later, when nobody waits. Large appends do without: for them the second write would cost more than
the syncs it saves.

There are two files, written in turn:

    data directory/journal-0, journal-1     rows of records, each at a multiple of 4 KiB
    data directory/journal-forgotten        logs whose entries are void up to a sequence number; mostly not there

When one file is full, the other is begun anew, but only once all that it has entries of is synced where it belongs;
the writer has that done in the background (`due`), a little at a time: what a log has not synced is also what a disk
must write at once when it is, while everybody's next sync waits behind it. Until then logs are synced one by one, as if
there were no journal. A file begins small, and is made longer while the other one is in use (`begin_lengthening`): a
sync of a file that has just grown is a slow one.

Records are numbered, and each names the first that still counts: the newest record tells which others do. Nothing that
counts is ever overwritten: the last page of a file is kept for a record that says so of the other one.

**What an entry says**: these bytes belong at this position of this segment, and with them the log ends at this offset.
At the start, `replay` writes all of them to their places once more, in the order in which they came, before any log is
opened. Bytes at a position of a log never change, so this does no harm to what is there already. They do change
when a log is cut or begun anew: whoever does that has its entries forgotten first.

A torn record at the end was never promised to anybody. One that is missing although a later one is there was. What it
held may be in the logs all the same, or may not; and since a replica that is not sure to have what it has acknowledged
must not vote, the directory is refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from threading import Lock
from typing import NamedTuple

from crc32c import crc32c

from drmq.model import Offset
from drmq.records import Buffer
from drmq.storage.checkpoint import Flushed, FlushedFile
from drmq.storage.errors import DirectoryUnreadable
from drmq.storage.files import Files, OpenFile, replace_file
from drmq.storage.log import Log, Unflushed
from drmq.storage.recovery import FLUSHED_NAME
from drmq.storage.segment import LOG_SUFFIX

_logger = logging.getLogger(__name__)

JOURNAL_NAMES = ("journal-0", "journal-1")
FORGOTTEN_NAME = "journal-forgotten"
FILE_BYTES = 16 << 20
"""The size of each file. Larger: logs are synced less often, and a start after a crash reads more."""
TAKEN_BYTES_MAX = 512 << 10
"""What a cycle may have appended to be journaled. Beyond that, writing it twice costs more than a sync per log."""
PAGE_BYTES = 4096
"""A record begins on a page of its own: what is durable is never written again together with what follows it."""
STEPS = 16
"""The parts of a file: it is made longer by one at a time, and after each that is written a log may be due."""
FREE_FILES_MIN = 16
"""A file is made longer on a disk that has room for so many more."""
_MAGIC = b"DMQJ"
_VERSION = 1
_HEAD = Struct("<4sII")
"""Magic, version, checksum of all that follows."""
_BODY = Struct("<IQQI")
"""Size of the record, its sequence number, the first that counts, number of entries."""
_ENTRY = Struct("<qqqIH")
"""Segment, position in it, end offset of the log, size of the bytes, size of the log's name; then name and bytes."""


class Entry(NamedTuple):
    """An entry as it is found in a journal."""

    log: str
    """The log's directory, relative to the data directory."""
    segment: Offset
    position: int
    end_offset: Offset
    data: Buffer


class Record(NamedTuple):
    """A record as it is found in a journal."""

    sequence: int
    first_sequence: int
    """The oldest record that counts, as long as this one is the newest."""
    file: int
    end: int
    """Where the next record of the same file begins."""
    entries: list[Entry]


class Journal:
    """The journal of a data directory. The writer calls all but `forget` and what `begin_lengthening` returns."""

    def __init__(self, files: Files, root: str, secret: str, file_bytes: int = FILE_BYTES) -> None:
        """Put back what the journal holds, and let it begin anew. Raises `DirectoryUnreadable`, `OSError`.

        A disk that does not take the first record keeps nobody from starting: then there is no journal this time.

        `secret` is part of all checksums. No client knows it, so that none can make a record by its records.
        """
        self._files = files
        self._root = root
        self.seed = seed_of(secret)
        self._file_bytes = file_bytes
        self._step_bytes = max(file_bytes // STEPS, 3 * PAGE_BYTES)
        """At least a record, and the page behind it that is kept."""
        self._lock = Lock()
        self._failure: str | None = None
        newest = replay(files, root, self.seed) or Record(0, 0, 0, 0, [])
        self._current, self._position, self._sequence = newest.file, newest.end, newest.sequence
        if newest.first_sequence == newest.sequence and newest.end + 2 * PAGE_BYTES > file_bytes:
            # It counts alone, so the other file is free. Else each start would make this one a little longer.
            self._current, self._position = 1 - newest.file, 0
        self._first_sequence = self._begun_sequence = 0
        """The first record that counts, and the first of the file in use."""
        self._present: list[dict[str, tuple[Log, Offset]]] = [{}, {}]
        """The logs that have entries in each file, and the offset up to which these make them durable."""
        self._forgotten: dict[str, int] = {}
        self._handles: list[OpenFile] = []
        self._sizes: list[int] = []
        """How long the files are. Records are written below only, so that whoever makes one longer is alone there."""
        self._next_due = self._position + self._step_bytes
        """Where in the file in use the next log is synced."""
        self._is_lengthening = self._is_too_short = False
        self._may_lengthen = True
        """Once for each time that the files change places: a disk without space is not asked again and again."""
        if not self._open_files() or not self._begin_anew():
            self._remove_files(newest.file)

    def close(self) -> None:
        """Leave nothing to put back, if all logs are synced."""
        with self._lock:
            if self._failure is None and not self._unsynced(0) and not self._unsynced(1):
                self._begin_anew()
            self._failure = "it is closed"

    # The writer's side

    def take(self, logs: Sequence[Log]) -> bool:
        """Make durable what these logs have appended; False if they must be flushed one by one."""
        if self._failure is not None:
            return False
        found = [(log, log.unflushed()) for log in logs]
        if sum(unflushed.size_bytes for _, unflushed in found) > TAKEN_BYTES_MAX:
            return False
        parts = _encode_entries([(self._key(log.name), unflushed) for log, unflushed in found])
        with self._lock:
            if not self._make_room(parts):
                return False
            # Before it is written: a record whose sync fails may be found all the same.
            for log, unflushed in found:
                self._present[self._current][self._key(log.name)] = log, unflushed.end_offset
            if not self._write(parts, len(found), self._first_sequence):
                return False
        for log, unflushed in found:
            log.on_journaled(unflushed)
        return True

    def due(self, count: int) -> list[Log]:
        """Up to `count` logs to sync: those that keep the file that is not in use from being begun anew.

        With none of these, and one more step of the file in use written: the log that has most to sync, if that is as
        much as a step. For less it is not worth it: many logs are written to, and each is synced soon enough.
        """
        with self._lock:
            due = _sound(self._unsynced(1 - self._current))[:count]
            if not due and self._position >= self._next_due:
                self._next_due = self._position + self._step_bytes
                large = [log for log in self._unsynced(self._current) if log.unsynced_bytes >= self._step_bytes]
                due = sorted(_sound(large), key=_unsynced_bytes)[-1:]
        return due

    def begin_lengthening(self) -> Callable[[], None] | None:
        """What makes the file that is not in use as long as it may be, for another thread to do; mostly None.

        Only once the file in use is half full, or was too short: journals of tests and of idle nodes stay small.
        """
        other = 1 - self._current
        if self._is_lengthening or self._failure is not None or self._sizes[other] >= self._file_bytes:
            return None
        is_used = self._is_too_short or self._position >= self._sizes[self._current] // 2
        if not is_used or not self._may_lengthen:
            return None
        self._is_lengthening, self._may_lengthen = True, False
        return partial(self._lengthen, other)

    @property
    def is_pressed(self) -> bool:
        """Whether the other file is needed soon, and not free: whoever appends had better help with what is due."""
        if self._failure is not None or self._position < self._sizes[self._current] * 3 // 4:
            return False
        with self._lock:
            return bool(_sound(self._unsynced(1 - self._current)))

    def forget(self, name: str) -> None:
        """Durably make void the entries of a log, all of which is synced, or given up. Raises `OSError`."""
        key = self._key(name)
        with self._lock:
            if not any(key in present for present in self._present):
                return
            first = self._first_sequence
            forgotten = {log: sequence for log, sequence in self._forgotten.items() if sequence >= first}
            forgotten[key] = self._sequence
            _write_forgotten(self._files, f"{self._root}/{FORGOTTEN_NAME}", forgotten)
            self._forgotten = forgotten
            for present in self._present:
                present.pop(key, None)

    # Inside

    def _open_files(self) -> bool:
        """Have both files open, with room for a first record and the page that is kept."""
        try:
            paths = [f"{self._root}/{name}" for name in JOURNAL_NAMES]
            self._handles = [OpenFile(self._files, self._files.open(path, create=True)) for path in paths]
            self._sizes = [self._files.size(file.handle) for file in self._handles]
            for file, opened in enumerate(self._handles):
                used = self._position if file == self._current else 0
                needed = max(used + 2 * PAGE_BYTES, self._step_bytes)
                if self._sizes[file] < needed:
                    self._add_zeros(opened.handle, file, needed)
        except OSError as error:
            self._give_up(error)
            return False
        return True

    def _add_zeros(self, handle: int, file: int, end: int) -> None:
        self._files.write(handle, [bytes(end - self._sizes[file])], self._sizes[file])
        self._sizes[file] = end

    def _lengthen(self, file: int) -> None:
        """A step at a time, each synced: no sync of the writer's is to wait for all of it."""
        try:
            # With a handle of its own: each is told of an error once, and the one for a record is the writer's to hear.
            own = OpenFile(self._files, self._files.open(f"{self._root}/{JOURNAL_NAMES[file]}"))
            while self._sizes[file] < self._file_bytes:
                if self._files.free_bytes(self._root) < FREE_FILES_MIN * self._file_bytes:
                    _logger.info("%s: little space is left on the disk, so the journal stays small", self._root)
                    break
                self._add_zeros(own.handle, file, min(self._sizes[file] + self._step_bytes, self._file_bytes))
                self._files.sync(own.handle)
        except OSError as error:
            # What is there can be used. The next attempt is made when files have changed places.
            _logger.warning("%s: the journal cannot be made larger: %s", self._root, error.strerror or error)
        finally:
            self._is_lengthening = False

    def _give_up(self, error: OSError) -> None:
        """What was synced before stays good. The logs hold the same bytes and are synced one by one from now on."""
        self._failure = error.strerror or str(error)
        _logger.error("%s: the journal is not used any more: %s", self._root, self._failure)

    def _key(self, name: str) -> str:
        """A log's place within the data directory, wherever that may be moved to."""
        return name[len(self._root) + 1 :]

    def _unsynced(self, file: int) -> list[Log]:
        return [log for log, end_offset in self._present[file].values() if log.synced_offset < end_offset]

    def _make_room(self, parts: Sequence[Buffer]) -> bool:
        """Go over to the other file if this one is full; False if that one is not free, or too short."""
        needed = _padded(_record_size(parts)) + PAGE_BYTES  # the last page says that the other file does not count
        if self._position + needed <= self._sizes[self._current]:
            return True
        other = 1 - self._current
        if needed > self._sizes[other]:
            self._is_too_short = True
            return False
        if self._unsynced(other):
            return False
        if not self._write([], 0, self._begun_sequence):
            return False
        self._present[other] = {}
        self._first_sequence, self._begun_sequence = self._begun_sequence, self._sequence + 1
        self._current, self._position, self._next_due = other, 0, self._step_bytes
        self._may_lengthen = True
        return True

    def _write(self, parts: Sequence[Buffer], entry_count: int, first_sequence: int) -> bool:
        """Write a record behind the last one, and sync it; from then on the first that counts is `first_sequence`."""
        self._sequence += 1
        size = _record_size(parts)
        end = self._position + _padded(size)
        body = _BODY.pack(size, self._sequence, first_sequence, entry_count)
        checksum = crc32c(body, self.seed)
        for part in parts:
            checksum = crc32c(part, checksum)
        zeros = bytes(end - self._position - size)
        handle = self._handles[self._current].handle
        try:
            self._files.write(handle, [_HEAD.pack(_MAGIC, _VERSION, checksum) + body, *parts, zeros], self._position)
            self._files.sync(handle)
        except OSError as error:
            self._give_up(error)
            return False
        self._position = end
        return True

    def _remove_files(self, newest: int) -> None:
        """Leave no journal. A file without the newer one is a whole row of records, the newer one alone may not be."""
        for file in (newest, 1 - newest):
            path = f"{self._root}/{JOURNAL_NAMES[file]}"
            if self._files.exists(path):
                self._files.remove(path)
                self._files.sync_directory(self._root)

    def _begin_anew(self) -> bool:
        """Durably make void all there is, by a record that is the first to count."""
        if not self._write([], 0, self._sequence + 1):
            return False
        self._first_sequence = self._begun_sequence = self._sequence
        self._present = [{}, {}]
        self._forgotten = {}
        path = f"{self._root}/{FORGOTTEN_NAME}"
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_directory(self._root)
        return True


def seed_of(secret: str) -> int:
    """What the checksums of a journal begin with."""
    return crc32c(secret.encode())


def _sound(logs: Sequence[Log]) -> list[Log]:
    return [log for log in logs if not log.is_fenced]


def _unsynced_bytes(log: Log) -> int:
    return log.unsynced_bytes


def _record_size(parts: Sequence[Buffer]) -> int:
    return _HEAD.size + _BODY.size + sum(map(len, parts))


def _padded(size: int) -> int:
    return size + -size % PAGE_BYTES


def _encode_entries(entries: Sequence[tuple[str, Unflushed]]) -> list[Buffer]:
    parts: list[Buffer] = []
    for log, (segment, position, end_offset, buffers, size_bytes) in entries:
        name = log.encode()
        parts.append(_ENTRY.pack(segment, position, end_offset, size_bytes, len(name)) + name)
        parts += buffers
    return parts


# Reading


def read_records(data: Buffer, file: int, seed: int) -> Iterator[Record]:
    """The sound records of one journal file, in the order of their places; those of earlier rounds included."""
    view, position = memoryview(data), 0
    while position + _HEAD.size + _BODY.size <= len(view):
        magic, version, checksum = _HEAD.unpack_from(view, position)
        size, sequence, first_sequence, entry_count = _BODY.unpack_from(view, position + _HEAD.size)
        record = view[position + _HEAD.size : position + size]
        if magic != _MAGIC or version != _VERSION or size > len(view) - position or crc32c(record, seed) != checksum:
            position += PAGE_BYTES
            continue
        position += _padded(size)
        yield Record(sequence, first_sequence, file, position, _decode_entries(record[_BODY.size :], entry_count))


def _decode_entries(view: memoryview, count: int) -> list[Entry]:
    entries, at = [], 0
    for _ in range(count):
        segment, position, end_offset, size_bytes, name_size = _ENTRY.unpack_from(view, at)
        name_at = at + _ENTRY.size
        data_at = name_at + name_size
        at = data_at + size_bytes
        log = bytes(view[name_at:data_at]).decode()
        entries.append(Entry(log, Offset(segment), position, Offset(end_offset), view[data_at:at]))
    return entries


def counting_records(records: Sequence[Record]) -> tuple[list[Record], int]:
    """Those of the sound records that count, in order, and how many that should be there are missing."""
    newest = max(records, default=None)
    if newest is None:
        return [], 0
    counting = sorted(record for record in records if record.sequence >= newest.first_sequence)
    return counting, newest.sequence - newest.first_sequence + 1 - len(counting)


def entries_by_log(counting: Sequence[Record], forgotten: Mapping[str, int]) -> dict[str, list[Entry]]:
    """The entries that are to be put back, in order."""
    logs: dict[str, list[Entry]] = {}
    for record in counting:
        for entry in record.entries:
            if forgotten.get(entry.log, 0) < record.sequence:
                logs.setdefault(entry.log, []).append(entry)
    return logs


def replay(files: Files, root: str, seed: int) -> Record | None:
    """Put everything that counts in its place, durably; returns the newest record. May be repeated at will."""
    records: list[Record] = []
    for file, name in enumerate(JOURNAL_NAMES):
        path = f"{root}/{name}"
        if files.exists(path):
            records += read_records(_read_file(files, path), file, seed)
    counting, missing_count = counting_records(records)
    if not counting:
        return None
    if missing_count:
        raise DirectoryUnreadable(
            f"{root}: {missing_count} records of {' and '.join(JOURNAL_NAMES)} are damaged, which hold what was "
            "acknowledged last; restore them from a backup, or start with an empty directory. If the machine has not "
            "been without power since this node ran, its logs have all of it, and the two files may be removed"
        )
    path = f"{root}/{FORGOTTEN_NAME}"
    forgotten = read_forgotten(path, _read_file(files, path)) if files.exists(path) else {}
    for log, entries in entries_by_log(counting, forgotten).items():
        if files.is_directory(f"{root}/{log}"):
            _put_back(files, f"{root}/{log}", entries)
    return counting[-1]


def _read_file(files: Files, path: str) -> bytes:
    file = OpenFile(files, files.open(path))
    return files.read(file.handle, files.size(file.handle), 0)


def _put_back(files: Files, directory: str, entries: Sequence[Entry]) -> None:
    """Write a log's entries to their places."""
    flushed_file = FlushedFile(files, f"{directory}/{FLUSHED_NAME}")
    flushed = flushed_file.read()
    last = entries[-1]
    if flushed is not None and flushed.is_clean and flushed.offset >= last.end_offset:
        # Closed in order after these. One that was closed before them may still say so: that it was opened again may
        # have been in a page that was never written.
        return
    opened: dict[Offset, OpenFile | None] = {}
    for entry in entries:
        if entry.segment not in opened:
            path = f"{directory}/{entry.segment:020d}{LOG_SUFFIX}"
            # Retention may have removed it since.
            opened[entry.segment] = OpenFile(files, files.open(path)) if files.exists(path) else None
        file = opened[entry.segment]
        if file is not None:
            files.write(file.handle, (entry.data,), entry.position)
    for file in opened.values():
        if file is not None:
            files.sync(file.handle)
    if flushed is None or flushed.offset < last.end_offset:
        # Who opens the log learns how far it was promised, whatever has become of its files.
        flushed_file.write(Flushed(False, last.end_offset, last.segment, last.position + len(last.data)))


def _write_forgotten(files: Files, path: str, forgotten: Mapping[str, int]) -> None:
    content = json.dumps(forgotten, sort_keys=True).encode()
    replace_file(files, path, b"%08x %s\n" % (crc32c(content), content))


def read_forgotten(path: str, data: bytes) -> dict[str, int]:
    """For each log that was forgotten, the last record whose entries of it are void."""
    checksum, _, content = data.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % crc32c(content):
        raise DirectoryUnreadable(
            f"{path} is damaged, and without it the journal cannot be used; restore it from a backup, or start with "
            "an empty directory. If the machine has not been without power since this node ran, its logs have all "
            f"there is, and it may be removed together with {' and '.join(JOURNAL_NAMES)}"
        )
    return {str(log): int(sequence) for log, sequence in json.loads(content).items()}
