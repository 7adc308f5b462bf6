"""Nodes that run in the background on this machine: what `drmq up`, `down` and `node` work on.

A directory holds everything of such a cluster:

    DIR/cluster.json                 the nodes, and which directory this is (`local_file`)
    DIR/node-1/data/                 the data directory of the node
    DIR/node-1/server.log            the log of the node

`cluster.json` is written as soon as a node has a process, so that even after an `up` that was killed, `down` finds
every process. The file is replaced as a whole, so a reader never sees half of it. `pid` is null while a node is
stopped.

Nodes that are started together form the cluster: they are its *founders*, and know each other. Nodes that are added
later join it, and know the founders. A single node has no port for peers (`peer_port` is null); when other nodes are
to join, it is restarted with one.

No process is signalled before it was checked that it belongs to this directory: see `processes`. A directory that was
moved works as before. A directory that was copied has nodes and data of its own, and never touches those of its
original. A copied single node that finds its port in use takes another one. The nodes of a copied cluster would find
the nodes of the original at the addresses that they know, so they are not started while any of these addresses is in
use.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from drmq.model.address import Address
from drmq.server.local_file import ClusterFile, Origin
from drmq.server.local_nodes import (
    FirstPorts,
    LocalError,
    LocalNode,
    gateway_answers,
    missing_at,
    plan_nodes,
    server_arguments,
    trouble_at,
    with_gateways,
)
from drmq.server.ports import check_port, free_ports, is_free
from drmq.server.processes import (
    EXIT_REMOVED,
    end_process,
    log_tail,
    process_data_dir,
    signal_ours,
    spawn_server,
    wait_until_gone,
)

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_KILL_TIMEOUT_S = 10.0
_HEALTHY_TIMEOUT_S = 20.0
_GATEWAY_TIMEOUT_S = 20.0
_SETTLE_S = 1.0
"""How long to watch a node that cannot serve yet: a problem of the node itself shows at once."""
_DOUBTFUL_S = 20.0
"""How long to watch a node that may or may not serve: it has a node to join, but that node may have no vote."""
_POLL_S = 0.05


Report = Callable[[str], None]
"""Called from time to time with a text that describes the progress of a start."""


def _silence(text: str) -> None:
    pass


class LocalCluster:
    """The nodes in one directory. Use it within `locked`, so that two commands do not work on the same directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._file = ClusterFile(self.directory)
        self.trouble: str | None = None
        """After a start: why the cluster did not become healthy in time although its nodes serve; None if it did."""
        self.note: str | None = None
        """After a start: what a user should know about a directory that was moved or copied; None otherwise."""

    # ---- the directory and its file -------------------------------------------------------------

    @property
    def exists(self) -> bool:
        return self._file.exists

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make other commands wait. At the end, remove directories that were created here and are empty."""
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
            # The previous holder of the lock has deleted the file, so this lock excludes no other process.
            os.close(handle)

    def _remove_empty(self, made: list[Path]) -> None:
        """Remove empty directories after a failed start. Anything that a node has written stays."""
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
            # Not empty, so it is kept.
            return

    def read(self) -> list[LocalNode]:
        """The nodes in the file, by id; empty if there is no file."""
        return self._file.read()

    def write(self, nodes: Sequence[LocalNode], *, settled: bool = False) -> None:
        """Replace the file atomically. `settled`: nodes were started here, so this is their directory now."""
        self._file.write(nodes, settled=settled)

    def node(self, node_id: int) -> LocalNode:
        """One node. Raises `LocalError` with the ids that exist."""
        nodes = self.read()
        for node in nodes:
            if node.node_id == node_id:
                return node
        there = ", ".join(str(node.node_id) for node in nodes) or "none"
        raise LocalError(f"There is no node {node_id} in {self.directory}. Existing nodes: {there}.")

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
        *,
        lab: bool | None = None,
        ports: FirstPorts | None = None,
    ) -> list[tuple[LocalNode, str]]:
        """Start nodes 1 to `count`, or all known nodes. When this returns, they serve and the cluster is healthy as far
        as these nodes can make it so; if that takes too long, `trouble` says why.

        The outcome for each node: `started`; `joined` if the cluster existed without it; `running` if it ran before; or
        `paused`, in which case it stays paused. `port` is that of the first node: None for the previous one (or 9092),
        0 for free ones. Known nodes keep theirs. `lab`: whether the fault lab may work on the nodes that are started;
        None for what they had. `ports`: other ports of the nodes that are started.
        """
        known = self._at_home({node.node_id: node for node in self.read()}, port)
        wanted = range(1, count + 1) if count is not None else (sorted(known) or [1])
        before = {node_id: known[node_id].state() for node_id in wanted if node_id in known}
        nodes = plan_nodes(self.directory, known, wanted, host, port)
        before |= self._open_to_peers(known, nodes, report)
        starting = [
            replace(
                (ports or FirstPorts()).give(nodes[node_id]),
                config=config or nodes[node_id].config,
                lab=nodes[node_id].lab if lab is None else lab,
                pid=None,
            )
            for node_id in wanted
            if before.get(node_id, "stopped") == "stopped"
        ]
        started = self._start(starting, {**known, **nodes})
        nodes |= {node_id: found.node for node_id, found in started.items()}
        # Paused nodes cannot serve and cannot be discovered by the others, so they are not waited for.
        awake = [nodes[node_id] for node_id in wanted if before.get(node_id) != "paused"]
        outlook = _outlook({**known, **nodes}, {node.node_id for node in awake})
        try:
            self._wait_or_give_up(known, awake, started, report, outlook.patience_s)
        except _TooLong as error:
            if not outlook.absent:
                raise
            raise LocalError(f"{error}\n{self._needed_nodes_text(outlook.absent)}") from None
        began = {node_id: "joined" if known and node_id not in known else "started" for node_id in started}
        return [(nodes[node_id], began.get(node_id) or before[node_id]) for node_id in wanted]

    def _needed_nodes_text(self, absent: Sequence[int]) -> str:
        names = f"Node {absent[0]}" if len(absent) == 1 else f"Nodes {', '.join(map(str, absent))}"
        run = "is not running" if len(absent) == 1 else "are not running"
        return (
            f"{names} of this cluster {run}, and without a majority of the voters no node serves. "
            f"`drmq up {self._option}` starts all nodes."
        )

    def start(self, node_id: int, report: Report = _silence) -> tuple[LocalNode, bool]:
        """Start a stopped node with its previous settings. Returns whether it serves.

        It does not serve if it needs other nodes that are not running: without a majority of the voters there is no
        cluster.
        """
        self.node(node_id)
        known = self._at_home({each.node_id: each for each in self.read()}, None)
        node = known[node_id]
        started = self._start([replace(node, pid=None)], known)
        outlook = _outlook(known, {node_id})
        try:
            self._wait_or_give_up(known, [started[node_id].node], started, report, outlook.patience_s)
        except _TooLong:
            if outlook.is_good:
                raise
            return started[node_id].node, False
        return started[node_id].node, True

    def _at_home(self, known: dict[int, LocalNode], port: int | None) -> dict[int, LocalNode]:
        """The known nodes, with which this directory can go on after it was moved or copied. Sets `note`.

        Raises `LocalError` if a node could reach into the directory that it was copied from.
        """
        for node in known.values():
            if node.pid is not None and node.is_displaced():
                old = process_data_dir(node.pid)
                raise LocalError(
                    f"Node {node.node_id} (pid {node.pid}) was running when its directory was moved: it still creates "
                    f"files in {old}. Move the directory back, and stop the node before you move it. If there are no "
                    f"files at the old path, `drmq down {self._option}` and then `drmq up` is enough."
                )
        origin = self._file.origin()
        if origin is None:
            return known
        if not origin.is_copy:
            self.note = f"{self.directory} was {origin.path} before. Its nodes use the data in {self.directory}."
            return known
        self.note = f"{self.directory} is a copy of {origin.path}. Its nodes use their own data, in {self.directory}."
        known = {node_id: replace(node, pid=node.pid if node.is_running() else None) for node_id, node in known.items()}
        self._check_links(known, origin)
        stopped = [node for node in known.values() if node.pid is None]
        if len(known) == 1 and all(node.peer_port is None for node in stopped):
            return {**known, **{node.node_id: self._moved_aside(node, port) for node in stopped}}
        for node in stopped:
            for address in node.listeners():
                if not is_free(address.host, address.port):
                    raise LocalError(
                        f"{self.directory} is a copy of the cluster in {origin.path}, and {address}, the address of "
                        f"node {node.node_id}, is in use. Nodes of the copy could connect to nodes of the original, "
                        f"which have the same ids. Run only one of the two: `drmq down --data-dir "
                        f"{shlex.quote(str(origin.path))}` stops the original."
                    )
        return known

    def _check_links(self, known: Mapping[int, LocalNode], origin: Origin) -> None:
        """Refuse a copied directory with links to data elsewhere: that data is the original's."""
        for node in known.values():
            if not node.data_dir.resolve().is_relative_to(self.directory.resolve()):
                raise LocalError(
                    f"{self.directory} is a copy of {origin.path}, but {node.data_dir} is a link to "
                    f"{node.data_dir.resolve()}, which belongs to the original. Replace the link by a copy of the data."
                )

    def _moved_aside(self, node: LocalNode, port: int | None) -> LocalNode:
        """The node of a copied directory, at another port if its original has the port, or if one is asked for."""
        if port is None and is_free(node.kafka.host, node.kafka.port):
            return node
        chosen = port or free_ports(node.kafka.host, 1)[0]
        assert self.note is not None
        if port is None:
            self.note += f" Port {node.kafka.port} is in use, so node {node.node_id} gets port {chosen}."
        return replace(node, kafka=Address(node.kafka.host, chosen))

    @property
    def _option(self) -> str:
        """The option that names this directory, to be typed in a shell."""
        return f"--data-dir {shlex.quote(str(self.directory))}"

    def _open_to_peers(
        self, known: Mapping[int, LocalNode], nodes: Mapping[int, LocalNode], report: Report
    ) -> dict[int, str]:
        """Stop single nodes that need a port for peers now, so that they restart with one. Returns their new states."""
        stopped = {}
        for node_id, node in nodes.items():
            was = known.get(node_id)
            if was is None or was.peer_port == node.peer_port or was.pid is None or not was.is_running():
                continue
            # Checked first, so that a node is not stopped in vain.
            check_port(node.listeners()[1])
            report(f"node {node_id} restarts with a port for other nodes")
            if not end_process(was.pid, was.data_dir, time.monotonic() + STOP_TIMEOUT_S):
                raise LocalError(
                    f"Node {node_id} must be restarted so that other nodes can join it, but did not stop within "
                    f"{STOP_TIMEOUT_S:.0f} s.\n{log_tail(was.log_path)}"
                )
            stopped[node_id] = "stopped"
        return stopped

    def _start(self, nodes: Sequence[LocalNode], all_nodes: Mapping[int, LocalNode]) -> dict[int, _Started]:
        """Start processes. `all_nodes` are all known nodes, including `nodes`."""
        # Checked before any process is started: its error would only be in its log, and another program would answer at
        # its port.
        for node in nodes:
            for address in node.listeners():
                check_port(address)
        starting = {node.node_id for node in nodes}
        nodes = with_gateways(nodes, [node for node in all_nodes.values() if node.node_id not in starting])
        entries = {**all_nodes, **{node.node_id: node for node in nodes}}
        started = {}
        for node in nodes:
            node.data_dir.mkdir(parents=True, exist_ok=True)
            log_size = node.log_path.stat().st_size if node.log_path.exists() else 0
            process = spawn_server(server_arguments(node, entries.values()), node.log_path)
            entries[node.node_id] = replace(node, pid=process.pid)
            self.write([entries[node_id] for node_id in sorted(entries)], settled=True)
            started[node.node_id] = _Started(entries[node.node_id], process, log_size)
        return started

    def _wait_or_give_up(
        self,
        known: Mapping[int, LocalNode],
        nodes: Sequence[LocalNode],
        started: Mapping[int, _Started],
        report: Report,
        timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Return when every node serves and knows all the others. Raise if one exits or it takes too long."""
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
                # The node that knows the fewest others is the reason why the others do not know it.
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
        self._wait_for_gateways([found.node for found in started.values()], report)

    def _wait_for_gateways(self, nodes: Sequence[LocalNode], report: Report) -> None:
        """Wait until the next request over HTTP or gRPC is answered, but not for long: the nodes serve without them."""
        deadline = time.monotonic() + _GATEWAY_TIMEOUT_S
        refused_until = time.monotonic() + _SETTLE_S
        for node in nodes:
            while node.http is not None and not (answers := gateway_answers(node)):
                if answers is None and time.monotonic() > refused_until:
                    break  # it has none: its log says why
                report(f"all serve; the gateway of node {node.node_id} is starting")
                if time.monotonic() > deadline:
                    self.trouble = self.trouble or f"the gateway of node {node.node_id} does not answer at {node.http}"
                    return
                time.sleep(_POLL_S)

    def _check_alive(self, node: LocalNode, started: _Started | None) -> None:
        if started is None:
            if not node.is_running():
                raise LocalError(f"Node {node.node_id} exited in the meantime.\n{_tail(node, None)}")
            return
        code = started.process.poll()
        if code is None:
            return
        text = _tail(node, started)
        if code == EXIT_REMOVED:
            text += (
                f"\nRun `drmq node forget {node.node_id} {self._option}` so that it is not started again. "
                "If you also remove its directory, it can join as a new node."
            )
        raise LocalError(f"Node {node.node_id} exited at once with code {code}.\n{text}")

    def _wait_until_healthy(self, nodes: Sequence[LocalNode], report: Report) -> None:
        """Wait until partitions have leaders and their replicas have caught up, so that the next command finds a
        healthy cluster, whichever node it asks. If that takes too long, set `trouble`.
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
        """After a failed start: stop the processes of a new cluster, and drop nodes that left no data from the file.

        In an existing cluster, nodes that did start keep running: the cluster needs them.
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
            self._file.remove()

    # ---- ending and pausing ---------------------------------------------------------------------

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S, at_once: bool = False) -> list[tuple[LocalNode, str]]:
        """Stop all nodes at the same time, and kill those that take longer than `timeout_s`.

        The outcome for each node: `stopped`, `killed`, `not running`, or `still running` if even killing it failed.
        """
        nodes = self.read()
        running = [node for node in nodes if node.is_running()]
        if not at_once:
            for node in running:
                # A paused process handles SIGTERM only after SIGCONT.
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
        """Stop a node cleanly, or kill it. Returns the node as it was before."""
        node = self._running(node_id)
        assert node.pid is not None, node
        if not end_process(node.pid, node.data_dir, time.monotonic() + timeout_s, kill=kill):
            raise LocalError(
                f"Node {node_id} did not stop within {timeout_s:g} s. `drmq node kill {node_id}` kills it.\n"
                f"{log_tail(node.log_path)}"
            )
        self._replace(replace(node, pid=None))
        return node

    def forget(self, node_id: int) -> LocalNode:
        """Remove a stopped node from the file. Its data stays where it is."""
        node = self.node(node_id)
        if node.is_running():
            raise LocalError(
                f"Node {node_id} (pid {node.pid}) is {node.state()}. `drmq cluster remove {node_id}` takes it out of "
                f"the cluster and stops it; `drmq node stop {node_id} {self._option}` only stops it."
            )
        others = [other for other in self.read() if other.node_id != node_id]
        if not any(other.founder for other in others):
            # Without a founder in their `--peers`, the remaining nodes would start new clusters.
            raise LocalError(
                f"Node {node_id} cannot be forgotten: it is the last founder, which other nodes need to join."
            )
        self.write(others)
        return node

    def pause(self, node_id: int) -> tuple[LocalNode, bool]:
        """Pause a node's process. Returns whether it was running."""
        return self._switch(node_id, signal.SIGSTOP, "paused")

    def resume(self, node_id: int) -> tuple[LocalNode, bool]:
        """Resume a node's process. Returns whether it was paused."""
        return self._switch(node_id, signal.SIGCONT, "running")

    def _switch(self, node_id: int, number: signal.Signals, state: str) -> tuple[LocalNode, bool]:
        node = self._running(node_id)
        if node.state() == state:
            return node, False
        _signal(node, number)
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while node.state() != state:
            if time.monotonic() > deadline:
                raise LocalError(f"Node {node_id} (pid {node.pid}) is {node.state()} and did not become {state}.")
            time.sleep(_POLL_S)
        return node, True

    def _running(self, node_id: int) -> LocalNode:
        node = self.node(node_id)
        if not node.is_running():
            raise LocalError(f"Node {node_id} is not running. `drmq node start {node_id} {self._option}` starts it.")
        return node


@dataclass(frozen=True, slots=True)
class _Started:
    """A node that was just started, and the size of its log before: older lines explain nothing about this start."""

    node: LocalNode
    process: subprocess.Popen[bytes]
    log_size: int


class _TooLong(LocalError):
    """A node runs but does not serve in time."""


@dataclass(frozen=True, slots=True)
class _Outlook:
    """Whether nodes that are being started can be expected to serve, how long to wait, and which nodes do not run."""

    is_good: bool
    patience_s: float
    absent: list[int]


def _outlook(known: Mapping[int, LocalNode], starting: Collection[int]) -> _Outlook:
    """What to expect of the nodes that are being started, judging by the file.

    The file does not say which nodes are voters: the founders were at first, and others may have become voters since.
    With a majority of the founders, or with any node to join, it is worth waiting; it is certain only if a majority of
    all nodes runs as well.
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
    return log_tail(node.log_path, 0 if started is None else started.log_size)


def _signal(node: LocalNode, number: signal.Signals) -> None:
    assert node.pid is not None, node
    signal_ours(node.pid, node.data_dir, number)


def _gone(node: LocalNode, deadline: float) -> bool:
    assert node.pid is not None, node
    return wait_until_gone(node.pid, node.data_dir, deadline)
