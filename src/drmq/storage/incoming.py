"""The parts received so far of something that is sent in parts, kept over a restart: `IncomingFile`.

A large snapshot takes a while to arrive, and a receiver that restarts meanwhile should not begin again. So each part is
written here before it is acknowledged. The file also says which snapshot it belongs to. It only saves time: any part of
it that is in doubt is dropped and sent again.

    head | description | part | part | ...

A part is its length, a checksum and its bytes. The checksum continues from that of the part before it, and the first
one from that of the head. So a part is valid only after exactly those parts that it was written after, and reading
stops at the first invalid one. Zeros are never a part, because no part is empty.

All methods block. After `load` they are for the writer thread.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from drmq.records import Buffer
from drmq.storage.files import OS_FILES, Files, OpenFile
from drmq.telemetry.system_errors import in_words

_logger = logging.getLogger(__name__)

INCOMING_NAME = "incoming"
_HEAD = Struct("<4sIII")
"""Magic, version, size of the description, checksum of these three and the description."""
_BEFORE_CHECKSUM = _HEAD.size - 4
_PART = Struct("<II")
"""Size and checksum."""
_MAGIC = b"DMQI"
_VERSION = 1


class Incoming(NamedTuple):
    """The content of the file: the description of the transfer, and its first bytes."""

    description: bytes
    data: bytearray


class IncomingFile:
    """The file in a log's directory for the snapshot that its replica is receiving."""

    def __init__(self, directory: str, files: Files = OS_FILES) -> None:
        self._directory = directory
        self._path = f"{directory}/{INCOMING_NAME}"
        self._files = files
        self._file: OpenFile | None = None
        self._description = b""
        self._kept_bytes = 0
        """How many bytes of the transfer the file holds."""
        self._end = 0
        self._checksum = 0

    def load(self) -> Incoming | None:
        """What an earlier process has kept, as far as it is valid. The file is cut after that; parts can be added."""
        if not self._files.exists(self._path):
            return None
        try:
            found = self._read()
        except OSError as error:
            _logger.warning("%s cannot be read (%s); its content is requested again", self._path, in_words(error))
            found = None
        if found is None:
            self.remove()
        return found

    def keep(self, description: bytes, position: int, part: Buffer) -> None:
        """Durably add the part at `position`; a part at 0 begins a new file.

        A part that does not follow the content of the file is not kept, nor is any later one: the writer drops what is
        queued after a failure. Raises `OSError`; after that, no more of this transfer is kept.
        """
        assert len(part), position
        if position > 0 and (self._file is None or (description, position) != (self._description, self._kept_bytes)):
            self._file = None
            return
        try:
            if position == 0:
                self._begin(description)
            self._append(part)
            if position == 0:
                self._files.sync_directory(self._directory)
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the file. If that fails, or a power cut undoes it, the next `load` checks whether it is usable."""
        self._file = None
        with suppress(OSError):
            if self._files.exists(self._path):
                self._files.remove(self._path)

    def _begin(self, description: bytes) -> None:
        # A new file instead of overwriting the old one: it must never contain bytes of two transfers.
        self.remove()
        self._file = OpenFile(self._files, self._files.open(self._path, create=True))
        self._files.truncate(self._file.handle, 0)
        start = _HEAD.pack(_MAGIC, _VERSION, len(description), 0)[:_BEFORE_CHECKSUM]
        self._checksum = crc32c(description, crc32c(start))
        self._description, self._kept_bytes = description, 0
        head = b"".join((start, self._checksum.to_bytes(4, "little"), description))
        self._files.write(self._file.handle, (head,), 0)
        self._end = len(head)

    def _append(self, part: Buffer) -> None:
        assert self._file is not None
        checksum = crc32c(part, self._checksum)
        self._files.write(self._file.handle, (_PART.pack(len(part), checksum), part), self._end)
        self._files.sync(self._file.handle)
        self._checksum = checksum
        self._end += _PART.size + len(part)
        self._kept_bytes += len(part)

    def _read(self) -> Incoming | None:
        files, file = self._files, OpenFile(self._files, self._files.open(self._path))
        size = files.size(file.handle)
        head = files.read(file.handle, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            return None
        magic, version, description_size, checksum = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION or _HEAD.size + description_size > size:
            return None
        description = files.read(file.handle, description_size, _HEAD.size)
        if crc32c(description, crc32c(head[:_BEFORE_CHECKSUM])) != checksum:
            return None
        data, end = bytearray(), _HEAD.size + description_size
        while end + _PART.size < size:
            part_size, part_checksum = _PART.unpack(files.read(file.handle, _PART.size, end))
            if part_size == 0 or end + _PART.size + part_size > size:
                break
            part = files.read(file.handle, part_size, end + _PART.size)
            if crc32c(part, checksum) != part_checksum:
                break
            data += part
            checksum = part_checksum
            end += _PART.size + part_size
        if not data:
            return None
        if end < size:
            files.truncate(file.handle, end)
        self._file, self._description, self._kept_bytes = file, description, len(data)
        self._end, self._checksum = end, checksum
        return Incoming(description, data)
