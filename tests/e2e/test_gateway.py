"""The gateway beside a node: a real process that answers HTTP, dies and comes back, and never touches the node."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from support import http
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient

_HTTP = re.compile(r"serves HTTP at http://127\.0\.0\.1:(\d+)")
_ENVIRONMENT = {"DRMQ_GATEWAY": "true", "DRMQ_HTTP_PORT": "0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("gateway") / "data", env=_ENVIRONMENT) as running:
        eventually(lambda: bool(_HTTP.search(running.log_text())))
        yield running


def port_of(broker: BrokerProcess) -> int:
    return int(_HTTP.findall(broker.log_text())[-1])


def ask(broker: BrokerProcess, path: str, body: Any = None, method: str | None = None) -> tuple[int, Any]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port_of(broker)}{path}", data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            status, kind, content = error.code, error.headers["Content-Type"], error.read()
    assert kind == "application/problem+json", content
    return status, json.loads(content)


def child_of(broker: BrokerProcess) -> psutil.Process:
    [child] = psutil.Process(broker.pid).children()
    return child


def test_a_topic_from_its_creation_to_its_end(broker: BrokerProcess) -> None:
    status, topic = ask(
        broker, "/api/v1/topics", {"name": "orders", "partitions": 2, "settings": {"retention.ms": "1"}}
    )
    assert (status, topic["partitions"]) == (201, 2)
    assert ask(broker, "/api/v1/topics", {"name": "orders"})[0] == 409
    with RawClient(broker.bootstrap) as client:
        client.produce("orders", [b"one", b"two"])
    _, listed = ask(broker, "/api/v1/topics")
    assert [(each["name"], each["records"]) for each in listed["items"]] == [("orders", 2)]
    assert ask(broker, "/api/v1/topics/orders", {"partitions": 3}, "PATCH")[1]["partitions"] == 3
    _, partitions = ask(broker, "/api/v1/topics/orders/partitions")
    assert [each["end_offset"] for each in partitions["items"]] == [2, 0, 0]
    _, settings = ask(broker, "/api/v1/topics/orders/settings", {"unset": ["retention.ms"]}, "PATCH")
    assert {each["name"]: each["is_default"] for each in settings["items"]}["retention.ms"]
    _, raft = ask(broker, "/api/v1/raft?topic=orders")
    assert [(each["partition"], each["leader"]) for each in raft["items"]] == [(0, 1), (1, 1), (2, 1)]
    assert ask(broker, "/api/v1/topics/orders", method="DELETE") == (200, {"done": True})
    status, problem = ask(broker, "/api/v1/topics/orders")
    assert (status, problem["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert problem["advice"]


def pages(broker: BrokerProcess, query: str) -> list[tuple[int, int]]:
    """The places of all records that a query finds, page by page."""
    found: list[tuple[int, int]] = []
    cursor = ""
    while True:
        _, page = ask(broker, f"/api/v1/topics/flights/records?limit=7&{query}{cursor}")
        found += [(each["partition"], each["offset"]) for each in page["items"]]
        if page["next"] is None:
            assert page["done"]
            return found
        cursor = f"&cursor={page['next']}"


def test_records_are_sent_and_found_again(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/topics", {"name": "flights", "partitions": 3})
    records = [
        {"key": f"k{number}", "value": {"n": number}, "value_format": "json", "partition": number % 3}
        for number in range(40)
    ]
    status, sent = ask(broker, "/api/v1/topics/flights/records", {"records": records})
    assert status == 200
    places = sorted((each["partition"], each["offset"]) for each in sent["results"])
    assert places == sorted((number % 3, number // 3) for number in range(40))
    assert sorted(pages(broker, "order=newest")) == places, "each exactly once"
    assert sorted(pages(broker, "order=oldest")) == places
    assert pages(broker, "order=oldest&partition=1") == [(1, offset) for offset in range(13)]
    assert pages(broker, "order=newest&partition=1") == [(1, offset) for offset in reversed(range(13))]
    assert pages(broker, "order=oldest&partition=2&from=-4") == [(2, offset) for offset in range(9, 13)]
    assert pages(broker, "order=oldest&key=k17") == [(2, 5)]
    assert pages(broker, "text=%22n%22:17}") == [(2, 5)]
    assert sorted(pages(broker, "pattern=%22n%22:3[0-2]")) == [(0, 10), (1, 10), (2, 10)]
    assert ask(broker, "/api/v1/topics/flights/records?pattern=(")[0] == 400
    assert ask(broker, "/api/v1/topics/flights/records?partition=9")[0] == 404
    assert ask(broker, "/api/v1/topics/flights/records?cursor=bad")[0] == 400
    assert ask(broker, "/api/v1/topics/flights/records?from=noon")[0] == 400


def test_a_repeat_of_a_request_that_failed_sends_what_is_not_stored(broker: BrokerProcess) -> None:
    assert ask(broker, "/api/v1/topics", {"name": "repeated", "partitions": 1})[0] in (200, 201)
    path, values = "/api/v1/topics/repeated/records", ["a", "x" * 2_000_000, "b"]
    body = {"records": [{"value": value} for value in values]}
    base = f"http://127.0.0.1:{port_of(broker)}"
    for _ in range(3):
        status, problem = http.ask(base, path, body, headers={"Idempotency-Key": "order-1"})
        assert (status, problem["code"]) == (413, "MESSAGE_TOO_LARGE")
        assert "2 of 3 records were stored" in problem["detail"]
    assert [record["value"] for record in ask(broker, f"{path}?order=oldest")[1]["items"]] == ["a", "b"]


def test_hostile_records_are_shown_as_what_they_are(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/topics", {"name": "hostile"})
    deep = "[" * 20_000 + "]" * 20_000
    values: list[tuple[Any, str]] = [
        ("<script>alert(1)</script>", "text"),
        ("/w==", "base64"),
        ("x" * 300_000, "text"),
        (deep, "text"),
        (None, "text"),
    ]
    headers = [{"name": "<b>", "value": "1"}]
    records = [{"value": value, "value_format": form, "headers": headers} for value, form in values]
    assert ask(broker, "/api/v1/topics/hostile/records", {"records": records})[0] == 200
    _, page = ask(broker, "/api/v1/topics/hostile/records?order=oldest")
    shown = [(each["value_format"], each["is_truncated"]) for each in page["items"]]
    assert [form for form, _ in shown[:3]] == ["text", "base64", "text"]
    assert shown[3][0] in ("text", "json")
    assert shown[4][0] == "null"
    assert [cut for _, cut in shown] == [False, False, True, False, False]
    assert page["items"][0]["value"] == "<script>alert(1)</script>"
    assert len(page["items"][2]["value"]) == 65_536
    for bad in ({"value": 1}, {"value": "x", "value_format": "base64"}, {"value": "x", "partition": 99}):
        assert ask(broker, "/api/v1/topics/hostile/records", {"records": [bad]})[0] in (400, 404), bad


def test_the_cluster_and_its_nodes(broker: BrokerProcess) -> None:
    _, cluster = ask(broker, "/api/v1/cluster")
    assert (cluster["status"], cluster["brokers_up"], cluster["controller_id"]) == ("healthy", 1, 1)
    eventually(lambda: ask(broker, "/api/v1/cluster")[1]["gateways"])
    _, nodes = ask(broker, "/api/v1/brokers")
    assert [(each["node_id"], each["is_up"]) for each in nodes["items"]] == [(1, True)]
    _, node = ask(broker, "/api/v1/brokers/1")
    assert any(each["name"] == "drmq_messages_produced_total" for each in node["counters"])
    assert ask(broker, "/api/v1/brokers/9")[0] == 404
    _, events = ask(broker, "/api/v1/events?limit=1000")
    assert any("is the controller" in each["text"] for each in events["items"])


def test_a_group_is_moved(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/topics", {"name": "moved", "partitions": 2})
    records = [{"value": str(number), "partition": number % 2, "timestamp_ms": 1000 + number} for number in range(8)]
    ask(broker, "/api/v1/topics/moved/records", {"records": records})

    def reset(to: str, **more: Any) -> tuple[int, Any]:
        status, answer = ask(broker, "/api/v1/groups/movers/reset", {"to": to, **more})
        return status, [(each["before"], each["after"]) for each in answer["items"]] if status == 200 else answer

    assert reset("earliest")[0] == 400, "it has read nothing, so the topic must be named"
    assert reset("latest", topics=["moved"]) == (200, [(None, 4), (None, 4)])
    assert reset("-1", dry_run=True) == (200, [(4, 3), (4, 3)])
    assert reset("@1003") == (200, [(4, 2), (4, 1)]), "the dry run moved nothing"
    assert reset("99") == (200, [(2, 4), (1, 4)]), "not beyond the end"
    assert reset("noon")[0] == 400
    _, found = ask(broker, "/api/v1/groups/movers")
    assert [each["committed"] for each in found["partitions"]] == [4, 4]
    assert found["group"]["lag"] == 0


def test_the_past_for_charts(broker: BrokerProcess) -> None:
    def history() -> Any:
        return ask(broker, "/api/v1/metrics/history?seconds=60")[1]

    eventually(lambda: "produce_rate" in history()["series"])
    found = history()
    assert all(len(values) == len(found["times_ms"]) for values in found["series"].values())
    assert found["times_ms"] == sorted(found["times_ms"])


def test_only_pages_of_the_clusters_gateways_may_read_answers(broker: BrokerProcess) -> None:
    own = f"http://127.0.0.1:{port_of(broker)}"
    eventually(lambda: ask(broker, "/api/v1/cluster")[1]["gateways"])

    def permission(origin: str, method: str) -> str:
        request = urllib.request.Request(f"{own}/api/v1/topics", headers={"Origin": origin}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return str(answer.headers.get("Access-Control-Allow-Origin", ""))
        except urllib.error.HTTPError as error:
            with error:
                return str(error.headers.get("Access-Control-Allow-Origin", ""))

    for method in ("GET", "OPTIONS"):
        assert permission(own, method) == own
        assert permission("http://evil.example", method) == ""
        assert permission("null", method) == ""


def test_the_document_describes_what_is_served(broker: BrokerProcess) -> None:
    _, document = ask(broker, "/api/v1/openapi.json")
    assert document["openapi"] == "3.1.0"
    for path, operations in document["paths"].items():
        if "get" in operations and "{" not in path:
            assert ask(broker, path)[0] == 200, path


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/nothing", None, 404),
        ("/api/v2/cluster", None, 404),
        ("/api/v1/cluster?verbose=1", None, 400),
        ("/api/v1/brokers/one", None, 400),
        ("/api/v1/brokers/-1", None, 400),
        ("/api/v1/events?limit=0", None, 400),
        ("/api/v1/events?limit=1&limit=2", None, 400),
        ("/api/v1/topics/..%2f..%2fetc", None, 404),
        ("/api/v1/topics", b"{", 400),
        ("/api/v1/topics", b"\xff\xfe", 400),
        ("/api/v1/topics", b"[" * 100_000, 400),
        ("/api/v1/topics", {"name": "a", "partition": 2}, 400),
        ("/api/v1/topics", {"name": "", "partitions": 2}, 400),
        ("/api/v1/topics", {"name": "a b"}, 400),
        ("/api/v1/topics", {"name": "a", "partitions": 0}, 400),
        ("/api/v1/topics", b'{"name": "' + b"a" * 9_000_000 + b'"}', 413),
    ],
)
def test_bad_requests_get_a_problem(broker: BrokerProcess, path: str, body: Any, status: int) -> None:
    found, problem = ask(broker, path, body)
    assert (found, problem["status"]) == (status, status), problem
    assert problem["detail"]
    assert "Traceback" not in broker.log_text()


def test_files_outside_the_dashboard_are_not_served(broker: BrokerProcess) -> None:
    for path in ("/../__main__.py", "/%2e%2e/app.py", "/..%2fapp.py", "/assets/../../app.py"):
        with socket.create_connection(("127.0.0.1", port_of(broker)), timeout=PATIENCE_S) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while part := connection.recv(65_536):
                answer += part
        assert b"import" not in answer, path
        assert b"content-security-policy" in answer


def test_live_data(broker: BrokerProcess) -> None:
    address = f"ws://127.0.0.1:{port_of(broker)}/api/v1/live"
    with connect(address) as socket_:
        socket_.send("nonsense")
        assert json.loads(socket_.recv(PATIENCE_S))["type"] == "error"
        socket_.send(json.dumps({"type": "subscribe", "stream": "nothing"}))
        assert "overview" in json.loads(socket_.recv(PATIENCE_S))["detail"]
        socket_.send(json.dumps({"type": "subscribe", "stream": "overview"}))
        first, second = (json.loads(socket_.recv(PATIENCE_S)) for _ in range(2))
        assert first["type"] == second["type"] == "snapshot"
        assert second["sequence"] > first["sequence"]
        assert second["data"]["cluster"]["status"] == "healthy"
        assert second["data"]["brokers"][0]["is_up"]
        times = [each["time_ms"] for each in second["data"]["events"]]
        assert times
        assert times == sorted(times, reverse=True)
        socket_.send("x" * 100_000)
        with pytest.raises(ConnectionClosed):
            list(socket_)
    with pytest.raises(InvalidStatus):
        connect(address, origin=Origin("http://evil.example"))
    with connect(address, origin=Origin(f"http://127.0.0.1:{port_of(broker)}")):
        pass


def test_a_killed_gateway_comes_back_and_clients_of_the_node_notice_nothing(broker: BrokerProcess) -> None:
    with RawClient(broker.bootstrap) as client:
        client.create_topic("kept", 1)
        client.produce("kept", [b"before"])
        child = child_of(broker)
        child.kill()
        assert client.produce("kept", [b"after"]) == 1, "the same connection"
    assert ask(broker, "/api/v1/cluster")[0] == 200, "the connection waited for the next gateway"
    assert child_of(broker).pid != child.pid


def test_the_gateway_ends_with_its_node(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", env=_ENVIRONMENT) as running:
        eventually(lambda: bool(psutil.Process(running.pid).children()))
        child = child_of(running)
        os.kill(running.pid, signal.SIGKILL)
        eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_poll_that_waits_is_told_when_the_node_ends(tmp_path: Path, how: signal.Signals) -> None:
    """The gateway does not wait for it: its ports must be free when the node is started again."""
    with BrokerProcess(tmp_path / "data", env=_ENVIRONMENT) as running:
        eventually(lambda: bool(_HTTP.search(running.log_text())))
        assert ask(running, "/api/v1/topics", {"name": "work", "partitions": 1})[0] in (200, 201)
        wanted = {"topics": ["work"], "wait_ms": 60_000}
        with ThreadPoolExecutor(1) as pool:
            polling = pool.submit(ask, running, "/api/v1/groups/crew/poll", wanted)
            eventually(lambda: ask(running, "/api/v1/groups/crew")[1].get("members"))
            os.kill(running.pid, how)
            status, problem = polling.result()
        assert (status, problem["retriable"]) == (503, True)
        assert "Cancel" not in running.log_text(), "nothing had to be cancelled"


def test_a_port_in_use_costs_the_gateway_only(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment = {**_ENVIRONMENT, "DRMQ_HTTP_PORT": str(taken.getsockname()[1])}
        with BrokerProcess(tmp_path / "data", env=environment) as running, RawClient(running.bootstrap) as client:
            client.create_topic("kept", 1)
            eventually(lambda: "no gateway" in running.log_text())
            assert not psutil.Process(running.pid).children()
