"""A cluster of three nodes with their gateways, where what watches can be told from what is watched."""

import contextlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.clients.viewers import ViewersTask
from bench.cluster.drmq import DrmqCluster
from bench.cluster.nodes import Node, wait_until
from bench.process import Program, fixed_ports

ANSWER_SECONDS_MAX = 60.0


class ObservedCluster(DrmqCluster):
    """`drmq server` with its gateway; the processor time of both is known apart."""

    def __init__(self, directory: Path, node_count: int) -> None:
        super().__init__(directory, node_count)
        self.http_ports: list[int] = []

    def lay_out(self) -> None:
        """Also ports for HTTP."""
        super().lay_out()
        self.http_ports = fixed_ports(self.node_count)

    def command(self, node: Node, partition_count: int) -> list[str]:
        """With a gateway on its port."""
        command = super().command(node, partition_count)
        return [*command, "--gateway", "true", "--http-port", str(self.http_ports[node.number - 1])]

    def wait_gateways(self) -> None:
        """Until all answer."""
        for port in self.http_ports:
            wait_until(lambda port=port: _is_ready(port), ANSWER_SECONDS_MAX, f"the gateway at port {port}")  # type: ignore[misc]

    def cpu_seconds(self) -> tuple[list[float], list[float]]:
        """Of each node without its gateway, and of each gateway."""
        nodes, gateways = [], []
        for node in self.nodes:
            assert node.server is not None
            process = psutil.Process(node.server.pid)
            nodes.append(_cpu(process))
            gateways.append(sum(map(_cpu, process.children(recursive=True))))
        return nodes, gateways

    @contextlib.contextmanager
    def without_gateways(self) -> Iterator[None]:
        """The gateways do nothing meanwhile."""
        children = [
            child
            for node in self.nodes
            if node.server is not None
            for child in psutil.Process(node.server.pid).children(recursive=True)
        ]
        for child in children:
            child.suspend()
        try:
            yield
        finally:
            for child in children:
                child.resume()

    def gateway_rss_bytes(self) -> list[int]:
        """Of each gateway."""
        return [
            sum(child.memory_info().rss for child in psutil.Process(node.server.pid).children(recursive=True))
            for node in self.nodes
            if node.server is not None
        ]

    @contextlib.contextmanager
    def viewers(self, count: int) -> Iterator[None]:
        """So many pages are open meanwhile, all at the first gateways."""
        if not count:
            yield
            return
        program = Program("viewers", "viewers", ViewersTask(tuple(self.http_ports), count))
        try:
            program.hear(ANSWER_SECONDS_MAX)
            yield
        finally:
            program.close()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
