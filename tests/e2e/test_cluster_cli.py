"""A cluster from the command line, with real processes: started, broken, mended, grown and shrunk.

Every process is started by `drmq up` in a directory of the test, and ended by `drmq down`, which acts on the
processes of that directory only.
"""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drmq.server.ports import free_ports
from drmq.server.processes import process_is_ours
from support.polling import eventually
from support.ports import HOST
from support.processes import BrokerProcess

TIMEOUT_S = 120
RECORDS = 500


class Cluster:
    """What one directory holds, as the command line sees it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, *arguments: str, text: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "drmq", *arguments],
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def ok(self, *arguments: str, text: str | None = None) -> str:
        done = self.run(*arguments, text=text)
        assert done.returncode == 0, f"{arguments}: {done.stderr}{done.stdout}"
        return done.stdout

    def local(self, *arguments: str) -> str:
        """A command on the directory."""
        return self.ok(*arguments, "--data-dir", str(self.directory))

    def ask(self, *arguments: str, text: str | None = None) -> str:
        """A command to the cluster, by whichever node answers."""
        return self.ok(*arguments, "-b", self.bootstrap, text=text)

    def data(self, *arguments: str) -> Any:
        return json.loads(self.ask(*arguments, "-o", "json"))

    @property
    def nodes(self) -> dict[int, dict[str, Any]]:
        found = json.loads((self.directory / "cluster.json").read_text())["nodes"]
        return {node["id"]: node for node in found}

    @property
    def bootstrap(self) -> str:
        return ",".join(node["kafka"] for node in self.nodes.values())

    def is_running(self, node_id: int) -> bool:
        node = self.nodes[node_id]
        return node["pid"] is not None and process_is_ours(node["pid"], self.directory / node["data_dir"])

    def states(self) -> dict[int, str]:
        rows = json.loads(self.local("node", "ls", "-o", "json"))
        return {row["id"]: row["state"] for row in rows}

    def health(self) -> tuple[int, dict[str, Any]]:
        done = self.run("cluster", "health", "-b", self.bootstrap, "-o", "json")
        return done.returncode, json.loads(done.stdout)

    def is_healthy(self) -> bool:
        return self.health()[0] == 0

    def fill(self, topic: str, partitions: int = 3) -> None:
        """A topic on all of three nodes, with records."""
        self.ask("topic", "create", topic, "-p", str(partitions))
        self.ask("produce", topic, text="".join(f"{number}\n" for number in range(RECORDS)))

    def records(self, topic: str) -> list[int]:
        return sorted(map(int, self.ask("consume", topic).split()))

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.data("topic", "describe", topic)["partitions"]
        return found


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Cluster]:
    """A place for a cluster; what runs there at the end is ended."""
    found = Cluster(tmp_path / "cluster")
    yield found
    if (found.directory / "cluster.json").exists():
        found.local("down", "--force")


@pytest.fixture
def three(empty: Cluster) -> Cluster:
    """Three nodes on free ports."""
    empty.local("up", "--nodes", "3", "--port", "0")
    return empty


def test_three_nodes_are_a_cluster(three: Cluster) -> None:
    """Consecutive ports, a file that names each, and one cluster of which all three are voters."""
    nodes = three.nodes
    first = nodes[1]["port"]
    assert [(node["port"], node["peer_port"]) for node in nodes.values()] == [
        (first + number, first + 1000 + number) for number in range(3)
    ]
    assert [node["data_dir"] for node in nodes.values()] == [f"node-{number}/data" for number in (1, 2, 3)]
    assert all((three.directory / node["log"]).stat().st_size for node in nodes.values())
    # When `up` returns, every node tells the same of all three.
    for node in nodes.values():
        info = json.loads(three.ok("cluster", "info", "-b", node["kafka"], "-o", "json"))
        assert (info["brokers"], info["voters"], info["observers"]) == ([1, 2, 3], [1, 2, 3], [])
    rows = three.data("cluster", "members")
    assert [row["metadata"] for row in rows].count("leader") == 1
    assert eventually(three.is_healthy)


def test_counters_and_log_tell_what_happened(three: Cluster) -> None:
    """Records, requests and elections are counted by the node that saw them, and its log names each new leader."""
    three.fill("orders")

    def total(name: str) -> int:
        return sum(row["value"] for row in three.data("debug", "counters", name))

    assert total("drmq_messages_produced_total") == RECORDS
    [produced] = [
        row for row in three.data("debug", "counters", "drmq_sync_duration_us", "--node", "1") if row["node"] == 1
    ]
    assert produced["count"] == sum(produced["buckets"]) > 0
    won = total("drmq_leaderships_won_total")
    assert won >= 3
    leader = eventually(lambda: three.partitions("orders")[0]["leader"])
    three.local("node", "kill", str(leader))
    assert eventually(lambda: three.partitions("orders")[0]["leader"] not in (leader, None))

    def said() -> str:
        logs = [three.directory / node["log"] for number, node in three.nodes.items() if number != leader]
        return "".join(log.read_text() for log in logs)

    for line in (
        rf"orders-0: this node is the leader now, in term \d+; before: node {leader}; cause: \w.*\n",
        rf"node {leader} at \S+ is down: ",
    ):
        eventually(said, lambda text, line=line: re.search(line, text) is not None, what=line)  # type: ignore[misc]


def test_changes_of_members_are_events(three: Cluster) -> None:
    """Whoever leads a partition or the metadata says which members it had and has, and why; once for all nodes."""
    three.ask("topic", "create", "orders", "-p", "1", "-r", "2")
    first = eventually(lambda: three.partitions("orders")[0]["replicas"], lambda replicas: len(replicas) == 2)
    pair = ", ".join(map(str, sorted(first)))
    [third] = {1, 2, 3} - set(first)

    def said() -> str:
        return "".join((three.directory / node["log"]).read_text() for node in three.nodes.values())

    def wait_for(members: str, reason: str) -> None:
        # A leader that is lost during the change has its successor complete it.
        line = rf"{members}, in term \d+: ({reason}|begun by an earlier leader)\n"
        eventually(said, lambda text: re.search(line, text) is not None, what=line)

    moved = "reassignment to nodes [1-3, ]+"
    three.ask("topic", "alter", "orders", "-r", "3", "--yes")
    wait_for(rf"orders-0: members are now 1, 2, 3 \(were {pair}, learner {third}\)", moved)
    three.ask("topic", "alter", "orders", "-r", "2", "--yes")
    wait_for(r"orders-0: members are now \d, \d \(were 1, 2, 3\)", moved)
    three.ask("cluster", "remove", "3", "--vote-only", "--yes")
    wait_for(r"metadata-0: members are now 1, 2, learner 3 \(were 1, 2, 3\)", "request to take the vote of node 3")
    three.ask("cluster", "add", "3")
    wait_for(r"metadata-0: members are now 1, 2, 3 \(were 1, 2, learner 3\)", "request to give a vote to node 3")
    assert re.search(r"node 3 at \S+ is registered: it has joined the cluster\n", said())


def test_topic_has_three_replicas_unless_told(three: Cluster) -> None:
    """Each partition with a leader, its epoch and all replicas in sync; each node leads one."""
    three.ask("topic", "create", "orders", "-p", "3")
    three.ask("topic", "create", "single", "-r", "1")
    assert eventually(three.is_healthy)
    found = three.partitions("orders")
    assert [sorted(row["replicas"]) for row in found] == [[1, 2, 3]] * 3
    assert [sorted(row["in_sync"]) for row in found] == [[1, 2, 3]] * 3
    assert all(row["leader_epoch"] >= 1 for row in found)
    # On a busy machine another replica may have been quicker; then the controller moves the leadership later.
    eventually(
        lambda: sorted(row["leader"] or 0 for row in three.partitions("orders")), lambda found: found == [1, 2, 3]
    )
    assert [len(row["replicas"]) for row in three.partitions("single")] == [1]
    done = three.run("topic", "create", "wide", "-r", "4", "-b", three.bootstrap)
    assert done.returncode == 1
    assert "INVALID_REPLICATION_FACTOR" in done.stderr


def test_killed_node_is_missed_and_comes_back(three: Cluster) -> None:
    """Nothing acknowledged is lost; health tells who is not there; `up` starts it and leaves the others alone."""
    three.fill("orders")
    before = three.nodes
    assert "was killed" in three.local("node", "kill", "2")
    assert three.nodes[2]["pid"] is None
    code, found = eventually(three.health, lambda seen: seen[1]["missing"] == [2] and seen[1]["under_replicated"] != [])
    assert code == 1, found

    def in_sync() -> set[tuple[int, ...]]:
        return {tuple(sorted(row["in_sync"])) for row in three.health()[1]["under_replicated"]}

    eventually(in_sync, lambda found: found == {(1, 3)}, what="two replicas of each partition")
    assert three.records("orders") == list(range(RECORDS))
    done = three.run("node", "kill", "2", "--data-dir", str(three.directory))
    assert done.returncode == 1
    assert "Node 2 is not running. `drmq node start 2" in done.stderr
    outcome = json.loads(three.local("up", "-o", "json"))["nodes"]
    assert [node["started"] for node in outcome] == [False, True, False]
    assert [three.nodes[number]["pid"] for number in (1, 3)] == [before[number]["pid"] for number in (1, 3)]
    assert three.nodes[2]["kafka"] == before[2]["kafka"]
    assert eventually(three.is_healthy)
    assert three.records("orders") == list(range(RECORDS))


def test_paused_node_is_noticed_and_goes_on(three: Cluster) -> None:
    """To the others it is gone; `up` leaves it so; resumed, it catches up."""
    three.fill("orders")
    three.local("node", "pause", "3")
    assert three.states() == {1: "running", 2: "running", 3: "paused"}
    assert "was already paused" in three.local("node", "pause", "3")
    assert eventually(lambda: all(row["leader"] in (1, 2) for row in three.partitions("orders")))
    three.ask("produce", "orders", "-v", str(RECORDS))
    assert "is paused and stays paused" in three.local("up")
    done = three.run("node", "start", "3", "--data-dir", str(three.directory))
    assert done.returncode == 1
    assert "drmq node resume 3" in done.stderr
    assert "was resumed" in three.local("node", "resume", "3")
    assert eventually(three.is_healthy)
    assert three.records("orders") == list(range(RECORDS + 1))


def test_node_is_stopped_and_started(three: Cluster) -> None:
    """In order, with what it led handed over; started alone it has its old ports and data."""
    three.fill("orders")
    kafka = three.nodes[1]["kafka"]
    assert "stopped" in three.local("node", "stop", "1")
    assert not three.is_running(1)
    assert "stopped cleanly" in (three.directory / three.nodes[1]["log"]).read_text()
    assert three.records("orders") == list(range(RECORDS))
    assert f"Node 1 serves at {kafka}" in three.local("node", "start", "1")
    assert "was already running" in three.local("node", "start", "1")
    assert eventually(three.is_healthy)


def test_without_most_nodes_it_is_down(three: Cluster) -> None:
    """One of three cannot decide anything, says so, and goes on by itself when another one comes."""
    three.fill("orders")
    three.local("node", "kill", "1")
    three.local("node", "kill", "2")
    eventually(three.health, lambda found: found[0] == 2, what="one of three does not serve")
    # What it prints depends on how quickly the two elect a controller.
    three.local("node", "start", "2")
    eventually(three.health, lambda found: found[0] == 1, what="two of three serve")
    assert three.records("orders") == list(range(RECORDS))


def test_down_and_up_again(three: Cluster) -> None:
    """All stop in order at the same time; started together again, they have their records and leaders."""
    three.fill("orders")
    report = three.local("down")
    assert report.count("stopped.") == 3
    assert three.states() == {1: "stopped", 2: "stopped", 3: "stopped"}
    assert three.run("cluster", "health", "-b", three.bootstrap).returncode == 2
    # The founders are remembered, so that no number has to be.
    assert three.local("up").count("serves at") == 3
    # When `up` returns, who leads is settled, and everyone has everything.
    assert eventually(three.is_healthy)
    assert three.records("orders") == list(range(RECORDS))


def test_one_of_three_started_alone_waits(three: Cluster) -> None:
    """It runs, says that it waits, and serves once there are two."""
    three.local("down")
    assert "waits for other nodes" in three.local("node", "start", "1")
    assert three.states() == {1: "running", 2: "stopped", 3: "stopped"}
    three.local("node", "start", "3")
    assert eventually(lambda: three.health()[1]["brokers"] == [1, 3])


def test_raft_shows_groups_and_moves_leaders(three: Cluster) -> None:
    """Every partition is a group with a term; the lead goes where it is sent, and stays there."""
    three.fill("orders")
    assert eventually(three.is_healthy)
    rows = {(row["topic"], row["partition"]): row for row in three.data("raft", "ls")}
    assert rows["__cluster_metadata", 0]["voters"] == [1, 2, 3]

    def records() -> int:
        return sum(row["high_watermark"] or 0 for row in three.data("raft", "ls") if row["topic"] == "orders")

    eventually(records, lambda count: count == RECORDS, what="all records are committed")
    before = three.data("raft", "describe", "orders", "0")
    assert [row["role"] for row in before["replicas"]].count("leader") == 1
    target = before["leader"] % 3 + 1
    moved = three.data("raft", "transfer", "orders", "0", "--to", str(target))
    assert (moved["leader"], moved["moved"]) == (target, True)
    after = eventually(
        lambda: three.data("raft", "describe", "orders", "0"),
        lambda found: (found["leader"], found["preferred_leader"]) == (target, target),
        what=f"node {target} leads",
    )
    assert after["term"] > before["term"]
    assert three.records("orders") == list(range(RECORDS))


def test_cluster_grows_and_shrinks(three: Cluster) -> None:
    """A node joins, gets its share and a vote, and is drained and removed again; nothing is lost on the way."""
    three.fill("orders", 4)
    assert "Node 4 serves" in three.local("up", "--nodes", "4")
    eventually(lambda: three.data("cluster", "info")["observers"], lambda found: found == [4])
    assert [row["replicas"] for row in three.data("cluster", "members")][3] == 0
    planned = three.data("cluster", "rebalance", "--dry-run")["moves"]
    assert {node for move in planned for node in move["adding"]} == {4}
    assert [row["replicas"] for row in three.data("cluster", "members")][3] == 0
    assert three.data("cluster", "rebalance", "--yes")["done"] is True
    eventually(
        lambda: [row["replicas"] for row in three.data("cluster", "members")],
        lambda kept: max(kept) - min(kept) <= 1,
        what="a share of the replicas for each",
    )
    assert three.records("orders") == list(range(RECORDS))
    assert three.data("cluster", "add", "4")["voters"] == [1, 2, 3, 4]
    assert three.data("cluster", "remove", "4", "--yes")["removed"] is True
    assert eventually(lambda: not three.is_running(4))
    # Any node may be asked, and some hear of it later than others.
    eventually(lambda: [row["node"] for row in three.data("cluster", "members")], lambda found: found == [1, 2, 3])
    assert eventually(lambda: all(4 not in row["replicas"] for row in three.partitions("orders")))
    assert eventually(three.is_healthy)
    assert three.records("orders") == list(range(RECORDS))
    # With its old data it is told why it is not wanted; without, it joins as a new one.
    done = three.run("up", "--data-dir", str(three.directory))
    assert done.returncode == 1
    assert "was removed from the cluster" in done.stderr
    assert f"`drmq node forget 4 --data-dir {three.directory}` so that it is not started again" in done.stderr
    assert three.local("up", "--nodes", "3").count("was already running") == 3


def test_node_alone_becomes_a_cluster(empty: Cluster) -> None:
    """Started again with a port for others, it keeps its records and clients' port; the new nodes join it."""
    # The others take the ports that follow, which a test beside this one may have.
    empty.local("up", "--port", str(free_ports(HOST, 3, (0, 1000))[0]))
    alone = empty.nodes[1]
    assert alone["peer_port"] is None
    empty.ask("topic", "create", "orders")
    empty.ask("produce", "orders", text="".join(f"{number}\n" for number in range(RECORDS)))
    empty.local("up", "--nodes", "3")
    assert empty.nodes[1]["kafka"] == alone["kafka"]
    assert empty.nodes[1]["peer_port"] == alone["port"] + 1000
    info = empty.data("cluster", "info")
    assert (info["voters"], info["observers"]) == ([1], [2, 3])
    assert empty.records("orders") == list(range(RECORDS))


def test_cluster_that_grew_from_one_node(empty: Cluster) -> None:
    """Those that joined may vote: they serve without the first, and are no new nodes when they are started again.

    Its topics get as many replicas as it has nodes, and so outlive the first as well.
    """
    empty.local("up", "--port", str(free_ports(HOST, 3, (0, 1000))[0]))
    empty.fill("orders")
    assert "drmq cluster add 2" in empty.local("up", "--nodes", "3")
    for node_id in ("2", "3"):
        empty.data("cluster", "add", node_id)
    assert [row["replicas"] for row in empty.partitions("orders")] == [[1]] * 3
    assert len(empty.data("topic", "alter", "orders", "--replicas", "3", "--yes")["moves"]) == 3
    eventually(
        lambda: [sorted(row["in_sync"]) for row in empty.partitions("orders")], lambda found: found == [[1, 2, 3]] * 3
    )
    for node_id in ("1", "2"):
        empty.local("node", "kill", node_id)
    # What it prints depends on how quickly the two elect a controller.
    empty.local("node", "start", "2")
    eventually(empty.health, lambda found: found[0] == 1, what="two of three serve")
    assert empty.records("orders") == list(range(RECORDS))
    again = empty.local("up", "--nodes", "3", "--host", "127.0.0.7")
    assert "Existing nodes keep their addresses." in again
    assert "cluster add" not in again
    assert "rebalance" not in again


def test_up_of_too_few_names_whom_it_needs(three: Cluster) -> None:
    """At once, since one of three cannot serve; the one that was started goes on waiting."""
    three.local("down")
    done = three.run("up", "--nodes", "1", "--data-dir", str(three.directory))
    assert done.returncode == 1
    assert "Nodes 2, 3 of this cluster are not running" in done.stderr
    assert f"`drmq up --data-dir {three.directory}` starts all" in done.stderr
    assert "after 1 s" in done.stderr
    assert three.states() == {1: "running", 2: "stopped", 3: "stopped"}
    three.local("up")


def test_failed_node_does_not_take_the_others_with_it(three: Cluster) -> None:
    """What it said is in the error, and those that ran go on."""
    three.local("node", "kill", "3")
    identity = three.directory / three.nodes[3]["data_dir"] / "drmq.json"
    identity.write_text("{}")
    done = three.run("up", "--data-dir", str(three.directory))
    assert done.returncode == 1
    assert "Node 3 exited at once with code 1" in done.stderr
    assert "drmq.json" in done.stderr
    assert three.states() == {1: "running", 2: "running", 3: "stopped"}


def test_cluster_that_cannot_start_leaves_nothing(empty: Cluster) -> None:
    """A taken port of any node is found before a process is started."""
    first, second = free_ports(HOST, 2, (0, 1000))
    with socket.create_server(("127.0.0.1", second)):
        done = empty.run("up", "--nodes", "2", "--data-dir", str(empty.directory), "--port", str(first))
    assert done.returncode == 1
    assert f"Cannot listen on 127.0.0.1:{second}: Address already in use" in done.stderr
    assert not empty.directory.exists()


def test_nodes_started_by_hand(tmp_path: Path) -> None:
    """The flags of the manual: each node is told the others' addresses for clients, and all find each other."""
    first = Cluster(tmp_path)
    ports = free_ports(HOST, 3, (0, 1000))
    processes = []
    try:
        for number, port in enumerate(ports, start=1):
            peers = ",".join(f"{other}:localhost:{p}" for other, p in enumerate(ports, start=1) if other != number)
            flags = ["--peers", peers, "--rack", f"r{number}"]
            processes.append(BrokerProcess(tmp_path / f"data-{number}", port, flags, node_id=number).start())
        for process in processes:
            process.wait_ready()
        rows: list[dict[str, Any]] = []

        def all_there() -> bool:
            found = first.run("cluster", "members", "-b", processes[0].bootstrap, "-o", "json")
            rows[:] = json.loads(found.stdout) if found.returncode == 0 else []
            return [row["state"] for row in rows] == ["up"] * 3

        assert eventually(all_there)
        assert [row["rack"] for row in rows] == ["r1", "r2", "r3"]
    finally:
        for process in processes:
            if process.running:
                process.kill()


def test_each_node_of_a_local_cluster_has_ports_of_its_own(empty: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes share variables and file, in which a port can only be that of the first node."""
    monkeypatch.setenv("DRMQ_GATEWAY", "true")
    first = free_ports(HOST, 9)[0]
    monkeypatch.setenv("DRMQ_METRICS_PORT", str(first))
    ports = ("--http-port", str(first + 3), "--grpc-port", str(first + 6))
    started = json.loads(empty.local("up", "--nodes", "3", "--port", "0", *ports, "-o", "json"))["nodes"]
    expected = [tuple(f"{HOST}:{first + 3 * kind + number}" for kind in range(3)) for number in range(3)]
    assert [(each["metrics"], each["http"], each["grpc"]) for each in started] == expected
    for each in started:
        # `up` has waited for the gateways. grpcio opens its own socket, so nothing else would wait for it.
        with socket.create_connection((HOST, int(each["grpc"].rpartition(":")[2])), timeout=TIMEOUT_S):
            pass
        with urllib.request.urlopen(f"http://{each['metrics']}/readyz", timeout=TIMEOUT_S) as answer:
            assert answer.read() == b"ready\n"
    empty.local("down")
    monkeypatch.delenv("DRMQ_METRICS_PORT")
    again = json.loads(empty.local("up", "-o", "json"))["nodes"]
    assert [(each["metrics"], each["http"], each["grpc"]) for each in again] == expected, "as before"
