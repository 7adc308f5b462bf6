"""The broker of the demo, run as a person would run it: with the `drmq` command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


class Node:
    """A local node in a directory, started and stopped by `drmq up` and `drmq down`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def up(self) -> None:
        is_new = not (self._directory / "cluster.json").exists()
        self._drmq("up", "--nodes", "1", "--data-dir", str(self._directory), *(("--port", "0") if is_new else ()))

    def kill(self) -> int:
        """SIGKILL: what a crash of the process looks like. The id of the process that died."""
        pid: int = self._described["pid"]
        os.kill(pid, signal.SIGKILL)
        return pid

    def down(self) -> None:
        self._drmq("down", "--data-dir", str(self._directory))

    def create_topic(self, name: str, partitions: int) -> None:
        self._drmq("topic", "create", name, "--partitions", str(partitions), "--bootstrap", self.bootstrap_servers)

    @property
    def bootstrap_servers(self) -> str:
        return str(self._described["kafka"])

    @property
    def _described(self) -> dict[str, Any]:
        nodes: list[dict[str, Any]] = json.loads((self._directory / "cluster.json").read_text())["nodes"]
        return nodes[0]

    def _drmq(self, *words: str) -> None:
        done = subprocess.run([sys.executable, "-m", "drmq", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"`drmq {' '.join(words)}` failed:\n{done.stderr or done.stdout}")
