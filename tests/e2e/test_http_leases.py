"""Work by lease over HTTP, on three nodes with a gateway each: nothing is lost, whichever gateway is asked."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from support.http_cluster import HttpCluster, send_only
from support.polling import eventually

_LEASE_MS = 3_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpCluster]:
    with HttpCluster(tmp_path_factory.mktemp("http-leases")) as running:
        running.allow_short_leases()
        yield running


@pytest.fixture
def names(cluster: HttpCluster) -> tuple[str, str]:
    """A topic of three partitions, and a group that begins at its start."""
    topic = f"jobs-{uuid.uuid4().hex[:8]}"
    cluster.ok("/topics", {"name": topic, "partitions": 3})
    group = f"crew-{topic}"
    settings = {"share.auto.offset.reset": "earliest"}
    cluster.ok(f"/groups/{group}/settings", {"set": settings}, "PATCH")
    return topic, group


def send(cluster: HttpCluster, topic: str, count: int) -> None:
    records = [{"value": str(number), "partition": number % 3} for number in range(count)]
    cluster.ok(f"/topics/{topic}/records", {"records": records})


def poll(cluster: HttpCluster, names: tuple[str, str], *, node: int = 1, count: int = 10, wait_ms: int = 0) -> Any:
    topic, group = names
    return cluster.ok(f"/groups/{group}/poll", {"topics": [topic], "max": count, "wait_ms": wait_ms}, node=node)[
        "messages"
    ]


def poll_all(cluster: HttpCluster, names: tuple[str, str], count: int, *, node: int = 1) -> list[Any]:
    """So many messages, with as many polls as it takes: each brings what its gateway finds first."""
    found: list[Any] = []
    while len(found) < count:
        found += poll(cluster, names, node=node, count=count - len(found), wait_ms=30_000)
    return found


def settle(cluster: HttpCluster, group: str, outcome: str, messages: Any, *, node: int = 1, **more: Any) -> Any:
    ids = [each["ack_id"] for each in messages]
    return cluster.ok(f"/groups/{group}/{outcome}", {"ack_ids": ids, **more}, node=node)


def held(cluster: HttpCluster, group: str) -> int:
    found = cluster.ok(f"/groups/{group}/leases")
    return sum(each["held"] for each in found["partitions"])


def test_any_gateway_settles_what_any_other_has_leased(cluster: HttpCluster, names: tuple[str, str]) -> None:
    topic, group = names
    send(cluster, topic, 12)
    first = poll_all(cluster, names, 12)
    assert sorted(int(each["value"]) for each in first) == list(range(12))
    assert {each["attempt"] for each in first} == {1}
    assert held(cluster, group) == 12
    for node, part in ((2, first[:6]), (3, first[6:])):
        answer = settle(cluster, group, "ack", part, node=node)
        assert answer["ok"], answer
    assert settle(cluster, group, "ack", first, node=1)["ok"], "to repeat it does no harm"
    detail = cluster.ok(f"/groups/{group}", node=2)
    assert detail["group"]["lag"] == 0
    assert detail["group"]["lag_ms"] == 0
    assert poll(cluster, names, node=2) == []


def test_every_outcome(cluster: HttpCluster, names: tuple[str, str]) -> None:
    topic, group = names
    send(cluster, topic, 3)
    later, back, bad = poll_all(cluster, names, 3)
    extended = settle(cluster, group, "extend", [later], node=2)
    assert extended["results"][0]["lease_until_ms"] >= later["lease_until_ms"]
    assert settle(cluster, group, "nack", [later], delay_ms=600_000)["ok"]
    assert settle(cluster, group, "give_back", [back])["ok"]
    assert settle(cluster, group, "reject", [bad])["ok"]
    [again] = poll(cluster, names, node=3, count=3, wait_ms=30_000)
    assert (again["value"], again["attempt"]) == (back["value"], 1), "what was given back does not count"
    row = cluster.ok(f"/groups/{group}")["group"]
    assert (row["held"], row["parked"]) == (1, 1)
    letters = eventually(lambda: cluster.ask(f"/dead-letters/dlq.{group}")[1].get("items"))
    assert [(each["value"], each["origin_topic"], each["group"]) for each in letters] == [(bad["value"], topic, group)]
    refused = settle(cluster, group, "ack", [bad])
    assert not refused["ok"]
    assert refused["results"][0]["code"] == "not_leased"


def test_a_lease_that_ran_out_is_refused_for_that_message_alone(cluster: HttpCluster, names: tuple[str, str]) -> None:
    topic, group = names
    cluster.ok(f"/groups/{group}/settings", {"set": {"share.record.lock.duration.ms": str(_LEASE_MS)}}, "PATCH")
    send(cluster, topic, 2)
    old = poll_all(cluster, names, 1)
    again: list[Any] = []
    while not again or again[0]["value"] != old[0]["value"]:
        again = poll(cluster, names, node=2, count=1, wait_ms=30_000)
        if again and again[0]["value"] != old[0]["value"]:
            settle(cluster, group, "ack", again)
    assert again[0]["attempt"] == 2
    answer = settle(cluster, group, "ack", [*old, *again], node=3)
    assert [each["code"] for each in answer["results"]] == ["leased_to_another", "ok"], answer
    assert not answer["ok"]


def test_leases_of_a_gateway_that_was_killed_return(cluster: HttpCluster, names: tuple[str, str]) -> None:
    topic, group = names
    cluster.ok(f"/groups/{group}/settings", {"set": {"share.record.lock.duration.ms": str(_LEASE_MS)}}, "PATCH")
    send(cluster, topic, 5)
    taken = poll_all(cluster, names, 5, node=3)
    settle(cluster, group, "ack", taken[:1], node=1)
    cluster.gateway_of(3).kill()
    found: dict[str, int] = {}
    while len(found) < len(taken) - 1:
        for each in poll(cluster, names, node=1, count=5, wait_ms=30_000):
            found[each["value"]] = each["attempt"]
    assert found == {each["value"]: 2 for each in taken[1:]}
    assert cluster.ask("/cluster", node=3)[0] == 200, "and the gateway is back"


def test_pollers_share_a_queue(cluster: HttpCluster, names: tuple[str, str]) -> None:
    """Each message reaches one of them, also those that arrive while both wait."""
    topic, group = names
    found: list[str] = []

    def work(node: int) -> None:
        while len(found) < 60:
            messages = poll(cluster, names, node=node, count=4, wait_ms=2_000)
            found.extend(each["value"] for each in messages)
            if messages:
                settle(cluster, group, "ack", messages, node=node)

    threads = [threading.Thread(target=work, args=(node,)) for node in (1, 1, 2)]
    for thread in threads:
        thread.start()
    for part in range(3):
        records = [{"value": f"{part}-{number}", "partition": number % 3} for number in range(20)]
        cluster.ok(f"/topics/{topic}/records", {"records": records}, node=3)
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 60


def test_a_client_that_goes_away_while_it_waits_leaves_no_lease(cluster: HttpCluster, names: tuple[str, str]) -> None:
    topic, group = names
    assert poll(cluster, names) == []
    waiting = [
        send_only(cluster.http_port(1), f"/groups/{group}/poll", {"topics": [topic], "max": 5, "wait_ms": 60_000})
        for _ in range(3)
    ]
    # They wait in the broker: their gateway takes for them.
    eventually(lambda: cluster.ok(f"/groups/{group}")["group"]["members"] == 1)
    for connection in waiting:
        connection.close()
    send(cluster, topic, 9)
    found = poll_all(cluster, names, 9, node=2)
    assert {each["attempt"] for each in found} == {1}, "none of them was delivered to nobody"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/poll", {"topics": []}, 400),
        ("/poll", {"topics": ["no-such-topic"]}, 404),
        ("/poll", {"topics": ["a"], "max": 0}, 400),
        ("/poll", {"topics": ["a"], "wait_ms": 100_000}, 400),
        ("/ack", {"ack_ids": []}, 400),
        ("/ack", {"ack_ids": ["x"], "delay_ms": 1}, 400),
        ("/nack", {"ack_ids": ["x"], "delay_ms": -1}, 400),
    ],
)
def test_bad_requests(cluster: HttpCluster, path: str, body: Any, status: int) -> None:
    found, problem = cluster.ask(f"/groups/nobody{path}", body)
    assert found == status, problem


def test_bad_ack_ids_are_refused_one_by_one(cluster: HttpCluster, names: tuple[str, str]) -> None:
    topic, group = names
    send(cluster, topic, 1)
    [message] = poll_all(cluster, names, 1)
    ids = [message["ack_id"], message["ack_id"][:-1] + "A" * 2, "nonsense", "ä", message["ack_id"]]
    answer = cluster.ok(f"/groups/{group}/ack", {"ack_ids": ids})
    assert [each["code"] for each in answer["results"]] == ["ok", "bad_ack_id", "bad_ack_id", "bad_ack_id", "ok"]
    other = cluster.ok("/groups/other/ack", {"ack_ids": ids[:1]})
    assert other["results"][0]["code"] == "bad_ack_id", "it belongs to another group"
