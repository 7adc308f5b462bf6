"""A disk in memory that loses what was not synced: `FakeFiles`.

A test that kills a process loses nothing, since the kernel still has the written pages. Only a power cut shows whether
everything was synced that had to be. This disk keeps two states: what the program sees, and what would remain after a
power cut. A write, a truncation, a new name or a removed one changes the first state at once, and the second state when
the file, or its directory, is synced.

    files = FakeFiles(crash_at=17)          # the 17th change raises PowerCut, and so does every call after it
    ...
    disk = files.after_power_cut(seed=3)    # a new disk: what was synced, and a random part of the rest

Each unsynced change may or may not survive the power cut, in any order; a write may be torn, and a file may have grown
by zeros instead of data. This is harsher than most file systems, and within what POSIX allows.

Faults are planned with `fail`: the n-th write, sync or creation of files whose path contains a given text raises an
`OSError`. A failed write may leave a part behind. A failed sync loses its changes permanently, as on Linux: they stay
visible, but a later successful sync does not make them durable. `fail_writeback` lets the kernel fail to write unsynced
changes at a time of its own choice: the next sync through a handle that is open at that time reports it.

`FakeFiles` and `OsFiles` pass the same test suite.
"""

from __future__ import annotations

import errno as errnos
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TypeAlias

from drmq.records import Buffer
from drmq.storage import FileStatus

SECTOR_BYTES = 512
UNLIMITED_BYTES = 1 << 40


class PowerCut(BaseException):
    """The machine has lost power. Not an `Exception`: no handler of the program may run."""


@dataclass(slots=True)
class Fault:
    """A planned failure of `operation` (write, sync, sync_directory, open, ...) on matching paths."""

    operation: str
    errno: int
    path_part: str
    skip_count: int
    fail_count: int
    partial_bytes: int
    """How many bytes of a failing write are still written."""


@dataclass(slots=True, eq=False)
class _File:
    """What the program sees, what is on the disk, and the changes between the two."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes as (position, bytes), truncations as (size, None)."""
    modified_ms: int = 0
    is_cached: bool = True
    is_locked: bool = False
    error_handles: dict[int, int] = field(default_factory=dict)
    """The error that the next sync through each of these handles reports."""


@dataclass(slots=True, eq=False)
class _Directory:
    """Names as the program sees them, as they are on the disk, and the changes between the two."""

    names: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)
    unsynced: list[tuple[str | None, str | None, _Node]] = field(default_factory=list)
    """(None, new, node) for a creation, (old, None, node) for a removal, (old, new, node) for a rename."""


_Node: TypeAlias = "_File | _Directory"


def _apply_write(data: bytearray, position: int, content: bytes | None) -> None:
    if content is None:
        if position < len(data):
            del data[position:]
        else:
            data.extend(bytes(position - len(data)))
        return
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(content)] = content


def _apply_name(names: dict[str, _Node], old: str | None, new: str | None, node: _Node) -> None:
    if old is not None and (new is None or names.get(old) is node):
        names.pop(old, None)
    if new is not None:
        names[new] = node


class FakeFiles:
    """A file system in memory; implements `drmq.storage.Files`. Paths are absolute or relative to its root."""

    def __init__(self, crash_at: int | None = None, capacity_bytes: int = UNLIMITED_BYTES) -> None:
        self.crash_at = crash_at
        """The number of the change at which the power is cut; the first is 1."""
        self.capacity_bytes = capacity_bytes
        """Writes beyond this fail with ENOSPC; may be changed at any time."""
        self.now_ms = 0
        """The modification time that changed files get."""
        self.step = 0
        """The number of changes so far: writes, truncations, syncs, creations, renames, removals."""
        self.counts: dict[str, int] = {}
        """How often each operation was called."""
        self.is_off = False
        self._crash_near: tuple[str, int] | None = None
        self._root = _Directory()
        self._open: dict[int, tuple[str, _File]] = {}
        self._next_handle = 1000
        self._faults: list[Fault] = []
        self._lock = RLock()

    # Faults

    def fail(
        self,
        operation: str,
        errno: int = errnos.EIO,
        *,
        path_part: str = "",
        skip_count: int = 0,
        fail_count: int = 1,
        partial_bytes: int = 0,
    ) -> Fault:
        """Plan a failure. `forget_faults` cancels all of them."""
        fault = Fault(operation, errno, path_part, skip_count, fail_count, partial_bytes)
        self._faults.append(fault)
        return fault

    def fail_writeback(self, path: str, errno: int = errnos.EIO) -> None:
        """Lose the unsynced changes of a file, as if the kernel had tried to write them. They stay visible.

        Handles that are open now report it, each one once. If none is open, nothing ever does.
        """
        file = self._file(path)
        file.unsynced = []
        file.error_handles = {handle: errno for handle, (_, opened) in self._open.items() if opened is file}

    def forget_faults(self) -> None:
        """Cancel all planned failures."""
        self._faults.clear()

    def crash_near(self, path_part: str, changes_later: int) -> None:
        """Cut the power `changes_later` changes after the next change whose path contains `path_part`."""
        assert changes_later > 0, changes_later
        self._crash_near = (path_part, changes_later)

    def cut_power(self) -> None:
        """From now on every call raises `PowerCut`."""
        self.is_off = True

    def drop_caches(self) -> None:
        """Evict all files from the cache: `read_cached` finds nothing of a file until it is read or written again."""
        for file in _files_below(self._root):
            file.is_cached = False

    def after_power_cut(self, seed: int) -> FakeFiles:
        """The disk after the power is back."""
        self.is_off = True
        result = FakeFiles()
        result.now_ms = self.now_ms
        result._root = _survivor(self._root, random.Random(seed), {})
        return result

    def after_kill(self) -> FakeFiles:
        """The disk for the next process if only this process died: nothing is lost, nothing is synced."""
        self.is_off = True
        result = FakeFiles()
        result.now_ms = self.now_ms
        result._root = self._root
        for file in _files_below(self._root):
            file.is_locked = False
        return result

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Damage a file, on the disk and in the cache."""
        file = self._file(path)
        for data in (file.data, file.durable):
            if position < len(data):
                data[position] ^= 1 << bit

    def durable_files(self, path: str) -> dict[str, bytearray]:
        """The files of a directory, by name, that certainly survive a power cut, with their durable bytes.

        These are the disk's own bytes, so callers must not change them. Unsynced changes may add to them or replace
        them.
        """
        node: _Node = self._root
        for name in _parts(path):
            if not isinstance(node, _Directory) or name not in node.durable:
                return {}
            node = node.durable[name]
        if not isinstance(node, _Directory):
            return {}
        return {name: child.durable for name, child in node.durable.items() if isinstance(child, _File)}

    def has_file(self, path: str) -> bool:
        """Whether a program would find this file. Also works while the power is off."""
        return isinstance(self._find(path), _File)

    def content(self, path: str) -> bytes:
        """What the program sees in a file."""
        return bytes(self._file(path).data)

    def replace_content(self, path: str, content: bytes) -> None:
        """Replace the bytes of a file, on the disk and in the cache."""
        file = self._file(path)
        file.data, file.durable, file.unsynced = bytearray(content), bytearray(content), []

    @contextmanager
    def _call(self, operation: str, path: str, *, changes: bool = False) -> Iterator[None]:
        """Wraps every operation: power, counting, and planned failures."""
        with self._lock:
            if self.is_off:
                raise PowerCut
            self.counts[operation] = self.counts.get(operation, 0) + 1
            if changes:
                self.step += 1
                if self._crash_near is not None and self._crash_near[0] in path:
                    self.crash_at, self._crash_near = self.step + self._crash_near[1], None
                if self.step == self.crash_at:
                    self.is_off = True
                    raise PowerCut
            yield

    def _planned(self, operation: str, path: str) -> Fault | None:
        """The planned failure that applies now, if any."""
        for fault in self._faults:
            if fault.operation == operation and fault.path_part in path and fault.fail_count > 0:
                if fault.skip_count > 0:
                    fault.skip_count -= 1
                    continue
                fault.fail_count -= 1
                return fault
        return None

    def _maybe_fail(self, operation: str, path: str) -> None:
        fault = self._planned(operation, path)
        if fault is not None:
            raise OSError(fault.errno, os.strerror(fault.errno), path)

    # Names

    def _find(self, path: str) -> _Node | None:
        node: _Node = self._root
        for name in _parts(path):
            if not isinstance(node, _Directory) or name not in node.names:
                return None
            node = node.names[name]
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errnos.ENOENT, os.strerror(errnos.ENOENT), path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errnos.ENOTDIR, os.strerror(errnos.ENOTDIR), path)
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errnos.ENOENT, os.strerror(errnos.ENOENT), path)
        if not isinstance(node, _File):
            raise IsADirectoryError(errnos.EISDIR, os.strerror(errnos.EISDIR), path)
        return node

    def _change(self, directory: _Directory, old: str | None, new: str | None, node: _Node) -> None:
        _apply_name(directory.names, old, new, node)
        directory.unsynced.append((old, new, node))

    # Files

    def open(self, path: str, *, create: bool = False) -> int:
        with self._lock:  # checking and creating are atomic: two threads that create a file get the same one
            creates = create and self._find(path) is None
            with self._call("open", path, changes=creates):
                self._maybe_fail("create" if creates else "open", path)
                if creates:
                    parent, name = os.path.split(path)
                    self._change(self._directory(parent), None, name, _File(modified_ms=self.now_ms))
                self._next_handle += 1
                self._open[self._next_handle] = (path, self._file(path))
                return self._next_handle

    def close(self, handle: int) -> None:
        with self._lock:  # closing is possible, and harmless, while the power is off
            _, file = self._open.pop(handle)
            file.error_handles.pop(handle, None)
            file.is_locked = file.is_locked and any(other is file for _, other in self._open.values())

    def _opened(self, handle: int) -> tuple[str, _File]:
        if handle not in self._open:
            raise OSError(errnos.EBADF, os.strerror(errnos.EBADF))
        return self._open[handle]

    def read(self, handle: int, size: int, position: int) -> bytes:
        path, file = self._opened(handle)
        with self._call("read", path):
            self._maybe_fail("read", path)
            file.is_cached = True
            return bytes(file.data[position : position + size])

    def read_cached(self, handle: int, size: int, position: int) -> Buffer:
        path, file = self._opened(handle)
        with self._call("read_cached", path):
            return bytes(file.data[position : position + size]) if file.is_cached else b""

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        path, file = self._opened(handle)
        with self._call("write", path, changes=True):
            content = b"".join(buffers)
            fault = self._planned("write", path)
            error = fault.errno if fault is not None else 0
            if fault is not None:
                content = content[: fault.partial_bytes]
            elif self.capacity_bytes < UNLIMITED_BYTES and position + len(content) > len(file.data):
                room = self.capacity_bytes - sum(len(other.data) for other in _files_below(self._root)) + len(file.data)
                if position + len(content) > room:
                    content, error = content[: max(room - position, 0)], errnos.ENOSPC
            if content:
                _apply_write(file.data, position, content)
                file.unsynced.append((position, content))
                file.modified_ms = self.now_ms
                file.is_cached = True
            if error:
                raise OSError(error, os.strerror(error), path)

    def truncate(self, handle: int, size: int) -> None:
        path, file = self._opened(handle)
        with self._call("truncate", path, changes=True):
            self._maybe_fail("truncate", path)
            _apply_write(file.data, size, None)
            file.unsynced.append((size, None))

    def sync(self, handle: int) -> None:
        path, file = self._opened(handle)
        with self._call("sync", path, changes=True):
            fault = self._planned("sync", path)
            changes, file.unsynced = file.unsynced, []
            error = fault.errno if fault is not None else file.error_handles.pop(handle, 0)
            if error:
                raise OSError(error, os.strerror(error), path)
            for change in changes:
                _apply_write(file.durable, *change)

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        with self._call("sync_directory", path, changes=True):
            self._maybe_fail("sync_directory", path)
            for change in directory.unsynced:
                _apply_name(directory.durable, *change)
            directory.unsynced = []

    def size(self, handle: int) -> int:
        path, file = self._opened(handle)
        with self._call("size", path):
            return len(file.data)

    def status(self, path: str) -> FileStatus:
        with self._call("status", path):
            file = self._file(path)
            return FileStatus(len(file.data), file.modified_ms)

    def exists(self, path: str) -> bool:
        with self._call("exists", path):
            return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        with self._call("is_directory", path):
            return isinstance(self._find(path), _Directory)

    def list(self, path: str) -> list[str]:
        with self._call("list", path):
            return sorted(self._directory(path).names)

    def make_directory(self, path: str) -> None:
        with self._lock:  # as in `open`: the second thread finds the directory
            if self.is_directory(path):
                return
            with self._call("make_directory", path, changes=True):
                self._maybe_fail("make_directory", path)
                if self._find(path) is not None:
                    raise FileExistsError(errnos.EEXIST, os.strerror(errnos.EEXIST), path)
                parent, name = os.path.split(path)
                self._change(self._directory(parent), None, name, _Directory())

    def rename(self, source: str, target: str) -> None:
        with self._call("rename", source, changes=True):
            self._maybe_fail("rename", source)
            parent, name = os.path.split(source)
            new_parent, new_name = os.path.split(target)
            directory, new_directory = self._directory(parent), self._directory(new_parent)
            if name not in directory.names:
                raise FileNotFoundError(errnos.ENOENT, os.strerror(errnos.ENOENT), source)
            replaced = new_directory.names.get(new_name)
            if isinstance(replaced, _Directory) and replaced.names:
                raise OSError(errnos.ENOTEMPTY, os.strerror(errnos.ENOTEMPTY), target)
            node = directory.names[name]
            if directory is new_directory:
                self._change(directory, name, new_name, node)
            else:
                self._change(new_directory, None, new_name, node)
                self._change(directory, name, None, node)

    def remove(self, path: str) -> None:
        with self._call("remove", path, changes=True):
            self._maybe_fail("remove", path)
            parent, name = os.path.split(path)
            self._change(self._directory(parent), name, None, self._file(path))

    def remove_directory(self, path: str) -> None:
        with self._call("remove_directory", path, changes=True):
            node = self._directory(path)
            if node.names:
                raise OSError(errnos.ENOTEMPTY, os.strerror(errnos.ENOTEMPTY), path)
            parent, name = os.path.split(path)
            self._change(self._directory(parent), name, None, node)

    def free_bytes(self, path: str) -> int:
        with self._call("free_bytes", path):
            return max(self.capacity_bytes - sum(len(file.data) for file in _files_below(self._root)), 0)

    def lock(self, path: str) -> int:
        handle = self.open(path, create=True)
        file = self._opened(handle)[1]
        if file.is_locked:
            self.close(handle)
            raise BlockingIOError(errnos.EWOULDBLOCK, os.strerror(errnos.EWOULDBLOCK), path)
        file.is_locked = True
        return handle


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _files_below(directory: _Directory) -> Iterator[_File]:
    for node in directory.names.values():
        if isinstance(node, _File):
            yield node
        else:
            yield from _files_below(node)


def _kept(changes: Sequence[object], chance: random.Random) -> list[bool]:
    """Which unsynced changes reached the disk: none, all, the first few, or any."""
    mood = chance.randrange(4)
    if mood == 0:
        return [False] * len(changes)
    if mood == 1:
        return [True] * len(changes)
    if mood == 2:
        count = chance.randrange(len(changes) + 1)
        return [position < count for position in range(len(changes))]
    return [chance.random() < 0.5 for _ in changes]


def _survivor(directory: _Directory, chance: random.Random, seen: dict[int, _Node]) -> _Directory:
    """A directory after a power cut."""
    names = dict(directory.durable)
    for change, is_kept in zip(directory.unsynced, _kept(directory.unsynced, chance), strict=True):
        if is_kept:
            _apply_name(names, *change)
    result = _Directory()
    for name, node in sorted(names.items()):
        if id(node) not in seen:
            found: _Node
            if isinstance(node, _File):
                content = _survivor_bytes(node, chance)
                found = _File(content, bytearray(content), [], node.modified_ms, False)
            else:
                found = _survivor(node, chance, seen)
            seen[id(node)] = found
        result.names[name] = result.durable[name] = seen[id(node)]
    return result


def _survivor_bytes(file: _File, chance: random.Random) -> bytearray:
    """The bytes of a file after a power cut."""
    data = bytearray(file.durable)
    for (position, content), is_kept in zip(file.unsynced, _kept(file.unsynced, chance), strict=True):
        if is_kept or content is None:
            if is_kept:
                _apply_write(data, position, content)
            continue
        fate = chance.randrange(4)
        if fate == 0:  # torn: only the first bytes
            _apply_write(data, position, content[: chance.randrange(len(content) + 1)])
        elif fate == 1:  # torn: some sectors
            for start in range(0, len(content), SECTOR_BYTES):
                if chance.random() < 0.5:
                    _apply_write(data, position + start, content[start : start + SECTOR_BYTES])
        elif fate == 2 and position + len(content) > len(data):  # the length without the data
            _apply_write(data, position + len(content), None)
    return data
