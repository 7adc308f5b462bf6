"""The nodes of a local cluster as values: their addresses, their flags, and what they answer.

This module starts and stops nothing; `local` does. `local_file` stores the nodes.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from drmq.client import Admin, ClientError, Connection, Deadline
from drmq.client.health import observe, trouble_among
from drmq.model import DrmqError
from drmq.model.address import DEFAULT_PORT, Address
from drmq.server.config import ConfigError, ServerConfig, load
from drmq.server.membership import PEER_PORT_DISTANCE, default_peer_port
from drmq.server.ports import free_ports, is_free
from drmq.server.processes import process_is_ours, process_is_paused, process_names
from drmq.wire.messages.metadata import MetadataRequest, MetadataResponse

_ANSWER_TIMEOUT_S = 1.0
_EXAMINED_S = 5.0


class LocalError(DrmqError):
    """A local cluster could not be started or stopped. The message says what to do."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node of `cluster.json`."""

    node_id: int
    pid: int | None
    kafka: Address
    data_dir: Path
    peer_port: int | None = None
    founder: bool = True
    config: Path | None = None
    http_port: int | None = None
    """The port of its gateway; None if it has none."""
    grpc_port: int | None = None
    """The same for gRPC."""
    metrics_port: int | None = None
    """The port of the node itself for `/metrics`; None if it has none."""
    lab: bool = False
    """Whether the fault lab may work on it."""

    @property
    def http(self) -> Address | None:
        """Where its gateway answers."""
        return None if self.http_port is None else Address(self.kafka.host, self.http_port)

    @property
    def grpc(self) -> Address | None:
        """Where its gateway answers gRPC."""
        return None if self.grpc_port is None else Address(self.kafka.host, self.grpc_port)

    @property
    def metrics(self) -> Address | None:
        """Where the node itself answers `/metrics`."""
        return None if self.metrics_port is None else Address(self.kafka.host, self.metrics_port)

    @property
    def log_path(self) -> Path:
        return self.data_dir.parent / "server.log"

    def is_running(self) -> bool:
        return self.pid is not None and process_is_ours(self.pid, self.data_dir)

    def is_displaced(self) -> bool:
        """Whether the process still uses the path that the directory had before it was moved."""
        return self.pid is not None and self.is_running() and not process_names(self.pid, self.data_dir)

    def state(self) -> str:
        """`running`, `paused` or `stopped`."""
        if self.pid is None or not self.is_running():
            return "stopped"
        return "paused" if process_is_paused(self.pid) else "running"

    def listeners(self) -> list[Address]:
        ports = [self.kafka.port] if self.peer_port is None else [self.kafka.port, self.peer_port]
        return [Address(self.kafka.host, port) for port in ports]


@dataclass(frozen=True, slots=True)
class FirstPorts:
    """Ports for node 1, chosen by a user; the others get the following ones. 0 for free ones, None for no choice."""

    http: int | None = None
    grpc: int | None = None
    metrics: int | None = None

    def give(self, node: LocalNode) -> LocalNode:
        """The node with the ports that were chosen. If one is in use, `with_gateways` takes the next one."""
        return replace(
            node,
            http_port=node.http_port if self.http is None else _port_of(node, self.http),
            grpc_port=node.grpc_port if self.grpc is None else _port_of(node, self.grpc),
            metrics_port=node.metrics_port if self.metrics is None else _port_of(node, self.metrics),
        )


def _port_of(node: LocalNode, first: int) -> int:
    return first + node.node_id - 1 if first else free_ports(node.kafka.host, 1)[0]


def data_directory(directory: Path, node_id: int) -> Path:
    """Where a local cluster in this directory keeps the data of a node."""
    return directory / f"node-{node_id}" / "data"


def plan_nodes(
    directory: Path, known: Mapping[int, LocalNode], wanted: Sequence[int], host: str, port: int | None
) -> dict[int, LocalNode]:
    """The wanted nodes: known nodes as they are, and new ones with their own ports. Starts nothing.

    New nodes get the ports that follow the first node's port; in a new cluster they are the founders. A node that ran
    alone gets a peer port if other nodes are wanted too. With port 0, all ports are free ones, those of the gateways
    too: two clusters that start at the same time would both find the usual ones free.
    """
    new = [node_id for node_id in wanted if node_id not in known]
    in_cluster = len(wanted) > 1 or len(known) > 1
    nodes = {node_id: known[node_id] for node_id in wanted if node_id in known}
    if in_cluster:
        for node_id, node in nodes.items():
            if node.peer_port is None:
                nodes[node_id] = replace(node, peer_port=_peer_port(node.kafka.port))
    if not new:
        return nodes
    if port == 0:
        ports = free_ports(host, len(new), (0, PEER_PORT_DISTANCE) if in_cluster else (0,))
    elif port is None and known:
        ports = _next_ports(host, list({**known, **nodes}.values()), new)
    else:
        first = DEFAULT_PORT if port is None else port
        ports = [first + node_id - 1 for node_id in new]
    gateways = iter(free_ports(host, 2 * len(new)) if port == 0 else [])
    for node_id, chosen in zip(new, ports, strict=True):
        peer_port = _peer_port(chosen) if in_cluster else None
        data_dir = data_directory(directory, node_id)
        nodes[node_id] = LocalNode(
            node_id,
            None,
            Address(host, chosen),
            data_dir,
            peer_port,
            founder=not known,
            http_port=next(gateways, None),
            grpc_port=next(gateways, None),
        )
    return {node_id: nodes[node_id] for node_id in wanted}


def server_arguments(node: LocalNode, all_nodes: Iterable[LocalNode]) -> list[str]:
    """The flags of `drmq server` for a node. Its `--peers` are the founders of the cluster."""
    arguments = ["--node-id", str(node.node_id), "--host", node.kafka.host, "--port", str(node.kafka.port)]
    arguments += ["--data-dir", str(node.data_dir.absolute())]
    if node.peer_port is not None:
        arguments += ["--peer-port", str(node.peer_port)]
        peers = [
            f"{other.node_id}:{Address(other.kafka.host, other.kafka.port)}:{other.peer_port}"
            for other in all_nodes
            if other.founder and other.node_id != node.node_id and other.peer_port is not None
        ]
        if peers:
            arguments += ["--peers", ",".join(peers)]
    if node.http_port is not None:
        arguments += ["--http-port", str(node.http_port)]
    if node.grpc_port is not None:
        arguments += ["--grpc-port", str(node.grpc_port)]
    if node.metrics_port is not None:
        arguments += ["--metrics-port", str(node.metrics_port)]
    if node.lab:
        arguments.append("--lab")
    if node.config is not None:
        arguments += ["--config", str(node.config.absolute())]
    return arguments


def with_gateways(nodes: Sequence[LocalNode], others: Iterable[LocalNode]) -> list[LocalNode]:
    """The nodes with ports for their gateways and metrics: those they had, if they are free, otherwise the next ones.

    A node that had none gets those of its configuration, which are for node 1: all nodes of a local cluster have the
    same configuration, and cannot have the same ports. A node whose configuration has no gateway gets none.
    """
    others = list(others)
    taken = {
        port
        for node in others
        if node.is_running()
        for port in (node.http_port, node.grpc_port, node.metrics_port)
        if port
    }
    # Those of nodes that do not run yet cannot be found by trying.
    taken |= {address.port for node in (*nodes, *others) for address in node.listeners()}

    def free_port(node: LocalNode, port: int) -> int:
        while port in taken or not is_free(node.kafka.host, port):
            port += 1
        taken.add(port)
        return port

    found = []
    for node in nodes:
        config = _config_of(node)
        http: int | None = None
        grpc: int | None = None
        metrics = node.metrics_port
        if config.gateway:
            http = free_port(node, node.http_port or _port_of(node, config.http_port))
            grpc = free_port(node, node.grpc_port or _port_of(node, config.grpc_port))
        if metrics is not None or config.metrics_port is not None:
            metrics = free_port(node, metrics or _port_of(node, config.metrics_port or 0))
        found.append(replace(node, http_port=http, grpc_port=grpc, metrics_port=metrics))
    return found


def _config_of(node: LocalNode) -> ServerConfig:
    try:
        return load({}, os.environ, node.config).config
    except ConfigError:
        return ServerConfig()  # the node will end, and say why


class Missing(NamedTuple):
    """Why a node does not serve yet, and how many nodes it does not know yet."""

    text: str
    unseen: int


def missing_at(node: LocalNode, expected: set[int]) -> Missing | None:
    """Why a node does not serve yet. None if it answers, and knows a controller and all `expected` nodes."""
    try:
        connection = Connection(node.kafka, "drmq-up", Deadline(_ANSWER_TIMEOUT_S))
        try:
            if not expected:
                return None
            answer = connection.call(MetadataRequest(topics=[]), MetadataResponse, Deadline(_ANSWER_TIMEOUT_S))
        finally:
            connection.close()
    except ClientError:
        return Missing(f"does not answer at {node.kafka}", len(expected))
    unseen = sorted(expected - {broker.node_id for broker in answer.brokers})
    if unseen:
        text = f"does not know node{'s' if len(unseen) > 1 else ''} {', '.join(map(str, unseen))}"
        return Missing(text, len(unseen))
    return None if answer.controller_id >= 0 else Missing("knows no controller", 0)


def trouble_at(node: LocalNode, running: Collection[int]) -> str | None:
    """Why the cluster, as this node sees it, is not healthy although the `running` nodes run; None if it is healthy."""
    try:
        with Admin(str(node.kafka), timeout_s=_EXAMINED_S) as admin:
            return trouble_among(observe(admin, _ANSWER_TIMEOUT_S), running)
    except ClientError as error:
        return str(error).rstrip(".")


def gateway_answers(node: LocalNode) -> bool | None:
    """Whether a node's gateway is ready; None if nothing listens at its port.

    A node listens before its gateway runs, so that this soon means that there will be none. A gateway that answers HTTP
    has begun to serve gRPC before.
    """
    if node.http is None:
        return None
    connection = http.client.HTTPConnection(node.http.host, node.http.port, timeout=_ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _peer_port(port: int) -> int:
    try:
        return default_peer_port(port)
    except ValueError:
        raise LocalError(
            f"Port {port} is too high: the port for other nodes is {PEER_PORT_DISTANCE} higher and would be invalid. "
            "Choose a lower one with --port."
        ) from None


def _next_ports(host: str, known: Sequence[LocalNode], new: Sequence[int]) -> list[int]:
    """Ports for nodes that join a cluster: they continue the sequence and skip ports that are in use."""
    oldest = min(known, key=lambda node: node.node_id)
    used = {address.port for node in known for address in node.listeners()}
    ports: list[int] = []
    for node_id in new:
        port = oldest.kafka.port + node_id - oldest.node_id
        while {port, _peer_port(port)} & used or not (is_free(host, port) and is_free(host, _peer_port(port))):
            port += 1
        used |= {port, _peer_port(port)}
        ports.append(port)
    return ports
