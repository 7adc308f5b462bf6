"""Partitions that move, on real nodes in this process: what a node that gives one up and gets it back may promise,
and what happens to the others when a node dies that one of them was to move to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from drmq.broker import BrokerOptions, Partition
from drmq.client import Admin
from drmq.model import GroupId, NodeId, TopicPartition, node_of
from drmq.testing import Cluster, cluster
from support.checked_clients import QUIET
from support.polling import PATIENCE_S, eventually

T = TypeVar("T")

ORDERS = TopicPartition("orders", 0)
BIG = b"x" * 100_000
SLOW_COPIES = BrokerOptions(
    tick_ms=50, election_timeout_ms=500, raft_heartbeat_ms=100, reassignment_bytes_per_s=1_000_000
)


def ask(c: Cluster, node_id: int, question: Callable[[Partition], T], place: TopicPartition = ORDERS) -> T | None:
    """Something about a node's replica; None if it has none."""
    broker = c.node(node_id).broker

    def look() -> T | None:
        topic = broker.catalog.topics.get(place.topic)
        partition = broker.host.get(GroupId(topic.topic_id, place.partition)) if topic is not None else None
        return None if partition is None else question(partition)

    return c.call(node_id, look)


def produce(c: Cluster, values: Sequence[bytes], place: TopicPartition = ORDERS) -> None:
    producer = Producer({"bootstrap.servers": c.bootstrap_servers, "logger": QUIET})
    failed: list[object] = []
    for value in values:
        producer.produce(place.topic, value, partition=place.partition, on_delivery=lambda e, _: failed.append(e))
    assert producer.flush(PATIENCE_S) == 0
    assert not any(failed), failed


def create(c: Cluster, name: str, replicas: list[int]) -> None:
    """A topic with one partition, on these nodes."""
    admin = AdminClient({"bootstrap.servers": c.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, replica_assignment=[replicas])])[name].result(PATIENCE_S)


def move(admin: Admin, place: TopicPartition, replicas: Sequence[int]) -> None:
    assert admin.replicas.reassign({place: replicas}) == {}


def wait_until_moved(admin: Admin, place: TopicPartition) -> None:
    eventually(lambda: place not in admin.replicas.reassignments([place]), what=f"{place} is where it was to go")


def give_up_and_get_back_a_part(c: Cluster, admin: Admin) -> None:
    """Have node 2 give up its copy and get back some of it, not all, and cut it off with node 3.

    If the disk stands still while the copies come, all of them are there as soon as one is: then it is done again.
    """
    for _ in range(5):
        move(admin, ORDERS, [1, 4, 3])
        wait_until_moved(admin, ORDERS)
        eventually(lambda: ask(c, 2, lambda each: each) is None, what="node 2 has given up its copy")

        move(admin, ORDERS, [1, 2, 3])
        eventually(lambda: (ask(c, 2, lambda each: each.log.end_offset) or 0) > 0, what="node 2 has some of it again")
        c.partition([1, 4], [2, 3])
        if ask(c, 2, lambda each: each.log.end_offset) != 26:
            return
        c.partition([1, 2, 4], [3])
        wait_until_moved(admin, ORDERS)
    raise AssertionError("the copy was too quick for this test, five times")


def test_a_node_that_gets_a_partition_back_has_no_say_under_its_old_name() -> None:
    """Nodes 1 and 2 have a record that node 3, cut off, has not. Node 2 gives the partition up and gets it back, and is
    cut off together with node 3 as soon as it has the beginning of the log, where 1, 2 and 3 are the members. Were it
    the member that it was, 2 and 3 would be a majority, and elect a leader without that record.
    """
    with cluster(nodes=4, options=SLOW_COPIES) as c, Admin(c.bootstrap_servers, timeout_s=30.0) as admin:
        create(c, "orders", [1, 2, 3])
        produce(c, [BIG] * 25)
        eventually(lambda: ask(c, 3, lambda each: each.high_watermark) == 25, what="node 3 has the first records")
        first_name = ask(c, 2, lambda each: each.replica.member)

        c.partition([1, 2, 4], [3])
        produce(c, [b"only on 1 and 2"])
        give_up_and_get_back_a_part(c, admin)
        assert ask(c, 2, lambda each: each.replica.member) != first_name
        until = time.monotonic() + 6 * SLOW_COPIES.election_timeout_ms / 1000
        while time.monotonic() < until:
            assert not any(ask(c, node_id, lambda each: each.is_leader) for node_id in (2, 3))
            time.sleep(0.02)

        c.heal()
        wait_until_moved(admin, ORDERS)
        for node_id in (1, 2, 3):
            eventually(
                lambda node_id=node_id: ask(c, node_id, lambda each: each.high_watermark) == 26,  # type: ignore[misc]
                what=f"node {node_id} has everything",
            )


def test_a_move_to_a_node_that_dies_does_not_hold_up_the_others() -> None:
    options = BrokerOptions(broker_session_timeout_ms=1_000)
    invoices = TopicPartition("invoices", 0)
    with cluster(nodes=4, options=options) as c, Admin(c.bootstrap_servers, timeout_s=30.0) as admin:
        create(c, "orders", [1, 2])
        create(c, "invoices", [1, 2])
        produce(c, [b"a", b"b"])
        produce(c, [b"c"], invoices)
        c.kill(4)
        move(admin, ORDERS, [1, 4])
        move(admin, invoices, [1, 3])
        wait_until_moved(admin, invoices)
        assert ORDERS in admin.replicas.reassignments()
        produce(c, [b"d"])

        c.start(4)
        wait_until_moved(admin, ORDERS)
        eventually(lambda: ask(c, 4, lambda each: each.high_watermark) == 3, what="node 4 has everything")
        members = ask(c, 4, lambda each: each.replica.node and each.replica.node.configuration.voters)
        assert {node_of(NodeId(member)) for member in members or ()} == {1, 4}
