"""`drmq cluster` against a scripted cluster: what it shows, what it asks for, and when it stops waiting."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from drmq.client import Partition, Reassignment, Topic
from drmq.client.health import judged
from drmq.model import NO_TOPIC_ID, ErrorCode, TopicPartition
from drmq.server.cli import main
from drmq.wire import ApiKey

from .scripted_cluster import ScriptedCluster, scripted_cluster

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def four() -> Iterator[ScriptedCluster]:
    """Four brokers, of which 1 to 3 vote, and two topics on those three."""
    with scripted_cluster(4) as cluster:
        cluster.add("orders", [1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2])
        cluster.add("small", [2])
        yield cluster


def data(capture: Capture, cluster: ScriptedCluster, *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "-b", cluster.bootstrap, "-o", "json"]) == code
    return json.loads(capture.readouterr().out)


def test_info(four: ScriptedCluster, capsys: Capture) -> None:
    """The whole in numbers; for people in lines without what there is none of."""
    four.racks = {1: "a", 2: "b"}
    assert data(capsys, four, "cluster", "info") == {
        "cluster_id": "fake",
        "controller": 1,
        "metadata_epoch": 9,
        "metadata_high_watermark": 100,
        "voters": [1, 2, 3],
        "observers": [4],
        "brokers": [1, 2, 3, 4],
        "fenced_brokers": [],
        "missing": [],
        "racks": ["a", "b"],
        "topics": 2,
        "partitions": 5,
        "replicas": 13,
        "reassignments": 0,
    }
    assert main(["cluster", "info", "-b", four.bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Cluster fake"
    assert "  controller    1, in term 9" in lines
    assert not any("unreachable" in line or "moving" in line for line in lines)


def test_members(four: ScriptedCluster, capsys: Capture) -> None:
    """Who votes, who leads how much, and who is behind."""
    four.fenced = {3}
    four.log_ends = {4: 93}
    for place in four.places.values():
        place.in_sync = [node for node in place.in_sync if node != 3]
    rows = data(capsys, four, "cluster", "members")
    assert [(row["node"], row["state"], row["metadata"], row["metadata_lag"]) for row in rows] == [
        (1, "up", "leader", 0),
        (2, "up", "voter", 0),
        (3, "unreachable", "voter", 0),
        (4, "up", "observer", 7),
    ]
    assert [(row["leaders"], row["replicas"], row["out_of_sync"]) for row in rows] == [
        (2, 4, 0),
        (2, 5, 0),
        (1, 4, 4),
        (0, 0, 0),
    ]


def without_most(four: ScriptedCluster) -> None:
    """Three of four nodes die. The last one hangs up on whoever asks for the controller; nobody is fenced any more."""
    four.fakes.controller_id = -1
    for node_id in (2, 3, 4):
        four.fakes[node_id].close()
    for key in (ApiKey.DESCRIBE_QUORUM, ApiKey.UNREGISTER_BROKER, ApiKey.LIST_PARTITION_REASSIGNMENTS):
        four.fakes.answer(key, lambda request: None)


def test_members_and_info_without_most_nodes(four: ScriptedCluster, capsys: Capture) -> None:
    """They are looked at just then: who answers is told, and what nobody knows is left open."""
    without_most(four)
    rows = data(capsys, four, "cluster", "members")
    assert [(row["node"], row["state"], row["metadata"]) for row in rows] == [
        (1, "up", None),
        (2, "unreachable", None),
        (3, "unreachable", None),
        (4, "unreachable", None),
    ]
    found = data(capsys, four, "cluster", "info")
    assert (found["brokers"], found["missing"]) == ([1], [2, 3, 4])
    assert found["controller"] is found["voters"] is found["reassignments"] is None
    assert main(["cluster", "members", "-b", four.bootstrap]) == 0
    assert "There is no controller, so nothing can be created or changed" in capsys.readouterr().out
    assert main(["cluster", "info", "-b", four.bootstrap]) == 0
    assert "  controller    none, so nothing can be created or changed\n" in capsys.readouterr().out


def test_change_without_most_nodes_says_where_to_look(four: ScriptedCluster, capsys: Capture) -> None:
    """A broker that hangs up is not always one that stopped."""
    without_most(four)
    assert main(["cluster", "remove", "2", "--yes", "--timeout", "0.5", "-b", four.bootstrap]) == 1
    hint = f"(check with `drmq cluster health -b {four.bootstrap}`)"
    assert f"lost contact with most other nodes {hint}" in capsys.readouterr().err


def topic(*partitions: Partition) -> Topic:
    return Topic("t", NO_TOPIC_ID, False, partitions)


SOUND = Partition(0, 1, 1, (1, 2, 3), (1, 2, 3))
BEHIND = Partition(1, 1, 1, (1, 2, 3), (1, 2))
LEADERLESS = Partition(2, None, 1, (1, 2, 3), (3,))


@pytest.mark.parametrize(
    ("brokers", "partitions", "controller", "status", "reason"),
    [
        ([1, 2, 3], [SOUND], 1, "healthy", "3 nodes, 1 partition, all replicas in sync"),
        ([1], [], 1, "healthy", "1 node, 0 partitions, all replicas in sync"),
        ([1, 2, 3, -4], [SOUND], 1, "degraded", "node 4 is unreachable"),
        ([1, 2, -3], [SOUND], 1, "degraded", "node 3 is unreachable, 1 partition is under-replicated"),
        ([1, -2, -3], [SOUND], 1, "down", "nodes 2, 3 are unreachable, 1 partition has no leader"),
        ([-1, 2, 3], [SOUND], 2, "down", "node 1 is unreachable, 1 partition has no leader"),
        ([1, 2, 3], [SOUND, BEHIND], 1, "degraded", "1 partition is under-replicated"),
        ([1, 2, 3], [SOUND, LEADERLESS], 1, "degraded", "1 partition has no leader"),
        ([1, 2, 3], [SOUND], None, "degraded", "there is no controller, so nothing can be created or changed"),
        ([1, 2, 3], [LEADERLESS], 1, "down", "1 partition has no leader"),
        (
            [-1, 2],
            [],
            1,
            "degraded",
            "node 1 is unreachable, there is no controller, so nothing can be created or changed",
        ),
    ],
)
def test_health_is_judged(
    brokers: list[int], partitions: list[Partition], controller: int | None, status: str, reason: str
) -> None:
    """A negative number is a node that is not there."""
    found = judged(
        [abs(node) for node in brokers], {node for node in brokers if node > 0}, [topic(*partitions)], controller
    )
    assert (found["status"], found["reason"]) == (status, reason)
    named = [row["partition"] for row in (*found["leaderless"], *found["under_replicated"])]
    assert LEADERLESS not in partitions or LEADERLESS.index in named
    assert BEHIND not in partitions or BEHIND.index in named


def test_health_says_for_whom_a_move_waits() -> None:
    """Moves that go on are no trouble; one whose node is not there is, and the node is named."""
    moves = {
        TopicPartition("t", 0): Reassignment((1, 2, 3), (3,), (1,)),
        TopicPartition("t", 1): Reassignment((1, 2, 4), (4,), (1,)),
    }
    found = judged([1, 2, 3, 4], {1, 2, 3}, [topic(SOUND)], 1, moves)
    assert found["reason"] == "node 4 is unreachable, 1 partition waits to move until node 4 is back"
    assert found["waiting"] == [{"topic": "t", "partition": 1, "waits_for": [4]}]
    found = judged([1, 2, 3, 4], {1, 2, 3, 4}, [topic(SOUND)], 1, moves)
    assert (found["status"], found["waiting"]) == ("healthy", [])


def test_topic_that_cannot_be_described_is_leaderless() -> None:
    """A broker cannot even name its partitions."""
    broken = Topic("broken", NO_TOPIC_ID, False, (), ErrorCode.KAFKA_STORAGE_ERROR)
    found = judged([1, 2, 3], {1, 2, 3}, [topic(SOUND), broken], 1)
    assert found["status"] == "degraded"
    assert [(row["topic"], row["partition"]) for row in found["leaderless"]] == [("broken", None)]


def test_health_names_partitions(four: ScriptedCluster, capsys: Capture) -> None:
    """The exit code is for monitors, the lines are for people."""
    assert main(["cluster", "health", "-b", four.bootstrap]) == 0
    assert capsys.readouterr().out == "Healthy: 4 nodes, 5 partitions, all replicas in sync.\n"
    for place in list(four.places.values())[:4]:
        place.in_sync.remove(3)
    list(four.places.values())[4].leader = -1
    assert main(["cluster", "health", "-b", four.bootstrap]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Degraded: 1 partition has no leader, 4 partitions are under-replicated."
    assert lines[1] == "  small-0 without a leader: in sync 2 of 2"
    assert lines[2] == "  orders-0 under-replicated: in sync 1, 2 of 1, 2, 3"


def test_health_asks_every_node(four: ScriptedCluster, capsys: Capture) -> None:
    """A node that died a moment ago is still in the others' lists."""
    four.fakes[3].close()
    found = data(capsys, four, "cluster", "health", code=1)
    assert (found["missing"], found["brokers"]) == ([3], [1, 2, 4])
    assert [(row["topic"], row["partition"]) for row in found["leaderless"]] == [("orders", 2)]


# ---- members that come and go ---------------------------------------------------------------------


def test_add_gives_a_vote(four: ScriptedCluster, capsys: Capture) -> None:
    """In the life that the quorum knows; a second time nothing happens."""
    assert data(capsys, four, "cluster", "add", "4") == {"node": 4, "added": True, "voters": [1, 2, 3, 4]}
    assert data(capsys, four, "cluster", "add", "4") == {"node": 4, "added": False, "voters": [1, 2, 3, 4]}
    assert four.changes == ["add voter 4"]


def test_add_of_a_node_that_has_not_joined(four: ScriptedCluster, capsys: Capture) -> None:
    """How a node joins is in the error."""
    assert main(["cluster", "add", "9", "-b", four.bootstrap]) == 1
    error = capsys.readouterr().err
    assert "There is no node 9 in the cluster. Existing nodes: 1, 2, 3, 4" in error
    assert "--peers" in error
    four.fenced = {4}
    assert main(["cluster", "add", "4", "-b", four.bootstrap]) == 1
    assert "Node 4 is unreachable" in capsys.readouterr().err
    assert four.changes == []


def test_remove_waits_until_the_node_is_gone(four: ScriptedCluster, capsys: Capture) -> None:
    """Its replicas go first."""
    four.places.popitem()
    assert data(capsys, four, "cluster", "remove", "3", "--yes") == {"node": 3, "replicas": 4, "removed": True}
    assert four.changes == ["unregister 3"]
    assert 3 not in four.fakes.brokers
    assert not any(3 in place.replicas for place in four.places.values())


def test_remove_without_waiting(four: ScriptedCluster, capsys: Capture) -> None:
    """It goes on by itself."""
    assert main(["cluster", "remove", "3", "--yes", "--no-wait", "-b", four.bootstrap]) == 0
    assert "Node 3 is being drained" in capsys.readouterr().out
    assert 3 in four.fakes.brokers


def test_remove_asks_first(four: ScriptedCluster, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there to answer is a no."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["cluster", "remove", "3", "-b", four.bootstrap]) == 1
    assert "Move 4 replicas away from node 3 and remove it? [y/N]" in capsys.readouterr().err
    assert four.changes == []


def test_remove_of_the_vote_only(four: ScriptedCluster, capsys: Capture) -> None:
    """The broker stays."""
    found = data(capsys, four, "cluster", "remove", "3", "--vote-only", "--yes")
    assert found == {"node": 3, "removed": False, "had_vote": True}
    assert (four.changes, four.voters) == (["remove voter 3"], [1, 2])


def test_vote_that_there_was_none_of(four: ScriptedCluster, capsys: Capture) -> None:
    """Nothing is asked, of nobody, and nothing is claimed to have changed."""
    assert main(["cluster", "remove", "4", "--vote-only", "-b", four.bootstrap]) == 0
    assert capsys.readouterr().out == "Node 4 had no vote on the metadata.\n"
    assert four.changes == []


def test_remove_says_how_a_local_node_is_left_out(four: ScriptedCluster, capsys: Capture) -> None:
    """Else the next `drmq up` starts it in vain."""
    four.places.popitem()
    assert main(["cluster", "remove", "3", "--yes", "-b", four.bootstrap]) == 0
    assert "`drmq node forget 3 --data-dir DIR` so that it is not started again" in capsys.readouterr().out


# ---- rebalance ------------------------------------------------------------------------------------


def test_dry_run_changes_nothing(four: ScriptedCluster, capsys: Capture) -> None:
    """The plan is shown, for machines with all its parts."""
    found = data(capsys, four, "cluster", "rebalance", "--dry-run")
    assert found["done"] is False
    assert {tuple(move["adding"]) for move in found["moves"]} == {(4,)}
    assert four.changes == []


def test_rebalance_moves_one_at_a_time_then_elects(four: ScriptedCluster, capsys: Capture) -> None:
    """Each move is through before the next begins (the script checks it), and the leaders follow at the end."""
    found = data(capsys, four, "cluster", "rebalance", "--yes")
    assert found["done"] is True
    moves = [change for change in four.changes if change.startswith("move")]
    elections = [change for change in four.changes if change.startswith("elect")]
    assert four.changes == moves + elections
    assert len(moves) == len(elections) == len(found["moves"])
    counts = {node: sum(node in place.replicas for place in four.places.values()) for node in (1, 2, 3, 4)}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert all(place.leader == place.replicas[0] for place in four.places.values())
    assert main(["cluster", "rebalance", "--yes", "-b", four.bootstrap]) == 0
    assert "there is nothing to move" in capsys.readouterr().out


def test_refused_move_ends_it(four: ScriptedCluster, capsys: Capture) -> None:
    """With the reason; what is not begun is not begun."""
    four.refuse_moves = True
    assert main(["cluster", "rebalance", "--yes", "-b", four.bootstrap]) == 1
    captured = capsys.readouterr()
    assert "INVALID_REPLICA_ASSIGNMENT" in captured.err
    assert "is rebalanced" not in captured.out
    assert len(four.changes) == 1
