"""Nodes on this machine that run in the background: what `drmq up`, `down` and `node` work on.

A directory holds everything of such a cluster:

    DIR/cluster.json          {"nodes": [{"id", "pid", "kafka", "host", "port", "peer_port", "data_dir", "log",
                                          "founder", "config"}]}
    DIR/node-1/data/          what the node keeps
    DIR/node-1/server.log     what the node says

`cluster.json` is written as soon as a node has a process, so that an `up` which is itself killed
leaves nothing that `down` cannot find. It is replaced as a whole, so a reader never sees half of
it. `pid` is null while a node is stopped.

Nodes that are started together form the cluster: they are its *founders*, and know each other. Nodes
that come later join it, and know the founders. One node alone has no port for peers (`peer_port` is
null); when others are to join, it is started again with one.

No process is touched before it has been seen to be ours: see `processes`.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from drmq.server.local_nodes import (
    LocalError,
    LocalNode,
    from_json,
    missing_at,
    plan_nodes,
    server_arguments,
    to_json,
    trouble_at,
)
from drmq.server.ports import check_port
from drmq.server.processes import (
    end_process,
    log_tail,
    signal_ours,
    spawn_server,
    wait_until_gone,
)

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_KILL_TIMEOUT_S = 10.0
_HEALTHY_TIMEOUT_S = 20.0
_SETTLE_S = 1.0
"""How long a node that cannot serve yet is watched: what is wrong with it alone shows at once."""
_DOUBTFUL_S = 20.0
"""How long a node is watched that may serve or not: it has somebody to join, who may have no vote."""
_POLL_S = 0.05
_REMOVED = "was removed from the cluster"
"""What a node says that is not wanted any more."""


Report = Callable[[str], None]
"""Told now and then how far a start is, in words for a person."""


def _silence(text: str) -> None:
    pass


class LocalCluster:
    """The nodes of one directory. Use within `locked`, so that two commands do not work on one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._file = self.directory / "cluster.json"
        self.trouble: str | None = None
        """After a start: why the cluster is not healthy although its nodes serve, if it was not within a while."""

    # ---- the directory and its file -------------------------------------------------------------

    @property
    def exists(self) -> bool:
        return self._file.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands out; they wait. What was made here and is empty is removed at the end."""
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
            for node in self.directory.glob("node-*"):
                for path in (node / "data", node):
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
        """The nodes that the file names, by id; none if there is no file."""
        try:
            content = json.loads(self._file.read_text())
            return sorted((from_json(node) for node in content["nodes"]), key=lambda node: node.node_id)
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LocalError(f"{self._file} cannot be read ({error!r}). Mend or remove it.") from None

    def write(self, nodes: Sequence[LocalNode]) -> None:
        """Replace the file as a whole."""
        content = {"nodes": [to_json(node) for node in nodes]}
        temporary = self._file.with_suffix(".json.new")
        with temporary.open("w") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._file)

    def node(self, node_id: int) -> LocalNode:
        """One node, or `LocalError` with those that there are."""
        nodes = self.read()
        for node in nodes:
            if node.node_id == node_id:
                return node
        there = ", ".join(str(node.node_id) for node in nodes) or "none"
        raise LocalError(f"There is no node {node_id} in {self.directory}; there are: {there}.")

    def _replace(self, changed: LocalNode) -> None:
        nodes = [node for node in self.read() if node.node_id != changed.node_id]
        self.write(sorted([*nodes, changed], key=lambda node: node.node_id))

    # ---- starting -------------------------------------------------------------------------------

    def up(
        self,
        count: int | None,
        host: str = "127.0.0.1",
        port: int | None = None,
        config: Path | None = None,
        report: Report = _silence,
    ) -> list[tuple[LocalNode, str]]:
        """Let nodes 1 to `count` run, or all that are known. When this returns they serve, and the cluster is healthy
        as far as these nodes can make it so; if that takes too long, `trouble` says why.

        What became of each: `started`, `joined` if there was a cluster without it, `running` if it was before, or
        `paused`, which is left as it is. `port` is
        that of the first node: None to keep the one of last time (or 9092), 0 for free ones. Nodes that are known
        keep theirs.
        """
        known = {node.node_id: node for node in self.read()}
        wanted = range(1, count + 1) if count is not None else (sorted(known) or [1])
        before = {node_id: known[node_id].state() for node_id in wanted if node_id in known}
        nodes = plan_nodes(self.directory, known, wanted, host, port)
        before |= self._open_to_peers(known, nodes, report)
        starting = [
            replace(nodes[node_id], config=config or nodes[node_id].config, pid=None)
            for node_id in wanted
            if before.get(node_id, "stopped") == "stopped"
        ]
        started = self._start(starting, {**known, **nodes})
        nodes |= {node_id: found.node for node_id, found in started.items()}
        # Whoever is paused cannot be waited for, neither to serve nor to be seen by the others.
        awake = [nodes[node_id] for node_id in wanted if before.get(node_id) != "paused"]
        outlook = _outlook({**known, **nodes}, {node.node_id for node in awake})
        try:
            self._wait_or_give_up(known, awake, started, report, outlook.patience_s)
        except _TooLong as error:
            if not outlook.absent:
                raise
            raise LocalError(f"{error}\n{self._who_is_needed(outlook.absent)}") from None
        began = {node_id: "joined" if known and node_id not in known else "started" for node_id in started}
        return [(nodes[node_id], began.get(node_id) or before[node_id]) for node_id in wanted]

    def _who_is_needed(self, absent: Sequence[int]) -> str:
        names = f"Node {absent[0]}" if len(absent) == 1 else f"Nodes {', '.join(map(str, absent))}"
        run = "does not run" if len(absent) == 1 else "do not run"
        return (
            f"{names} of this cluster {run}, and without most of the nodes that vote none serves. "
            f"`drmq up --data-dir {self.directory}` starts all."
        )

    def start(self, node_id: int, report: Report = _silence) -> tuple[LocalNode, bool]:
        """Start a node that is stopped, as it was started before; whether it serves when this returns.

        It does not where it needs others that are not running: without most of those that vote there is no cluster.
        """
        node = self.node(node_id)
        known = {each.node_id: each for each in self.read()}
        started = self._start([replace(node, pid=None)], known)
        outlook = _outlook(known, {node_id})
        try:
            self._wait_or_give_up(known, [started[node_id].node], started, report, outlook.patience_s)
        except _TooLong:
            if outlook.is_good:
                raise
            return started[node_id].node, False
        return started[node_id].node, True

    def _open_to_peers(
        self, known: Mapping[int, LocalNode], nodes: Mapping[int, LocalNode], report: Report
    ) -> dict[int, str]:
        """Stop nodes that were alone until now, so that they are started with a port for peers; their new state."""
        stopped = {}
        for node_id, node in nodes.items():
            was = known.get(node_id)
            if was is None or was.peer_port == node.peer_port or was.pid is None or not was.is_running():
                continue
            # Before it is stopped for nothing.
            check_port(node.listeners()[1])
            report(f"node {node_id} starts again, with a port for other nodes")
            if not end_process(was.pid, was.data_dir, time.monotonic() + STOP_TIMEOUT_S):
                raise LocalError(
                    f"Node {node_id} must be started again so that others can join it, and does not stop within "
                    f"{STOP_TIMEOUT_S:.0f} s.\n{log_tail(was.log_path)}"
                )
            stopped[node_id] = "stopped"
        return stopped

    def _start(self, nodes: Sequence[LocalNode], everyone: Mapping[int, LocalNode]) -> dict[int, _Started]:
        """Start processes. `everyone` has all nodes that are known, these too."""
        # Before any process is started: its own complaint would be in a file, and its port answered by a stranger.
        for node in nodes:
            for address in node.listeners():
                check_port(address)
        entries = {**everyone, **{node.node_id: node for node in nodes}}
        started = {}
        for node in nodes:
            node.data_dir.mkdir(parents=True, exist_ok=True)
            said_before = node.log_path.stat().st_size if node.log_path.exists() else 0
            process = spawn_server(server_arguments(node, entries.values()), node.log_path)
            entries[node.node_id] = replace(node, pid=process.pid)
            self.write([entries[node_id] for node_id in sorted(entries)])
            started[node.node_id] = _Started(entries[node.node_id], process, said_before)
        return started

    def _wait_or_give_up(
        self,
        known: Mapping[int, LocalNode],
        nodes: Sequence[LocalNode],
        started: Mapping[int, _Started],
        report: Report,
        timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Return when every node serves and sees all of them; raise when one ends, or it takes too long."""
        expected = {node.node_id for node in nodes if node.peer_port is not None}
        deadline = time.monotonic() + timeout_s
        waiting = list(nodes)
        try:
            while True:
                for node in waiting:
                    self._check_alive(node, started.get(node.node_id))
                found = {node.node_id: missing_at(node, expected) for node in waiting}
                missing = {node_id: what for node_id, what in found.items() if what is not None}
                waiting = [node for node in waiting if node.node_id in missing]
                if not waiting:
                    break
                # Whoever sees the fewest is why the others do not see it.
                first = max(waiting, key=lambda node: missing[node.node_id].unseen)
                what = f"node {first.node_id} {missing[first.node_id].text}"
                report(f"{len(nodes) - len(waiting)} of {len(nodes)} serve; {what}")
                if time.monotonic() > deadline:
                    raise _TooLong(f"N{what[1:]}, after {timeout_s:.0f} s.\n{_tail(first, started.get(first.node_id))}")
                time.sleep(_POLL_S)
        except LocalError:
            self._give_up(known, started)
            raise
        self._wait_until_healthy(nodes, report)

    def _check_alive(self, node: LocalNode, started: _Started | None) -> None:
        if started is None:
            if not node.is_running():
                raise LocalError(f"Node {node.node_id} has ended meanwhile.\n{_tail(node, None)}")
            return
        code = started.process.poll()
        if code is None:
            return
        said = _tail(node, started)
        if _REMOVED in said:
            said += (
                f"\n`drmq node forget {node.node_id} --data-dir {self.directory}` leaves it out from now on; with its "
                "directory removed as well, it can join as a new node."
            )
        raise LocalError(f"Node {node.node_id} ended at once with exit code {code}.\n{said}")

    def _wait_until_healthy(self, nodes: Sequence[LocalNode], report: Report) -> None:
        """Partitions elect leaders and copy what they missed once their replicas are up. Whoever asks right after this
        command, whichever node, should find that done; where it takes longer, `trouble` says what is.
        """
        running = {node.node_id for node in self.read() if node.state() == "running"}
        deadline = time.monotonic() + _HEALTHY_TIMEOUT_S
        for node in nodes:
            while (trouble := trouble_at(node, running)) is not None:
                report(f"all serve; {trouble}")
                if time.monotonic() > deadline:
                    self.trouble = trouble
                    return
                time.sleep(_POLL_S)

    def _give_up(self, known: Mapping[int, LocalNode], started: Mapping[int, _Started]) -> None:
        """After a failed start: end what nobody had before, and forget of it what left no trace.

        Where there was a cluster, those of its nodes that did start stay: it needs them.
        """
        if not known:
            for found in started.values():
                found.process.terminate()
            for found in started.values():
                try:
                    found.process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    found.process.kill()
                    found.process.wait()
        kept = []
        for node in self.read():
            if node.is_running():
                kept.append(node)
            elif node.node_id in known or (node.data_dir.exists() and any(node.data_dir.iterdir())):
                kept.append(replace(node, pid=None))
        if kept:
            self.write(kept)
        else:
            self._file.unlink(missing_ok=True)

    # ---- ending and pausing ---------------------------------------------------------------------

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S, at_once: bool = False) -> list[tuple[LocalNode, str]]:
        """Stop every node, all at the same time, and kill those that take longer than `timeout_s`.

        What became of each: `stopped`, `killed`, `not running` or, if not even killing helped, `still running`.
        """
        nodes = self.read()
        running = [node for node in nodes if node.is_running()]
        if not at_once:
            for node in running:
                # One that is paused would only hear of it when it goes on.
                _signal(node, signal.SIGTERM)
                _signal(node, signal.SIGCONT)
        deadline = time.monotonic() + (0.0 if at_once else timeout_s)
        outcomes: dict[int, str] = dict.fromkeys((node.node_id for node in nodes), "not running")
        for node in running:
            outcomes[node.node_id] = "stopped" if not at_once and _gone(node, deadline) else "still running"
        left = [node for node in running if outcomes[node.node_id] == "still running"]
        for node in left:
            _signal(node, signal.SIGKILL)
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        for node in left:
            if _gone(node, deadline):
                outcomes[node.node_id] = "killed"
        self.write([node if outcomes[node.node_id] == "still running" else replace(node, pid=None) for node in nodes])
        return [(node, outcomes[node.node_id]) for node in nodes]

    def stop_one(self, node_id: int, *, timeout_s: float = STOP_TIMEOUT_S, kill: bool = False) -> LocalNode:
        """Stop a node in order, or kill it; the node as it was."""
        node = self._running(node_id)
        assert node.pid is not None, node
        if not end_process(node.pid, node.data_dir, time.monotonic() + timeout_s, kill=kill):
            raise LocalError(
                f"Node {node_id} did not stop within {timeout_s:g} s; `drmq node kill {node_id}` ends it.\n"
                f"{log_tail(node.log_path)}"
            )
        self._replace(replace(node, pid=None))
        return node

    def forget(self, node_id: int) -> LocalNode:
        """Have nothing to do with a node any more that is stopped; its files stay where they are."""
        node = self.node(node_id)
        if node.is_running():
            raise LocalError(
                f"Node {node_id} (pid {node.pid}) is {node.state()}. `drmq cluster remove {node_id}` takes it out of "
                f"the cluster and ends it; `drmq node stop {node_id} --data-dir {self.directory}` only stops it."
            )
        others = [other for other in self.read() if other.node_id != node_id]
        if not any(other.founder for other in others):
            # Those that are left would be told of nobody, and take themselves for a cluster of their own.
            raise LocalError(f"Node {node_id} is the last of the first nodes, by which the others find their cluster.")
        self.write(others)
        return node

    def pause(self, node_id: int) -> tuple[LocalNode, bool]:
        """Let a node's process stand still; whether it did not already."""
        return self._switch(node_id, signal.SIGSTOP, "paused")

    def resume(self, node_id: int) -> tuple[LocalNode, bool]:
        """Let a node's process go on; whether it had been paused."""
        return self._switch(node_id, signal.SIGCONT, "running")

    def _switch(self, node_id: int, number: signal.Signals, state: str) -> tuple[LocalNode, bool]:
        node = self._running(node_id)
        if node.state() == state:
            return node, False
        _signal(node, number)
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while node.state() != state:
            if time.monotonic() > deadline:
                raise LocalError(f"Node {node_id} (pid {node.pid}) is {node.state()} and does not become {state}.")
            time.sleep(_POLL_S)
        return node, True

    def _running(self, node_id: int) -> LocalNode:
        node = self.node(node_id)
        if not node.is_running():
            raise LocalError(
                f"Node {node_id} is not running. `drmq node start {node_id} --data-dir {self.directory}` starts it."
            )
        return node


@dataclass(frozen=True, slots=True)
class _Started:
    """A node that was just started, and the size that its log had: what it said in an earlier life explains nothing."""

    node: LocalNode
    process: subprocess.Popen[bytes]
    said_before: int


class _TooLong(LocalError):
    """A node that runs and does not serve."""


@dataclass(frozen=True, slots=True)
class _Outlook:
    """Whether nodes that are being started can be expected to serve, how long that may take, and who does not run."""

    is_good: bool
    patience_s: float
    absent: list[int]


def _outlook(known: Mapping[int, LocalNode], starting: Collection[int]) -> _Outlook:
    """What becomes of the nodes that are being started, as far as the file tells.

    Who votes is not in it: the founders did at the beginning, and others may have got a vote since. So with most
    founders there, or with anybody to join, it is worth waiting; only with most of the nodes as well is it certain.
    """
    absent = [node_id for node_id, node in known.items() if node_id not in starting and node.state() != "running"]
    founders = [node_id for node_id, node in known.items() if node.founder]
    has_founders = sum(node_id not in absent for node_id in founders) * 2 > len(founders)
    patience_s = _SETTLE_S
    if has_founders:
        patience_s = START_TIMEOUT_S
    elif len(known) - len(absent) > 1:
        patience_s = _DOUBTFUL_S
    return _Outlook(has_founders and len(absent) * 2 < len(known), patience_s, sorted(absent))


def _tail(node: LocalNode, started: _Started | None) -> str:
    return log_tail(node.log_path, 0 if started is None else started.said_before)


def _signal(node: LocalNode, number: signal.Signals) -> None:
    assert node.pid is not None, node
    signal_ours(node.pid, node.data_dir, number)


def _gone(node: LocalNode, deadline: float) -> bool:
    assert node.pid is not None, node
    return wait_until_gone(node.pid, node.data_dir, deadline)
