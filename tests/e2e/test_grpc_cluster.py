"""The gRPC door of a cluster of three nodes: any gateway answers, also while leaders move and nodes die."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drmq.v1 import cluster_pb2, topics_pb2
from drmq.v1 import leases_pb2 as leases
from drmq.v1 import log_pb2 as log
from support.cluster import ClusterProcesses
from support.grpc_client import GATEWAY, GrpcClient, grpc_address
from support.polling import PATIENCE_S, eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("grpc-cluster"), env=GATEWAY) as running:
        for node_id in running.ids:
            eventually(lambda node_id=node_id: "serves gRPC" in running[node_id].log_text())  # type: ignore[misc]
        yield running


def client_of(cluster: ClusterProcesses, node_id: int) -> GrpcClient:
    return GrpcClient(grpc_address(cluster[node_id]))


def test_any_gateway_answers_for_the_cluster(cluster: ClusterProcesses) -> None:
    with client_of(cluster, 1) as first, client_of(cluster, 2) as second, client_of(cluster, 3) as third:
        first.ask(first.topics.CreateTopic, topics_pb2.CreateTopicRequest(name="shared", partitions=3, replicas=3))
        sent = second.append("shared", [b"%d" % number for number in range(30)])
        request = log.FetchStreamRequest(topic="shared", until_end=True)
        stream = third.log.FetchStream(request, timeout=PATIENCE_S, wait_for_ready=True)
        assert sorted(each.offset for answer in stream for each in answer.records) == sorted(at for _, at in sent)

        def known() -> list[str]:
            found = first.ask(first.cluster.DescribeCluster, cluster_pb2.DescribeClusterRequest())
            return [each.grpc for each in found.gateways]

        eventually(known, lambda found: found == [grpc_address(cluster[node_id]) for node_id in cluster.ids])


def test_an_ack_id_of_one_gateway_is_settled_by_another(cluster: ClusterProcesses) -> None:
    with client_of(cluster, 1) as first, client_of(cluster, 2) as second:
        first.ask(first.topics.CreateTopic, topics_pb2.CreateTopicRequest(name="tickets", replicas=3))
        # The first poll gives the group its position, at the end of the topic.
        poll = leases.PollRequest(group="clerks", topics=["tickets"], max_messages=5, wait_ms=1_000)
        assert not first.ask(first.leases.Poll, poll).messages
        first.append("tickets", [b"one"])
        [message] = eventually(lambda: list(first.ask(first.leases.Poll, poll).messages))
        answer = second.ask(second.leases.Ack, leases.AckRequest(group="clerks", ack_ids=[message.ack_id]))
        assert [each.HasField("error") for each in answer.results] == [False]


def test_streams_survive_the_death_of_a_leader(cluster: ClusterProcesses) -> None:
    """Readers and workers at a gateway that lives notice nothing but a pause."""
    cluster.create_topic("moving", 1, replicas=3)
    leader = cluster.leader_of("moving")
    [other, *_] = [node_id for node_id in cluster.ids if node_id != leader]
    with client_of(cluster, other) as client:
        client.append("moving", [b"0", b"1"])
        request = log.FetchStreamRequest(topic="moving")
        reader = client.log.FetchStream(request, timeout=2 * PATIENCE_S, wait_for_ready=True)
        assert [each.offset for each in next(reader).records] == [0, 1]
        worker = client.lease("survivors", "moving")
        first, second = worker.deliveries(2)
        worker.settle(leases.OUTCOME_ACK, first)
        assert worker.outcomes(first) == [""]
        cluster[leader].kill()
        worker.settle(leases.OUTCOME_ACK, second)
        assert worker.outcomes(second) == [""], "the new leader has confirmed it"
        assert client.append("moving", [b"2"]) == [(0, 2)]
        assert [each.offset for each in next(reader).records] == [2]
        [third] = worker.deliveries(1)
        assert (third.record.offset, third.attempt) == (2, 1)
        worker.settle(leases.OUTCOME_ACK, third)
        assert worker.outcomes(third) == [""]
        reader.cancel()
        worker.end()
    cluster.start()


def test_work_of_a_dead_gateway_is_done_through_another(cluster: ClusterProcesses) -> None:
    """The node is killed. Its gateway gives back what it holds and ends, and a client moves to another node."""
    cluster.create_topic("orphans", 1, replicas=3)
    leader = cluster.leader_of("orphans")
    dies, lives = [node_id for node_id in cluster.ids if node_id != leader]
    with client_of(cluster, dies) as client:
        client.append("orphans", [b"%d" % number for number in range(5)])
        held = client.lease("heirs", "orphans").deliveries(5)
        assert [each.attempt for each in held] == [1] * 5
        cluster[dies].kill()
    with client_of(cluster, lives) as client:
        stream = client.lease("heirs", "orphans")
        again = stream.deliveries(5)
        assert sorted(each.record.offset for each in again) == list(range(5))
        stream.settle(leases.OUTCOME_ACK, *again)
        assert stream.outcomes(*again) == [""] * 5
        stream.end()
    cluster.start()
