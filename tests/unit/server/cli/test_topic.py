"""`drmq topic alter --replicas` against a scripted cluster: the plan, the question, and one move at a time."""

import io
import json
from collections.abc import Iterator

import pytest

from drmq.model import TopicPartition
from drmq.server.cli import main

from .scripted_cluster import ScriptedCluster, scripted_cluster

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def grown() -> Iterator[ScriptedCluster]:
    """Three brokers, of which the first was alone when the topics were made."""
    with scripted_cluster(3) as cluster:
        cluster.add("orders", [1], [1])
        cluster.add("__consumer_offsets", [1])
        yield cluster


def replicas(cluster: ScriptedCluster, topic: str) -> list[list[int]]:
    return [found.replicas for place, found in cluster.places.items() if place.topic == topic]


@pytest.mark.parametrize("topic", ["orders", "__consumer_offsets"])
def test_replicas_are_raised_and_lowered(grown: ScriptedCluster, capsys: Capture, topic: str) -> None:
    """Each move is through before the next begins (the script checks it); then leaders are where they should be."""
    assert main(["topic", "alter", topic, "--replicas", "3", "--yes", "-b", grown.bootstrap, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["topic"], found["altered"], found["set"]) == (topic, True, {})
    assert [sorted(move["adding"]) for move in found["moves"]] == [[2, 3]] * len(replicas(grown, topic))
    assert all(sorted(nodes) == [1, 2, 3] for nodes in replicas(grown, topic))
    assert grown.changes[-1].startswith("elect")
    others = [found.replicas for place, found in grown.places.items() if place.topic != topic]
    assert all(nodes == [1] for nodes in others)
    assert main(["topic", "alter", topic, "-r", "2", "--yes", "-b", grown.bootstrap]) == 0
    assert "drop from" in capsys.readouterr().out
    assert all(len(nodes) == 2 and nodes[0] == 1 for nodes in replicas(grown, topic))


def test_plan_is_shown_and_asked_for(grown: ScriptedCluster, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there to answer is a no, and a dry run asks nothing."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["topic", "alter", "orders", "--replicas", "2", "-b", grown.bootstrap]) == 1
    captured = capsys.readouterr()
    assert "copy to 2" in captured.out
    assert "Change 2 partitions, copying 2 replicas? [y/N]" in captured.err
    assert main(["topic", "alter", "orders", "--replicas", "2", "--dry-run", "-b", grown.bootstrap]) == 0
    assert "Topic `orders`: 2 replicas (not done: dry run)." in capsys.readouterr().out
    assert grown.changes == []


def test_nothing_to_change(grown: ScriptedCluster, capsys: Capture) -> None:
    """Nothing is asked, of nobody."""
    assert main(["topic", "alter", "orders", "--replicas", "1", "-b", grown.bootstrap]) == 0
    assert capsys.readouterr().out == "Topic `orders`: 1 replica.\n"
    assert grown.changes == []


def test_what_cannot_be_is_refused(grown: ScriptedCluster, capsys: Capture) -> None:
    """Before anything is moved, with what to do."""
    assert main(["topic", "alter", "orders", "--replicas", "4", "--yes", "-b", grown.bootstrap]) == 1
    assert "orders-0 cannot have 4 replicas" in capsys.readouterr().err
    assert grown.changes == []
    grown.places[TopicPartition("orders", 0)].target = [1, 2]
    grown.places[TopicPartition("orders", 0)].polls_left = 9
    assert main(["topic", "alter", "orders", "--replicas", "3", "--yes", "-b", grown.bootstrap]) == 1
    assert "orders-0 is being moved" in capsys.readouterr().err
    assert grown.changes == []
