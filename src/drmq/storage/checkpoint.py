"""Two small files beside a log's segments: how far the log is durable, and where it starts.

`flushed` is overwritten in place after every successful sync of the log, and is not synced itself. Appends that only
the journal has made durable are not recorded in it: the next start first writes them to the log, and then records them
here. The file is therefore exact after `kill -9`. After a power cut it may be old, but it never claims more than was
durable, because it is written after the sync. So it is a lower bound of what was acknowledged: a bad batch below it is
corruption, and a bad batch above it is the result of a crash. If the file is unreadable, the bound is the start of the
last segment, because a segment is created only after the one before it was synced.

It also holds the mark of a clean shutdown, which is removed durably before anything in the log changes. After a power
cut the mark may still be there if the previous start found no index for it and walked the log instead; in that case
everything appended since is after the position that the file names.

`start` is replaced atomically before records below an offset are removed. Files below that offset are therefore known
to be unwanted, whichever of them reappear after a crash.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from drmq.model import Offset
from drmq.storage.errors import FormatTooNew, LogCorrupt
from drmq.storage.file_pool import FilePool
from drmq.storage.files import Files, OpenFile, replace_file

_FLUSHED = Struct("<4sI?3xqqq")
_START = Struct("<4sIq")
_CHECKSUM = Struct("<I")
_FLUSHED_MAGIC = b"DMQF"
_START_MAGIC = b"DMQS"
_VERSION = 1


class Flushed(NamedTuple):
    """How far a log is durable."""

    is_clean: bool
    offset: Offset
    segment: Offset
    """The base offset of the segment that was active."""
    position: int
    """The flushed size of that segment in bytes."""


class FlushedFile:
    """The `flushed` file of one log. It is created if it is missing."""

    __slots__ = ("_file", "_files")

    def __init__(self, files: Files, path: str, pool: FilePool | None = None) -> None:
        self._files = files
        self._file = (pool or FilePool(files)).file(path)
        self._file.create()

    def read(self) -> Flushed | None:
        """The last written value, or None if it cannot be read. Raises `FormatTooNew`."""
        file = self._file.get()
        data = self._files.read(file.handle, _FLUSHED.size + _CHECKSUM.size, 0)
        if len(data) != _FLUSHED.size + _CHECKSUM.size:
            return None
        magic, version, is_clean, offset, segment, position = _FLUSHED.unpack_from(data)
        (checksum,) = _CHECKSUM.unpack_from(data, _FLUSHED.size)
        if magic != _FLUSHED_MAGIC or crc32c(data[: _FLUSHED.size]) != checksum:
            return None
        if version != _VERSION:
            raise FormatTooNew(self._file.path, version, _VERSION)
        return Flushed(is_clean, Offset(offset), Offset(segment), position)

    def write(self, flushed: Flushed) -> OpenFile:
        """Overwrite the file, without a sync. Returns the handle that would learn of a failed write."""
        data = _FLUSHED.pack(_FLUSHED_MAGIC, _VERSION, *flushed)
        file = self._file.get()
        self._files.write(file.handle, (data + _CHECKSUM.pack(crc32c(data)),), 0)
        return file

    def sync(self, written: OpenFile | None = None) -> None:
        """Make durable what was written with this handle, or by an earlier process."""
        file = written or self._file.get()
        self._files.sync(file.handle)

    def close(self) -> None:
        """Close the file."""
        self._file.release()


def read_start(files: Files, path: str) -> Offset | None:
    """The start offset in the file at `path`, or None if there is no file. Raises `LogCorrupt` if it is damaged."""
    if not files.exists(path):
        return None
    file = OpenFile(files, files.open(path))
    data = files.read(file.handle, _START.size + _CHECKSUM.size + 1, 0)
    if len(data) == _START.size + _CHECKSUM.size:
        magic, version, offset = _START.unpack_from(data)
        (checksum,) = _CHECKSUM.unpack_from(data, _START.size)
        if magic == _START_MAGIC and crc32c(data[: _START.size]) == checksum:
            if version != _VERSION:
                raise FormatTooNew(path, version, _VERSION)
            return Offset(offset)
    raise LogCorrupt(
        path,
        0,
        -1,
        "the start offset is unreadable",
        "with the node stopped, remove this file: the log then starts at its first segment, and a replica where its "
        "ledger says",
    )


def write_start(files: Files, path: str, offset: Offset) -> None:
    """Durably record that everything below `offset` is unwanted."""
    data = _START.pack(_START_MAGIC, _VERSION, offset)
    replace_file(files, path, data + _CHECKSUM.pack(crc32c(data)))
