"""A cluster whose nodes have gateways, and a client for their HTTP API."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from drmq.client.configs import ResourceType
from support.cluster import ClusterProcesses
from support.polling import PATIENCE_S, eventually

HTTP = re.compile(r"serves HTTP at http://127\.0\.0\.1:(\d+)")
ENVIRONMENT = {"DRMQ_GATEWAY": "true", "DRMQ_HTTP_PORT": "0"}


class HttpCluster(ClusterProcesses):
    """Nodes with gateways. `ask` sends a request to the gateway of a node."""

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        super().__init__(directory, nodes, env=ENVIRONMENT)

    def http_port(self, node_id: int) -> int:
        """The port of a gateway; it stays the same when the gateway is started again."""
        return int(eventually(lambda: HTTP.findall(self[node_id].log_text()))[-1])

    def ask(
        self,
        path: str,
        body: Any = None,
        method: str | None = None,
        *,
        node: int = 1,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """The status and the decoded answer, which is a problem for errors."""
        return ask(self.http_port(node), path, body, method, headers)

    def ok(self, path: str, body: Any = None, method: str | None = None, *, node: int = 1) -> Any:
        """The answer to a request that succeeds."""
        status, answer = self.ask(path, body, method, node=node)
        assert status in (200, 201), answer
        return answer

    def gateway_of(self, node_id: int) -> psutil.Process:
        [child] = psutil.Process(self[node_id].pid).children()
        return child

    def allow_short_leases(self) -> None:
        """Let groups have leases of a second."""
        with self.admin() as admin:
            limits = {"group.share.min.record.lock.duration.ms": "1000"}
            admin.configs._alter(ResourceType.BROKER, "", limits, [], False)


def ask(
    port: int, path: str, body: Any = None, method: str | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Send a request to a gateway on this machine."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1{path}",
        data,
        {"Content-Type": "application/json", **(headers or {})},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            status, kind, content = error.code, error.headers["Content-Type"], error.read()
    assert kind == "application/problem+json", content
    return status, json.loads(content)


def send_only(port: int, path: str, body: Any) -> socket.socket:
    """Send a request, and leave its answer to the caller, who closes the socket."""
    data = json.dumps(body).encode()
    head = (
        f"POST /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(head.encode() + data)
    return connection
