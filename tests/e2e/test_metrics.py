"""The HTTP responder of a node, as Prometheus and the probes of Kubernetes use it."""

from __future__ import annotations

import re
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from drmq.model.counters import COUNTERS
from drmq.model.metrics_text import exported_name
from support.polling import eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient

_PORT = re.compile(r"/readyz at port (\d+)")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("metrics")
    with BrokerProcess(directory / "data", env={"DRMQ_METRICS_PORT": "0"}) as running:
        yield running


def port_of(broker: BrokerProcess) -> int:
    found = _PORT.search(broker.log_text())
    assert found, broker.log_text()
    return int(found[1])


def get(broker: BrokerProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port_of(broker)}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def raw(broker: BrokerProcess, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port_of(broker)), timeout=60) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


def test_what_happens_is_in_the_metrics(broker: BrokerProcess) -> None:
    with RawClient(broker.bootstrap) as client:
        client.create_topic("orders", 1)
        client.produce("orders", [b"one", b"two", b"three"])
        assert len(client.fetch("orders", 0).records) == 3
    status, text = get(broker, "/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["drmq_messages_produced_total",] == 3
    assert values["drmq_messages_consumed_total",] == 3
    assert values["drmq_log_size_bytes", "orders"] == values["drmq_produced_bytes_total",] > 0
    assert values["drmq_raft_state", "leader"] >= 1
    assert values["drmq_commit_duration_seconds_count",] >= 1
    exported = {exported_name(name).removesuffix("_total") for name in COUNTERS}
    assert {name.removesuffix("_total") for name in families} <= exported


def test_the_space_of_the_disk(broker: BrokerProcess) -> None:
    """An answer is that of the last question: the first scrape only asks."""

    def space() -> dict[str, float]:
        families = text_string_to_metric_families(get(broker, "/metrics")[1])
        return {each.name: each.samples[0].value for each in families if each.name.startswith("drmq_disk_")}

    found = eventually(space)
    usage = shutil.disk_usage(broker.data_dir)
    assert found["drmq_disk_total_bytes"] == usage.total
    assert abs(found["drmq_disk_free_bytes"] - usage.free) < usage.total / 10


def test_probes(broker: BrokerProcess) -> None:
    assert get(broker, "/healthz") == (200, "ok\n")
    assert get(broker, "/readyz?verbose=1") == (200, "ready\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x12garbage", b"400"),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", b"413"),
    ],
)
def test_bad_requests_get_a_clear_answer(broker: BrokerProcess, request_bytes: bytes, status: bytes) -> None:
    answer = raw(broker, request_bytes)
    assert answer.split(b" ", 2)[1] == status, answer
    assert get(broker, "/healthz")[0] == 200
    assert "Traceback" not in broker.log_text()
