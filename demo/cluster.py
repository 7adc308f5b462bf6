"""The cluster of the demo, run as a person would run it: with the `drmq` command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


class Cluster:
    """Local nodes in a directory, started and stopped by `drmq up`, `drmq node` and `drmq down`."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self._directory = directory
        self._nodes = nodes

    def up(self) -> None:
        """Start the nodes that do not run."""
        is_new = not (self._directory / "cluster.json").exists()
        port = ("--port", "0") if is_new else ()
        self.drmq("up", "--nodes", str(self._nodes), "--data-dir", str(self._directory), *port)

    def kill(self, node_id: int) -> int:
        """SIGKILL: what a crash of the process looks like. The id of the process that died."""
        pid: int = next(node["pid"] for node in self._described if node["id"] == node_id)
        self.drmq("node", "kill", str(node_id), "--data-dir", str(self._directory))
        return pid

    def down(self) -> None:
        self.drmq("down", "--data-dir", str(self._directory))

    def create_topic(self, name: str, partitions: int) -> None:
        words = ("--partitions", str(partitions), "--replicas", str(self._nodes))
        self.drmq("topic", "create", name, *words, "--bootstrap", self.bootstrap_servers)

    def leader_of(self, topic: str, partition: int) -> int:
        described = json.loads(
            self.drmq("topic", "describe", topic, "-o", "json", "--bootstrap", self.bootstrap_servers)
        )
        return int(described["partitions"][partition]["leader"])

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node["kafka"] for node in self._described)

    @property
    def _described(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = json.loads((self._directory / "cluster.json").read_text())["nodes"]
        return nodes

    def drmq(self, *words: str) -> str:
        done = subprocess.run([sys.executable, "-m", "drmq", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"`drmq {' '.join(words)}` failed:\n{done.stderr or done.stdout}")
        return done.stdout
