"""Snapshot files: a state at an offset, complete or absent.

A snapshot is written to a temporary file, which is synced and renamed, and then the directory is synced. So a file
whose name does not end in `.tmp` is complete. It contains the offset that it describes, and a checksum over everything.
The newest two of a kind are kept: if one is damaged, the one before it is used, and later changes are replayed from the
log.

A damaged snapshot loses no data here: `load_latest` skips it and logs an error. A caller whose state cannot be restored
by replay must refuse to start. An intact snapshot of a later version is not damaged: `FormatTooNew`.
"""

from __future__ import annotations

import logging
import re
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from drmq.model import Offset
from drmq.records import Buffer
from drmq.storage.errors import FormatTooNew, InvalidName
from drmq.storage.files import (
    OS_FILES,
    Files,
    KnownDirectories,
    OpenFile,
    make_directories,
    replace_file,
    sync_ancestors,
)

_logger = logging.getLogger(__name__)

_HEADER = Struct("<4sIqQI")
"""Magic, version, offset, payload size, checksum of these four and the payload."""
_BEFORE_CHECKSUM = _HEADER.size - 4
_MAGIC = b"DMQP"
_VERSION = 1
"""The version of header and payload together: a kind whose payload changes gets the next number."""
_SUFFIX = ".snapshot"
_DIGITS = 20
_PREFIX_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Snapshot(NamedTuple):
    """A state, and the offset of the first record that is not part of it."""

    offset: Offset
    payload: bytes


class SnapshotStore:
    """The snapshots in one directory, of one or several kinds. Only one thread saves."""

    def __init__(
        self, directory: str, files: Files = OS_FILES, keep_count: int = 2, known: KnownDirectories | None = None
    ) -> None:
        """`known` are directories whose names are durable (`files.sync_ancestors`)."""
        assert keep_count >= 1, keep_count
        self._known = known
        self._directory = directory
        self._files = files
        self._keep_count = keep_count

    def save(self, prefix: str, offset: Offset, payload: Buffer) -> None:
        """Durably store a snapshot, then remove those of its kind that are no longer needed."""
        make_directories(self._files, self._directory, self._known)
        head = _HEADER.pack(_MAGIC, _VERSION, offset, len(payload), 0)[:_BEFORE_CHECKSUM]
        checksum = crc32c(payload, crc32c(head))
        replace_file(self._files, self._path(prefix, offset), b"".join((head, checksum.to_bytes(4, "little"), payload)))
        offsets = self.offsets(prefix)
        if len(offsets) == 1:
            sync_ancestors(self._files, self._directory, self._known)
        for old in offsets[: -self._keep_count]:
            self._files.remove(self._path(prefix, old))

    def load_latest(self, prefix: str, not_after: Offset | None = None) -> Snapshot | None:
        """The newest intact snapshot of a kind whose offset is at most `not_after`."""
        for offset in reversed(self.offsets(prefix)):
            if not_after is not None and offset > not_after:
                continue
            path = self._path(prefix, offset)
            snapshot = self._load(path)
            if snapshot is not None and snapshot.offset == offset:
                return snapshot
            _logger.error("%s is damaged; using an older snapshot if there is one", path)
        return None

    def remove_after(self, prefix: str, offset: Offset) -> None:
        """Durably remove snapshots beyond `offset`, where the log was truncated.

        If one reappeared after a power cut, it would be used although other records may have those offsets by then.
        """
        gone = [found for found in self.offsets(prefix) if found > offset]
        for found in gone:
            self._files.remove(self._path(prefix, found))
        if gone:
            self._files.sync_directory(self._directory)

    def offsets(self, prefix: str) -> list[Offset]:
        """The offsets of the stored snapshots of a kind, in order, unchecked."""
        start = self._check(prefix) + "-"
        if not self._files.is_directory(self._directory):
            return []
        size = len(start) + _DIGITS + len(_SUFFIX)
        return [
            Offset(int(name[len(start) : len(start) + _DIGITS]))
            for name in self._files.list(self._directory)
            if len(name) == size and name.startswith(start) and name.endswith(_SUFFIX)
        ]

    def _check(self, prefix: str) -> str:
        if not _PREFIX_PATTERN.fullmatch(prefix):
            raise InvalidName(f"{prefix!r} is not a valid name for a kind of snapshot")
        return prefix

    def _path(self, prefix: str, offset: Offset) -> str:
        return f"{self._directory}/{self._check(prefix)}-{offset:0{_DIGITS}d}{_SUFFIX}"

    def _load(self, path: str) -> Snapshot | None:
        file = OpenFile(self._files, self._files.open(path))
        data = self._files.read(file.handle, self._files.size(file.handle), 0)
        if len(data) < _HEADER.size:
            return None
        magic, version, offset, size, checksum = _HEADER.unpack_from(data)
        payload = memoryview(data)[_HEADER.size :]
        if magic != _MAGIC or len(payload) != size:
            return None
        if crc32c(payload, crc32c(memoryview(data)[:_BEFORE_CHECKSUM])) != checksum:
            return None
        if version != _VERSION:
            raise FormatTooNew(path, version, _VERSION)
        return Snapshot(Offset(offset), bytes(payload))
