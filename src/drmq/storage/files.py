"""The few file operations that storage is built on, so that a test can pass in a disk that fails.

Storage uses `os` only through `Files`. `OsFiles` is the real implementation. `drmq.testing.FakeFiles` is a disk in
memory that loses whatever was not synced. Both pass `tests/unit/storage/test_files.py`. Errors are `OSError`
everywhere, as the kernel reports them.

Handles are plain integers. Every write states its position: there is no file cursor that two threads could move, and a
failed write can be repeated or cut off where it began.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Lock
from typing import NamedTuple, Protocol

from drmq.records import Buffer

IOV_MAX = 1024
"""The maximum number of buffers in one vectored write (Linux: UIO_MAXIOV)."""

JOIN_BYTES_MAX = 4096
"""Buffers smaller than this on average are joined before they are written.

Measured with 1000 of 150 bytes: 16 us joined, 65 us as a vector.
"""


KNOWN_DIRECTORIES_MAX = 4096
"""How many directories are remembered whose names are durable."""


class FileStatus(NamedTuple):
    """Properties of a file that can be read without opening it."""

    size_bytes: int
    modified_ms: int


class Files(Protocol):
    """The file system operations that storage needs."""

    def open(self, path: str, *, create: bool = False) -> int:
        """A handle for reading and writing; with `create`, an empty file is created if there is none."""

    def close(self, handle: int) -> None:
        """Close the handle."""

    def read(self, handle: int, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def read_cached(self, handle: int, size: int, position: int) -> Buffer:
        """Like `read`, but only bytes that need no disk access: possibly fewer, possibly none."""

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers one after the other; after an error, any part of them may be written."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file, or extend it with zeros."""

    def sync(self, handle: int) -> None:
        """Make the file's bytes and its size durable (fdatasync)."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""

    def size(self, handle: int) -> int:
        """The size of the open file in bytes."""

    def status(self, path: str) -> FileStatus:
        """Size and time of the last change; raises `FileNotFoundError`."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of that name."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create one directory; it may exist already."""

    def rename(self, source: str, target: str) -> None:
        """Atomically rename a file or directory, replacing a file that has the new name."""

    def remove(self, path: str) -> None:
        """Remove a file's name; open handles stay usable."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def free_bytes(self, path: str) -> int:
        """Free space for this process on the file system that holds `path`."""

    def lock(self, path: str) -> int:
        """Open and lock a file for this process, or raise `BlockingIOError`. Closing the handle unlocks it."""


class OsFiles:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def close(self, handle: int) -> None:
        os.close(handle)

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = os.pread(handle, size, position)
        while len(data) < size:
            more = os.pread(handle, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_cached(self, handle: int, size: int, position: int) -> Buffer:
        buffer = bytearray(size)
        try:
            count = os.preadv(handle, (buffer,), position, os.RWF_NOWAIT)
        except BlockingIOError:
            return b""
        except OSError as error:
            # Some file systems cannot guarantee a read without waiting. Those that matter (tmpfs on older kernels) have
            # no disk to wait for.
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.read(handle, size, position)
        return buffer if count == size else memoryview(buffer)[:count]

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        for start in range(0, len(buffers), IOV_MAX):
            part = buffers[start : start + IOV_MAX] if len(buffers) > IOV_MAX else buffers
            size = sum(map(len, part))
            if size < len(part) * JOIN_BYTES_MAX:
                part = (b"".join(part),)
            written = os.pwritev(handle, part, position)
            position += written
            if written < size:
                self._write_rest(handle, part, written, position)
                position += size - written

    def _write_rest(self, handle: int, buffers: Sequence[Buffer], skip: int, position: int) -> None:
        """Continue after a short write. The next call either makes progress or raises the error."""
        rest = memoryview(b"".join(buffers))[skip:]
        while rest:
            written = os.pwrite(handle, rest, position)
            rest = rest[written:]
            position += written

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        os.fdatasync(handle)

    def sync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def status(self, path: str) -> FileStatus:
        status = os.stat(path)
        return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def lock(self, path: str) -> int:
        handle = self.open(path, create=True)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
        return handle


OS_FILES: Files = OsFiles()


class OpenFile:
    """A handle that is closed when the last reference to it is dropped.

    A reader on another thread may be in the middle of a read when retention removes the segment. It holds a reference
    to this object, so the handle cannot be closed, or even reused for another file, during the read.
    """

    __slots__ = ("_files", "handle")

    def __init__(self, files: Files, handle: int) -> None:
        self._files = files
        self.handle = handle

    def __del__(self) -> None:
        self._files.close(self.handle)


class BackgroundSync:
    """A sync of a file that one thread requests and another performs (`run`), unless a caller must wait for it."""

    __slots__ = ("_claim", "_done", "_error", "_file", "_files")

    def __init__(self, files: Files, file: OpenFile) -> None:
        self._files = files
        self._file = file
        self._claim = Lock()
        self._done = Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Perform the sync, unless another thread has started it."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._files.sync(self._file.handle)
        except BaseException as error:  # noqa: BLE001 - raised again by `wait`
            self._error = error
        self._done.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def wait(self) -> None:
        """Perform the sync or wait for it, and raise its error: a later sync of the file would not report it again."""
        self.run()
        self._done.wait()
        if self._error is not None:
            raise self._error


class KnownDirectories(set[str]):
    """Directories whose names are known to be durable, and the one that all of them are in."""

    root: str | None = None
    """It exists as long as it is in use. Were it made again after somebody has moved it, new logs would be written to a
    directory that the next start does not look at."""


def make_directories(files: Files, path: str, known: KnownDirectories | None = None) -> None:
    """Create a directory and its missing parents, durably. Those that are created are added to `known`."""
    missing: list[str] = []
    while not files.is_directory(path):
        if known is not None and path == known.root:
            raise FileNotFoundError(
                errno.ENOENT,
                "the data directory was moved or removed while its node runs; stop the node and start it where the "
                "directory is now",
                path,
            )
        missing.append(path)
        path = os.path.dirname(path) or "."
    for directory in reversed(missing):
        if known is not None:
            # It may have been removed, and the sync below may fail.
            known.discard(directory)
        files.make_directory(directory)
        files.sync_directory(os.path.dirname(directory) or ".")
        if known is not None:
            known.add(directory)


def sync_ancestors(files: Files, path: str, known: KnownDirectories | None = None) -> None:
    """Make the names of `path` and of all directories above it durable.

    Directories in `known` have durable names: this process has synced their parents since they were created.

    A process that is killed between creating a directory and syncing its parent leaves a directory that looks complete
    to the next process, although a power cut would still remove it with all its content.
    """
    known = KnownDirectories() if known is None else known
    while path not in ("", ".", "/"):
        parent = os.path.dirname(path)
        if path not in known:
            with suppress(PermissionError):
                # A directory that this process may not read was not created by it.
                files.sync_directory(parent or ".")
            known.add(path)
        path = parent
    if len(known) > KNOWN_DIRECTORIES_MAX:
        known.clear()  # It only saves syncs, and must not grow with every topic that ever existed.


def replace_file(files: Files, path: str, content: bytes) -> None:
    """Durably replace the content of `path` atomically: a crash leaves either the old or the new content."""
    temporary = path + ".tmp"
    if files.exists(temporary):
        files.remove(temporary)
    handle = files.open(temporary, create=True)
    try:
        files.write(handle, (content,), 0)
        files.sync(handle)
    finally:
        files.close(handle)
    files.rename(temporary, path)
    # Without this, a power cut may undo the rename although this function has returned.
    files.sync_directory(os.path.dirname(path) or ".")


def remove_tree(files: Files, path: str) -> None:
    """Remove a directory and everything in it."""
    for name in files.list(path):
        child = f"{path}/{name}"
        if files.is_directory(child):
            remove_tree(files, child)
        else:
            files.remove(child)
    files.remove_directory(path)
