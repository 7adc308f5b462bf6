"""`drmq status` against a scripted cluster: whom it counts, and what it says of the others."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from drmq.server.cli import main
from drmq.wire import ApiKey
from drmq.wire.messages.describe_log_dirs import DescribeLogDirsResponse
from drmq.wire.messages.list_groups import ListGroupsResponse

from .scripted_cluster import ScriptedCluster, scripted_cluster

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def three() -> Iterator[ScriptedCluster]:
    """Three brokers with a topic on all of them and one on the third alone."""
    with scripted_cluster(3) as cluster:
        cluster.add("orders", [1, 2, 3], [2, 3, 1])
        cluster.add("small", [3])
        cluster.fakes.answer(ApiKey.DESCRIBE_LOG_DIRS, lambda request: DescribeLogDirsResponse())
        cluster.fakes.answer(ApiKey.LIST_GROUPS, lambda request: ListGroupsResponse())
        yield cluster


def status(capture: Capture, cluster: ScriptedCluster, code: int) -> Any:
    assert main(["status", "-b", cluster.bootstrap, "-o", "json"]) == code
    return json.loads(capture.readouterr().out)


def test_healthy(three: ScriptedCluster, capsys: Capture) -> None:
    """All of them are counted, and listed for people."""
    found = status(capsys, three, 0)
    assert (found["reason"], found["missing"]) == ("3 brokers, 2 topics, 0 groups", [])
    assert main(["status", "-b", three.bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"  broker 1 at {three.fakes[1].address} (controller)"
    assert len(lines) == 4


def test_node_that_just_died_is_named(three: ScriptedCluster, capsys: Capture) -> None:
    """The others do not know of it yet, and nobody waits for its groups."""
    three.fakes[3].close()
    found = status(capsys, three, 1)
    assert found["reason"] == (
        "node 3 is unreachable, 1 partition is without a leader: small-0, 2 partitions are under-replicated"
    )
    assert [broker["id"] for broker in found["brokers"]] == [1, 2]
    assert (found["missing"], found["groups"]) == ([3], None)
    assert three.fakes[1].count(ApiKey.LIST_GROUPS) == 0


def test_most_nodes_gone(three: ScriptedCluster, capsys: Capture) -> None:
    """Without a controller nobody is fenced: what the last node has heard of the others is not believed."""
    for node_id in (2, 3):
        three.fakes[node_id].close()
    three.fakes.controller_id = 2
    found = status(capsys, three, 1)
    assert found["reason"] == (
        "nodes 2, 3 are unreachable, there is no controller, so nothing can be created or changed, "
        "3 partitions are without a leader: orders-0, orders-1, small-0"
    )
    assert [(broker["id"], broker["controller"]) for broker in found["brokers"]] == [(1, False)]


def test_partition_that_stopped(three: ScriptedCluster, capsys: Capture) -> None:
    """Where everybody is there, the reason is in the log of a node."""
    next(iter(three.places.values())).leader = -1
    assert status(capsys, three, 1)["reason"] == (
        "1 partition is without a leader: orders-0 (stopped; the log of the node contains the reason)"
    )
