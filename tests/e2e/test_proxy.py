"""`drmq proxy`: a gateway without a node, which goes on as long as the cluster does."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.cluster import ClusterProcesses
from support.command_line import Cli
from support.grpc_client import GrpcClient
from support.http import ask
from support.polling import PATIENCE_S, eventually

_ADDRESS = re.compile(r"Serves HTTP at (http://127\.0\.0\.1:\d+) ")

_GRPC_ADDRESS = re.compile(r"Serves gRPC at (127\.0\.0\.1:\d+)")


@contextmanager
def proxy(bootstrap: str, log: Path) -> Iterator[str]:
    """A proxy of this cluster; the address where it answers."""
    with log.open("wb") as output:
        command = [sys.executable, "-m", "drmq", "proxy", "-b", bootstrap, "--http-port", "0", "--grpc-port", "0"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: bool(_ADDRESS.search(log.read_text())), what="the address")
        [address] = _ADDRESS.findall(log.read_text())
        yield address
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) in (0, 130)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()


def is_ready(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/readyz", timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        with error:
            return False


def test_it_outlives_the_only_node_that_it_was_given(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path / "cluster") as cluster,
        proxy(cluster[1].bootstrap, tmp_path / "proxy.log") as base,
    ):
        cluster.create_topic("orders", 3)
        eventually(lambda: len(ask(base, "/api/v1/brokers")[1]["items"]) == 3, what="all nodes are known")
        cluster[1].kill()
        # Nothing was sent before, so the producer begins now: it must not begin with the dead node alone.
        records = [{"value": str(number), "partition": number % 3} for number in range(30)]
        status, sent = ask(base, "/api/v1/topics/orders/records", {"records": records})
        assert status == 200, sent
        # More calls at once than the pool had threads: some begin after the death of the node.
        for _ in range(12):
            status, page = ask(base, "/api/v1/topics/orders/records?limit=100")
            assert (status, len(page["items"])) == (200, 30), page
        reset = {"to": "earliest", "topics": ["orders"], "dry_run": False}
        status, moved = ask(base, "/api/v1/groups/billing/reset", reset)
        assert status == 200, moved
        # What is listed was perhaps found just before, and a dead node is noticed after a while.
        eventually(
            lambda: [(each["group_id"], each["lag"]) for each in ask(base, "/api/v1/groups")[1]["items"]],
            lambda found: found == [("billing", 30)],
        )
        eventually(
            lambda: ask(base, "/api/v1/cluster")[1],
            lambda state: (state["status"], state["brokers_up"]) == ("degraded", 2),
        )
        ask(base, "/api/v1/groups/scripts/settings", {"set": {"share.auto.offset.reset": "earliest"}}, "PATCH")
        status, polled = ask(base, "/api/v1/groups/scripts/poll", {"topics": ["orders"], "max": 1, "wait_ms": 30_000})
        assert (status, len(polled["messages"])) == (200, 1), polled
        status, settled = ask(base, "/api/v1/groups/scripts/ack", {"ack_ids": [polled["messages"][0]["ack_id"]]})
        assert status == 200, settled
        assert settled["results"][0]["ok"], settled
        [grpc] = _GRPC_ADDRESS.findall((tmp_path / "proxy.log").read_text())
        with GrpcClient(grpc) as client:
            stream = client.lease("workers", "orders")
            assert len({each.record.value for each in stream.deliveries(30)}) == 30
            stream.end()
        cluster[1].start()
        cluster.wait_healthy()
        cluster[2].kill()
        assert ask(base, "/api/v1/topics/orders/records", {"records": records})[0] == 200


def test_it_waits_for_a_cluster_that_is_not_there_yet(tmp_path: Path) -> None:
    network_free = ClusterProcesses(tmp_path / "cluster", nodes=1)
    with proxy(network_free[1].bootstrap, tmp_path / "proxy.log") as base:
        status, problem = ask(base, "/api/v1/topics")
        assert (status, problem["retriable"]) == (503, True), problem
        _, state = ask(base, "/api/v1/cluster")
        assert state["status"] == "down"
        assert not is_ready(base)
        with network_free:
            eventually(lambda: ask(base, "/api/v1/topics")[0] == 200)
            eventually(lambda: is_ready(base))
        eventually(lambda: not is_ready(base), what="it says that no node answers any more")


def test_wrong_addresses_are_refused() -> None:
    cli = Cli("127.0.0.1:1")
    assert "no valid port" in cli.refused(64, "proxy", "-b", "here:there")
    assert "does not have that address" in cli.refused(1, "proxy", "--host", "192.0.2.1", "--http-port", "8099")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "--http-port" in cli.refused(1, "proxy", "--http-port", port)
