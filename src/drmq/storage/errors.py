"""The exceptions of storage.

    StorageError
    ├── OffsetOutOfRange     the offset is not in the log (any more, or yet)
    ├── AppendFailed         a write failed and was undone; the log can be used further
    │   └── DiskFull         ... because the disk is full; works again once there is space
    ├── LogFenced            a sync failed earlier: the log accepts no more appends until it is reopened
    ├── LogCorrupt           bytes that were acknowledged do not read back
    ├── LogClosed            the log was closed or deleted
    ├── LedgerMissing        there is no ledger (in `ledger_format`)
    ├── LedgerCorrupt        a ledger that cannot be read back (in `ledger_format`)
    ├── FormatTooNew         an intact file of a later version (an `UnknownFormat`)
    │   └── LedgerTooNew     a ledger of a later version (in `ledger_format`)
    ├── WriterStopped        the writer thread accepts no more work
    ├── InvalidName          a name that may not become part of a path
    └── DirectoryRefused     the data directory must not be used
    ├── DirectoryLocked      another process uses it
    ├── DirectoryUnreadable  its description is damaged or missing
    ├── DirectoryTooNew      it was written by a later version
        └── DirectoryMismatch    it belongs to another node or cluster

`drmq.kafka` turns these into Kafka error codes.
"""

from __future__ import annotations

from drmq.model import DrmqError, Offset, UnknownFormat


class StorageError(DrmqError):
    """The root of storage's own exceptions."""


class OffsetOutOfRange(StorageError):
    """A read at an offset outside `start_offset..end_offset`."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is not within {start_offset}..{end_offset}")
        self.offset = Offset(offset)
        self.start_offset = Offset(start_offset)
        self.end_offset = Offset(end_offset)


class AppendFailed(StorageError):
    """A write failed. Nothing at or after the log's `end_offset` is in the log, which still accepts appends."""

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(f"{path}: append failed: {cause.strerror or cause}")
        self.path = path
        self.errno = cause.errno


class DiskFull(AppendFailed):
    """No space was left for an append. The same append works once there is space again."""


class LogFenced(StorageError):
    """A sync failed, so it is unknown which of the unsynced bytes reached the disk.

    After a failed sync the kernel marks the pages as clean, so a second sync that succeeds proves nothing. The log
    stays readable up to `flushed_offset`. Reopening it determines what is on the disk.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} takes no more appends: {reason}; restart the broker once the disk is in order")
        self.path = path


class LogCorrupt(StorageError):
    """Bytes that were acknowledged do not read back as they were written."""

    def __init__(self, path: str, position: int, offset: int, problem: str, advice: str | None = None) -> None:
        advice = advice or "restore this file from a backup or a replica, or delete the partition; nothing was changed"
        self.finding = f"{path}, position {position}, offset {offset}: {problem}"
        """The message without the advice, for callers that give better advice."""
        super().__init__(f"{self.finding}; {advice}")
        self.path = path
        self.position = position
        self.offset = Offset(offset)
        self.problem = problem


class FormatTooNew(StorageError, UnknownFormat):
    """A file in a format that this version does not know. It may be intact, so it is not treated as damaged."""

    def __init__(self, path: str, version: int, known: int) -> None:
        super().__init__(
            f"{path}: it has version {version} of the format, and this program knows version {known}; "
            "start the version of DRMQ that wrote it; nothing was changed"
        )
        self.path = path
        self.version = version


class LogClosed(StorageError):
    """An operation on a log that was closed or deleted."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is closed")
        self.path = path


class WriterStopped(StorageError):
    """The writer thread was stopped, or was ended by the exception that is the cause of this one."""


class InvalidName(StorageError):
    """A name that may not become part of a path."""


class DirectoryRefused(StorageError):
    """The data directory must not be used as it is."""


class DirectoryLocked(DirectoryRefused):
    """Another process uses the data directory."""


class DirectoryUnreadable(DirectoryRefused):
    """The description of the data directory is damaged or missing although there is data."""


class DirectoryTooNew(DirectoryRefused, UnknownFormat):
    """The data directory was written by a later version of DRMQ."""


class DirectoryMismatch(DirectoryRefused):
    """The data directory belongs to another node or another cluster."""
