"""A system of several processes: started, killed and watched one by one.

Nodes keep their ports and directories through restarts. Only what a section needs is asked of a
system: the limit has no leader to ask for, and DRMQ alone is told what the restart needs.
"""

import contextlib
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.clients import Task
from bench.process import BenchError, Run, Server, Usage, fixed_ports, run_client
from bench.systems.base import CONSUME_SECONDS_FACTOR
from bench.workloads import TOPIC, Workload

FORM_SECONDS_MAX = 90.0
POLL_SECONDS = 0.02


def wait_until(is_true: Callable[[], bool], seconds_max: float, what: str) -> float:
    """Poll until `is_true`, and return how long that took; raise with `what` if it takes too long."""
    started_at = time.perf_counter()
    while not is_true():
        if time.perf_counter() - started_at > seconds_max:
            raise BenchError(f"not within {seconds_max:.0f} s: {what}")
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - started_at


@dataclass
class Node:
    """One process of a cluster, running or not."""

    number: int
    port: int
    peer_port: int
    directory: Path
    server: Server | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self.server is not None


class ClusterSystem(ABC):
    """Some nodes of one program under one configuration; also the `Watched` of its clients."""

    program: str
    """As in `--only`."""
    variant: str = ""
    fsyncs_before_ack: bool = True
    has_failover: bool = True
    """Whether the others take over when the leader dies."""
    hands_over: bool = False
    """Whether a node that is stopped in order says that it hands over what it leads, without a gap."""
    partitions_are_groups: bool = True
    """Whether many idle partitions cost it something worth measuring."""
    has_sessions: bool = False
    """Whether each node is started as a session of its own, as `drmq up` does."""
    probes: tuple[tuple[str, str, bool], ...] = ()
    """What sits through failovers: name in the table, module of `bench.clients`, whether it is eager."""

    def __init__(self, directory: Path, node_count: int) -> None:
        words = f"{self.program}-{self.variant}-{node_count}".replace(" ", "-").replace("--", "-")
        self.directory = directory / words
        self.node_count = node_count
        self.nodes: list[Node] = []
        self.topic = TOPIC

    @property
    def label(self) -> str:
        """Program, nodes and variant, for the table."""
        return f"{self.program} × {self.node_count}" + (f" ({self.variant})" if self.variant else "")

    @property
    def name(self) -> str:
        """For messages."""
        return self.label

    @property
    def replica_count(self) -> int:
        """Every node has a copy of everything."""
        return self.node_count

    @abstractmethod
    def check(self) -> None:
        """Raise `Unavailable` if this machine lacks something."""

    @abstractmethod
    def version(self) -> str:
        """The version that is measured."""

    @abstractmethod
    def command(self, node: Node, partition_count: int) -> list[str]:
        """The command line of one node, on its port and directory."""

    @abstractmethod
    def is_formed(self) -> bool:
        """Whether all nodes answer and see each other."""

    @abstractmethod
    def create_topic(self, partition_count: int) -> None:
        """Create `topic`, replicated to all nodes."""

    @abstractmethod
    def leaderless_count(self, partition_count: int) -> int:
        """How many partitions have no leader, by the node that knows the fewest."""

    @abstractmethod
    def leader(self) -> Node:
        """The node that leads the first partition."""

    @abstractmethod
    def is_in_sync(self) -> bool:
        """Whether every node has all of the first partition."""

    @abstractmethod
    def record_count(self) -> int:
        """How many records the first partition has."""

    @abstractmethod
    def client(self, action: str) -> str | None:
        """The module of `bench.clients` that does `produce`, `consume` or `pace`."""

    def form(self, partition_count: int) -> None:
        """Start all nodes on empty directories, and wait until they are a cluster."""
        self.lay_out()
        self.launch_all(partition_count)

    def lay_out(self) -> None:
        """New nodes with ports and empty directories; none runs."""
        shutil.rmtree(self.directory, ignore_errors=True)
        ports = fixed_ports(2 * self.node_count)
        self.nodes = [
            Node(number, ports.pop(), ports.pop(), self.directory / str(number))
            for number in range(1, self.node_count + 1)
        ]
        for node in self.nodes:
            node.directory.mkdir(parents=True)

    def start(self, partition_count: int) -> None:
        """Form, create the topic, and wait until every partition is led and copied."""
        self.form(partition_count)
        self.create_topic(partition_count)
        self.wait_led(partition_count)
        wait_until(self.is_in_sync, FORM_SECONDS_MAX, f"all replicas of {self.label} in sync")

    def launch_all(self, partition_count: int) -> None:
        """Start all nodes on the directories as they are, and wait until they are a cluster."""
        for node in self.nodes:
            self.launch(node, partition_count)
        try:
            wait_until(self._is_formed_or_dead, FORM_SECONDS_MAX, f"{self.label} formed")
        except BenchError as failed:
            raise BenchError(f"{failed}; {self.log_tail()}") from failed

    def launch(self, node: Node, partition_count: int = 1) -> None:
        """Start one node on its directory as it is, without waiting."""
        command, log = self.command(node, partition_count), node.directory.with_suffix(".log")
        node.server = Server(command, log, has_session=self.has_sessions)

    def wait_led(self, partition_count: int, seconds_max: float = FORM_SECONDS_MAX) -> float:
        """Wait until every partition has a leader that all nodes know of."""
        return wait_until(
            lambda: self.leaderless_count(partition_count) == 0, seconds_max, f"leaders for all of {self.label}"
        )

    def halt(self, node: Node, how: signal.Signals) -> None:
        """End one node, and keep its data."""
        if node.server is not None:
            node.server.stop(how)
            node.server = None

    def stop(self) -> None:
        """End all nodes and remove their data."""
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            for node in self.nodes:
                # They would otherwise hand leadership round among the last ones.
                stack.callback(self.halt, node, signal.SIGKILL)
        self.nodes = []

    def close(self) -> None:
        """End what `stop` may have left running."""
        self.stop()

    def usage(self) -> Usage:
        """Of all nodes that run."""
        each = [node.server.usage() for node in self.nodes if node.server is not None]
        return Usage(
            sum(one.cpu_seconds for one in each), sum(one.rss_bytes for one in each),
            tuple(one.cpu_seconds for one in each),
        )  # fmt: skip

    def log_tail(self) -> str:
        """The last words of each node."""
        return " | ".join(node.server.log_tail()[-200:] for node in self.nodes if node.server is not None)

    def produce(self, workload: Workload) -> Run | None:
        """Send the workload as fast as it goes."""
        return self._run("produce", self.task("produce", workload, workload.records_max, workload.seconds_max))

    def consume(self, workload: Workload, record_count: int) -> Run | None:
        """Receive the `record_count` records that are there."""
        seconds_max = workload.seconds_max * CONSUME_SECONDS_FACTOR
        return self._run("consume", self.task("consume", workload, record_count, seconds_max))

    def pace(self, workload: Workload, records_per_second: float, seconds: float) -> Run | None:
        """Send at a fixed rate, and measure each record."""
        return self._run("pace", self.task("produce", workload, 0, seconds, records_per_second))

    def task(
        self, action: str, workload: Workload, records_max: int, seconds_max: float, records_per_second: float = 0.0
    ) -> Task:
        """A client's task against this cluster."""
        port, *more = self.client_ports
        return Task(
            action, port, self.topic, workload.partition_count, workload.record_size, records_max, seconds_max,
            workload.batching.value, tuple(more), self.replica_count, records_per_second,
        )  # fmt: skip

    @property
    def client_ports(self) -> list[int]:
        """Where clients may connect."""
        return [node.port for node in self.nodes]

    def _run(self, action: str, task: Task) -> Run | None:
        module = self.client(action)
        return run_client(module, task, self) if module else None

    def _is_formed_or_dead(self) -> bool:
        for node in self.nodes:
            if node.server is not None and not psutil.pid_exists(node.server.pid):
                raise BenchError(f"node {node.number} of {self.label} ended: {node.server.log_tail()}")
        return self.is_formed()
