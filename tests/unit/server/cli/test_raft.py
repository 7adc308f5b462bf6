"""`drmq raft` against a scripted cluster."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from drmq.model import TopicPartition
from drmq.server.cli import main

from .scripted_cluster import ScriptedCluster, scripted_cluster

Capture = pytest.CaptureFixture[str]
ORDERS_0 = TopicPartition("orders", 0)


@pytest.fixture
def three() -> Iterator[ScriptedCluster]:
    with scripted_cluster(3) as cluster:
        cluster.add("orders", [1, 2, 3], [2, 3])
        yield cluster


def data(capture: Capture, cluster: ScriptedCluster, *arguments: str) -> Any:
    assert main([*arguments, "-b", cluster.bootstrap, "-o", "json"]) == 0
    return json.loads(capture.readouterr().out)


def test_groups_are_listed(three: ScriptedCluster, capsys: Capture) -> None:
    """The metadata's first; one without a leader with what the metadata says of it."""
    three.log_ends = {3: 60}
    three.places[TopicPartition("orders", 1)].leader = -1
    metadata, first, second = data(capsys, three, "raft", "ls")
    assert (metadata["topic"], metadata["leader"], metadata["term"]) == ("__cluster_metadata", 1, 9)
    assert first == {
        "topic": "orders",
        "partition": 0,
        "leader": 1,
        "term": 1,
        "high_watermark": 100,
        "voters": [1, 2, 3],
        "learners": [],
        "lag_max": 40,
        "in_sync": [1, 2, 3],
    }
    assert (second["leader"], second["voters"], second["high_watermark"]) == (None, [2, 3], None)


def test_groups_of_a_topic(three: ScriptedCluster, capsys: Capture) -> None:
    """Only these; the metadata too if it is named."""
    assert [row["topic"] for row in data(capsys, three, "raft", "ls", "orders")] == ["orders", "orders"]
    assert [row["topic"] for row in data(capsys, three, "raft", "ls", "__cluster_metadata")] == ["__cluster_metadata"]


def test_describe(three: ScriptedCluster, capsys: Capture) -> None:
    """Each replica with its role and how far it is."""
    three.places[ORDERS_0].target = [1, 2, 3, 4]
    three.places[ORDERS_0].in_sync = [1, 2]
    three.log_ends = {3: 90, 4: 10}
    found = data(capsys, three, "raft", "describe", "orders", "0")
    assert (found["leader"], found["preferred_leader"], found["term"], found["high_watermark"]) == (1, 1, 1, 100)
    assert [(row["node"], row["role"], row["lag"], row["in_sync"]) for row in found["replicas"]] == [
        (1, "leader", 0, True),
        (2, "voter", 0, True),
        (3, "voter", 10, False),
        (4, "learner", 90, False),
    ]


def test_describe_for_people(three: ScriptedCluster, capsys: Capture) -> None:
    """One sentence and a table."""
    three.places[ORDERS_0].leader = 2
    assert main(["raft", "describe", "orders", "0", "-b", three.bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "orders-0 is led by node 2 (node 1 should lead) in term 1; committed up to 100"
    assert lines[2].split() == ["NODE", "ROLE", "LOG", "END", "LAG", "IN", "SYNC", "LAST", "FETCH", "CAUGHT", "UP"]


def test_describe_the_metadata(three: ScriptedCluster, capsys: Capture) -> None:
    """Its group has no topic that could be described."""
    found = data(capsys, three, "raft", "describe", "__cluster_metadata", "0")
    assert (found["leader"], found["term"], len(found["replicas"])) == (1, 9, 3)


def test_describe_what_is_not_there(three: ScriptedCluster, capsys: Capture) -> None:
    """As everywhere."""
    assert main(["raft", "describe", "orders", "7", "-b", three.bootstrap]) == 1
    assert "Partition 7 of topic `orders` does not exist" in capsys.readouterr().err


def test_metadata_has_one_partition_and_elects_for_itself(three: ScriptedCluster, capsys: Capture) -> None:
    """Neither another partition is made up nor a topic missed: what can be done instead is said."""
    assert main(["raft", "describe", "__cluster_metadata", "3", "-b", three.bootstrap]) == 1
    error = capsys.readouterr().err
    assert "Partition 3 of topic `__cluster_metadata` does not exist" in error
    assert f"`drmq raft describe __cluster_metadata 0 -b {three.bootstrap}`" in error
    assert main(["raft", "transfer", "__cluster_metadata", "0", "--to", "2", "-b", three.bootstrap]) == 1
    error = capsys.readouterr().err
    assert "The leadership of the metadata cannot be moved to a chosen node" in error
    assert "drmq node stop" in error


def test_transfer_puts_first_and_elects(three: ScriptedCluster, capsys: Capture) -> None:
    """The order is changed and nothing copied; what is refused at first is tried again."""
    three.elections_refused = 2
    found = data(capsys, three, "raft", "transfer", "orders", "0", "--to", "3")
    assert (found["leader"], found["from"], found["moved"], found["term"]) == (3, 1, True, 2)
    assert three.changes == ["move orders-0 to [3, 1, 2]", "elect orders-0", "elect orders-0", "elect orders-0"]


def test_transfer_to_the_leader(three: ScriptedCluster, capsys: Capture) -> None:
    """Nothing to do, unless another one is preferred: then it would lose the lead again."""
    assert main(["raft", "transfer", "orders", "0", "--to", "1", "-b", three.bootstrap]) == 0
    assert capsys.readouterr().out == "Node 1 already leads orders-0, in term 1.\n"
    assert three.changes == []
    three.places[ORDERS_0].leader = 2
    assert data(capsys, three, "raft", "transfer", "orders", "0", "--to", "2")["moved"] is False
    assert three.changes == ["move orders-0 to [2, 1, 3]"]


def test_transfer_that_cannot_be(three: ScriptedCluster, capsys: Capture) -> None:
    """A node without a replica, and one whose replica lacks records."""
    assert main(["raft", "transfer", "orders", "1", "--to", "1", "-b", three.bootstrap]) == 1
    assert "Node 1 has no replica of orders-1; its replicas are on nodes 2, 3" in capsys.readouterr().err
    three.places[ORDERS_0].in_sync = [1, 2]
    assert main(["raft", "transfer", "orders", "0", "--to", "3", "-b", three.bootstrap, "--timeout", "0.3"]) == 1
    assert "Node 3 is not in sync with orders-0" in capsys.readouterr().err
    assert three.changes == []


def test_transfer_waits_for_a_replica_that_is_nearly_in_sync(three: ScriptedCluster, capsys: Capture) -> None:
    """As those of a topic that was created a moment ago."""
    three.places[ORDERS_0].in_sync = [1, 2]
    later = threading.Timer(0.3, three.places[ORDERS_0].in_sync.append, [3])
    later.start()
    assert data(capsys, three, "raft", "transfer", "orders", "0", "--to", "3")["leader"] == 3
    later.join()


def test_transfer_that_takes_too_long(three: ScriptedCluster, capsys: Capture) -> None:
    """The last refusal is the answer."""
    three.elections_refused = 1_000
    command = ["raft", "transfer", "orders", "0", "--to", "3", "-b", three.bootstrap, "--timeout", "0.3"]
    assert main(command) == 1
    assert "Partition 0 of topic `orders` keeps its leader" in capsys.readouterr().err
