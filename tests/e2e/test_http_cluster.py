"""The HTTP API of a cluster of three: dead letters, groups, leaders, and requests that are repeated."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import drmq
from support.http_cluster import HttpCluster
from support.polling import eventually
from support.queue_client import take


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpCluster]:
    with HttpCluster(tmp_path_factory.mktemp("http-cluster")) as running:
        for node in running.ids:
            running.http_port(node)
        yield running


@pytest.fixture
def topic(cluster: HttpCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.ok("/topics", {"name": name, "partitions": 3})
    return name


def send(cluster: HttpCluster, topic: str, values: list[str], **more: Any) -> Any:
    return cluster.ok(f"/topics/{topic}/records", {"records": [{"value": value, **more} for value in values]})


def row_of(cluster: HttpCluster, group: str, node: int = 1) -> Any:
    rows = cluster.ok("/groups", node=node)["items"]
    return next((each for each in rows if each["group_id"] == group), None)


# ---- groups -----------------------------------------------------------------------------------------


def test_the_lag_of_a_group_in_records_and_in_time(cluster: HttpCluster, topic: str) -> None:
    old_ms = int(time.time() * 1000) - 3_600_000
    group = f"readers-{topic}"
    send(cluster, topic, ["a"] * 4, partition=0, timestamp_ms=old_ms)
    send(cluster, topic, ["b"] * 2, partition=1)
    cluster.ok(f"/groups/{group}/reset", {"to": "earliest", "topics": [topic]})
    row = eventually(lambda: row_of(cluster, group, node=2))
    assert (row["lag"], row["oldest_open_ms"], row["topics"]) == (6, old_ms, [topic])
    assert row["lag_ms"] >= 3_600_000
    cluster.ok(f"/groups/{group}/reset", {"to": "4"})
    row = row_of(cluster, group)
    assert (row["lag"], row["members"]) == (0, 0)
    assert row["lag_ms"] == 0
    detail = cluster.ok(f"/groups/{group}", node=3)
    assert [each["lag"] for each in detail["partitions"]] == [0, 0, 0]
    assert cluster.ask(f"/groups/{group}/leases")[0] == 409, "it is no lease group"


def test_members_and_their_partitions(cluster: HttpCluster, topic: str) -> None:
    group = f"readers-{topic}"
    with drmq.Consumer(cluster.bootstrap, group) as consumer:
        consumer.subscribe(topic)
        row = eventually(lambda: row_of(cluster, group), lambda row: bool(row and row["members"]))
        assert (row["type"], row["members"]) == ("share", 1)
        detail = cluster.ok(f"/groups/{group}")
        assert sorted(map(tuple, detail["members"][0]["assignments"])) == [(topic, index) for index in range(3)]


def test_a_lease_group_is_moved_and_deleted(cluster: HttpCluster, topic: str) -> None:
    group = f"crew-{topic}"
    cluster.ok(f"/groups/{group}/settings", {"set": {"share.auto.offset.reset": "earliest"}}, "PATCH")
    send(cluster, topic, ["a"] * 6)
    with drmq.Consumer(cluster.bootstrap, group) as consumer:
        consumer.subscribe(topic)
        for message in take(consumer, 6):
            message.ack()
        assert cluster.ask(f"/groups/{group}/reset", {"to": "earliest"})[0] == 409, "it has members"
    moved = eventually(
        lambda: cluster.ask(f"/groups/{group}/reset", {"to": "latest"}), lambda answer: answer[0] == 200
    )[1]["items"]
    assert len(moved) == 3
    assert cluster.ok(f"/groups/{group}")["group"]["lag"] == 0
    assert cluster.ok(f"/groups/{group}", method="DELETE") == {"done": True}
    assert row_of(cluster, group) is None
    assert cluster.ask(f"/groups/{group}")[0] == 404


def test_settings_of_a_group(cluster: HttpCluster) -> None:
    path = f"/groups/crew-{uuid.uuid4().hex[:8]}/settings"
    found = cluster.ok(path, {"set": {"share.delivery.count.limit": "3"}}, "PATCH")
    assert {each["name"]: each["value"] for each in found["items"]}["share.delivery.count.limit"] == "3"
    found = cluster.ok(path, {"unset": ["share.delivery.count.limit"]}, "PATCH", node=2)
    assert {each["name"]: each["is_default"] for each in found["items"]}["share.delivery.count.limit"]
    for bad in ({}, {"set": {"no.such.setting": "1"}}, {"set": {"share.delivery.count.limit": "x"}}, {"unset": ["x"]}):
        assert cluster.ask(path, bad, "PATCH")[0] == 400, bad


# ---- dead letters -----------------------------------------------------------------------------------


def test_dead_letters_from_their_birth_to_their_end(cluster: HttpCluster, topic: str) -> None:
    group = f"crew-{topic}"
    cluster.ok(f"/groups/{group}/settings", {"set": {"share.auto.offset.reset": "earliest"}}, "PATCH")
    send(cluster, topic, [f"v{number}" for number in range(9)])
    messages: list[Any] = []
    while len(messages) < 9:
        messages += cluster.ok(f"/groups/{group}/poll", {"topics": [topic], "max": 9, "wait_ms": 10_000})["messages"]
    cluster.ok(f"/groups/{group}/reject", {"ack_ids": [each["ack_id"] for each in messages]}, node=2)
    letters = f"/dead-letters/dlq.{group}"

    def waiting() -> int:
        rows = {each["topic"]: each for each in cluster.ok("/dead-letters")["items"]}
        return int(rows.get(f"dlq.{group}", {"waiting": 0})["waiting"])

    eventually(waiting, lambda count: count == 9)
    # The list may be some seconds old, from before the group existed.
    assert eventually(lambda: (row_of(cluster, group) or {}).get("dead_letters"), lambda count: count == 9)
    found: list[Any] = []
    cursor = ""
    while True:
        page = cluster.ok(f"{letters}?limit=4{cursor}", node=3)
        found += page["items"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(each["value"] for each in found) == [f"v{number}" for number in range(9)]
    assert [each["value"] for each in cluster.ok(f"{letters}?value_contains=v7")["items"]] == ["v7"]
    assert cluster.ok(f"{letters}?group=nobody")["items"] == []
    for bad in ("cursor=x", "cursor=99999999999.0", "limit=0", "header=x", "attempts_min=-1", "nothing=1"):
        assert cluster.ask(f"{letters}?{bad}")[0] == 400, bad

    dry = cluster.ok(f"{letters}/redrive", {"filter": {"value_contains": "v7"}, "dry_run": True})
    assert (dry["matching"], dry["waiting"]) == (1, 9)
    cluster.ok(f"{letters}/redrive", {"filter": {"value_contains": "v7"}})
    done = eventually(
        lambda: cluster.ok(f"{letters}/redrive", node=2), lambda each: each["redrive"]["state"] == "finished"
    )
    assert (done["redrive"]["redriven"], done["waiting"]) == (1, 8)
    status, problem = cluster.ask(f"{letters}/redrive", method="DELETE")
    assert (status, problem["code"]) == (404, "RESOURCE_NOT_FOUND"), "none is running"
    [again] = cluster.ok(f"/groups/{group}/poll", {"topics": [topic], "max": 9, "wait_ms": 30_000})["messages"]
    assert again["value"] == "v7"

    assert cluster.ok(f"{letters}/purge", {"filter": {"value_contains": "v1"}, "dry_run": True})["matching"] == 1
    assert cluster.ok(f"{letters}/purge", {"filter": {"value_contains": "v1"}})["purged"] == 1
    assert cluster.ok(f"{letters}/purge", {}, node=3)["purged"] == 7
    assert eventually(waiting, lambda count: count == 0) == 0
    assert cluster.ask("/dead-letters/no-such-topic")[0] == 404
    assert cluster.ask("/dead-letters/no-such-topic/redrive", {})[0] == 404
    assert cluster.ask(f"{letters}/redrive", {"filter": {"nothing": 1}})[0] == 400


# ---- leaders, the graph -----------------------------------------------------------------------------


def test_a_change_is_seen_at_once(cluster: HttpCluster, topic: str) -> None:
    """Whichever client of the gateway answers, and whichever node it had asked before."""

    def preferred() -> int:
        return int(cluster.ok(f"/topics/{topic}/partitions")["items"][0]["replicas"][0])

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda _: preferred(), range(64)))
        for number in range(15):
            to = number % 3 + 1
            cluster.ok(f"/raft/{topic}/0/transfer", {"to": to})
            assert list(threads.map(lambda _: preferred(), range(8))) == [to] * 8


def test_leadership_moves_to_a_chosen_node(cluster: HttpCluster, topic: str) -> None:
    before = cluster.ok(f"/raft/{topic}/0")
    to = next(each["node_id"] for each in before["replicas"] if each["node_id"] != before["leader"])
    moved = cluster.ok(f"/raft/{topic}/0/transfer", {"to": to})
    assert (moved["leader"], moved["moved"], moved["before"]) == (to, True, before["leader"])
    assert moved["term"] > before["term"]
    assert not cluster.ok(f"/raft/{topic}/0/transfer", {})["moved"], "it is the preferred one now"
    assert cluster.ask(f"/raft/{topic}/0/transfer", {"to": 99})[0] == 400
    assert cluster.ask(f"/raft/{topic}/9/transfer", {"to": to})[0] == 404
    assert cluster.ask("/raft/__cluster_metadata/0/transfer", {"to": to})[0] == 400


def test_the_graph_of_producers_topics_and_groups(cluster: HttpCluster, topic: str) -> None:
    group = f"readers-{topic}"
    cluster.ok(f"/groups/{group}/reset", {"to": "earliest", "topics": [topic]})
    stop = threading.Event()

    def produce() -> None:
        while not stop.wait(0.2):
            send(cluster, topic, ["x"] * 10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:

        def look() -> dict[tuple[str, str], Any]:
            graph = cluster.ok("/topology")
            ids = {each["id"] for each in graph["nodes"]}
            assert all(each["source"] in ids and each["target"] in ids for each in graph["edges"])
            return {(each["source"].partition(":")[0], each["target"]): each for each in graph["edges"]}

        # The nodes look at the lag of groups less often than the gateway at the rates of producers.
        produces, consumes = ("producer", f"topic:{topic}"), ("topic", f"group:{group}")
        found = eventually(
            look, lambda edges: edges.get(produces, {}).get("rate") and edges.get(consumes, {}).get("lag"), what="edges"
        )
        assert found[produces]["kind"] == "produces"
    finally:
        stop.set()
        thread.join()
    answer = cluster.ok("/transactions")
    assert answer["items"] == []
    assert "transactional" in answer["note"]


# ---- requests that are repeated ---------------------------------------------------------------------


def test_a_request_with_the_same_key_is_carried_out_once(cluster: HttpCluster, topic: str) -> None:
    path = f"/topics/{topic}/records"
    body = {"records": [{"value": value, "partition": 0} for value in ("a", "b")]}
    headers = {"Idempotency-Key": "order-17"}
    answers: list[tuple[int, Any]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(cluster.ask(path, body, headers=headers))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.append(cluster.ask(path, body, headers=headers))
    assert [status for status, _ in answers] == [200] * 6
    assert all(answer == answers[0][1] for _, answer in answers)
    assert cluster.ok(f"/topics/{topic}")["records"] == 2, "they were appended once"
    other = {"records": [{"value": "c", "partition": 0}]}
    status, problem = cluster.ask(path, other, headers=headers)
    assert (status, problem["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert cluster.ask(path, other, headers={"Idempotency-Key": "order-18"})[0] == 200
    assert cluster.ask(path, other, headers={"Idempotency-Key": "a b"})[0] == 400
