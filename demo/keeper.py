"""Keeps a local cluster for as long as the process that started this one lives: python -m demo.keeper DIR [OPTIONS].

It starts the nodes with `drmq up`, prints what that says as one line of JSON, and waits for the end of its standard
input. Then it stops the nodes and removes the directory. Standard input ends when the other process does, also if that
is killed, so no node is left behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any


def main(directory: Path, options: list[str]) -> int:
    # Ctrl-C in a terminal is for the other process, which then ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    directory.parent.mkdir(parents=True, exist_ok=True)
    lock = directory.with_name(directory.name + ".lock")
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"another run keeps a cluster in {directory}", file=sys.stderr)
            return 1
        _remove(directory)  # what a run has left whose keeper was killed too
        try:
            up = _drmq("up", *options, "--data-dir", str(directory), "-o", "json")
            if up.returncode != 0:
                print(up.stderr, file=sys.stderr)
                return 1
            print(json.dumps(json.loads(up.stdout)), flush=True)
            sys.stdin.read()
        finally:
            _remove(directory)
            lock.unlink(missing_ok=True)
    return 0


def _remove(directory: Path) -> None:
    if (directory / "cluster.json").exists():
        _drmq("down", "--timeout", "20", "--data-dir", str(directory))
    shutil.rmtree(directory, ignore_errors=True)


def _drmq(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "drmq", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


class KeptCluster:
    """A local cluster that ends with this process. A context manager."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self._options = options
        self._keeper: subprocess.Popen[str] | None = None
        self.nodes: list[dict[str, Any]] = []
        """What `drmq up` says about each."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node["kafka"] for node in self.nodes)

    @property
    def pages(self) -> list[str]:
        """The addresses of the gateways."""
        return [f"http://{node['http']}" for node in self.nodes]

    def __enter__(self) -> KeptCluster:
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "demo.keeper", str(self.directory), *self._options],
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, "DRMQ_GATEWAY": "true"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline()
        if not said:
            self._end()
            raise SystemExit("The nodes could not be started; see above.")
        self.nodes = json.loads(said)["nodes"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        keeper = self._keeper
        if keeper is not None:
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            keeper.stdin.close()
            keeper.wait()
            keeper.stdout.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), sys.argv[2:]))
