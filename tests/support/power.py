"""Disks whose power can be cut: an ext4 image behind a loop device for each node.

SIGKILL loses nothing that a process gave to the kernel, so it says nothing about syncs. Here the node is stopped, the
image is copied as it is at that moment, without what only the kernel's memory has, and the copy is mounted in its
place: what was synced is there, and of the rest only what the kernel happened to have written.

Needs root, a loop device and mkfs.ext4; `try_power` finds out, and tests the tool itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from support.fault_tools import Tool
from support.networks import Unavailable

IMAGE_BYTES = 512 << 20


class Pausable(Protocol):
    """A process that uses a disk."""

    def pause(self) -> None:
        """Have it stand still."""

    def kill(self) -> None:
        """End it, also while it stands still."""


class PowerDisk:
    """An image and where it is mounted. `path` is a directory on it."""

    def __init__(self, directory: Path, name: str) -> None:
        if os.geteuid() != 0:
            raise Unavailable("mounting an image needs root")
        self._image = directory / f"{name}.img"
        self._mount_point = directory / name
        self._mount_point.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        self.path = self._mount_point / "data"
        self.path.mkdir()
        # The directory itself is part of the disk that a node finds, not of what it may lose.
        descriptor = os.open(self._mount_point, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def _mount(self) -> None:
        _run("mount", "-o", "loop,noatime", str(self._image), str(self._mount_point))

    def sync(self) -> None:
        """Write everything to the disk that was written so far by any process."""
        _run("sync", "-f", str(self._mount_point))

    def copy(self) -> None:
        """Copy the disk in its present state. No process may write to it meanwhile."""
        _run("cp", "--sparse=always", str(self._image), str(self._image.with_suffix(".cut")))

    def cut(self) -> None:
        """Go back to the copy. No process may have the disk open."""
        _run("umount", str(self._mount_point))
        self._image.with_suffix(".cut").rename(self._image)
        self._mount()

    def close(self) -> None:
        subprocess.run(["umount", str(self._mount_point)], capture_output=True, check=False)
        self._image.unlink(missing_ok=True)


def cut_power(nodes: Iterable[tuple[Pausable, PowerDisk]]) -> None:
    """End these nodes, all at the same moment, and take from their disks what was not synced."""
    row = list(nodes)
    for node, _ in row:
        node.pause()
    for _, disk in row:
        disk.copy()
    for node, disk in row:
        node.kill()
        disk.cut()


def try_power() -> Tool:
    """Whether power can be cut here: what was synced must be there afterwards, and what was not must be gone."""
    name = "power cuts on loop-mounted ext4"
    with tempfile.TemporaryDirectory() as directory:
        try:
            disk = PowerDisk(Path(directory), "probe")
        except Unavailable as reason:
            return Tool(name, False, str(reason))
        try:
            (disk.path / "lost").write_bytes(b"not synced" * 1_000)
            with (disk.path / "kept").open("wb") as kept:
                kept.write(b"synced")
                kept.flush()
                os.fsync(kept.fileno())
            with (disk.path / "kept").open("ab") as kept:
                kept.write(b"and more")
            disk.copy()
            disk.cut()
            kept_bytes = (disk.path / "kept").read_bytes() if (disk.path / "kept").exists() else b""
            lost = disk.path / "lost"
            lost_bytes = lost.read_bytes() if lost.exists() else b""
        except Unavailable as reason:
            return Tool(name, False, str(reason))
        finally:
            disk.close()
    works = kept_bytes.startswith(b"synced") and b"and more" not in kept_bytes and not lost_bytes.strip(b"\0")
    return Tool(name, works, f"of a synced file {len(kept_bytes)} bytes came back, of another one {len(lost_bytes)}")


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise Unavailable(f"there is no `{command[0]}`")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
