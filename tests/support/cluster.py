"""A cluster of real processes: started, killed, paused, wiped and cut off by tests and by `chaos`.

`ClusterProcesses` starts `drmq server` once per node, on ports or in networks of its own, and finds out what an
operator would have to find out: which node leads a partition, which nodes are up, whether all replicas have caught up.
Every process is ended by its id. The output of each node is in a file beside its data directory, and `logs` puts these
together when something went wrong.

A `Network` decides how the nodes reach each other. `Loopback` only assigns ports; networks that can be cut are in
`support.networks`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from drmq.client import Admin, ClientError, NewTopic
from drmq.model import TopicPartition
from drmq.server.ports import free_ports
from support.polling import eventually
from support.ports import HOST
from support.processes import PROBE_TIMEOUT_S, READY_PROBE, BrokerProcess

PEER_PORT_DISTANCE = 1000
HEALTHY_WITHIN_S = 120.0
ADMIN_TIMEOUT_S = 30.0
"""Longer would not help: an attempt at a node that stands still takes half of it."""
ASK_TIMEOUT_S = 10.0
"""For one question of many: a node that does not answer must not use up the time to wait for the cluster."""
LOG_TAIL_LINES = 60


class Network(Protocol):
    """How nodes reach each other and clients reach them."""

    def host(self, node_id: int) -> str:
        """Where a node listens."""

    def port(self, node_id: int) -> int:
        """On which port clients find it."""

    def bootstrap(self, node_id: int) -> str:
        """The address that clients use."""

    def peer(self, node_id: int) -> str:
        """The node as the others write it in `--peers`."""

    def arguments(self, node_id: int) -> list[str]:
        """Flags beyond `--port`."""

    def prefix(self, node_id: int) -> list[str]:
        """The command that starts a process in the network of the node."""

    def close(self) -> None:
        """Take down what was set up."""


class Loopback:
    """All nodes on 127.0.0.1, each on a port of its own; nothing can be cut."""

    def __init__(self) -> None:
        self._ports: dict[int, int] = {}

    def host(self, node_id: int) -> str:
        return HOST

    def port(self, node_id: int) -> int:
        if node_id not in self._ports:
            self._ports[node_id] = free_port_pair(self._ports.values())
        return self._ports[node_id]

    def bootstrap(self, node_id: int) -> str:
        return f"{HOST}:{self.port(node_id)}"

    def peer(self, node_id: int) -> str:
        return f"{node_id}:{HOST}:{self.port(node_id)}"

    def arguments(self, node_id: int) -> list[str]:
        return []

    def prefix(self, node_id: int) -> list[str]:
        return []

    def close(self) -> None:
        return


def free_port_pair(taken: Iterable[int] = ()) -> int:
    """A free port whose number plus a thousand, for the peers, is free too."""
    used = {port + distance for port in taken for distance in (0, PEER_PORT_DISTANCE)}
    while True:
        (port,) = free_ports(HOST, 1, (0, PEER_PORT_DISTANCE))
        if not {port, port + PEER_PORT_DISTANCE} & used:
            return port


class NodeProcess(BrokerProcess):
    """One node of a cluster."""

    def __init__(
        self,
        node_id: int,
        data_dir: Path,
        network: Network,
        peers: Sequence[int],
        extra_args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data_dir, network.port(node_id), extra_args, env, node_id)
        self.network = network
        self.peers = list(peers)
        self.paused = False
        self.wrapper: list[str] = []
        """A command to run the node under, such as strace; read at the next start."""

    @property
    def bootstrap(self) -> str:
        return self.network.bootstrap(self.node_id)

    @property
    def command(self) -> list[str]:
        peers = ",".join(self.network.peer(other) for other in self.peers if other != self.node_id)
        where = ["--host", self.network.host(self.node_id), *self.network.arguments(self.node_id)]
        them = ["--peers", peers] if peers else []
        return [*self.network.prefix(self.node_id), *self.wrapper, *super().command, *where, *them]

    def _answers(self) -> bool:
        host, _, port = self.bootstrap.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S) as connection:
                connection.sendall(READY_PROBE)
                return len(connection.recv(4)) > 0
        except OSError:
            return False

    @property
    def was_started(self) -> bool:
        return self._process is not None

    def pause(self) -> None:
        """SIGSTOP: everything in the process stands still, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        # A process that stands still dies of SIGKILL all the same.
        self.paused = False
        super().kill()

    def wipe(self) -> None:
        """Give the node, which must not run, an empty disk."""
        assert not self.running, f"node {self.node_id} runs"
        shutil.rmtree(self.data_dir)


class ClusterProcesses:
    """Nodes 1 to `nodes` in `directory`; a context manager that waits until all serve and ends what is left."""

    def __init__(
        self,
        directory: Path,
        nodes: int = 3,
        network: Network | None = None,
        env: Mapping[str, str] | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.network: Network = network or Loopback()
        self._env = env
        self._extra_args = extra_args
        ids = range(1, nodes + 1)
        self.nodes = {node_id: self._make_node(node_id, ids) for node_id in ids}

    def _make_node(self, node_id: int, ids: Sequence[int]) -> NodeProcess:
        directory = self.directory / f"node-{node_id}"
        return NodeProcess(node_id, directory, self.network, ids, self._extra_args, self._env)

    def __getitem__(self, node_id: int) -> NodeProcess:
        return self.nodes[node_id]

    @property
    def ids(self) -> list[int]:
        return list(self.nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def running(self) -> list[int]:
        """Nodes whose process runs and is not paused."""
        return [node_id for node_id, node in self.nodes.items() if node.running and not node.paused]

    # ---- starting and ending --------------------------------------------------------------------

    def start(self) -> Self:
        """Start all, and wait until they are one healthy cluster."""
        for node in self.nodes.values():
            if not node.running:
                node.start()
        self.wait_serving()
        self.wait_healthy()
        return self

    def join(self, peers: Sequence[int] = ()) -> int:
        """Start one more node, which the network must have a place for, and wait until it has joined the others.

        It is given `peers`, or all others.
        """
        node_id = max(self.nodes) + 1
        self.nodes[node_id] = self._make_node(node_id, [*(peers or self.nodes), node_id])
        self.nodes[node_id].start().wait_ready(HEALTHY_WITHIN_S)
        self.wait_healthy()
        return node_id

    def remove(self, node_id: int, timeout_s: float = HEALTHY_WITHIN_S) -> None:
        """Remove a node cleanly: its partitions are moved away, it ends on its own, and is no longer managed here."""
        with self.admin() as admin:
            admin.brokers.unregister(node_id)
        node = self.nodes[node_id]
        eventually(
            node.exit_status, lambda status: status is not None, timeout_s=timeout_s, what=f"node {node_id} ends"
        )
        assert node.exit_status() == 0, node.log_text()[-2_000:]
        del self.nodes[node_id]

    def wait_serving(self, timeout_s: float = HEALTHY_WITHIN_S) -> None:
        """Until every node that runs answers a request."""
        for node_id in self.running:
            self.nodes[node_id].wait_ready(timeout_s)

    def stop(self) -> None:
        """Stop all nodes cleanly, one after the other."""
        for node in self.nodes.values():
            node.resume()
            if node.running:
                node.terminate()

    def kill_all(self) -> None:
        """SIGKILL for all, as close together as signals can be."""
        for node in self.nodes.values():
            if node.running:
                os.kill(node.pid, signal.SIGKILL)
        for node in self.nodes.values():
            if node.was_started:
                node.kill()

    def close(self) -> None:
        """End what is left, at once, and take the network down."""
        for node in self.nodes.values():
            if node.running:
                node.kill()
        self.network.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.logs())
        self.close()

    # ---- asking ---------------------------------------------------------------------------------

    def admin(self, timeout_s: float = ADMIN_TIMEOUT_S) -> Admin:
        """A client for calls about the cluster; asks the nodes that run."""
        return Admin(",".join(self.nodes[node_id].bootstrap for node_id in self.running), timeout_s=timeout_s)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = -1
    ) -> None:
        """Create a topic; without `replicas` with the cluster's default."""
        with self.admin() as admin:
            admin.topics.create(NewTopic(name, partitions, replicas, dict(configs or {})))

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads, as the nodes that run see it; waits until there is one among them."""

        def look() -> int | None:
            with contextlib.suppress(ClientError), self.admin(ASK_TIMEOUT_S) as admin:
                leader = admin.topics.describe(topic).partitions[partition].leader
                return leader if leader in self.running else None
            return None

        found = eventually(look, lambda leader: leader is not None, what=f"a leader of {topic}-{partition}")
        assert found is not None
        return found

    def controller(self) -> int:
        """The node that keeps the metadata."""

        def look() -> int | None:
            with contextlib.suppress(ClientError), self.admin(ASK_TIMEOUT_S) as admin:
                found = admin.brokers.quorum().leader_id
                return found if found in self.running else None
            return None

        found = eventually(look, lambda leader: leader is not None, what="a controller")
        assert found is not None
        return found

    def complaints(self) -> list[str]:
        """What keeps the cluster from being whole; empty when all is well."""
        found = []
        try:
            for node_id in self.running:
                with Admin(self.nodes[node_id].bootstrap, timeout_s=ASK_TIMEOUT_S) as admin:
                    there = admin.describe_cluster().brokers
                    found += [f"node {node_id} does not see {other}" for other in self.nodes if other not in there]
            with self.admin(ASK_TIMEOUT_S) as admin:
                topics = admin.topics.all()
        except ClientError as error:
            return [str(error)]
        found += [f"node {node_id} does not run" for node_id in self.nodes if node_id not in self.running]
        for topic in topics:
            for partition in topic.partitions:
                if partition.leader is None:
                    found.append(f"{topic.name}-{partition.index} has no leader")
                elif set(partition.in_sync) != set(partition.replicas):
                    behind = sorted(set(partition.replicas) - set(partition.in_sync))
                    found.append(f"{topic.name}-{partition.index} is behind on {behind}")
        return found

    def wait_healthy(self, timeout_s: float = HEALTHY_WITHIN_S) -> float:
        """Until all nodes are there and all replicas in sync; the seconds that took."""
        started = time.monotonic()
        eventually(
            self.complaints, lambda found: not found, timeout_s=timeout_s, interval_s=0.1, what="a healthy cluster"
        )
        return time.monotonic() - started

    def _places(self, node_id: int) -> list[TopicPartition]:
        """All partitions that a node knows of."""
        with Admin(self.nodes[node_id].bootstrap, timeout_s=ASK_TIMEOUT_S) as admin:
            return [
                TopicPartition(topic.name, partition.index)
                for topic in admin.topics.all()
                for partition in topic.partitions
            ]

    def wait_caught_up(self, timeout_s: float = HEALTHY_WITHIN_S) -> None:
        """Wait until the log of every partition ends at the same offset on all its replicas, without writers."""

        def look() -> list[str]:
            try:
                # Of each node: one that has not heard of a topic yet knows nobody who lags.
                places = list(dict.fromkeys(place for node_id in self.running for place in self._places(node_id)))
                with self.admin(ASK_TIMEOUT_S) as admin:
                    quorums = admin.replicas.quorums(places)
            except ClientError as error:
                return [str(error)]
            missing = [f"nobody tells about {place}" for place in places if place not in quorums]
            return missing + [
                f"{place} lags by {replica.lag} on node {replica.node_id}"
                for place, quorum in quorums.items()
                for replica in quorum.voters
                if replica.lag != 0
            ]

        eventually(look, lambda found: not found, timeout_s=timeout_s, interval_s=0.1, what="replicas without lag")

    def logs(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of what every node said."""
        parts = []
        for node_id, node in self.nodes.items():
            state = "paused" if node.paused else "running" if node.running else f"ended with {node.exit_status()}"
            parts.append(f"---- node {node_id}, {state}: {node.log_path}")
            parts += node.log_text().splitlines()[-lines:]
        return "\n".join(parts)

    def alarms(self) -> list[str]:
        """Lines of the nodes' logs that must never be there, whatever happens to the nodes."""
        found = []
        for node_id, node in self.nodes.items():
            for line in node.log_text().splitlines():
                if any(word in line for word in ALARMS):
                    found.append(f"node {node_id}: {line}")
        return found


ALARMS = ("Traceback", "AssertionError", " CRITICAL ", "is stopped", "refuses appends")
