"""Coordinators that move: what any node answers about a group, and a consumer that meets one in the middle of it.

librdkafka does not ask for committed offsets again when it is told that another node coordinates the group (its issue
5586): such a consumer stands still for good. So every node answers that question, with the coordinator's own words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from drmq.client import Admin, ClientError
from drmq.model import GroupId, NodeId
from drmq.model import TopicPartition as Place
from drmq.model.names import CONSUMER_OFFSETS
from drmq.testing import Cluster, cluster
from support.checked_clients import QUIET
from support.polling import PATIENCE_S, eventually
from support.raw_client import RawClient, RequestFailed

TOPIC = "orders"
GROUP = "billing"
RECORDS = 50
NOT_COORDINATOR = 16


@pytest.fixture
def three() -> Iterator[Cluster]:
    with cluster(nodes=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "logger": QUIET})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number))
        assert producer.flush(PATIENCE_S) == 0
        with Admin(running.bootstrap_servers, timeout_s=30.0) as client:
            eventually(lambda: _commit(client), lambda done: done, what="a first commit")
        yield running


def _commit(client: Admin) -> bool:
    with contextlib.suppress(ClientError):
        client.groups.commit(GROUP, {Place(TOPIC, 0): 10})
        return True
    return False


def bootstraps(three: Cluster) -> dict[int, str]:
    return dict(zip(three.node_ids, three.bootstrap_servers.split(","), strict=True))


def coordinator(three: Cluster) -> int:
    index = three.call(1, lambda: three.node(1).broker.groups.index_of(GROUP))
    return three.leader(CONSUMER_OFFSETS, index)


def test_every_node_knows_how_far_a_group_is(three: Cluster) -> None:
    for bootstrap in bootstraps(three).values():
        with RawClient(bootstrap) as client:
            assert client.committed(GROUP, TOPIC) == 10


def test_only_the_coordinator_takes_commits(three: Cluster) -> None:
    """What changes a group is refused elsewhere: every client asks for the coordinator then."""

    def takes(bootstrap: str) -> bool:
        with RawClient(bootstrap) as client:
            try:
                client.commit(GROUP, TOPIC, 11)
            except RequestFailed as error:
                if error.code != NOT_COORDINATOR:
                    raise
                return False
            return True

    def asked() -> tuple[list[int], set[int]]:
        """Those that took it, and those that coordinated before and after: on a busy machine that may change."""
        before = coordinator(three)
        taken = [node_id for node_id, bootstrap in bootstraps(three).items() if takes(bootstrap)]
        return taken, {before, coordinator(three)}

    taken, coordinators = eventually(asked, lambda seen: len(seen[1]) == 1)
    assert set(taken) == coordinators


def test_the_answer_waits_for_the_next_coordinator(three: Cluster) -> None:
    leader = coordinator(three)
    left = [bootstrap for node_id, bootstrap in bootstraps(three).items() if node_id != leader]
    three.kill(leader)
    for bootstrap in left:
        with RawClient(bootstrap) as client:
            assert client.committed(GROUP, TOPIC) == 10


def test_consumers_that_begin_while_the_coordinator_moves(three: Cluster) -> None:
    """Each asks for the group's offsets at about the time at which they go elsewhere, and each reads on."""
    index = three.call(1, lambda: three.node(1).broker.groups.index_of(GROUP))
    settings = {"bootstrap.servers": three.bootstrap_servers, "enable.auto.commit": False, "logger": QUIET}
    # Whose coordinator moves while it says goodbye does not say it again; the next one waits until it is missed.
    settings |= {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500}
    for turn in range(4):
        consumer = Consumer({**settings, "group.id": GROUP, "auto.offset.reset": "error"})
        try:
            consumer.subscribe([TOPIC], on_assign=partial(hand_over, three, index, turn % 3 + 1))
            message = eventually(
                lambda: consumer.poll(0.2),  # noqa: B023
                lambda found: found is not None and found.error() is None,
                what=f"a record in turn {turn}",
            )
            assert message is not None
            assert message.offset() == 10
        finally:
            consumer.close()


def hand_over(three: Cluster, index: int, to: int, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Let another node coordinate, at once; where it does already, nothing happens."""
    broker = three.node(to).broker
    topic_id = three.call(to, lambda: broker.catalog.topics[CONSUMER_OFFSETS].topic_id)
    three.call(to, lambda: broker.elect(GroupId(topic_id, index), NodeId(to)))
