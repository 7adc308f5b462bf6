"""The ledger: one small file per partition with the state that a replica must not lose, besides its batches.

Segments hold only client batches. A replica also has a term and a vote, internal entries (no-ops, configurations), and
a base: the position before the first entry of its log. A replica that loses its vote may vote twice in one term and
elect two leaders. So a call here returns only when its change is durable, and a file that cannot be read is never
replaced by a new one.

**One call is one record, one write, one sync.** A torn record is recognised (`ledger_format`), so a crash leaves either
the state before the call or the state after it.

**A torn tail or damage?** Each call ends with its sync, so a crash can damage only the last record. After each sync the
marks say how far the file is durable. After `kill -9` they are exact. After a power cut they may be old or torn, but
never claim too much. A record that cannot be read and lies below the mark, or has a valid record after it, was
acknowledged: `LedgerCorrupt`, and nothing is changed. Anything else is an unfinished last write and is overwritten with
zeros.

**What opening finds is made durable again** from the mark on, by writing it again. After `kill -9` it may be only in
the page cache; and after a failed sync the kernel considers the pages clean, so a sync alone proves nothing.

**Space is reserved.** The file is extended with zeros, written and synced, before they are needed. So votes and no-ops
can be stored while the disk is full, and most syncs need not write a new file size. (A file system that never
overwrites in place, such as btrfs, does not honour this reservation; a write that fails there fences the ledger.)

**It is rewritten** as a new file when it has grown and consists mostly of obsolete records. Removing entries is a
record like any other: a file that is in use is never truncated.

Always true between calls:

- the ballot's term never decreases, and a vote cast in a term does not change;
- indexes of the entries increase, their terms and offsets never decrease, and all are after the base;
- `base`, `ballot` and `entries` are on disk exactly as they are shown, also when a call has failed;
- after a failed write or sync of the file, nothing more is written to it: `LogFenced`.

**What cannot be detected:** that the file was replaced by a valid older copy, or by that of another partition; and
damage to the last record if a power cut also lost the mark that covered it. A backup of a ledger is therefore worse
than none: a replica without a ledger joins again as a new member, one with an old ledger may vote twice.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import suppress

from drmq.storage.errors import DiskFull, LogClosed, LogFenced, StorageError
from drmq.storage.file_pool import FilePool, PooledFile
from drmq.storage.files import OS_FILES, Files, OpenFile, make_directories, sync_ancestors
from drmq.storage.ledger_format import (
    MARKS_AT,
    NO_FACTS,
    NO_VOTE,
    Ballot,
    Facts,
    LedgerBase,
    LedgerCorrupt,
    LedgerMissing,
    OwnEntry,
    after,
    ballot_record,
    check_end,
    check_head,
    entries_record,
    framed,
    packed_marks,
    read_marks,
    read_records,
    rebase_record,
    truncation_record,
    whole_file,
    whole_record,
)
from drmq.telemetry.system_errors import in_words

__all__ = ["LEDGER_NAME", "NO_VOTE", "Ballot", "Ledger", "LedgerBase", "LedgerCorrupt", "LedgerMissing", "OwnEntry"]

_logger = logging.getLogger(__name__)

LEDGER_NAME = "ledger"

RESERVE_BYTES = 8 * 1024
"""How many zeros are added after the last record."""
RESERVE_BYTES_MIN = 4 * 1024
"""If fewer zeros than this are left, more are added: enough for about sixty elections on a full disk."""
REWRITE_BYTES = 64 * 1024
"""A smaller file is not rewritten, nor one that grew by less than this since the last check."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Ledger:
    """The open ledger of one replica. One thread changes it; any thread may read its properties.

    A call that violates one of the rules above is a bug, and fails an assertion before anything has changed.
    """

    __slots__ = (
        "_commit", "_end", "_facts", "_fenced", "_file", "_files", "_is_closed", "_is_short", "_path", "_rewrite_at",
        "_size",
    )  # fmt: skip

    def __init__(self, files: Files, file: PooledFile, facts: Facts, commit: int, end: int, size: int) -> None:
        """Internal: use `create` or `open`."""
        self._files = files
        self._path = file.path
        self._file = file
        self._facts = facts
        self._commit = commit
        self._end = end
        """The position of the next record; everything before it is durable."""
        self._size = size
        """The size of the file; from `_end` on it holds zeros."""
        self._rewrite_at = REWRITE_BYTES
        self._is_short = False
        self._fenced: str | None = None
        self._is_closed = False

    @classmethod
    def create(cls, directory: str, base: LedgerBase, files: Files = OS_FILES, pool: FilePool | None = None) -> Ledger:
        """A new ledger, durable with its directory. None may exist yet: replacing one would lose a vote."""
        path = f"{directory}/{LEDGER_NAME}"
        pool = pool or FilePool(files)
        make_directories(files, directory, pool.known_directories)
        # Before the file gets its name, so that code which finds the file need not sync the directories above it again.
        sync_ancestors(files, directory, pool.known_directories)
        assert not files.exists(path), f"{path} exists; it must be opened, not created"
        facts = NO_FACTS._replace(base=base)
        content = whole_file(facts, base.index)
        _write_beside(files, path, content)
        _put_in_place(files, path)
        return cls(files, pool.file(path), facts, base.index, len(content), len(content) + RESERVE_BYTES)

    @classmethod
    def open(cls, directory: str, files: Files = OS_FILES, pool: FilePool | None = None) -> Ledger:
        """Open the ledger in `directory`, without an unfinished last write. Raises `LedgerMissing`, `LedgerCorrupt`."""
        path = f"{directory}/{LEDGER_NAME}"
        pooled = (pool or FilePool(files)).file(path)
        try:
            file = pooled.get()
        except FileNotFoundError as error:
            raise LedgerMissing(path) from error
        data = files.read(file.handle, files.size(file.handle), 0)
        check_head(path, data)
        commit, durable = read_marks(data)
        facts, end = read_records(path, data)
        check_end(path, data, end, durable)
        ledger = cls(files, pooled, facts, commit, end, len(data))
        try:
            ledger._settle(file, data, durable)
            # A previous process may have been stopped after the rename and before this sync.
            files.sync_directory(directory)
            ledger._write_marks(file)
        except OSError as error:
            raise ledger._fence("making durable what was found", error) from error
        return ledger

    def _settle(self, file: OpenFile, data: bytes, durable: int) -> None:
        """Write again what was found after the mark, and overwrite an unfinished write with zeros."""
        remains = max(len(data.rstrip(b"\0")) - self._end, 0)
        if remains:
            _logger.warning("%s: wiped out %d bytes of an unfinished write at %d", self._path, remains, self._end)
        if remains or durable < self._end:
            self._files.write(file.handle, (data[durable : self._end], bytes(remains)), durable)
            self._files.sync(file.handle)

    def __repr__(self) -> str:
        return f"Ledger({self._path!r}, base {self.base.index}, {self.ballot}, {len(self.entries)} entries)"

    # What is known

    @property
    def base(self) -> LedgerBase:
        """The position before the log's first entry."""
        return self._facts.base

    @property
    def ballot(self) -> Ballot:
        """The latest durable term and vote."""
        return self._facts.ballot

    @property
    def entries(self) -> Sequence[OwnEntry]:
        """The entries after the base, in order. A returned sequence never changes."""
        return self._facts.entries

    @property
    def commit(self) -> int:
        """The last noted commit index, or an earlier one after a crash; never below the base.

        It is not ordered with other writes: after a power cut it may be beyond the end of the log.
        """
        return max(self._commit, self._facts.base.index)

    @property
    def is_fenced(self) -> bool:
        """Whether a write or sync has failed, so that only opening the ledger again shows what is on the disk."""
        return self._fenced is not None

    # Changes

    def save_ballot(self, ballot: Ballot) -> None:
        """Durably store a term and a vote. Only after that may they be sent to other nodes."""
        self._check_usable()
        if ballot != self.ballot:
            self._store(ballot_record(ballot))

    def append(self, entries: Sequence[OwnEntry]) -> None:
        """Durably add entries, all or none. Raises `DiskFull`, and stays usable, if the reserve is used up too."""
        self._check_usable()
        if entries:
            self._store(entries_record(entries))

    def truncate(self, from_index: int) -> None:
        """Durably remove the entries from `from_index` on; does nothing if there are none."""
        self._check_usable()
        assert from_index > self.base.index, (from_index, self.base.index)
        if self.entries and self.entries[-1].index >= from_index:
            self._store(truncation_record(from_index))

    def rebase(self, base: LedgerBase) -> None:
        """Durably move the base forward, and remove the entries up to its index."""
        self._check_usable()
        if base != self.base:
            self._store(rebase_record(base))

    def reset(self, base: LedgerBase, ballot: Ballot | None = None) -> None:
        """Durably restart after an installed snapshot: no entries, and the given ballot or else the present one."""
        self._check_usable()
        self._store(whole_record(Facts(base, ballot or self.ballot, ())))

    def note_commit(self, index: int) -> None:
        """Store a commit index if it is higher. It survives a crash of the process, but possibly not a power cut."""
        self._check_usable()
        if index > self.commit:
            self._commit = index
            try:
                self._write_marks(self._file.get())
            except OSError as error:
                raise self._fence("noting the commit index", error) from error

    def close(self) -> None:
        """Close the file; everything is durable already."""
        if not self._is_closed:
            self._is_closed = True
            self._file.release()

    # The file

    def _check_usable(self) -> None:
        if self._is_closed:
            raise LogClosed(self._path)
        if self._fenced is not None:
            raise LogFenced(self._path, self._fenced)

    def _store(self, body: bytes) -> None:
        """Make a change durable, then make it visible."""
        facts = after(self._facts, body)
        record = framed(self._end, body)
        file = self._opened()
        self._reserve(file, len(record))
        try:
            self._files.write(file.handle, (record,), self._end)
            self._files.sync(file.handle)
            self._end += len(record)
            self._write_marks(file)
        except OSError as error:
            raise self._fence("a write", error) from error
        self._facts = facts
        self._maybe_rewrite()

    def _opened(self) -> OpenFile:
        """The open file. All writes of a change and its sync use the same handle: it learns of failed writes."""
        try:
            return self._file.get()
        except OSError as error:
            # Nothing has changed yet. Without descriptors, for example, a later call may succeed.
            raise StorageError(f"{self._path} cannot be opened: {error.strerror}") from error

    def _write_marks(self, file: OpenFile) -> None:
        """Record how far the file is durable. Called after the sync."""
        self._files.write(file.handle, (packed_marks(self._commit, self._end),), MARKS_AT)

    def _reserve(self, file: OpenFile, record_bytes: int) -> None:
        """Extend the file if too little space would be left after a record of that size."""
        needed = self._end + record_bytes
        if needed + RESERVE_BYTES_MIN <= self._size:
            return
        size = needed + RESERVE_BYTES
        try:
            self._files.write(file.handle, (bytes(size - self._size),), self._size)
            self._files.sync(file.handle)
        except OSError as error:
            if error.errno not in _FULL:
                raise self._fence("extending the file", error) from error
            # Nothing is lost: at most, some zeros were written after the zeros.
            if needed > self._size:
                raise DiskFull(self._path, error) from error
            if not self._is_short:
                self._is_short = True
                _logger.warning("%s: the disk is full; %d reserved bytes are left", self._path, self._size - self._end)
            return
        self._size = size
        self._is_short = False

    def _maybe_rewrite(self) -> None:
        """Replace the file by a new one if it is large and mostly obsolete. If that fails, the old one stays in use."""
        if self._end < self._rewrite_at:
            return
        self._rewrite_at = self._end + REWRITE_BYTES
        content = whole_file(self._facts, self._commit)
        if 2 * len(content) > self._end:
            return
        try:
            _write_beside(self._files, self._path, content)
        except OSError as error:
            _logger.warning("%s could not be rewritten and continues to grow: %s", self._path, in_words(error))
            with suppress(OSError):
                self._files.remove(_temporary(self._path))
            return
        try:
            _put_in_place(self._files, self._path)
        except OSError as error:
            # After a power cut either file may be found. Both hold everything acknowledged so far, so the current call
            # has succeeded. A later change, however, would be in only one of them.
            self._fence("replacing the file", error)
            return
        self._file.release()  # The next change opens the new file.
        self._end, self._size = len(content), len(content) + RESERVE_BYTES
        self._rewrite_at = self._end + REWRITE_BYTES

    def _fence(self, action: str, error: OSError) -> LogFenced:
        """Accept no more changes; returns the exception to raise."""
        self._fenced = f"{action} failed: {error.strerror or error}"
        _logger.error("%s: %s", self._path, self._fenced)
        return LogFenced(self._path, self._fenced)


def _temporary(path: str) -> str:
    return path + ".tmp"


def _write_beside(files: Files, path: str, content: bytes) -> None:
    """Write a durable file with reserved space that will be renamed to `path`. Until then nothing has changed.

    `replace_file` does this and the rename in one step. Here the two steps fail differently.
    """
    temporary = _temporary(path)
    if files.exists(temporary):
        files.remove(temporary)
    file = OpenFile(files, files.open(temporary, create=True))
    files.write(file.handle, (content, bytes(RESERVE_BYTES)), 0)
    files.sync(file.handle)


def _put_in_place(files: Files, path: str) -> None:
    files.rename(_temporary(path), path)
    # Without this, a power cut may restore the old file, or none, after later votes were written to the new one.
    files.sync_directory(os.path.dirname(path))
