"""A cluster whose metadata and whose records are on different nodes: three that only vote, three that only serve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from drmq.client import Admin, NewTopic
from drmq.server.ports import free_ports
from support.checked_clients import QUIET
from support.polling import PATIENCE_S, Deadline, eventually
from support.ports import HOST
from support.processes import BrokerProcess

CONTROLLERS, BROKERS = (1, 2, 3), (4, 5, 6)


def end(node: BrokerProcess) -> None:
    if node.running:
        node.kill()


@contextmanager
def running_nodes(directory: Path) -> Iterator[dict[int, BrokerProcess]]:
    ids = CONTROLLERS + BROKERS
    ports = dict(zip(ids, free_ports(HOST, len(ids), (0, 1000)), strict=True))
    peers = ",".join(f"{node_id}:{HOST}:{ports[node_id]}" for node_id in CONTROLLERS)
    nodes = {}
    with ExitStack() as at_end:
        for node_id in ids:
            role = "controller" if node_id in CONTROLLERS else "broker"
            node = BrokerProcess(
                directory / str(node_id), ports[node_id], ["--peers", peers, "--roles", role], node_id=node_id
            )
            nodes[node_id] = node.start()
            at_end.callback(end, node)
        for node in nodes.values():
            node.wait_ready()
        yield nodes


def produce(bootstrap: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "logger": QUIET})
    failed: list[object] = []
    for value in values:
        producer.produce("orders", value, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert not any(failed), failed


def consume(bootstrap: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "logger": QUIET})
    consumer.assign([Position("orders", 0, 0)])
    values: list[bytes | None] = []
    deadline = Deadline()
    while len(values) < count and not deadline.passed():
        values += [message.value() for message in consumer.consume(count - len(values), timeout=1.0)]
    consumer.close()
    return values


def test_controllers_keep_no_partitions_and_brokers_do_not_vote(tmp_path: Path) -> None:
    """Clients may come in by any node. A controller and a broker die; the others go on without them."""
    with running_nodes(tmp_path) as nodes, Admin(nodes[1].bootstrap, timeout_s=PATIENCE_S) as admin:
        eventually(lambda: set(admin.describe_cluster().brokers) == set(BROKERS), what="three brokers")
        quorum = admin.brokers.quorum()
        assert {voter.node_id for voter in quorum.voters} == set(CONTROLLERS)
        admin.topics.create(NewTopic("orders", 1, 3))
        assert set(admin.topics.describe("orders").partitions[0].replicas) == set(BROKERS)
        produce(nodes[2].bootstrap, [b"a", b"b"])

        assert quorum.leader_id is not None
        nodes[quorum.leader_id].kill()
        nodes[5].kill()
        alive = [node.bootstrap for node in nodes.values() if node.running]
        with Admin(",".join(alive), timeout_s=PATIENCE_S) as others:
            others.topics.create(NewTopic("later", 1, 2))
            produce(alive[0], [b"c"])
            assert consume(alive[0], 3) == [b"a", b"b", b"c"]
            leader = eventually(
                lambda: others.brokers.quorum().leader_id, lambda found: found != quorum.leader_id, what="a controller"
            )
        assert leader in CONTROLLERS
        for node_id in CONTROLLERS:
            assert not list((tmp_path / str(node_id) / "topics").glob("*")), "a controller has partitions"
