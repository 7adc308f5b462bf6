"""Nodes on this machine that run in the background: what `drmq up` starts and `drmq down` stops.

A directory holds everything of such a cluster:

    DIR/cluster.json          {"nodes": [{"id", "pid", "kafka", "data_dir"}]}
    DIR/node-1/data/          what the node keeps
    DIR/node-1/server.log     what the node says

`cluster.json` is written as soon as a node has a process, so that an `up` which is itself killed
leaves nothing that `down` cannot find. It is replaced as a whole, so a reader never sees half of
it. `pid` is null while a node is stopped.

A process id in a file may belong to someone else by now. Nothing is ever signalled before its command
line has been seen to be ours, with this very data directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from drmq.client import ClientError, Connection, Deadline
from drmq.model import DrmqError
from drmq.model.address import Address, split_address
from drmq.server.ports import PortTaken, check_port, family

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
LOG_TAIL_LINES = 20
_POLL_S = 0.05
_PORT_ATTEMPTS = 3


class LocalError(DrmqError):
    """A local cluster that could not be started or stopped, with what to do about it."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One line of `cluster.json`."""

    node_id: int
    pid: int | None
    kafka: Address
    data_dir: Path

    @property
    def log_path(self) -> Path:
        return self.data_dir.parent / "server.log"

    def is_running(self) -> bool:
        return self.pid is not None and process_is_ours(self.pid, self.data_dir)


class LocalCluster:
    """The nodes of one directory. Use within `locked`, so that two commands do not work on one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._file = self.directory / "cluster.json"

    @property
    def exists(self) -> bool:
        return self._file.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other `up` and `down` commands out; they wait. What was made here and is empty is removed at the end."""
        made = [path for path in (self.directory, *self.directory.parents) if not path.exists()]
        handle = self._lock()
        try:
            yield
        finally:
            if not self.exists:
                self._remove_empty(made)
            os.close(handle)

    def _lock(self) -> int:
        path = self.directory / ".up.lock"
        while True:
            self.directory.mkdir(parents=True, exist_ok=True)
            try:
                handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                if os.path.samestat(path.stat(), os.fstat(handle)):
                    return handle
            except FileNotFoundError:
                pass
            # Whoever had the lock has removed the file with it: this one locks nothing.
            os.close(handle)

    def _remove_empty(self, made: list[Path]) -> None:
        """Leave no empty directories behind a start that failed; what a node has written stays."""
        try:
            for path in (self.directory / "node-1" / "data", self.directory / "node-1"):
                if path.exists():
                    path.rmdir()
            if made and [path.name for path in self.directory.iterdir()] == [".up.lock"]:
                (self.directory / ".up.lock").unlink()
                for path in made:
                    path.rmdir()
        except OSError:
            # Not empty: there is something to keep.
            return

    def read(self) -> list[LocalNode]:
        """The nodes that the file names; none if there is no file."""
        try:
            content = json.loads(self._file.read_text())
            return [
                LocalNode(node["id"], node["pid"], _address(node["kafka"]), Path(node["data_dir"]))
                for node in content["nodes"]
            ]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as error:
            raise LocalError(f"{self._file} cannot be read ({error!r}). Mend or remove it.") from None

    def write(self, nodes: list[LocalNode]) -> None:
        """Replace the file as a whole."""
        content = {
            "nodes": [
                {"id": node.node_id, "pid": node.pid, "kafka": str(node.kafka), "data_dir": str(node.data_dir)}
                for node in nodes
            ]
        }
        temporary = self._file.with_suffix(".json.new")
        with temporary.open("w") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._file)

    def start(self, host: str, port: int | None, config: Path | None) -> tuple[LocalNode, bool]:
        """Start the node unless it runs; it serves when this returns. The second value says whether it was started.

        `port` is None to keep the port of last time (or 9092), 0 for a free one.
        """
        known = next(iter(self.read()), None)
        if known is not None and known.is_running():
            _wait_until_served(known, lambda: None if known.is_running() else 0)
            return known, False
        for attempt in range(_PORT_ATTEMPTS):
            address = Address(host, _choose_port(host, port, known))
            try:
                return self._start(address, config, known), True
            except PortTaken:
                # Between choosing a free port and binding it someone else may take it. A port that a
                # person asked for is theirs to change.
                if port != 0 or attempt == _PORT_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _start(self, address: Address, config: Path | None, known: LocalNode | None) -> LocalNode:
        # Before a process is started: its own complaint would be in a file, and its port answered by a stranger.
        check_port(address)
        data_dir = self.directory / "node-1" / "data"
        data_dir.mkdir(parents=True, exist_ok=True)
        node = LocalNode(1, None, address, data_dir)
        said_before = node.log_path.stat().st_size if node.log_path.exists() else 0
        process = _spawn(node, config)
        node = replace(node, pid=process.pid)
        self.write([node])
        try:
            _wait_until_served(node, process.poll, said_before)
        except LocalError:
            if process.poll() is None:
                process.terminate()
                process.wait()
            self._forget(known)
            raise
        return node

    def _forget(self, known: LocalNode | None) -> None:
        """Put back what was there before a start that failed."""
        if known is None:
            self._file.unlink(missing_ok=True)
        else:
            self.write([replace(known, pid=None)])

    def stop(self, *, force: bool, timeout_s: float = STOP_TIMEOUT_S) -> list[tuple[LocalNode, str]]:
        """Stop every node in order. What became of each: `stopped`, `killed`, `not running` or `still running`."""
        nodes = self.read()
        outcomes = [(node, _stop(node, force, timeout_s)) for node in nodes]
        self.write([node if outcome == "still running" else replace(node, pid=None) for node, outcome in outcomes])
        return outcomes


def _address(text: str) -> Address:
    host, port = split_address(text)
    if port is None:
        raise ValueError(f"no port in {text!r}")
    return Address(host, port)


def _choose_port(host: str, port: int | None, known: LocalNode | None) -> int:
    if port is None:
        return known.kafka.port if known is not None else 9092
    if port:
        return port
    with socket.create_server((host, 0), family=family(host)) as probe:
        return int(probe.getsockname()[1])


def _spawn(node: LocalNode, config: Path | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "drmq", "server", "--node-id", str(node.node_id)]
    command += ["--host", node.kafka.host, "--port", str(node.kafka.port), "--data-dir", str(node.data_dir)]
    if config is not None:
        command += ["--config", str(config.absolute())]
    with node.log_path.open("ab") as log:
        # A session of its own: Ctrl-C in the terminal that ran `drmq up` must not stop the node.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )


def _wait_until_served(node: LocalNode, poll: Callable[[], int | None], said_before: int = 0) -> None:
    """Return when the node answers ApiVersions; raise when its process ends or takes too long.

    `said_before` is the size of its log before this start: what it said in an earlier life explains nothing.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        code = poll()
        if code is not None:
            raise LocalError(
                f"Node {node.node_id} ended at once with exit code {code}.\n{log_tail(node.log_path, said_before)}"
            )
        try:
            Connection(node.kafka, "drmq-up", Deadline(1.0)).close()
            return
        except ClientError:
            time.sleep(_POLL_S)
    raise LocalError(
        f"Node {node.node_id} does not answer at {node.kafka} after {START_TIMEOUT_S:.0f} s.\n{log_tail(node.log_path)}"
    )


def log_tail(path: Path, start: int = 0) -> str:
    """The last lines of a node's log behind `start`, under a heading that says where the rest is."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
    except OSError:
        return f"There is no log at {path}."
    return "\n".join([f"The end of {path}:", *(f"  {line}" for line in lines)])


def process_is_ours(pid: int, data_dir: Path) -> bool:
    """Whether this process is alive and is a DRMQ server on this data directory. A dead one not yet reaped is not."""
    arguments = _command_line(pid)
    return "drmq" in " ".join(arguments[:4]) and str(data_dir) in arguments


def _command_line(pid: int) -> list[str]:
    """The arguments of a process, none if there is no such process."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            return []
    found = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def _stop(node: LocalNode, force: bool, timeout_s: float) -> str:
    pid = node.pid
    if pid is None or not process_is_ours(pid, node.data_dir):
        return "not running"
    os.kill(pid, signal.SIGTERM)
    if _wait_until_gone(pid, node.data_dir, timeout_s):
        return "stopped"
    if not force:
        return "still running"
    os.kill(pid, signal.SIGKILL)
    return "killed" if _wait_until_gone(pid, node.data_dir, timeout_s) else "still running"


def _wait_until_gone(pid: int, data_dir: Path, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while process_is_ours(pid, data_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
