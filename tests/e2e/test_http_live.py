"""Live data: streams at their resolutions, events at once, tails of topics, and pages that read slowly."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from websockets.sync.client import ClientConnection, connect

import drmq
from support.http_cluster import HttpCluster
from support.polling import PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpCluster]:
    with HttpCluster(tmp_path_factory.mktemp("http-live"), nodes=1) as running:
        running.http_port(1)
        yield running


@pytest.fixture
def topic(cluster: HttpCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.ok("/topics", {"name": name, "partitions": 2})
    return name


def open_page(cluster: HttpCluster, **options: Any) -> ClientConnection:
    page: ClientConnection = connect(f"ws://127.0.0.1:{cluster.http_port(1)}/api/v1/live", max_size=None, **options)
    return page


def subscribe(page: ClientConnection, stream: str, **more: Any) -> None:
    page.send(json.dumps({"type": "subscribe", "stream": stream, **more}))


def next_of(page: ClientConnection, accept: Callable[[Any], bool]) -> Any:
    """The next message that is wanted."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        message = json.loads(page.recv(PATIENCE_S))
        if accept(message):
            return message
    raise AssertionError("it did not come")


def of_stream(stream: str) -> Callable[[Any], bool]:
    return lambda message: message["type"] == "snapshot" and message["stream"] == stream


def send(cluster: HttpCluster, topic: str, values: list[str]) -> None:
    cluster.ok(f"/topics/{topic}/records", {"records": [{"value": value} for value in values]})


def test_every_stream(cluster: HttpCluster, topic: str) -> None:
    cluster.ok("/groups/readers/reset", {"to": "earliest", "topics": [topic]})
    send(cluster, topic, ["a", "b"])
    with open_page(cluster) as page:
        for stream in ("overview", "topics", "groups", "raft"):
            subscribe(page, stream)
        found = {stream: next_of(page, of_stream(stream)) for stream in ("overview", "topics", "groups", "raft")}
        assert found["overview"]["data"]["cluster"]["brokers_up"] == 1
        assert topic in [each["name"] for each in found["topics"]["data"]["items"]]
        assert {(each["topic"], each["partition"]) for each in found["raft"]["data"]["items"]} >= {
            (topic, 0),
            (topic, 1),
        }

        def has_lag(message: Any) -> bool:
            rows = message["data"]["items"] if of_stream("groups")(message) else []
            return any(each["group_id"] == "readers" and each["lag"] == 2 and each["lag_ms"] >= 0 for each in rows)

        next_of(page, has_lag)
        numbers = [next_of(page, of_stream("overview"))["sequence"] for _ in range(2)]
        assert numbers[1] == numbers[0] + 1
        page.send(json.dumps({"type": "unsubscribe", "stream": "overview"}))
        page.send(json.dumps({"type": "unsubscribe", "stream": "groups"}))
        subscribe(page, "nothing")
        assert "tail:TOPIC" in next_of(page, lambda message: message["type"] == "error")["detail"]


@pytest.mark.parametrize("resolution_ms", [0, 999, 60_001, "1000", None])
def test_resolutions_have_limits(cluster: HttpCluster, resolution_ms: Any) -> None:
    with open_page(cluster) as page:
        subscribe(page, "topics", resolution_ms=resolution_ms)
        assert "resolution_ms" in next_of(page, lambda message: message["type"] == "error")["detail"]


def test_events_come_at_once_whatever_the_resolution_is(cluster: HttpCluster) -> None:
    with open_page(cluster) as page:
        subscribe(page, "topics", resolution_ms=60_000)
        next_of(page, of_stream("topics"))
        name = f"made-{uuid.uuid4().hex[:8]}"
        cluster.ok("/topics", {"name": name})
        message = next_of(page, lambda message: message["type"] == "event" and name in message["event"]["text"])
        assert message["dropped"] == 0
        assert message["event"]["node_id"] == 1


def test_a_tail_shows_what_arrives_and_counts_what_it_leaves_out(cluster: HttpCluster, topic: str) -> None:
    send(cluster, topic, ["before"])
    with open_page(cluster) as page:
        subscribe(page, f"tail:{topic}")
        stream = of_stream(f"tail:{topic}")
        time.sleep(2.5)  # it shows what comes after its first look
        send(cluster, topic, ["one", "two"])
        seen: list[str] = []
        while len(seen) < 2:
            message = next_of(page, stream)
            assert message["dropped"] == 0
            seen += [each["value"] for each in message["data"]["items"]]
        assert sorted(seen) == ["one", "two"]
        send(cluster, topic, [str(number) for number in range(1_000)])
        count = dropped = 0
        while count + dropped < 1_000:
            message = next_of(page, stream)
            assert len(message["data"]["items"]) <= 200
            count += len(message["data"]["items"])
            dropped += message["dropped"]
        assert count + dropped == 1_000
        assert dropped >= 200
        subscribe(page, "tail:no-such-topic")
        assert "no-such-topic" in next_of(page, lambda message: message["type"] == "error")["detail"]


def test_a_page_that_does_not_read_costs_little_and_is_told(cluster: HttpCluster) -> None:
    """Large snapshots for a page that stands still: the gateway keeps the last ones only, and counts the others."""
    topics = [f"wide-{number}" for number in range(4)]
    for name in topics:
        cluster.ok("/topics", {"name": name})
    gateway = psutil.Process(cluster.gateway_of(1).pid)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    slow.connect(("127.0.0.1", cluster.http_port(1)))
    with (
        drmq.Producer(cluster.bootstrap) as producer,
        open_page(cluster, sock=slow, max_queue=1, compression=None) as page,
    ):
        for stream in ("overview", *(f"tail:{name}" for name in topics)):
            subscribe(page, stream)
        next_of(page, of_stream("overview"))
        before = gateway.memory_info().rss
        # Several times what the buffers of the sockets take: then the gateway has to wait for the page.
        for _ in range(16):
            for name in topics:
                for _ in range(10):
                    producer.submit(name, b"x" * 60_000)
            producer.flush(PATIENCE_S)
            time.sleep(0.5)
        assert gateway.memory_info().rss - before < 60_000_000
        dropped: dict[str, int] = {}
        deadline_s = time.monotonic() + PATIENCE_S
        while not (dropped.get("overview") and sum(dropped.values()) > dropped["overview"]):
            assert time.monotonic() < deadline_s, dropped
            message = next_of(page, lambda message: message["type"] == "snapshot")
            dropped[message["stream"]] = dropped.get(message["stream"], 0) + message["dropped"]
    assert cluster.ask("/cluster")[0] == 200


def test_hostile_messages(cluster: HttpCluster) -> None:
    with open_page(cluster) as page:
        bad = ["", "[", "[" * 60_000, "null", '{"type": "subscribe"}', '{"type": "subscribe", "stream": "tail:"}']
        for text in [*bad, json.dumps({"type": "subscribe", "stream": "topics", "more": 1})]:
            page.send(text)
            assert next_of(page, lambda message: message["type"] == "error")["detail"]
        for number in range(20):
            subscribe(page, f"tail:none-{number}", resolution_ms=60_000)
        next_of(page, lambda message: message["type"] == "error" and "16 streams" in message["detail"])
