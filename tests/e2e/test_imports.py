"""What serves, a node or a gateway, has imported what it needs: without descriptors, an import would fail later."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import grpc
from websockets.sync.client import connect

from drmq import Producer
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch
from drmq.v1 import leases_pb2, log_pb2
from drmq.v1.records_pb2 import NewRecord
from drmq.wire import APIS, ApiKey
from drmq.wire.frames import write_request
from support.api_samples import EVERY_VERSION, TOPIC, message, sample
from support.broker_harness import Harness
from support.grpc_client import GrpcClient
from support.http_cluster import ask
from support.polling import PATIENCE_S, eventually
from support.ports import lasting_port
from support.processes import BrokerProcess
from support.raw_client import RawClient

SERVER = """
import sys
from drmq.transport import Listener
from drmq.server.cli import main

class Noting:
    def find_spec(self, name, path=None, target=None):
        with open({noted!r}, "a") as noted:
            noted.write(name + "\\n")

accept = Listener.start_accepting

async def noting(self):
    await accept(self)
    sys.meta_path.insert(0, Noting())

Listener.start_accepting = noting
main()
"""

GATEWAY = """
import sys
from drmq.gateway import __main__ as gateway
from drmq.gateway import http_server

class Noting:
    def find_spec(self, name, path=None, target=None):
        with open({noted!r}, "a") as noted:
            noted.write(name + "\\n")

class NotingServer(http_server.HttpServer):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        sys.meta_path.insert(0, Noting())

http_server.HttpServer = NotingServer
sys.exit(gateway.main())
"""


class NotingImports(BrokerProcess):
    """A broker that writes down what it imports once it accepts connections."""

    @property
    def noted(self) -> Path:
        return self.data_dir.with_name("imported")

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", SERVER.format(noted=str(self.noted)), *super().command[3:]]


CODECS: tuple[Literal["gzip", "snappy", "lz4", "zstd"], ...] = ("gzip", "snappy", "lz4", "zstd")


def requests() -> Iterator[tuple[ApiKey, int, Any]]:
    """A request of every version of every API, and some more that take other ways."""
    nobody = cast(Harness, SimpleNamespace(broker=SimpleNamespace(catalog=SimpleNamespace(topics={}))))
    for api, version in EVERY_VERSION:
        # A group for each, because a member of the same group would wait for the others.
        yield api, version, sample(nobody, api, TOPIC if version % 2 else "nowhere", f"{api}-{version}")
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        records = [Record(Offset(0), 1_000, None, b"value" * 100)]
        batch = bytes(encode_batch(records, codec=codec))
        partition = message(ApiKey.PRODUCE, "RequestPartition", 0, batch)
        topic = message(ApiKey.PRODUCE, "RequestTopic", "packed", bytes(16), [partition])
        yield ApiKey.PRODUCE, 12, message(ApiKey.PRODUCE, "Request", acks=-1, timeout_ms=1_000, topic_data=[topic])
        wanted = message(ApiKey.LIST_OFFSETS, "RequestPartition", 0, timestamp=500)
        topic = message(ApiKey.LIST_OFFSETS, "RequestTopic", "packed", [wanted])
        yield ApiKey.LIST_OFFSETS, 10, message(ApiKey.LIST_OFFSETS, "Request", topics=[topic])


def test_serving_imports_nothing(tmp_path: Path) -> None:
    broker = NotingImports(tmp_path / "data")
    with broker:
        with RawClient(broker.bootstrap) as client:
            for topic in (TOPIC, "packed"):
                client.create_topic(topic)
        served = set()
        for number, (api, version, request) in enumerate(requests()):
            # A connection for each, because some of them end theirs.
            with socket.create_connection(("127.0.0.1", broker.port), 60) as connection:
                connection.settimeout(60)
                connection.sendall(write_request(api, version, number, "test", request))
                if connection.recv(4):
                    served.add(api)
            assert broker.running, (api, version, broker.log_text())
        assert served == set(APIS)
        assert broker.terminate() == 0
    imported = broker.noted.read_text().split() if broker.noted.exists() else []
    assert imported == []


class NotingGateway:
    """A gateway that writes down what it imports once it listens."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.noted, self.log = directory / "imported", directory / "gateway.log"
        self.http_port, self.grpc_port = lasting_port(), lasting_port()
        ports = ["--http-port", str(self.http_port), "--grpc-port", str(self.grpc_port)]
        program = GATEWAY.format(noted=str(self.noted))
        self.command = [sys.executable, "-c", program, "--bootstrap", bootstrap, *ports]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self.log.open("wb") as output:
            process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            eventually(self._is_ready, what="the gateway")
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM), self.log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/readyz", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ok(self, path: str, body: Any = None, method: str | None = None) -> Any:
        status, answer = ask(self.http_port, path, body, method)
        assert status in (200, 201), answer
        return answer


def read_everything(gateway: NotingGateway) -> None:
    """Every operation of the API that changes nothing, and pages."""
    names = {"topic": "jobs", "group": "crew", "partition": 0, "node_id": 1}
    paths = gateway.ok("/openapi.json")["paths"]
    read = [path for path, operations in paths.items() if "get" in operations]
    assert len(read) > 15, read
    query = urllib.parse.urlencode({"topic": "jobs", "order": "newest", "pattern": "o.e", "key": "k", "from": "@-1h"})
    for path in read:
        for more in ("", f"?{query}"):
            ask(gateway.http_port, path.format(**names).removeprefix("/api/v1") + more)
    for path in ("/", "/metrics", "/healthz", "/nowhere"):
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{gateway.http_port}{path}", timeout=PATIENCE_S).close()


def watch_everything(gateway: NotingGateway) -> None:
    """Every stream of a page."""
    streams = {"overview", "topics", "groups", "raft", "tail:jobs"}
    address = f"ws://127.0.0.1:{gateway.http_port}/api/v1/live"
    with connect(address, max_size=None) as page:
        for stream in streams:
            page.send(json.dumps({"type": "subscribe", "stream": stream}))
        seen: set[str] = set()
        while not seen >= streams:
            message = json.loads(page.recv(PATIENCE_S))
            seen.add(message.get("stream", ""))
            gateway.ok("/topics/jobs/records", {"records": [{"value": "for the tail"}]})


def work_over_http(gateway: NotingGateway) -> None:
    """Produce, work by lease, and refusals."""
    gateway.ok("/topics", {"name": "jobs", "partitions": 2})
    gateway.ok("/topics/jobs", {"partitions": 3}, "PATCH")
    gateway.ok("/groups/crew/settings", {"set": {"share.auto.offset.reset": "earliest"}}, "PATCH")
    values = [("one", "text"), ({"n": 2}, "json"), ("AAAA", "base64"), ("four", "text"), ("five", "text")]
    records = [{"key": "k", "value": value, "value_format": form} for value, form in values]
    gateway.ok("/topics/jobs/records", {"records": records})
    found: list[str] = []

    def poll() -> int:
        messages = gateway.ok("/groups/crew/poll", {"topics": ["jobs"], "max": 5, "wait_ms": 1_000})["messages"]
        found.extend(each["ack_id"] for each in messages)
        return len(found)

    eventually(poll, lambda count: count >= 5)
    for outcome, ack_id in zip(("ack", "nack", "extend", "give_back", "reject"), found, strict=False):
        gateway.ok(f"/groups/crew/{outcome}", {"ack_ids": [ack_id]})
    gateway.ok("/groups/readers/reset", {"to": "earliest", "topics": ["jobs"]})
    for body in (
        {"records": [{"value": "x", "partition": 99}]},
        b"not JSON",
        {"records": [{"value": "x" * 2_000_000}]},
    ):
        assert ask(gateway.http_port, "/topics/jobs/records", body)[0] >= 400
    assert ask(gateway.http_port, "/topics", {"name": "jobs"})[0] == 409


def read_packed(gateway: NotingGateway, bootstrap: str) -> None:
    """Records that others have compressed, with each codec."""
    for codec in CODECS:
        topic = f"packed-{codec}"
        gateway.ok("/topics", {"name": topic})
        with Producer(bootstrap, compression=codec) as producer:
            producer.send(topic, b"value" * 100)
        assert gateway.ok(f"/topics/{topic}/records?order=oldest")["items"]


def work_over_grpc(gateway: NotingGateway) -> None:
    """Single calls and streams of every kind, and a refusal."""
    with GrpcClient(f"127.0.0.1:{gateway.grpc_port}") as client:
        client.append("jobs", [b"six"], partition=0)
        client.ask(client.log.Fetch, log_pb2.FetchRequest(topic="jobs", partition=0))
        fetched = client.log.FetchStream(log_pb2.FetchStreamRequest(topic="jobs", until_end=True), wait_for_ready=True)
        assert list(fetched)
        request = log_pb2.AppendStreamRequest(topic="jobs", records=[NewRecord(value=b"seven")])
        assert list(client.log.AppendStream(iter([request]), wait_for_ready=True))
        stream = client.lease("others", "jobs", credits=2)
        stream.settle(leases_pb2.OUTCOME_ACK, *stream.deliveries(2))
        stream.call.cancel()
        client.ask(client.leases.Poll, leases_pb2.PollRequest(group="crew", topics=["jobs"], max_messages=1))
        with contextlib.suppress(grpc.RpcError):
            client.ask(client.log.Fetch, log_pb2.FetchRequest(topic="nowhere"))


def test_a_gateway_that_listens_imports_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        gateway = NotingGateway(broker.bootstrap, tmp_path)
        with gateway.running():
            work_over_http(gateway)
            read_packed(gateway, broker.bootstrap)
            work_over_grpc(gateway)
            read_everything(gateway)
            watch_everything(gateway)
    imported = gateway.noted.read_text().split() if gateway.noted.exists() else []
    assert imported == []
