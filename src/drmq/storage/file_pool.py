"""The files that the logs of a node have open, and the indexes that they have loaded: as many as allowed, no more.

A node may have thousands of partitions, each with several files, and terabytes of sealed segments. Most of them are not
in use at any time. So a file is opened when it is used, and closed when too many others were used since; the same goes
for the indexes of sealed segments, which are read again from their files.

**A file with unsynced bytes stays open** (`pin`). The kernel writes pages to the disk at a time of its choice, and
reports an error to the handles that are open then. If there is none, the error may be lost with the last handle, and a
later sync through a new handle would succeed although the bytes are not on the disk.

Pinned files count, but are not closed, so the writer must bound their number: see `pinned_share`.

A handle that is closed here may be in use by a reader at the same time. Each user therefore holds a reference to the
`OpenFile`, and the handle is really closed when the last reference is dropped.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from threading import Lock
from typing import Protocol

from drmq.storage.files import OS_FILES, Files, KnownDirectories, OpenFile

OPEN_FILES_MAX = 1024
"""How many files a pool keeps open, unless its creator knows better."""
INDEX_BYTES_MAX = 64 << 20
"""The size of all loaded indexes of sealed segments. An index needs 16 bytes for about 4 KiB of log, so these are the
indexes of 16 GiB. Reading one again takes about a millisecond."""
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class PooledFile:
    """A file that is opened when it is used, and may be closed when it is not."""

    __slots__ = ("_file", "_is_pinned", "_is_recent", "_pool", "path")

    def __init__(self, pool: FilePool, path: str) -> None:
        self.path = path
        self._pool = pool
        self._file: OpenFile | None = None
        self._is_pinned = False
        self._is_recent = False

    def get(self) -> OpenFile:
        """The open file. Keep a reference to it while using its handle. Raises `OSError`."""
        self._is_recent = True
        file = self._file
        return self._pool.open(self) if file is None else file

    def create(self) -> OpenFile:
        """The open file, created if there is none."""
        return self._pool.open(self, create=True)

    def get_if_open(self) -> OpenFile | None:
        """The file if it is open now; opening it might have to wait for the disk."""
        self._is_recent = True
        return self._file

    def pin(self) -> OpenFile:
        """The open file, which stays open until `unpin`. Called before bytes are written that are synced later."""
        file = self._file
        return self._pool.pin(self) if file is None or not self._is_pinned else file

    def unpin(self) -> None:
        """Allow the file to be closed: everything written to it is synced."""
        if self._is_pinned:
            self._pool.unpin(self)

    def release(self) -> None:
        """Close the file, pinned or not, because its log no longer needs it."""
        self._pool.release(self)


class Unloadable(Protocol):
    """The owner of an index that can be read again."""

    def unload(self) -> None:
        """Drop the index."""


class FilePool:
    """The open files of a node's logs. Any thread may use it."""

    def __init__(
        self, files: Files = OS_FILES, open_files_max: int = OPEN_FILES_MAX, index_bytes_max: int = INDEX_BYTES_MAX
    ) -> None:
        self.files = files
        self.open_files_max = open_files_max
        self.index_bytes_max = index_bytes_max
        self.index_bytes = 0
        self.opened_count = 0
        """How often a file was opened."""
        self.known_directories = KnownDirectories()
        """Directories whose names are known to be durable (`files.sync_ancestors`)."""
        self._lock = Lock()
        self._idle: OrderedDict[PooledFile, None] = OrderedDict()
        """Open files that may be closed. Those at the front were opened, or found in use, longest ago."""
        self._pinned: set[PooledFile] = set()
        self._indexes: OrderedDict[Unloadable, int] = OrderedDict()

    def file(self, path: str) -> PooledFile:
        """A file that is not open yet."""
        return PooledFile(self, path)

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return len(self._idle) + len(self._pinned)

    @property
    def pinned_count(self) -> int:
        """How many files have unsynced bytes."""
        return len(self._pinned)

    @property
    def pinned_share(self) -> float:
        """The number of files with unsynced bytes, as a part of all that may be open."""
        return len(self._pinned) / self.open_files_max

    # ---- called by files ------------------------------------------------------------------------

    def open(self, pooled: PooledFile, create: bool = False) -> OpenFile:
        """Open a file. If two threads do that at the same time, both use the handle of the first."""
        found = self._opened(pooled, create)
        with self._lock:
            if pooled._file is None:
                pooled._file = found
                self._idle[pooled] = None
            file = pooled._file
            self._close_some(self.open_files_max)
        return file

    def pin(self, pooled: PooledFile) -> OpenFile:
        """Open a file and keep it open."""
        found = pooled._file or self._opened(pooled, create=False)
        with self._lock:
            # Under the lock, because another thread may just have chosen this file to be closed.
            if pooled._file is None:
                pooled._file = found
            file = pooled._file
            self._idle.pop(pooled, None)
            self._pinned.add(pooled)
            pooled._is_pinned = True
            self._close_some(self.open_files_max)
        return file

    def unpin(self, pooled: PooledFile) -> None:
        with self._lock:
            pooled._is_pinned = False
            if pooled in self._pinned:
                self._pinned.remove(pooled)
                self._idle[pooled] = None

    def release(self, pooled: PooledFile) -> None:
        with self._lock:
            pooled._is_pinned = False
            self._pinned.discard(pooled)
            self._idle.pop(pooled, None)
            pooled._file = None

    def _opened(self, pooled: PooledFile, create: bool) -> OpenFile:
        try:
            handle = self.files.open(pooled.path, create=create)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            # Something else in the process has used the descriptors up.
            with self._lock:
                self._close_some(self.open_count // 2)
            handle = self.files.open(pooled.path, create=create)
        self.opened_count += 1
        return OpenFile(self.files, handle)

    def _close_some(self, wanted_count: int) -> None:
        """Close files until at most `wanted_count` are open, those first that were not used since the last search."""
        while self._idle and self.open_count > wanted_count:
            pooled, _ = self._idle.popitem(last=False)
            if pooled._is_recent:
                pooled._is_recent = False
                self._idle[pooled] = None
            else:
                pooled._file = None

    # ---- called by segments ---------------------------------------------------------------------

    def on_index_loaded(self, owner: Unloadable, size_bytes: int) -> None:
        """Count the index of a sealed segment, and drop those that were loaded longest ago if all are too large."""
        with self._lock:
            self.index_bytes += size_bytes - self._indexes.pop(owner, 0)
            self._indexes[owner] = size_bytes
            while self.index_bytes > self.index_bytes_max and len(self._indexes) > 1:
                other, other_bytes = self._indexes.popitem(last=False)
                self.index_bytes -= other_bytes
                other.unload()

    def on_index_dropped(self, owner: Unloadable) -> None:
        """Count no more the index of a segment that is removed or closed."""
        with self._lock:
            self.index_bytes -= self._indexes.pop(owner, 0)
