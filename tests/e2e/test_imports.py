"""A node has imported what it needs before it serves: without descriptors, an import would fail later."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch
from drmq.wire import APIS, ApiKey
from drmq.wire.frames import write_request
from support.api_samples import EVERY_VERSION, TOPIC, message, sample
from support.broker_harness import Harness
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


class NotingImports(BrokerProcess):
    """A broker that writes down what it imports once it accepts connections."""

    @property
    def noted(self) -> Path:
        return self.data_dir.with_name("imported")

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", SERVER.format(noted=str(self.noted)), *super().command[3:]]


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
