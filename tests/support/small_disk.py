"""Disks that can be filled: a small tmpfs for each node, and a file that takes all that is left.

Needs root; `try_small_disk` finds out, and tests the tool itself.
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from pathlib import Path

from support.fault_tools import Tool
from support.networks import Unavailable

DISK_BYTES = 256 << 20
_STEPS = (1 << 20, 4_096)


class SmallDisk:
    """A file system of its own. `path` is a directory on it."""

    def __init__(self, directory: Path, name: str, size_bytes: int = DISK_BYTES) -> None:
        self._mount_point = directory / name
        self._mount_point.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(self._mount_point)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"a tmpfs cannot be mounted: {done.stderr.strip()}")
        self.path = self._mount_point / "data"
        self.path.mkdir()
        self._ballast = self._mount_point / "ballast"

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self._mount_point)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """Take all the space that is left."""
        with self._ballast.open("ab") as ballast:
            size = ballast.tell()
            for step in _STEPS:
                while True:
                    wanted = max(step, self.free_bytes - step)
                    try:
                        os.posix_fallocate(ballast.fileno(), size, wanted)
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        if wanted > step:
                            continue  # somebody has taken a part of it since we looked, and the rest is still there
                        break
                    size = os.fstat(ballast.fileno()).st_size

    def empty(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self._mount_point)], capture_output=True, check=False)


def try_small_disk() -> Tool:
    """Whether disks can be filled here: nothing more fits when they are, and something does when they are not."""
    name = "full disks on tmpfs"
    with tempfile.TemporaryDirectory() as directory:
        try:
            disk = SmallDisk(Path(directory), "probe", 8 << 20)
        except Unavailable as reason:
            return Tool(name, False, str(reason))
        try:
            disk.fill()
            try:
                (disk.path / "more").write_bytes(bytes(4_096))
                refused = "nothing, it fitted"
            except OSError as error:
                refused = str(error.strerror)
            disk.empty()
            (disk.path / "more").write_bytes(bytes(1 << 20))
        finally:
            disk.close()
    return Tool(name, refused == os.strerror(errno.ENOSPC), f"on the full disk a write heard: {refused}")
