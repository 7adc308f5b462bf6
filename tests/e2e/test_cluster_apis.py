"""The APIs of a cluster, asked by real clients of three real processes in three racks.

What a client may rely on: any node takes any request, whoever the controller is, also while there is none; leaders,
replicas and voters go where they are told to, under load; a client that asks the wrong node is told the right one; a
client reads in its own rack. Waits are bounded, how long things take is not judged.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from drmq.client import Admin, ClientError
from drmq.client.connection import Connection, Deadline
from drmq.model import ErrorCode
from drmq.model import TopicPartition as Place
from drmq.model.address import parse_bootstrap
from drmq.server.processes import EXIT_REMOVED
from drmq.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsRequestConfig, AlterConfigsRequestResource
from drmq.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from drmq.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
)
from drmq.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from support.batches import a_batch
from support.cluster import ClusterProcesses, NodeProcess
from support.polling import PATIENCE_S, eventually
from support.raw_client import RawClient

T = TypeVar("T")

TOPIC_RESOURCE = 2
NOBODY = -1


def racked(directory: Path, nodes: int = 3) -> ClusterProcesses:
    cluster = ClusterProcesses(directory, nodes)
    for node_id, node in cluster.nodes.items():
        node.extra_args += ["--rack", rack(node_id)]
    return cluster


def rack(node_id: int) -> str:
    return f"rack-{node_id}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with racked(tmp_path_factory.mktemp("cluster")) as running:
        yield running
        assert not running.alarms()


@pytest.fixture
def admin(cluster: ClusterProcesses) -> Iterator[Admin]:
    with cluster.admin() as made:
        yield made


@contextmanager
def connected(node: NodeProcess) -> Iterator[Connection]:
    [address] = parse_bootstrap(node.bootstrap)
    connection = Connection(address, "test", Deadline(PATIENCE_S))
    try:
        yield connection
    finally:
        connection.close()


def ask(connection: Connection, request: Any, version_max: int = 32767) -> Any:
    return connection.call(request, object, Deadline(PATIENCE_S), version_max)


@contextmanager
def kafka_python(*nodes: NodeProcess) -> Iterator[Any]:
    from kafka import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=[node.bootstrap for node in nodes])
    try:
        yield client
    finally:
        client.close()


def kafka_python_place(topic: str, partition: int = 0) -> Any:
    from kafka import TopicPartition as KafkaTopicPartition

    return KafkaTopicPartition(topic, partition)


def make_topic(cluster: ClusterProcesses, admin: Admin, name: str, replicas: Sequence[int] = (1, 2, 3)) -> bytes:
    """A topic of one partition on these nodes, led by the first; its id."""
    wanted = CreateTopicsRequestTopic(name, -1, -1, [CreateTopicsRequestAssignment(0, list(replicas))])
    with connected(cluster[cluster.running[0]]) as connection:
        created = ask(connection, CreateTopicsRequest([wanted]))
    assert [entry.error_code for entry in created.topics] == [0], created
    # The node that `admin` asks may hear of the topic later than the one that was told to create it.
    found = eventually(lambda: [topic for topic in admin.topics.all() if topic.name == name])
    eventually(lambda: admin.topics.describe(name).partitions[0].in_sync, lambda found: set(found) == set(replicas))
    # On a busy machine another one may have been quicker; and some tests ask a certain node.
    for node_id in cluster.running:
        with Admin(cluster[node_id].bootstrap, timeout_s=PATIENCE_S) as one:
            eventually(lambda one=one: _led_by_the_first(one, name), what=f"{name} is led by the first")  # type: ignore[misc]
    [described] = found
    assert described.topic_id is not None
    return described.topic_id


def _led_by_the_first(admin: Admin, topic: str) -> bool:
    """Whether a node knows a topic and that its preferred leader leads; if another one does, it is asked to."""
    with contextlib.suppress(ClientError):
        partition = admin.topics.describe(topic).partitions[0]
        if partition.leader == partition.replicas[0]:
            return True
        admin.replicas.elect([_place(topic)])
    return False


def leader_of(admin: Admin, topic: str) -> int | None:
    return admin.topics.describe(topic).partitions[0].leader


def replicas_of(admin: Admin, topic: str) -> tuple[int, ...]:
    return admin.topics.describe(topic).partitions[0].replicas


def wait_replicas(admin: Admin, topic: str, replicas: Sequence[int]) -> None:
    """Until the node that is asked has heard of it: only the controller knows at once."""
    eventually(lambda: replicas_of(admin, topic), lambda found: found == tuple(replicas))


def fill(cluster: ClusterProcesses, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(PATIENCE_S) == 0


class Writer(threading.Thread):
    """An idempotent producer that never stops, and what became of its records."""

    def __init__(self, cluster: ClusterProcesses, topic: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1}
        )
        self._stopping = threading.Event()
        self.offsets: list[int] = []
        self.failures: list[str] = []
        self.start()

    def run(self) -> None:
        while not self._stopping.wait(0.002):
            self._producer.produce(self._topic, b"x" * 200, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.offsets.append(message.offset())

    def finish(self) -> None:
        """Stop, and make sure that every record was written exactly once."""
        self._stopping.set()
        self.join()
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self.failures, self.failures[:3]
        assert sorted(self.offsets) == list(range(len(self.offsets)))


# ---- requests for the controller ----------------------------------------------------------------------


def test_every_node_takes_changes_and_knows_of_them_when_it_answers(cluster: ClusterProcesses) -> None:
    for node_id, node in cluster.nodes.items():
        name = f"through-{node_id}"
        with connected(node) as connection:
            created = ask(connection, CreateTopicsRequest([CreateTopicsRequestTopic(name, 1, -1)]))
            assert [entry.error_code for entry in created.topics] == [0], created
            [seen] = ask(connection, MetadataRequest([MetadataRequestTopic(name=name)])).topics
            assert (seen.error_code, len(seen.partitions), len(seen.partitions[0].replica_nodes)) == (0, 1, 3)
            grown = ask(connection, CreatePartitionsRequest([CreatePartitionsRequestTopic(name, 3)]))
            assert [entry.error_code for entry in grown.results] == [0], grown
            [seen] = ask(connection, MetadataRequest([MetadataRequestTopic(name=name)])).topics
            assert len(seen.partitions) == 3
            config = AlterConfigsRequestConfig("retention.ms", "1000000")
            altered = ask(
                connection, AlterConfigsRequest([AlterConfigsRequestResource(TOPIC_RESOURCE, name, [config])])
            )
            assert [entry.error_code for entry in altered.responses] == [0], altered
            change = IncrementalAlterConfigsRequestConfig("segment.bytes", 0, "2000000")
            changed = ask(
                connection,
                IncrementalAlterConfigsRequest(
                    [IncrementalAlterConfigsRequestResource(TOPIC_RESOURCE, name, [change])]
                ),
            )
            assert [entry.error_code for entry in changed.responses] == [0], changed
            with Admin(node.bootstrap, timeout_s=PATIENCE_S) as admin:
                settings = {entry.name: entry.value for entry in admin.configs.of_topic(name)}
                assert (settings["retention.ms"], settings["segment.bytes"]) == ("1000000", "2000000")
            deleted = ask(connection, DeleteTopicsRequest([DeleteTopicsRequestTopic(name)]))
            assert [entry.error_code for entry in deleted.responses] == [0], deleted
            [seen] = ask(connection, MetadataRequest([MetadataRequestTopic(name=name)], False)).topics
            assert seen.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            again = ask(connection, DeleteTopicsRequest([DeleteTopicsRequestTopic(name)]))
            assert [entry.error_code for entry in again.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_new_topic_is_shown_with_its_leaders_by_every_node(cluster: ClusterProcesses) -> None:
    """A node may not have heard of a topic yet. Once it has, it also names the leaders."""
    with connected(cluster[1]) as one, connected(cluster[2]) as two, connected(cluster[3]) as three:
        for number, creator in enumerate((one, two, three) * 3):
            name = f"led-{number}"
            created = ask(creator, CreateTopicsRequest([CreateTopicsRequestTopic(name, 8, -1)]))
            assert [entry.error_code for entry in created.topics] == [0], created
            for connection in (one, two, three):
                [seen] = ask(connection, MetadataRequest([MetadataRequestTopic(name=name)], False)).topics
                if connection is not creator and seen.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                assert [each.error_code for each in seen.partitions] == [0] * 8, seen


def test_changes_go_on_when_the_controller_dies(cluster: ClusterProcesses) -> None:
    controller = cluster.controller()
    others = [node_id for node_id in cluster.ids if node_id != controller]
    with connected(cluster[others[0]]) as one, connected(cluster[others[1]]) as other:
        cluster[controller].kill()
        for number, connection in enumerate((one, other)):
            on_others = [CreateTopicsRequestAssignment(0, others)]
            request = CreateTopicsRequest([CreateTopicsRequestTopic(f"orphan-{number}", -1, -1, on_others)])

            def create(connection: Connection = connection, request: CreateTopicsRequest = request) -> int:
                [answer] = ask(connection, request).topics
                # Nothing else may be said meanwhile: a client takes NOT_CONTROLLER for "ask again".
                assert answer.error_code in (0, ErrorCode.NOT_CONTROLLER), answer
                return int(answer.error_code)

            assert eventually(create, lambda code: code == 0) == 0
    cluster[controller].start().wait_ready()
    cluster.wait_healthy()


# ---- leaders ------------------------------------------------------------------------------------------


def test_confluent_elects_the_preferred_leader(cluster: ClusterProcesses, admin: Admin) -> None:
    make_topic(cluster, admin, "elected", (1, 2, 3))
    assert not admin.replicas.reassign({_place("elected"): [2, 3, 1]})
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = TopicPartition("elected", 0)
    unknown = TopicPartition("elected", 7)
    writer = Writer(cluster, "elected")
    found = client.elect_leaders(ElectionType.PREFERRED, [wanted, unknown]).result()
    assert found[wanted] is None, found
    assert found[unknown].name() == "UNKNOWN_TOPIC_OR_PART"
    eventually(lambda: leader_of(admin, "elected"), lambda leader: leader == 2)
    again = client.elect_leaders(ElectionType.PREFERRED, [wanted]).result()[wanted]
    assert again.name() == "ELECTION_NOT_NEEDED"
    everything = client.elect_leaders(ElectionType.PREFERRED).result()
    assert wanted not in everything
    unclean = client.elect_leaders(ElectionType.UNCLEAN, [wanted]).result()[wanted]
    assert unclean.name() == "ELECTION_NOT_NEEDED"
    writer.finish()


def test_a_replica_that_is_down_is_not_elected(cluster: ClusterProcesses, admin: Admin) -> None:
    make_topic(cluster, admin, "absent", (1, 2, 3))
    cluster[1].kill()
    eventually(lambda: leader_of(admin, "absent"), lambda leader: leader in (2, 3))
    refused = admin.replicas.elect([_place("absent")]).refused[_place("absent")]
    assert refused.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert "node 1" in str(refused)
    cluster[1].start().wait_ready()
    cluster.wait_healthy()


# ---- replicas -----------------------------------------------------------------------------------------


def test_kafka_python_moves_a_partition_away_from_its_leader(cluster: ClusterProcesses, admin: Admin) -> None:
    make_topic(cluster, admin, "moving", (1, 2))
    writer = Writer(cluster, "moving")
    place, unknown = kafka_python_place("moving"), kafka_python_place("moving", 5)
    with kafka_python(*cluster.nodes.values()) as client:
        eventually(lambda: len(writer.offsets), lambda count: count > 100)
        refused = client.alter_partition_reassignments({place: [1, 9], unknown: [1]})
        assert refused[place].__name__ == "InvalidReplicationAssignmentError"
        assert refused[unknown].__name__ == "UnknownTopicOrPartitionError"
        assert client.alter_partition_reassignments({place: [3, 2]}) == {place: None}
        under_way = client.list_partition_reassignments()
        if place in under_way:
            assert under_way[place] == {"replicas": [3, 2, 1], "adding_replicas": [3], "removing_replicas": [1]}
        eventually(client.list_partition_reassignments, lambda moving: not moving)
        cancelled = client.alter_partition_reassignments({place: None})
        assert cancelled[place].__name__ == "NoReassignmentInProgressError"
    wait_replicas(admin, "moving", (3, 2))
    assert eventually(lambda: leader_of(admin, "moving"), lambda leader: leader in (2, 3))
    quorum = admin.replicas.quorum(_place("moving"))
    assert {replica.node_id for replica in quorum.voters} == {2, 3}
    assert not quorum.observers
    writer.finish()
    final = eventually(
        lambda: admin.replicas.quorum(_place("moving")),
        lambda found: all(replica.lag == 0 for replica in found.voters),
    )
    assert final.high_watermark == len(writer.offsets)


def test_a_partition_may_get_more_and_fewer_replicas_if_that_is_allowed(
    cluster: ClusterProcesses, admin: Admin
) -> None:
    make_topic(cluster, admin, "factor", (1,))
    place = _place("factor")
    refused = admin.replicas.reassign({place: [1, 2, 3]}, may_change_factor=False)[place]
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
    for target in ([1, 2, 3], [3]):
        assert not admin.replicas.reassign({place: target})
        eventually(lambda: admin.replicas.reassignments([place]), lambda moving: not moving)
        wait_replicas(admin, "factor", target)
        assert eventually(lambda: leader_of(admin, "factor"), lambda leader: leader is not None) in target


def test_a_move_that_waits_for_a_dead_node_can_be_cancelled(cluster: ClusterProcesses, admin: Admin) -> None:
    make_topic(cluster, admin, "stuck", (1, 2))
    place = _place("stuck")
    cluster[3].pause()
    try:
        assert not admin.replicas.reassign({place: [1, 3]})
        assert admin.replicas.reassignments()[place].adding == (3,)
        assert not admin.replicas.cancel([place])
        eventually(lambda: admin.replicas.reassignments(), lambda moving: not moving)
        wait_replicas(admin, "stuck", (1, 2))
    finally:
        cluster[3].resume()
    cluster.wait_healthy()
    assert {replica.node_id for replica in admin.replicas.quorum(place).voters} == {1, 2}


# ---- the metadata and its voters ----------------------------------------------------------------------


def test_kafka_python_describes_the_metadata_quorum_through_every_node(cluster: ClusterProcesses) -> None:
    controller = cluster.controller()
    for node in cluster.nodes.values():
        with kafka_python(node) as client:
            described = client.describe_metadata_quorum()
        [topic] = described["topics"]
        [partition] = topic["partitions"]
        assert partition["leader_id"] == controller, partition
        assert {voter["replica_id"] for voter in partition["current_voters"]} == {1, 2, 3}
        assert partition["observers"] == []
        assert {found["node_id"] for found in described["nodes"]} == {1, 2, 3}


def test_a_follower_names_the_leader_of_a_partition(cluster: ClusterProcesses, admin: Admin) -> None:
    make_topic(cluster, admin, "asked", (2, 1, 3))
    request = DescribeQuorumRequest(
        [DescribeQuorumRequestTopic("asked", [DescribeQuorumRequestPartition(0), DescribeQuorumRequestPartition(4)])]
    )
    with connected(cluster[1]) as connection:
        known, unknown = ask(connection, request).topics[0].partitions
    assert (known.error_code, known.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert (unknown.error_code, unknown.leader_id) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOBODY)


def test_votes_are_taken_and_given_back_down_to_the_last(cluster: ClusterProcesses, admin: Admin) -> None:
    def voters() -> set[int]:
        return {replica.node_id for replica in admin.brokers.quorum().voters}

    brokers = {broker.node_id: broker for broker in admin.brokers.all()}
    first = cluster.controller()
    admin.brokers.remove_voter(first)
    assert voters() == {1, 2, 3} - {first}
    second = cluster.controller()
    assert second != first
    admin.brokers.remove_voter(second)
    [last] = voters()
    with pytest.raises(Exception, match="the only vote"):
        admin.brokers.remove_voter(last)
    with pytest.raises(Exception, match="no longer has the data directory"):
        admin.brokers.add_voter(brokers[first], bytes(range(16)))
    for node_id in (first, second):
        admin.brokers.add_voter(brokers[node_id])
    assert voters() == {1, 2, 3}
    make_topic(cluster, admin, "after-votes")


def test_a_node_that_partitions_need_is_not_removed(cluster: ClusterProcesses, admin: Admin) -> None:
    make_topic(cluster, admin, "needed")
    with pytest.raises(Exception, match="would have fewer replicas"):
        admin.brokers.unregister(2)
    with pytest.raises(Exception, match="There is no broker 77"):
        admin.brokers.unregister(77)


def test_a_node_joins_and_the_controller_leaves_under_load(tmp_path: Path) -> None:
    with racked(tmp_path) as cluster:
        with cluster.admin() as admin:
            make_topic(cluster, admin, "kept")
        writer = Writer(cluster, "kept")
        newcomer = NodeProcess(4, tmp_path / "node-4", cluster.network, cluster.ids, ["--rack", rack(4)])
        cluster.nodes[4] = newcomer
        newcomer.start().wait_ready()
        cluster.wait_healthy()
        leaving = cluster.controller()
        with Admin(",".join(node.bootstrap for node in cluster.nodes.values()), timeout_s=30.0) as admin:
            admin.brokers.unregister(leaving)
            eventually(
                lambda: [broker.node_id for broker in admin.brokers.all()],
                lambda found: leaving not in found,
            )
            eventually(lambda: cluster[leaving].exit_status(), lambda status: status is not None)
            assert cluster[leaving].exit_status() == 0, cluster[leaving].log_text()
            assert "was removed from cluster" in cluster[leaving].log_text()
            quorum = eventually(
                admin.brokers.quorum, lambda found: leaving not in {each.node_id for each in found.observers}
            )
            # Its vote went to the newcomer: as many may fail as before.
            assert {replica.node_id for replica in quorum.voters} == {1, 2, 3, 4} - {leaving}
            eventually(lambda: set(replicas_of(admin, "kept")), lambda found: found == {1, 2, 3, 4} - {leaving})
        writer.finish()
        assert not cluster.alarms()

        # With its old disk it is told why not; with an empty one it is welcome.
        cluster[leaving].start()
        assert eventually(lambda: cluster[leaving].exit_status(), lambda status: status is not None) == EXIT_REMOVED
        assert "must start with an empty data directory" in cluster[leaving].log_text()
        cluster[leaving].wipe()
        cluster[leaving].start().wait_ready()
        cluster.wait_healthy()


def test_a_node_that_is_gone_for_good_is_removed(tmp_path: Path) -> None:
    with racked(tmp_path, 4) as cluster:
        with cluster.admin() as admin:
            make_topic(cluster, admin, "mourned", (1, 2, 3))
        fill(cluster, "mourned", 100)
        gone = cluster.controller()
        cluster[gone].kill()
        del cluster.nodes[gone]
        with cluster.admin() as admin:
            admin.brokers.unregister(gone)
            eventually(
                lambda: [broker.node_id for broker in admin.brokers.all()],
                lambda found: gone not in found,
            )
            cluster.wait_healthy()
            eventually(
                lambda: {each.node_id for each in (*admin.brokers.quorum().voters, *admin.brokers.quorum().observers)},
                lambda found: found == {1, 2, 3, 4} - {gone},
            )
            assert gone not in replicas_of(admin, "mourned")
            quorum = admin.replicas.quorum(_place("mourned"))
            assert (len(quorum.voters), quorum.high_watermark) == (3, 100)
        assert not cluster.alarms()


# ---- back-pressure ------------------------------------------------------------------------------------


def test_producers_wait_while_followers_stand_still(tmp_path: Path) -> None:
    """Beyond the limit nothing more is read from them, and nothing of what they sent is lost."""
    value, limit = bytes(500_000), 4_000_000
    environment = {"DRMQ_UNCOMMITTED_BYTES_MAX": str(limit), "DRMQ_ELECTION_TIMEOUT_MS": "6000"}
    with ClusterProcesses(tmp_path, 3, env=environment) as cluster:
        with cluster.admin() as admin:
            make_topic(cluster, admin, "flood", (1, 2, 3))
        answered: list[int] = []

        def write() -> None:
            with RawClient(cluster[1].bootstrap) as client:
                for _ in range(5):
                    # Answered by the leader's own disk, so that nothing but the limit holds the sender back.
                    answered.append(client.produce("flood", [value], acks=1))

        cluster[2].pause()
        cluster[3].pause()
        writers = [threading.Thread(target=write, daemon=True) for _ in range(6)]
        for writer in writers:
            writer.start()
        eventually(lambda: len(answered), lambda count: count * len(value) >= limit)
        time.sleep(0.5)
        # Each connection may have had one more on its way.
        assert len(answered) <= limit // len(value) + 1 + len(writers)
        assert any(writer.is_alive() for writer in writers)
        cluster[2].resume()
        cluster[3].resume()
        for writer in writers:
            writer.join(PATIENCE_S)
        assert sorted(answered) == list(range(30))


# ---- hints and racks ----------------------------------------------------------------------------------


def test_a_producer_at_the_wrong_node_is_told_the_leader(cluster: ClusterProcesses, admin: Admin) -> None:
    topic_id = make_topic(cluster, admin, "hinted", (1, 2, 3))
    records = bytes(a_batch([b"x"]))
    for version, by in ((9, {"name": "hinted"}), (10, {"name": "hinted"}), (13, {"topic_id": topic_id})):
        with connected(cluster[2]) as connection:
            data = ProduceRequestTopic(partition_data=[ProduceRequestPartition(0, records)], **by)
            answer = ask(connection, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), version)
        [[result]] = [topic.partition_responses for topic in answer.responses]
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        endpoints = [(node.node_id, node.port, node.rack) for node in answer.node_endpoints]
        expected = (NOBODY, []) if version < 10 else (1, [(1, cluster[1].port, rack(1))])
        assert (result.current_leader.leader_id, endpoints) == expected
        if version >= 10:
            assert result.current_leader.leader_epoch == admin.topics.describe("hinted").partitions[0].leader_epoch


def test_a_consumer_at_the_wrong_node_is_told_the_leader(cluster: ClusterProcesses, admin: Admin) -> None:
    topic_id = make_topic(cluster, admin, "sought", (3, 1, 2))
    answer, result = _fetch(cluster[1], topic_id, 0)
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader.leader_id == 3
    assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(3, cluster[3].port)]
    answer, result = _fetch(cluster[3], topic_id, 0)
    assert (result.error_code, result.current_leader.leader_id, answer.node_endpoints) == (0, NOBODY, [])


def test_the_leader_sends_a_client_to_the_replica_in_its_rack(cluster: ClusterProcesses, admin: Admin) -> None:
    topic_id = make_topic(cluster, admin, "near", (1, 2, 3))
    fill(cluster, "near", 50)
    _, from_leader = _fetch(cluster[1], topic_id, 0, rack(2))
    assert (from_leader.error_code, from_leader.preferred_read_replica, from_leader.records) == (0, 2, b"")
    assert from_leader.high_watermark == 50
    for asked, preferred in ((rack(1), NOBODY), ("elsewhere", NOBODY), ("", NOBODY)):
        _, result = _fetch(cluster[1], topic_id, 0, asked)
        assert (result.error_code, result.preferred_read_replica) == (0, preferred)
        assert result.records

    followed = eventually(lambda: _fetch(cluster[2], topic_id, 0, rack(2))[1], lambda found: found.high_watermark == 50)
    assert (followed.error_code, followed.preferred_read_replica) == (0, NOBODY)
    assert followed.records == _fetch(cluster[1], topic_id, 0)[1].records
    _, ahead = _fetch(cluster[2], topic_id, 1_000, rack(2))
    assert (ahead.error_code, ahead.records) == (0, b"")
    _, stranger = _fetch(cluster[2], topic_id, 0, rack(3))
    assert stranger.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_a_follower_has_no_more_is_the_leaders_to_answer(cluster: ClusterProcesses, admin: Admin) -> None:
    topic_id = make_topic(cluster, admin, "trimmed", (1, 2, 3))
    fill(cluster, "trimmed", 20)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in client.delete_records([TopicPartition("trimmed", 0, 10)]).values():
        future.result()
    followed = eventually(
        lambda: _fetch(cluster[2], topic_id, 3, rack(2))[1],
        lambda found: found.error_code != 0,
        what="the follower to follow the trim",
    )
    assert followed.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert followed.current_leader.leader_id == 1
    _, led = _fetch(cluster[1], topic_id, 3, rack(2))
    assert led.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_replica_that_is_down_is_no_ones_nearest(cluster: ClusterProcesses, admin: Admin) -> None:
    topic_id = make_topic(cluster, admin, "lonely", (1, 2, 3))
    fill(cluster, "lonely", 5)
    cluster[2].kill()
    result = eventually(lambda: _fetch(cluster[1], topic_id, 0, rack(2))[1], lambda found: bool(found.records))
    assert result.preferred_read_replica == NOBODY
    cluster[2].start().wait_ready()
    cluster.wait_healthy()


def test_confluent_reads_from_its_rack_and_goes_on_when_that_replica_dies(
    cluster: ClusterProcesses, admin: Admin
) -> None:
    make_topic(cluster, admin, "racked", (1, 2, 3))
    fill(cluster, "racked", 100)
    served_by: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "racked",
            "client.rack": rack(3),
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 100,
            "stats_cb": lambda text: served_by.append(_broker_of(text, "racked")),
        }
    )
    consumer.assign([TopicPartition("racked", 0, 0)])
    try:
        read = _consume(consumer, 100)
        eventually(lambda: consumer.poll(0.05) or served_by[-1:], lambda seen: seen == [3], what="reads from node 3")
        fill(cluster, "racked", 100)
        read += _consume(consumer, 100)
        cluster[3].kill()
        fill(cluster, "racked", 100)
        read += _consume(consumer, 100)
    finally:
        consumer.close()
    assert read == [str(number).encode() for _ in range(3) for number in range(100)]
    cluster[3].start().wait_ready()
    cluster.wait_healthy()


def _consume(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []

    def look() -> int:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found)

    eventually(look, lambda seen: seen == count, interval_s=0.0)
    return found


def _broker_of(statistics: str, topic: str) -> int:
    partitions = json.loads(statistics)["topics"].get(topic, {}).get("partitions", {})
    return int(partitions.get("0", {}).get("broker", NOBODY))


def _fetch(node: NodeProcess, topic_id: bytes, offset: int, rack_id: str = "") -> tuple[Any, Any]:
    """The whole answer of a node, and that about partition 0."""
    wanted = FetchRequestPartition(0, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_wait_ms=50, min_bytes=1, topics=[FetchRequestTopic(topic_id=topic_id, partitions=[wanted])], rack_id=rack_id
    )
    with connected(node) as connection:
        answer = ask(connection, request)
    [[result]] = [topic.partitions for topic in answer.responses]
    return answer, result


def _place(topic: str) -> Place:
    return Place(topic, 0)
