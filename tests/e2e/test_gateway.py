"""The gateway beside a node: a real process that answers HTTP, dies and comes back, and never touches the node."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import threading
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
    assert (status, problem["code"], problem["kafka_code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert ask(broker, "/api/v1/nothing")[1]["code"] == "NOT_FOUND"
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
    for bad in (
        {"value": 1},
        {"value": "x", "value_format": "base64"},
        {"value": "x", "partition": 99},
        {"value": "x", "headers": [{"name": "a\0b"}]},
    ):
        assert ask(broker, "/api/v1/topics/hostile/records", {"records": [bad]})[0] in (400, 404), bad
    assert ask(broker, "/api/v1/topics/a%00b/records", {"records": [{"value": "x"}]})[0] == 400


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
    assert all(0 <= cores <= 64 for cores in found["series"]["cpu_cores"] if cores is not None)
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


def test_a_name_that_leads_to_this_machine_is_no_permission(broker: BrokerProcess) -> None:
    """A web site that gives its own name the address 127.0.0.1 is the same origin to a browser."""
    port = port_of(broker)

    def status(host: str, path: str = "/api/v1/cluster", **headers: str) -> int | str:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host, **headers})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return str(json.loads(error.read())["code"])

    for own in (f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST", f"[::1]:{port}", socket.gethostname()):
        assert status(own) == 200, own
    for other in (f"evil.example:{port}", "evil.example", "localhost.evil.example", "", "a b"):
        for path in ("/", "/metrics", "/api/v1/topics"):
            assert status(other, path) == "UNKNOWN_HOST_NAME", (other, path)
    assert status("evil.example", Origin="http://evil.example") == "UNKNOWN_HOST_NAME"
    name = f"evil.example:{port}"
    with pytest.raises(InvalidStatus), socket.create_connection(("127.0.0.1", port)) as connection:
        connect(f"ws://{name}/api/v1/live", sock=connection, origin=Origin(f"http://{name}"))


def test_the_name_of_a_reverse_proxy(tmp_path: Path) -> None:
    environment = {**_ENVIRONMENT, "DRMQ_HTTP_NAMES": "drmq.example, queue.example"}
    with BrokerProcess(tmp_path / "data", env=environment) as running:
        eventually(lambda: bool(_HTTP.search(running.log_text())))
        address = f"http://127.0.0.1:{port_of(running)}/healthz"
        request = urllib.request.Request(address, headers={"Host": "QUEUE.example"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.status == 200


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
        ("/api/v1/topics/%00", None, 404),
        ("/assets/%00", None, 404),
        ("/assets/" + "a" * 5000, None, 404),
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
    assert problem["code"], "programs decide by it, not by the words"
    assert "Traceback" not in broker.log_text()


def exchange(broker: BrokerProcess, request: bytes) -> tuple[int, bytes]:
    """Send bytes as they are. The status, and the whole answer with its headers."""
    with socket.create_connection(("127.0.0.1", port_of(broker)), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return int(answer.split(b" ", 2)[1]), answer


def get(broker: BrokerProcess, path: str, *headers: str) -> tuple[int, bytes]:
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    return exchange(broker, "\r\n".join([*lines, "", ""]).encode())


def test_files_outside_the_dashboard_are_not_served(broker: BrokerProcess) -> None:
    for path in ("/../__main__.py", "/%2e%2e/app.py", "/..%2fapp.py", "/assets/../../app.py"):
        _, answer = get(broker, path)
        assert b"import" not in answer, path
        assert b"content-security-policy" in answer


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/a%00b", 404),
        ("/assets/%00", 404),
        ("/assets/" + "a" * 5_000, 404),
        ("/" + "a/" * 5_000, 404),
        ("/api/v1/../../metrics/x", 404),
        ("/api/v1/%2e%2e/%2e%2e/x", 404),
        ("/api/v1%2Ftopics", 404),
        ("/api/v1//topics", 404),
        ("/api/v1/topics/", 404),
        ("/api/v1/topics/%00", 404),
        ("/api/v1/topics/%ff%fe", 404),
        ("/api/v1/topics/..", 404),
        ("/api/v1/topics/a%2Fb", 404),
        ("/api/v1/topics/a%5Cb", 404),
        ("/api/v1/topics/" + "a" * 250, 400),
        ("/api/v1/groups/" + "a" * 1_001, 400),
        ("/api/v1/topics/x%2Frecords", 404),
        ("/api/v1/groups/x/ack", 405),
    ],
)
def test_path_tricks_get_a_problem(broker: BrokerProcess, path: str, status: int) -> None:
    found, answer = get(broker, path)
    assert found == status, answer
    assert b"content-type: application/problem+json" in answer
    assert b"Traceback" not in broker.log_text().encode()


def test_a_name_with_an_encoded_slash_is_one_name(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/topics", {"name": "slashes"})
    path = "/api/v1/groups/north%2Fleases"
    assert ask(broker, "/api/v1/groups/north/leases")[0] == 404
    assert ask(broker, f"{path}/reset", {"to": "earliest", "topics": ["slashes"]})[0] == 200
    assert ask(broker, path)[1]["group"]["group_id"] == "north/leases"
    assert ask(broker, path, method="DELETE") == (200, {"done": True})
    assert ask(broker, path)[1]["detail"] == "Group `north/leases` does not exist"


def test_a_method_that_a_path_does_not_have_is_answered_with_all_that_it_has(broker: BrokerProcess) -> None:
    status, answer = exchange(broker, b"PUT /api/v1/topics/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert status == 405
    [allowed] = re.findall(rb"\r\nallow: ([^\r]+)", answer)
    assert set(allowed.split(b", ")) == {b"DELETE", b"GET", b"HEAD", b"PATCH"}


@pytest.mark.parametrize(
    ("lines", "part", "count", "status"),
    [
        ((b"Transfer-Encoding: chunked",), b"100000\r\n" + b"a" * 0x100000 + b"\r\n", 30, 413),
        ((b"Content-Length: 30000000",), b"a" * 1_000_000, 30, 413),
        ((b"Content-Length: 30000000", b"Content-Type: text/plain"), b"a" * 1_000_000, 30, 415),
        ((b"Content-Length: 30000000", b"Origin: http://evil.example"), b"a" * 1_000_000, 30, 403),
        ((b"Content-Length: 30000000", b"Expect: 100-continue"), b"", 1, 413),
    ],
    ids=["no length", "length", "media type", "origin", "expect"],
)
def test_the_refusal_of_a_large_body_reaches_the_client(
    broker: BrokerProcess, lines: tuple[bytes, ...], part: bytes, count: int, status: int
) -> None:
    """It is not lost in the reset of a connection on which the client still sends."""
    head = b"\r\n".join([b"POST /api/v1/topics HTTP/1.1", b"Host: localhost", b"Connection: close", *lines, b"", b""])
    end = b"0\r\n\r\n" if b"chunked" in head else b""
    found, answer = exchange(broker, head + part * count + end)
    assert found == status
    assert b"content-type: application/problem+json" in answer


def test_pages_of_other_origins_change_nothing(broker: BrokerProcess) -> None:
    own = f"127.0.0.1:{port_of(broker)}"
    for origin in (
        "http://evil.example",
        "null",
        "http://[",
        "http://[::1",
        "file://",
        f"ftp://{own}",
        f"http://{own}.x",
    ):
        for method in ("POST", "PATCH", "DELETE"):
            lines = (f"{method} /api/v1/topics/none HTTP/1.1", f"Host: {own}", f"Origin: {origin}", "Connection: close")
            status, answer = exchange(broker, "\r\n".join([*lines, "", ""]).encode())
            assert status == 403, (origin, method)
            assert b"may not change anything here" in answer
        status, answer = get(broker, "/api/v1/cluster", f"Origin: {origin}")
        assert status == 200
        assert b"access-control-allow-origin" not in answer, "the browser does not show it to the page"
        if origin != "null":
            with pytest.raises(InvalidStatus):
                connect(f"ws://{own}/api/v1/live", origin=Origin(origin))


def test_values_at_the_edges_get_a_problem(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/topics", {"name": "edges"})
    path = "/api/v1/topics/edges/records"
    assert ask(broker, path, {"records": [{"value": "x"}]})[0] == 200
    for pattern in ("(", "a{99999999999999}", "(" * 3_000 + ")" * 3_000):
        status, problem = ask(broker, f"{path}?pattern={pattern}")
        assert (status, "regular expression" in problem["detail"]) == (400, True), problem
    for at in ({"0": 2**63}, {"0": 2**70}, {"0": -1}, {"-1": 0}, {"0": "x"}, {}, {"7": 0}, "[" * 20_000):
        cursor = base64.urlsafe_b64encode(json.dumps({"order": "oldest", "at": at}).encode()).decode()
        assert ask(broker, f"{path}?cursor={cursor}")[0] == 400, at
    for position in ("1_0", "%D9%A3", "+5", "@-1", "--1", "9" * 19, "9" * 5_000, "%201"):
        assert ask(broker, f"{path}?from={position}")[0] == 400, position
    for timestamp_ms in (2**63, 2**64, 10**30, -1):
        assert ask(broker, path, {"records": [{"value": "x", "timestamp_ms": timestamp_ms}]})[0] == 400, timestamp_ms


def test_a_pattern_that_takes_for_ever_ends_only_its_own_request(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/topics", {"name": "patterns"})
    path = "/api/v1/topics/patterns/records"
    ask(broker, path, {"records": [{"value": "a" * 50 + "!"}]})
    answers: list[tuple[int, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(ask(broker, f"{path}?pattern=(a%2B)%2B$")))
    thread.start()
    searching = eventually(lambda: child_of(broker).children())
    assert ask(broker, f"{path}?pattern=a%2B!")[1]["found"] == 1, "others are answered meanwhile"
    thread.join(PATIENCE_S)
    [(status, problem)] = answers
    assert (status, "too long" in problem["detail"]) == (400, True)
    assert not any(each.is_running() for each in searching)


def test_live_data(broker: BrokerProcess) -> None:
    address = f"ws://127.0.0.1:{port_of(broker)}/api/v1/live"
    with connect(address) as socket_:
        socket_.send("nonsense")
        assert json.loads(socket_.recv(PATIENCE_S))["type"] == "error"
        socket_.send(json.dumps({"type": "subscribe", "stream": "nothing"}))
        assert "overview" in json.loads(socket_.recv(PATIENCE_S))["detail"]
        socket_.send(json.dumps({"type": "subscribe", "stream": "overview"}))
        # Events of the node come between the snapshots.
        received = (json.loads(socket_.recv(PATIENCE_S)) for _ in range(100))
        snapshots = (each for each in received if each["type"] != "event")
        first, second = next(snapshots), next(snapshots)
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
    with pytest.raises(InvalidStatus) as refused:
        connect(address, origin=Origin("http://evil.example"))
    assert json.loads(refused.value.response.body)["status"] == 403, "a problem, as for any other request"
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


def test_without_its_packages_nothing_listens(tmp_path: Path) -> None:
    """A browser is refused at once, instead of waiting for an answer that never comes."""
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('No module named uvicorn', name='uvicorn')")
    with BrokerProcess(tmp_path / "data", env={**_ENVIRONMENT, "PYTHONPATH": str(tmp_path)}) as running:
        eventually(lambda: "a package that is not installed: uvicorn" in running.log_text())

        def is_refused() -> bool:
            try:
                socket.create_connection(("127.0.0.1", port_of(running)), timeout=PATIENCE_S).close()
            except ConnectionRefusedError:
                return True
            return False

        eventually(is_refused)
        with RawClient(running.bootstrap) as client:
            client.create_topic("kept", 1)


def test_a_port_in_use_costs_the_gateway_only(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment = {**_ENVIRONMENT, "DRMQ_HTTP_PORT": str(taken.getsockname()[1])}
        with BrokerProcess(tmp_path / "data", env=environment) as running, RawClient(running.bootstrap) as client:
            client.create_topic("kept", 1)
            eventually(lambda: "no gateway" in running.log_text())
            assert not psutil.Process(running.pid).children()
