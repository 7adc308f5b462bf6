"""What an operator sees of a node and its gateway: log lines that can be found by an id, metrics that always answer."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from drmq.model.counters import DESCRIPTIONS
from drmq.model.metrics_text import exported_name
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient

_HTTP = re.compile(r"serves HTTP at http://127\.0\.0\.1:(\d+)")
_ENVIRONMENT = {
    "DRMQ_GATEWAY": "true",
    "DRMQ_HTTP_PORT": "0",
    "DRMQ_LOG_FORMAT": "json",
    "DRMQ_LOG_LEVEL": "debug",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("observed") / "data", env=_ENVIRONMENT) as running:
        eventually(lambda: bool(_HTTP.search(running.log_text())))
        yield running


def lines(broker: BrokerProcess) -> list[dict[str, Any]]:
    """All log lines so far. The last one may be incomplete."""
    text, _, _ = broker.log_text().rpartition("\n")
    return [json.loads(line) for line in text.split("\n")]


def ask(broker: BrokerProcess, path: str, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Status, request id and body of an answer."""
    port = int(_HTTP.findall(broker.log_text())[-1])
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers["X-Request-Id"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["X-Request-Id"], error.read().decode()


def test_a_request_is_found_by_its_id_in_the_gateway_and_in_the_node(broker: BrokerProcess) -> None:
    status, request_id, body = ask(broker, "/api/v1/topics/nothing", {"X-Request-Id": "order-17"})
    assert (status, request_id, json.loads(body)["request_id"]) == (404, "order-17", "order-17")
    eventually(lambda: any(each.get("request_id") == "order-17" for each in lines(broker)))
    found = [each for each in lines(broker) if "order-17" in json.dumps(each)]
    [gateway] = [each for each in found if each["process"] == "gateway" and "status" in each]
    assert (gateway["status"], gateway["path"], gateway["node_id"]) == (404, "/api/v1/topics/nothing", 1)
    nodes = [each for each in found if each["process"] == "node"]
    assert nodes, "the node's lines about what the gateway asked have the id"
    assert all(each["client_id"] == "drmq-gateway/order-17" for each in nodes)
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+/\d+", each["request_id"]) for each in nodes)


def test_each_request_has_an_id_of_its_own(broker: BrokerProcess) -> None:
    ids = [ask(broker, "/api/v1/cluster")[1] for _ in range(2)]
    ids += [ask(broker, "/healthz", {"X-Request-Id": bad})[1] for bad in ("a b", "x" * 65, '{"')]
    assert len({*ids}) == 5
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in ids)


def test_what_a_client_calls_itself_breaks_no_line(broker: BrokerProcess) -> None:
    """Line ends, terminal codes and invalid UTF-8 in a client id, in a request that is refused."""
    for name in (b'a\n{"level":"info"}', b"\x1b[2J\x00", b"\xff\xfe", b"\xe2\x80\xa8"):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE_S) as connection:
            # Metadata v1 with half of a topic's name.
            frame = struct.pack(">hhih", 3, 1, 1, len(name)) + name + struct.pack(">ih", 1, 500) + b"\n\n"
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            assert connection.recv(1) == b"", "it is closed"
    for each in lines(broker):
        assert {"time", "level", "logger", "message", "process", "node_id"} <= each.keys()


def metrics(broker: BrokerProcess) -> dict[str, dict[tuple[str, ...], float]]:
    status, _, text = ask(broker, "/metrics")
    assert status == 200
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_the_gateway_answers_for_its_node_also_while_that_hangs(broker: BrokerProcess) -> None:
    with RawClient(broker.bootstrap) as client:
        client.create_topic("orders", 1)
        client.produce("orders", [b"one", b"two", b"three"])
    ask(broker, "/api/v1/cluster")
    found = metrics(broker)
    assert found["drmq_gateway_node_up"] == {(): 1}
    assert found["drmq_messages_produced_total"][()] == 3
    assert found["drmq_gateway_requests_total"]["GET /api/v1/cluster", "2xx"] >= 1
    assert found["drmq_gateway_request_duration_seconds_count"]["GET /api/v1/cluster",] >= 1
    known = {exported_name(name) for name in DESCRIPTIONS}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in found} <= known
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        found = metrics(broker)
        assert time.monotonic() - began < PATIENCE_S / 2
        assert found["drmq_gateway_node_up"] == {(): 0}
        assert "drmq_messages_produced_total" not in found
        assert found["drmq_gateway_resident_bytes"][()] > 0
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    eventually(lambda: metrics(broker)["drmq_gateway_node_up"] == {(): 1})


def test_the_lag_of_a_group_is_in_the_metrics(broker: BrokerProcess) -> None:
    from drmq.client import Admin
    from drmq.model import TopicPartition

    with RawClient(broker.bootstrap) as client:
        client.create_topic("late", 1)
        client.produce("late", [b"x"] * 5)
    with Admin(broker.bootstrap) as admin:
        admin.groups.commit("readers", {TopicPartition("late", 0): 2})
    row = ("readers", "late", "classic")
    eventually(lambda: metrics(broker).get("drmq_group_lag_records", {}).get(row) == 3)
    found = metrics(broker)
    assert found["drmq_group_lag_seconds"][row] > 0
    assert found["drmq_group_lag_unknown_partitions"][()] == 0
