"""Apache Kafka's `kafka-reassign-partitions`. It runs where the jars are at hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from conformance.conftest import MakeTopic, wait_for_leaders
from support.cluster import ClusterProcesses
from support.confluent_admin import ConfigResource, ConfigSource, ResourceType
from support.kafka_jars import needs_jars, run_java
from support.polling import PATIENCE_S, eventually

pytestmark = needs_jars

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RECORD_COUNT, RECORD_BYTES = 8, 100_000


def reassign(bootstrap: str, *arguments: str | Path) -> list[str]:
    return run_java(REASSIGN, "--bootstrap-server", bootstrap, *arguments).splitlines()


def test_the_printed_rollback_can_be_executed(bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    """It names the data directory of each replica, which the tool then asks the brokers for."""
    topic = make_topic(partitions=1)
    topics, plan, rollback = (tmp_path / name for name in ("topics.json", "plan.json", "rollback.json"))
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate: list[str | Path] = ["--generate", "--topics-to-move-json-file", topics, "--broker-list", "1"]
    plan.write_text(reassign(bootstrap, *generate)[-1])

    def execute(assignment: Path, *flags: str) -> list[str]:
        return reassign(bootstrap, "--reassignment-json-file", assignment, *flags)

    printed = next(line for line in execute(plan, "--execute") if line.startswith("{"))
    assert all(Path(path).is_absolute() for path in json.loads(printed)["partitions"][0]["log_dirs"])
    rollback.write_text(printed)
    execute(rollback, "--execute", "--additional")
    assert f"Reassignment of partition {topic}-0 is completed." in execute(rollback, "--verify")


# ---- moves from node 1 to node 2 -------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("reassignments"), 3) as cluster:
        yield cluster


class Move:
    """A partition on node 1 with some records, the tool that moves it to node 2, and what the cluster shows of it."""

    def __init__(self, bootstrap: str, topic: str, plan: Path) -> None:
        self.topic = topic
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._plan = plan
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2]}]}))
        new = NewTopic(topic, num_partitions=1, replica_assignment=[[1]])
        self._admin.create_topics([new], operation_timeout=PATIENCE_S)[topic].result()
        wait_for_leaders(bootstrap.partition(",")[0], topic, 1)
        producer = Producer({"bootstrap.servers": bootstrap})
        for _ in range(RECORD_COUNT):
            producer.produce(topic, bytes(RECORD_BYTES), partition=0)
            assert producer.flush(PATIENCE_S) == 0

    def run(self, *flags: str) -> list[str]:
        return reassign(self.bootstrap, "--reassignment-json-file", self._plan, *flags)

    def end(self) -> None:
        """The tool refuses a move while another one is in progress, so a test that failed must not leave one."""
        self._admin.delete_topics([self.topic], operation_timeout=PATIENCE_S)[self.topic].result()

    def wait_for_replicas(self, *expected: int) -> None:
        """Wait, because the node that is asked may learn of a change later than the one that the tool has asked."""
        eventually(self._replicas, lambda replicas: replicas == [*expected], what=f"the replicas are {expected}")

    def wait_for_throttles(self, rate: str | None) -> None:
        """Wait until the limits are those that the tool sets for a move with this rate, or until there are none."""
        names = ("leader.replication.throttled", "follower.replication.throttled")
        expected = {} if rate is None else {f"{node_id} {name}.rate": rate for node_id in (1, 2) for name in names}
        if rate is not None:
            expected |= {f"{self.topic} {names[0]}.replicas": "0:1", f"{self.topic} {names[1]}.replicas": "0:2"}
        eventually(self._throttles, lambda throttles: throttles == expected, what=f"the limits are {expected}")

    def _replicas(self) -> list[int]:
        topic = self._admin.list_topics(self.topic, timeout=PATIENCE_S).topics[self.topic]
        return sorted(topic.partitions[0].replicas)

    def _throttles(self) -> dict[str, str]:
        """The limits that the tool has set, on the brokers and on the topic."""
        resources = [ConfigResource(ResourceType.BROKER, node_id) for node_id in ("1", "2", "3")]
        resources.append(ConfigResource(ResourceType.TOPIC, self.topic))
        dynamic = {ConfigSource.DYNAMIC_BROKER_CONFIG.value, ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
        return {
            f"{resource.name} {entry.name}": entry.value
            for resource in resources
            for entry in self._admin.describe_configs([resource])[resource].result(PATIENCE_S).values()
            if "throttled" in entry.name and entry.source in dynamic
        }


@pytest.fixture
def move(cluster: ClusterProcesses, name: str, tmp_path: Path) -> Iterator[Move]:
    move = Move(cluster.bootstrap, name, tmp_path / "plan.json")
    yield move
    move.end()


def test_a_throttled_move_is_verified_and_its_throttle_removed(move: Move) -> None:
    """The limits stay while the move is in progress, and can be raised. They are gone once it is complete."""
    assert f"Successfully started partition reassignment for {move.topic}-0" in move.run("--execute", "--throttle", "1")
    move.wait_for_throttles("1")
    assert f"Reassignment of partition {move.topic}-0 is still in progress." in move.run("--verify")
    move.wait_for_throttles("1")
    raised = str(RECORD_COUNT * RECORD_BYTES)
    move.run("--execute", "--additional", "--throttle", raised)
    move.wait_for_throttles(raised)
    completed = f"Reassignment of partition {move.topic}-0 is completed."
    eventually(lambda: move.run("--verify"), lambda lines: completed in lines, what="the move is complete")
    move.wait_for_throttles(None)
    move.wait_for_replicas(2)


def test_a_cancelled_move_leaves_nothing_behind(move: Move) -> None:
    move.run("--execute", "--throttle", "1")
    move.wait_for_replicas(1, 2)
    move.wait_for_throttles("1")
    assert f"Successfully cancelled partition reassignment for: {move.topic}-0" in move.run("--cancel")
    move.wait_for_throttles(None)
    move.wait_for_replicas(1)
    assert "No partition reassignments found." in reassign(move.bootstrap, "--list")
