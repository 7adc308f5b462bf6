"""The ledger: one small file per partition with what a replica must not forget beside its batches.

Segments hold nothing but client batches. A replica also has a term and a vote, entries of its own (no-ops,
configurations), and a base: what lies before the first entry of its log. A replica that forgets
its vote may vote twice in one term and make two leaders. So a call here returns when its change is durable, and a
file that cannot be read is never taken for a new one.

**One call is one record, one write, one sync.** However it is torn, a record reads back whole or not at all
(`ledger_format`), so a crash leaves the state before the call or after it.

**A torn tail or damage?** Each call ends with its sync, so a crash can only spoil the last record. After each
sync the marks say how far the file is durable. After `kill -9` they are exact; after a power cut they may be old or
torn, but never say too much. What does not read back below that mark, or has a sound record behind it, was
promised: `LedgerCorrupt`, and nothing is changed. Anything else is an unfinished last write, and is wiped out.

**What opening finds is made durable again** from the mark on, by writing it once more. After `kill -9` it may be
in the page cache only; and after a failed sync the kernel takes its pages for clean, so that a sync alone proves
nothing.

**Space is kept back.** The file is extended by zeros, written and synced, before they are needed. So votes and no-ops
can be stored while the disk is full, and most syncs do not have to write a new file size. (A file system that never
overwrites in place, like btrfs, does not keep that promise; a write that fails there fences the ledger.)

**It is rewritten** as a new file when it has grown and is mostly dead records. Removing entries is a record like any
other: nothing is ever cut from a file that is in use.

Always true between calls:

- the ballot's term never falls, and a vote given in a term stays;
- indexes of the entries rise, their terms and offsets never fall, and all lie behind the base;
- `base`, `ballot` and `entries` are on disk as they are shown, also when a call has failed;
- after a failed write or sync of the file nothing more is written to it: `LogFenced`.

**What cannot be noticed:** a sound older copy of the file put in its place, or that of another partition, and damage
to the very last record when a power cut also took the mark that covered it. A backup of a ledger is therefore worse
than none: a replica without a ledger joins again as a new member, one with an old ledger may vote twice.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import suppress

from drmq.storage.errors import DiskFull, LogClosed, LogFenced
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

__all__ = ["LEDGER_NAME", "NO_VOTE", "Ballot", "Ledger", "LedgerBase", "LedgerCorrupt", "LedgerMissing", "OwnEntry"]

_logger = logging.getLogger(__name__)

LEDGER_NAME = "ledger"

RESERVE_BYTES = 8 * 1024
"""How far the file is extended ahead of its last record."""
RESERVE_BYTES_MIN = 4 * 1024
"""When less than this is left, it is extended: enough for about sixty elections on a full disk."""
REWRITE_BYTES = 64 * 1024
"""A file smaller than this is not rewritten, nor one that grew by less since it was last considered."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Ledger:
    """The open ledger of one replica. One thread changes it; any may read `base`, `ballot`, `entries` and `commit`.

    A call that breaks one of the rules above is a bug, and fails an assertion before anything has changed.
    """

    __slots__ = (
        "_commit", "_end", "_facts", "_fenced", "_file", "_files", "_is_closed", "_is_short", "_path", "_rewrite_at",
        "_size",
    )  # fmt: skip

    def __init__(self, files: Files, path: str, file: OpenFile, facts: Facts, commit: int, end: int, size: int) -> None:
        """Not for callers: use `create` or `open`."""
        self._files = files
        self._path = path
        self._file = file
        self._facts = facts
        self._commit = commit
        self._end = end
        """Where the next record goes; everything before it is durable."""
        self._size = size
        """How far the file is extended; from `_end` on it holds zeros."""
        self._rewrite_at = REWRITE_BYTES
        self._is_short = False
        self._fenced: str | None = None
        self._is_closed = False

    @classmethod
    def create(cls, directory: str, base: LedgerBase, files: Files = OS_FILES) -> Ledger:
        """A new ledger, durable with its directory. There must be none yet: replacing one would forget a vote."""
        path = f"{directory}/{LEDGER_NAME}"
        make_directories(files, directory)
        # Before the file has its name: so whoever finds the file need not think of the directories above again.
        sync_ancestors(files, directory)
        assert not files.exists(path), f"{path} exists; it must be opened, not created"
        facts = NO_FACTS._replace(base=base)
        content = whole_file(facts, base.index)
        file = _write_beside(files, path, content)
        _put_in_place(files, path)
        return cls(files, path, file, facts, base.index, len(content), len(content) + RESERVE_BYTES)

    @classmethod
    def open(cls, directory: str, files: Files = OS_FILES) -> Ledger:
        """The ledger in `directory`, without what an unfinished call left. Raises `LedgerMissing`, `LedgerCorrupt`."""
        path = f"{directory}/{LEDGER_NAME}"
        try:
            file = OpenFile(files, files.open(path))
        except FileNotFoundError as error:
            raise LedgerMissing(path) from error
        data = files.read(file.handle, files.size(file.handle), 0)
        check_head(path, data)
        commit, durable = read_marks(data)
        facts, end = read_records(path, data)
        check_end(path, data, end, durable)
        ledger = cls(files, path, file, facts, commit, end, len(data))
        try:
            ledger._settle(data, durable)
            # Creating or rewriting it may have been stopped between the rename and this.
            files.sync_directory(directory)
            ledger._write_marks()
        except OSError as error:
            raise ledger._fence("making durable what was found", error) from error
        return ledger

    def _settle(self, data: bytes, durable: int) -> None:
        """Write what was found behind the mark again, and zeros over what an unfinished write left."""
        remains = max(len(data.rstrip(b"\0")) - self._end, 0)
        if remains:
            _logger.warning("%s: wiped out %d bytes of an unfinished write at %d", self._path, remains, self._end)
        if remains or durable < self._end:
            self._files.write(self._file.handle, (data[durable : self._end], bytes(remains)), durable)
            self._files.sync(self._file.handle)

    def __repr__(self) -> str:
        return f"Ledger({self._path!r}, base {self.base.index}, {self.ballot}, {len(self.entries)} entries)"

    # What is known

    @property
    def base(self) -> LedgerBase:
        """What lies before the log's first entry."""
        return self._facts.base

    @property
    def ballot(self) -> Ballot:
        """The latest durable term and vote."""
        return self._facts.ballot

    @property
    def entries(self) -> Sequence[OwnEntry]:
        """The entries behind the base, in order. What was handed out never changes."""
        return self._facts.entries

    @property
    def commit(self) -> int:
        """The last noted commit index, or an earlier one after a crash; never below the base.

        It is not ordered with anything else: after a power cut it may lie beyond what is left of the log.
        """
        return max(self._commit, self._facts.base.index)

    @property
    def is_fenced(self) -> bool:
        """Whether a write or sync has failed, so that only opening it again tells what is on the disk."""
        return self._fenced is not None

    # Changes

    def save_ballot(self, ballot: Ballot) -> None:
        """Durably remember a term and a vote. Only then may anyone be told."""
        self._check_usable()
        if ballot != self.ballot:
            self._store(ballot_record(ballot))

    def append(self, entries: Sequence[OwnEntry]) -> None:
        """Durably add entries, all or none. Raises `DiskFull`, and goes on, if even the space kept back is used up."""
        self._check_usable()
        if entries:
            self._store(entries_record(entries))

    def truncate(self, from_index: int) -> None:
        """Durably forget the entries from `from_index` on; where there are none, this costs nothing."""
        self._check_usable()
        assert from_index > self.base.index, (from_index, self.base.index)
        if self.entries and self.entries[-1].index >= from_index:
            self._store(truncation_record(from_index))

    def rebase(self, base: LedgerBase) -> None:
        """Durably move the base forward; the entries up to its index go."""
        self._check_usable()
        if base != self.base:
            self._store(rebase_record(base))

    def reset(self, base: LedgerBase, ballot: Ballot | None = None) -> None:
        """A snapshot was installed: durably begin behind it, without entries, and with the ballot as it is, or this."""
        self._check_usable()
        self._store(whole_record(Facts(base, ballot or self.ballot, ())))

    def note_commit(self, index: int) -> None:
        """Remember a commit index if it is a later one. It survives the process, and maybe not a power cut."""
        self._check_usable()
        if index > self.commit:
            self._commit = index
            try:
                self._write_marks()
            except OSError as error:
                raise self._fence("noting the commit index", error) from error

    def close(self) -> None:
        """Let go of the file; everything is durable already."""
        if not self._is_closed:
            self._is_closed = True
            del self._file

    # The file

    def _check_usable(self) -> None:
        if self._is_closed:
            raise LogClosed(self._path)
        if self._fenced is not None:
            raise LogFenced(self._path, self._fenced)

    def _store(self, body: bytes) -> None:
        """Make a change durable, then show it."""
        facts = after(self._facts, body)
        record = framed(self._end, body)
        self._reserve(len(record))
        try:
            self._files.write(self._file.handle, (record,), self._end)
            self._files.sync(self._file.handle)
            self._end += len(record)
            self._write_marks()
        except OSError as error:
            raise self._fence("a write", error) from error
        self._facts = facts
        self._maybe_rewrite()

    def _write_marks(self) -> None:
        """Say how far the file is durable; called after the sync that made it so."""
        self._files.write(self._file.handle, (packed_marks(self._commit, self._end),), MARKS_AT)

    def _reserve(self, record_bytes: int) -> None:
        """Extend the file if a record of that size would leave too little behind it."""
        needed = self._end + record_bytes
        if needed + RESERVE_BYTES_MIN <= self._size:
            return
        size = needed + RESERVE_BYTES
        try:
            self._files.write(self._file.handle, (bytes(size - self._size),), self._size)
            self._files.sync(self._file.handle)
        except OSError as error:
            if error.errno not in _FULL:
                raise self._fence("extending the file", error) from error
            # Nothing is lost: at most, some zeros were written behind the zeros.
            if needed > self._size:
                raise DiskFull(self._path, error) from error
            if not self._is_short:
                self._is_short = True
                _logger.warning("%s: the disk is full; %d bytes are kept back", self._path, self._size - self._end)
            return
        self._size = size
        self._is_short = False

    def _maybe_rewrite(self) -> None:
        """Replace the file by a new one if it is large and mostly dead. A failure leaves the old one in use."""
        if self._end < self._rewrite_at:
            return
        self._rewrite_at = self._end + REWRITE_BYTES
        content = whole_file(self._facts, self._commit)
        if 2 * len(content) > self._end:
            return
        try:
            file = _write_beside(self._files, self._path, content)
        except OSError as error:
            _logger.warning("%s could not be rewritten and goes on growing: %s", self._path, error)
            with suppress(OSError):
                self._files.remove(_temporary(self._path))
            return
        try:
            _put_in_place(self._files, self._path)
        except OSError as error:
            # Either file may be found after a power cut. Both hold all that was promised so far, so the call that
            # led here has succeeded; but what came next would be in one of them only.
            self._fence("replacing the file", error)
            return
        self._file, self._end, self._size = file, len(content), len(content) + RESERVE_BYTES
        self._rewrite_at = self._end + REWRITE_BYTES

    def _fence(self, action: str, error: OSError) -> LogFenced:
        """Take no more changes; returns what to raise."""
        self._fenced = f"{action} failed: {error.strerror or error}"
        _logger.error("%s: %s", self._path, self._fenced)
        return LogFenced(self._path, self._fenced)


def _temporary(path: str) -> str:
    return path + ".tmp"


def _write_beside(files: Files, path: str, content: bytes) -> OpenFile:
    """A durable file, with space kept back, that is yet to get the name `path`. Until then nothing has happened.

    `replace_file` does this and the next step in one. Here they fail differently, and the file stays open.
    """
    temporary = _temporary(path)
    if files.exists(temporary):
        files.remove(temporary)
    file = OpenFile(files, files.open(temporary, create=True))
    files.write(file.handle, (content, bytes(RESERVE_BYTES)), 0)
    files.sync(file.handle)
    return file


def _put_in_place(files: Files, path: str) -> None:
    files.rename(_temporary(path), path)
    # Without this a power cut may bring back the old file, or none, after later votes went into the new one.
    files.sync_directory(os.path.dirname(path))
