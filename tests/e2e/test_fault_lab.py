"""The fault lab on real processes: kills, pauses, cuts and starts nodes, also the one that it belongs to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from drmq.client import Admin, ClientError, NewTopic
from drmq.gateway.caller import Caller
from drmq.gateway.routes.lab import is_local
from support.http import ask
from support.polling import eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient


def drmq(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DRMQ_GATEWAY": "true", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "drmq", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


class Lab:
    """Three nodes of `drmq up --lab`, and their gateways."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def node(self, node_id: int) -> dict[str, Any]:
        nodes = json.loads((self.directory / "cluster.json").read_text())["nodes"]
        return next(node for node in nodes if node["id"] == node_id)

    def ask(self, via: int, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
        return ask(f"http://{self.node(via)['http']}", f"/api/v1/lab{path}", method=method, headers=headers)

    def states(self, via: int) -> list[str]:
        status, found = self.ask(via, "")
        assert (status, found["enabled"]) == (200, True)
        assert [each["node_id"] for each in found["nodes"] if each["is_self"]] == [via]
        return [each["state"] for each in found["nodes"]]

    def act(self, via: int, path: str) -> list[str]:
        """What the answer says about the nodes."""
        status, found = self.ask(via, path, "POST")
        assert status == 200, found
        return [each["state"] for each in found["nodes"]]

    def events(self, via: int) -> str:
        _, found = ask(f"http://{self.node(via)['http']}", "/api/v1/events?limit=1000")
        return "\n".join(f"{each['node_id']} {each['source']}: {each['text']}" for each in found["items"])

    def serves(self, node_id: int) -> bool:
        try:
            return ask(f"http://{self.node(node_id)['http']}", "/api/v1/cluster")[0] == 200
        except (OSError, urllib.error.URLError, RemoteDisconnected):
            return False

    def leader(self, via: int) -> int | None:
        with Admin(self.node(via)["kafka"], timeout_s=30) as admin:
            return admin.topics.describe("orders").partitions[0].leader


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("lab") / "cluster"
    done = drmq("up", "--nodes", "3", "--port", "0", "--lab", "--data-dir", str(directory))
    assert done.returncode == 0, done.stderr
    found = Lab(directory)
    try:
        for node_id in (1, 2, 3):
            eventually(lambda node_id=node_id: found.serves(node_id))  # type: ignore[misc]
        with Admin(found.node(1)["kafka"], timeout_s=60) as admin:
            admin.topics.create(NewTopic("orders", 1, 3, {}))
        yield found
    finally:
        drmq("down", "--data-dir", str(directory), "--force")


def test_a_node_is_paused_and_resumed(lab: Lab) -> None:
    assert lab.act(1, "/2/pause") == ["running", "paused", "running"]
    status, problem = lab.ask(1, "/2/pause", "POST")
    assert (status, problem["detail"]) == (409, "node 2 is paused, so pause is not possible")
    assert problem["advice"] == "Possible now: kill, resume."
    assert lab.act(3, "/2/resume") == ["running"] * 3
    assert "1 lab: fault lab: pause node 2" in lab.events(1)
    assert "3 lab: fault lab: resume node 2" in lab.events(1)


def test_a_gateway_kills_its_own_node_and_another_starts_it(lab: Lab) -> None:
    before = lab.node(1)["pid"]
    with suppress(OSError, RemoteDisconnected):  # it may end before it has answered
        assert lab.ask(1, "/1/kill", "POST")[0] == 200
    eventually(lambda: lab.node(1)["pid"] is None)
    assert lab.states(2) == ["dead", "running", "running"]
    # A gateway ends when it notices that its node has.
    eventually(lambda: not lab.serves(1))
    assert lab.ask(2, "/1/kill", "POST")[0] == 409
    assert lab.ask(2, "/1/cut", "POST")[0] == 409
    assert lab.act(2, "/1/start") == ["running"] * 3
    assert lab.node(1)["pid"] != before
    eventually(lambda: lab.serves(1))
    assert lab.states(1) == ["running"] * 3, "it was started with the lab"
    assert lab.ask(2, "/1/start", "POST")[0] == 409
    events = lab.events(2)
    assert "fault lab: kill node 1" in events, "a node that survived has the event"
    assert "2 lab: fault lab: start node 1" in events


def test_a_cut_leader_commits_nothing_until_it_is_healed(lab: Lab) -> None:
    old = eventually(lambda: lab.leader(1), lambda leader: leader is not None)
    assert old is not None
    others = [node_id for node_id in (1, 2, 3) if node_id != old]
    assert lab.act(others[0], f"/{old}/cut")[old - 1] == "cut"
    eventually(lambda: lab.leader(others[0]), lambda leader: leader in others, what="another leader")
    leader = lab.leader(others[0])
    assert leader is not None
    with RawClient(lab.node(leader)["kafka"]) as client:
        offset = client.produce("orders", [b"one"])
    assert lab.leader(old) == old or lab.leader(old) is None, "it has not heard of the other leader"
    assert f"{old} lab: fault lab: this node is cut from its peers" in lab.events(old)
    listed = drmq("node", "ls", "-o", "json", "--data-dir", str(lab.directory))
    assert {row["id"]: row["state"] for row in json.loads(listed.stdout)}[old] == "cut"
    assert lab.ask(leader, f"/{old}/cut", "POST")[0] == 409
    assert lab.act(old, f"/{old}/heal")[old - 1] == "running"

    def in_sync() -> list[int]:
        try:
            with Admin(lab.node(old)["kafka"], timeout_s=30) as admin:
                return sorted(admin.topics.describe("orders").partitions[0].in_sync)
        except ClientError:
            return []

    eventually(in_sync, lambda found: found == [1, 2, 3], what="it has caught up")
    with Admin(lab.node(old)["kafka"], timeout_s=30) as admin:
        assert admin.topics.describe("orders").partitions[0].leader != old or offset >= 0


def test_the_same_by_commands(lab: Lab) -> None:
    where = ("--data-dir", str(lab.directory))
    assert drmq("node", "cut", "3", *where).stdout.endswith("is cut from the other nodes.\n")
    assert lab.states(1) == ["running", "running", "cut"]
    assert drmq("node", "heal", "3", *where).returncode == 0
    assert lab.states(1) == ["running"] * 3


def test_bad_requests(lab: Lab) -> None:
    status, problem = lab.ask(1, "/9/kill", "POST")
    assert (status, problem["detail"]) == (404, "there is no node 9")
    assert problem["advice"] == "This cluster has the nodes 1, 2, 3."
    assert lab.ask(1, "/1/explode", "POST")[0] == 400
    assert lab.ask(1, "/one/kill", "POST")[0] == 400
    assert lab.ask(1, "/-1/kill", "POST")[0] == 400
    assert lab.ask(1, "/1/resume", "POST")[0] == 409
    assert lab.ask(1, "/1/heal", "POST")[0] == 409
    assert lab.ask(1, "/1/kill")[0] in (404, 405), "a link must not kill"
    assert lab.states(1) == ["running"] * 3


def test_pages_of_other_sites_are_refused(lab: Lab) -> None:
    """A page can make a browser of this machine send requests; they carry its origin, or its name for this machine."""
    status, problem = lab.ask(1, "/2/kill", "POST", Origin="http://evil.example")
    assert status == 403, problem
    status, problem = lab.ask(1, "/2/kill", "POST", Host="evil.example", Origin="http://evil.example")
    assert status == 403, problem
    status, problem = lab.ask(1, "/2/kill", "POST", Host="evil.example:8080")
    assert (status, problem["code"]) == (403, "UNKNOWN_HOST_NAME")
    assert lab.ask(1, "", Host="evil.example")[0] == 403
    assert lab.states(1) == ["running"] * 3
    own = f"http://{lab.node(1)['http']}"
    assert lab.ask(1, "/2/resume", "POST", Origin=own)[0] == 409, "the page of this gateway may"


@pytest.mark.parametrize(
    ("client", "host", "expected"),
    [
        ("127.0.0.1", "localhost:8080", True),
        ("::1", "[::1]:8080", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("192.0.2.7", "127.0.0.1:8080", False),
        ("127.0.0.1", "node-1:8080", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
    ],
)
def test_who_is_local(client: str, host: str, expected: bool) -> None:
    scope = {"type": "http", "client": (client, 1), "headers": [(b"host", host.encode())]}
    assert is_local(Caller(Request(scope))) is expected


def test_without_the_lab_nothing_can_be_done(tmp_path: Path) -> None:
    environment = {"DRMQ_GATEWAY": "true", "DRMQ_HTTP_PORT": "0"}
    with BrokerProcess(tmp_path / "node-1" / "data", env=environment) as broker:
        eventually(lambda: "serves HTTP at " in broker.log_text())
        base = broker.log_text().split("serves HTTP at ")[1].split()[0]
        assert ask(base, "/api/v1/lab") == (200, {"enabled": False, "nodes": []})
        status, problem = ask(base, "/api/v1/lab/1/kill", method="POST")
        assert (status, "drmq up --lab" in problem["advice"]) == (403, True)
        # Neither by what is beside its data ...
        entry = {"id": 1, "pid": broker.pid, "kafka": broker.bootstrap, "data_dir": "node-1/data", "lab": True}
        (tmp_path / "cluster.json").write_text(json.dumps({"version": 2, "nodes": [entry]}))
        assert ask(base, "/api/v1/lab/1/kill", method="POST")[0] == 403
        # ... nor by asking the node itself.
        from drmq.client.fault_lab import ask_lab
        from drmq.model.address import Address

        for request in ({"cut": True}, {"note": "hello"}, {}):
            with pytest.raises(ClientError, match="the fault lab is off"):
                ask_lab(Address("127.0.0.1", broker.port), **request)
        assert "hello" not in broker.log_text()
        os.kill(broker.pid, signal.SIGTERM)


def test_the_lab_needs_a_loopback_address(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path / "data"), "--host", "0.0.0.0", "--advertise", "node-1")
    done = drmq("server", "--lab", *where)
    assert done.returncode == 64
    assert "lab (flag --lab): anybody who can reach '0.0.0.0' could kill this node" in done.stderr
    assert not (tmp_path / "data").exists()
