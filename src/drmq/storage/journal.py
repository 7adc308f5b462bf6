"""The journal: one sync for the small appends of many logs.

A sync of a file that has grown makes the file system commit its own metadata, which takes several times as long as the
disk's flush, and every log has a file of its own. So if one cycle of the writer has appended only little to all logs
together, these bytes are written a second time, into one file whose size does not change, and only that file is synced.
The logs' own files are synced later, when no request waits for it. Large appends bypass the journal: for them the
second write would cost more than the syncs that it saves.

There are two files, written in turn:

    data directory/journal-0, journal-1     a sequence of records, each at a multiple of 4 KiB
    data directory/journal-forgotten        logs whose entries are void up to a sequence number; usually absent

When one file is full, the journal switches to the other and overwrites it from the start, but only once every log that
has entries in it has synced them in its own files. The writer does these syncs in the background (`due`), a few at a
time: the disk must write all unsynced bytes of a log at once when that log is synced, and every other sync waits
meanwhile. Until the other file is free, logs are synced one by one, as if there were no journal. A file is small at
first, and is lengthened while the other one is in use (`begin_lengthening`), because a sync of a file that has just
grown is slow.

Records are numbered, and each one names the first record that is still valid, so the newest record says which others
are valid. A valid record is never overwritten: the last page of a file is reserved for a record which says that the
other file is no longer valid.

**What an entry says**: these bytes belong at this position of this segment, and with them the log ends at this offset.
At the next start, `replay` writes all valid entries to their positions again, in their original order, before any log
is opened. Bytes at a position of a log never change, so this does not harm bytes that are there already. They do change
when a log is truncated or reset, so its entries are made void first (`forget`).

A torn record at the end was never acknowledged. A record that is missing although a later one exists was acknowledged.
Its content may or may not be in the logs. A replica that may have lost what it has acknowledged must not vote, so the
directory is refused.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from threading import Lock
from typing import NamedTuple

from crc32c import crc32c

from drmq.model import Offset
from drmq.records import Buffer
from drmq.storage.checkpoint import Flushed, FlushedFile
from drmq.storage.errors import DirectoryUnreadable, FormatTooNew
from drmq.storage.files import Files, OpenFile, replace_file
from drmq.storage.log import Log, Unflushed
from drmq.storage.recovery import FLUSHED_NAME
from drmq.storage.segment import LOG_SUFFIX

_logger = logging.getLogger(__name__)

JOURNAL_NAMES = ("journal-0", "journal-1")
FORGOTTEN_NAME = "journal-forgotten"
FILE_BYTES = 16 << 20
"""The size of each file. If larger, logs are synced less often, and a start after a crash reads more."""
TAKEN_BYTES_MAX = 512 << 10
"""How much a cycle may append to use the journal. Above this, writing twice costs more than one sync per log."""
PAGE_BYTES = 4096
"""Each record begins on a new page, so that durable bytes are never written again together with later ones."""
STEPS = 16
"""The number of parts of a file. It is lengthened by one part at a time; each time one is filled, a log may be
synced."""
PINNED_SHARE_MAX = 0.75
"""Each log whose latest appends are only in the journal needs an open file. If these are more than this part of all
files that may be open, logs are synced one by one. From half of this on, the oldest are synced in the background."""
FREE_FILES_MIN = 16
"""A file is lengthened only if the disk has free space for this many more files of its full size."""
_MAGIC = b"DMQJ"
_VERSION = 1
_HEAD = Struct("<4sII")
"""Magic, version, checksum of all that follows."""
_BODY = Struct("<IQQI")
"""Size of the record, its sequence number, the first valid sequence number, number of entries."""
_ENTRY = Struct("<qqqIH")
"""Segment, position in it, end offset of the log, size of the bytes, size of the log's name; then name and bytes."""


class Entry(NamedTuple):
    """An entry as read from a journal."""

    log: str
    """The log's directory, relative to the data directory."""
    segment: Offset
    position: int
    end_offset: Offset
    data: Buffer


class Record(NamedTuple):
    """A record as read from a journal."""

    sequence: int
    first_sequence: int
    """The oldest valid record, as long as this record is the newest."""
    file: int
    end: int
    """Where the next record of the same file begins."""
    entries: list[Entry]


class Journal:
    """The journal of a data directory. Only the writer calls it, except `forget` and the lengthening function."""

    def __init__(self, files: Files, root: str, secret: str, file_bytes: int = FILE_BYTES) -> None:
        """Write the journal's entries back to the logs, then empty it. Raises `DirectoryUnreadable`, `OSError`.

        If the disk does not accept the first record, the node still starts, but without a journal.

        `secret` is part of all checksums. No client knows it, so a client cannot forge a journal record inside its
        data.
        """
        self._files = files
        self._root = root
        self.seed = seed_of(secret)
        self._file_bytes = file_bytes
        self._step_bytes = max(file_bytes // STEPS, 3 * PAGE_BYTES)
        """At least one record and the reserved page after it."""
        self._lock = Lock()
        self.record_count = self.written_bytes = 0
        self._failure: str | None = None
        newest = replay(files, root, self.seed) or Record(0, 0, 0, 0, [])
        self._current, self._position, self._sequence = newest.file, newest.end, newest.sequence
        if newest.first_sequence == newest.sequence and newest.end + 2 * PAGE_BYTES > file_bytes:
            # Only this record is valid, so the other file is free. Otherwise each start would make this file a little
            # longer.
            self._current, self._position = 1 - newest.file, 0
        self._first_sequence = self._begun_sequence = 0
        """The first valid record, and the first record of the file in use."""
        self._present: list[dict[str, tuple[Log, Offset]]] = [{}, {}]
        """For each file: the logs that have entries in it, and the offset up to which the entries make them durable."""
        self._queue: OrderedDict[str, None] = OrderedDict()
        """Logs with entries in the file in use; those that wait longest for a sync first. Some may be synced since."""
        self._blocking: deque[str] = deque()
        """Logs that had unsynced entries in the other file when the files were switched, and were not looked at yet."""
        self._awaited: list[str] = []
        """The next ones of them, which are being synced."""
        self._stuck: list[str] = []
        """Those of them whose sync has failed."""
        self._large: dict[str, Log] = {}
        """Logs that had at least one part of the file in use unsynced when they were last written."""
        self.pinned_share: Callable[[], float] = lambda: 0.0
        """How many files with unsynced bytes the logs have open, as a part of all that may be open (`file_pool`)."""
        self._forgotten: dict[str, int] = {}
        self._handles: list[OpenFile] = []
        self._sizes: list[int] = []
        """The length of each file. Records are written only below it, so the thread that lengthens a file has no
        competitor."""
        self._next_due = self._position + self._step_bytes
        """The position in the file in use at which the next log is synced."""
        self._is_lengthening = self._is_too_short = False
        self._may_lengthen = True
        """True once per switch of the files, so that a full disk is not tried again and again."""
        if not self._open_files() or not self._begin_anew():
            self._remove_files(newest.file)

    def close(self) -> None:
        """If all logs are synced, leave a journal with nothing to replay."""
        with self._lock:
            if self._failure is None and not self._all_unsynced(0) and not self._all_unsynced(1):
                self._begin_anew()
            self._failure = "it is closed"

    # The writer's side

    def take(self, logs: Sequence[Log]) -> bool:
        """Make the unflushed appends of these logs durable. Returns False if the logs must be flushed one by one."""
        if self._failure is not None or self.pinned_share() > PINNED_SHARE_MAX:
            return False
        found = [(log, log.unflushed()) for log in logs]
        if sum(unflushed.size_bytes for _, unflushed in found) > TAKEN_BYTES_MAX:
            return False
        parts = _encode_entries([(self._key(log.name), unflushed) for log, unflushed in found])
        with self._lock:
            if not self._make_room(parts):
                return False
            # Recorded before the write: a record whose sync fails may still be found at the next start.
            present = self._present[self._current]
            for log, unflushed in found:
                key = self._key(log.name)
                self._queue.setdefault(key)
                present[key] = log, unflushed.end_offset
                if log.unsynced_bytes + unflushed.size_bytes >= self._step_bytes:
                    self._large[key] = log
            if not self._write(parts, len(found), self._first_sequence):
                return False
        for log, unflushed in found:
            log.on_journaled(unflushed)
        return True

    def due(self, count: int) -> list[Log]:
        """Up to `count` logs that must be synced before the file that is not in use can be overwritten.

        If there are none, and one more part of the file in use is filled: the log with the most unsynced bytes, if it
        has at least one part of them. Less is not worth a sync: there are many logs, and each is synced soon enough.
        If too many logs have unsynced bytes, the ones that wait longest.

        The cost depends on `count` and on the logs that were written since the last call, not on all logs.
        """
        with self._lock:
            due = self._take_blocking(count)
            if not due and self._position >= self._next_due:
                self._next_due = self._position + self._step_bytes
                self._large = {
                    key: log
                    for key, log in self._large.items()
                    if log.unsynced_bytes >= self._step_bytes and not log.is_fenced
                }
                due = sorted(self._large.values(), key=_unsynced_bytes)[-1:]
            if len(due) < count and self.pinned_share() > PINNED_SHARE_MAX / 2:
                due += self._take_oldest(count - len(due))
        return due

    def _take_oldest(self, count: int) -> list[Log]:
        """The next `count` logs with unsynced entries in the file in use."""
        found: dict[str, Log] = {}
        while len(found) < count and self._queue:
            key, _ = self._queue.popitem(last=False)
            log = self._unsynced(self._current, key)
            if log is not None and not log.is_fenced:
                found[key] = log
        self._queue.update(dict.fromkeys(found))
        return list(found.values())

    def _take_blocking(self, count: int) -> list[Log]:
        """The next `count` logs without which the other file cannot be overwritten and which can be synced."""
        found: list[Log] = []
        awaited: list[str] = []
        while len(found) < count and (self._awaited or self._blocking):
            key = self._awaited.pop() if self._awaited else self._blocking.popleft()
            log = self._unsynced(1 - self._current, key)
            if log is not None:
                (self._stuck if log.is_fenced else awaited).append(key)
                if not log.is_fenced:
                    found.append(log)
        self._awaited += awaited
        return found

    def begin_lengthening(self) -> Callable[[], None] | None:
        """A function that lengthens the file not in use to its full size, to be called on another thread; usually None.

        Only once the file in use is half full, or was too short, so that the journals of tests and idle nodes stay
        small.
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
        """Whether the other file is needed soon and is not free, so that the writer should sync the due logs itself."""
        if self._failure is not None or self._position < self._sizes[self._current] * 3 // 4:
            return False
        with self._lock:
            return bool(self._take_blocking(1))

    def forget(self, name: str) -> None:
        """Durably make the entries of a log void, once it is synced or discarded. Raises `OSError`."""
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
        """Open both files, with space for a first record and the reserved page."""
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
        """Lengthen a file one part at a time, each synced, so that a sync of the writer never waits for all of it."""
        try:
            # With its own handle: the kernel reports an error once per handle, and the writer's handle must see the
            # errors of its records.
            own = OpenFile(self._files, self._files.open(f"{self._root}/{JOURNAL_NAMES[file]}"))
            while self._sizes[file] < self._file_bytes:
                if self._files.free_bytes(self._root) < FREE_FILES_MIN * self._file_bytes:
                    _logger.info("%s: the disk has little free space, so the journal stays small", self._root)
                    break
                self._add_zeros(own.handle, file, min(self._sizes[file] + self._step_bytes, self._file_bytes))
                self._files.sync(own.handle)
        except OSError as error:
            # The present size can still be used. The next attempt is made after the files have been switched.
            _logger.warning("%s: the journal cannot be made larger: %s", self._root, error.strerror or error)
        finally:
            self._is_lengthening = False

    def _give_up(self, error: OSError) -> None:
        """Stop using the journal. What was synced stays valid, and the logs are synced one by one from now on."""
        self._failure = error.strerror or str(error)
        _logger.error(
            "%s: the journal is no longer used, and logs are synced one by one: %s", self._root, self._failure
        )

    def _key(self, name: str) -> str:
        """A log's path relative to the data directory, so that the directory can be moved."""
        return name[len(self._root) + 1 :]

    def _unsynced(self, file: int, key: str) -> Log | None:
        """The log of this name, if it has entries in the file that are not synced in its own files."""
        entry = self._present[file].get(key)
        return entry[0] if entry is not None and entry[0].synced_offset < entry[1] else None

    def _all_unsynced(self, file: int) -> list[str]:
        return [key for key in self._present[file] if self._unsynced(file, key) is not None]

    @property
    def _is_other_free(self) -> bool:
        """Whether every log with entries in the file not in use has synced them."""
        if self._take_blocking(1):
            return False
        while self._stuck and self._unsynced(1 - self._current, self._stuck[-1]) is None:
            self._stuck.pop()  # The log was forgotten.
        return not self._stuck

    def _make_room(self, parts: Sequence[Buffer]) -> bool:
        """Switch to the other file if this one is full. Returns False if the other one is in use or too short."""
        needed = _padded(_record_size(parts)) + PAGE_BYTES  # The last page is for the record that voids the other file.
        if self._position + needed <= self._sizes[self._current]:
            return True
        other = 1 - self._current
        if needed > self._sizes[other]:
            self._is_too_short = True
            return False
        if not self._is_other_free:
            return False
        if not self._write([], 0, self._begun_sequence):
            return False
        self._present[other] = {}
        self._blocking, self._awaited = deque(self._all_unsynced(self._current)), []
        self._stuck.clear()
        self._queue.clear()
        self._large.clear()
        self._first_sequence, self._begun_sequence = self._begun_sequence, self._sequence + 1
        self._current, self._position, self._next_due = other, 0, self._step_bytes
        self._may_lengthen = True
        return True

    def _write(self, parts: Sequence[Buffer], entry_count: int, first_sequence: int) -> bool:
        """Write and sync a record after the last one. From then on `first_sequence` is the first valid record."""
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
        self.record_count += 1
        self.written_bytes += end - self._position
        self._position = end
        return True

    def _remove_files(self, newest: int) -> None:
        """Remove both files, the newer first: the older one alone is complete, the newer one alone may not be."""
        for file in (newest, 1 - newest):
            path = f"{self._root}/{JOURNAL_NAMES[file]}"
            if self._files.exists(path):
                self._files.remove(path)
                self._files.sync_directory(self._root)

    def _begin_anew(self) -> bool:
        """Durably make all records void, by writing a record that names itself as the first valid one."""
        if not self._write([], 0, self._sequence + 1):
            return False
        self._first_sequence = self._begun_sequence = self._sequence
        self._present = [{}, {}]
        for kept in (self._queue, self._blocking, self._awaited, self._stuck, self._large):
            kept.clear()
        self._forgotten = {}
        path = f"{self._root}/{FORGOTTEN_NAME}"
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_directory(self._root)
        return True


def seed_of(secret: str) -> int:
    """The start value for the checksums of a journal."""
    return crc32c(secret.encode())


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
    """The intact records of one journal file, by position, including those of earlier uses of the file."""
    view, position = memoryview(data), 0
    while position + _HEAD.size + _BODY.size <= len(view):
        magic, version, checksum = _HEAD.unpack_from(view, position)
        size, sequence, first_sequence, entry_count = _BODY.unpack_from(view, position + _HEAD.size)
        record = view[position + _HEAD.size : position + size]
        if magic != _MAGIC or size > len(view) - position or crc32c(record, seed) != checksum:
            position += PAGE_BYTES
            continue
        if version != _VERSION:
            # It may contain acknowledged records that are nowhere else.
            raise FormatTooNew(JOURNAL_NAMES[file], version, _VERSION)
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
    """The valid ones of the intact records, in order, and how many valid records are missing."""
    newest = max(records, default=None)
    if newest is None:
        return [], 0
    counting = sorted(record for record in records if record.sequence >= newest.first_sequence)
    return counting, newest.sequence - newest.first_sequence + 1 - len(counting)


def entries_by_log(counting: Sequence[Record], forgotten: Mapping[str, int]) -> dict[str, list[Entry]]:
    """The entries to write back, in order."""
    logs: dict[str, list[Entry]] = {}
    for record in counting:
        for entry in record.entries:
            if forgotten.get(entry.log, 0) < record.sequence:
                logs.setdefault(entry.log, []).append(entry)
    return logs


def replay(files: Files, root: str, seed: int) -> Record | None:
    """Durably write all valid entries to their positions, and return the newest record. May be repeated."""
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
            f"{root}: {missing_count} records of {' and '.join(JOURNAL_NAMES)} are damaged, and they hold the "
            "latest acknowledged appends; restore them from a backup, or start with an empty directory. If the machine "
            "has not lost power since this node last ran, its logs are complete, and the two files may be removed"
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
    """Write a log's entries to their positions."""
    flushed_file = FlushedFile(files, f"{directory}/{FLUSHED_NAME}")
    flushed = flushed_file.read()
    last = entries[-1]
    if flushed is not None and flushed.is_clean and flushed.offset >= last.end_offset:
        # The log was closed cleanly after these entries. A log that was closed before them may also be marked clean:
        # the removal of the mark may have been in a page that was never written to the disk.
        return
    opened: dict[Offset, OpenFile | None] = {}
    for entry in entries:
        if entry.segment not in opened:
            path = f"{directory}/{entry.segment:020d}{LOG_SUFFIX}"
            # Retention may have removed the segment since.
            opened[entry.segment] = OpenFile(files, files.open(path)) if files.exists(path) else None
        file = opened[entry.segment]
        if file is not None:
            files.write(file.handle, (entry.data,), entry.position)
    for file in opened.values():
        if file is not None:
            files.sync(file.handle)
    if flushed is None or flushed.offset < last.end_offset:
        # Opening the log then knows how far it was acknowledged, whatever happened to its files.
        flushed_file.write(Flushed(False, last.end_offset, last.segment, last.position + len(last.data)))


def _write_forgotten(files: Files, path: str, forgotten: Mapping[str, int]) -> None:
    content = json.dumps(forgotten, sort_keys=True).encode()
    replace_file(files, path, b"%08x %s\n" % (crc32c(content), content))


def read_forgotten(path: str, data: bytes) -> dict[str, int]:
    """For each forgotten log: the last record whose entries for it are void."""
    checksum, _, content = data.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % crc32c(content):
        raise DirectoryUnreadable(
            f"{path} is damaged, and without it the journal cannot be used; restore it from a backup, or start with "
            "an empty directory. If the machine has not lost power since this node last ran, its logs are complete, "
            f"and it may be removed together with {' and '.join(JOURNAL_NAMES)}"
        )
    return {str(log): int(sequence) for log, sequence in json.loads(content).items()}
