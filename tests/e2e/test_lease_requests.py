"""LeaseFetch and DescribeLeases on three nodes: the leader of the data is on one, that of the leases on another."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from drmq.client import Connection, Deadline
from drmq.leases import QueueKey
from drmq.model import ErrorCode, GroupId, NodeId
from drmq.model.address import Address
from drmq.model.names import SHARE_GROUP_STATE
from drmq.records import iter_batches, iter_records
from drmq.testing import Cluster, cluster
from drmq.wire import ApiKey, write_request
from drmq.wire.messages.describe_leases import DescribeLeasesRequest, DescribeLeasesResponse
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from drmq.wire.messages.lease_fetch import (
    LeaseFetchRequest,
    LeaseFetchRequestPartition,
    LeaseFetchRequestTopic,
    LeaseFetchResponse,
    LeaseSettlement,
)
from support.checked_clients import QUIET
from support.polling import PATIENCE_S, eventually

ACCEPT, RELEASE, GIVE_BACK = 1, 2, 5
NOT_LEASED = 2
GROUP_RESOURCE = 32


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster(nodes=3) as running:
        yield running


class Queue:
    """A topic with one partition, and a group that begins at its start."""

    def __init__(self, three: Cluster) -> None:
        self.three = three
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": three.bootstrap_servers})
        admin.create_topics([NewTopic(self.topic, 1, 3)])[self.topic].result(PATIENCE_S)
        self.topic_id = three.call(1, lambda: three.node(1).broker.catalog.topics[self.topic].topic_id)
        begins = IncrementalAlterConfigsRequestConfig("share.auto.offset.reset", 0, "earliest")
        resource = IncrementalAlterConfigsRequestResource(GROUP_RESOURCE, self.group, [begins])
        answer = self.ask(1, IncrementalAlterConfigsRequest([resource]), IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == 0, answer
        for node_id in three.node_ids:
            settings = three.node(node_id).broker.group_settings
            eventually(
                lambda: three.call(node_id, lambda: settings.of(self.group).start_age_ms),  # noqa: B023
                lambda age_ms: age_ms is None,
                what=f"the settings of the group on node {node_id}",
            )

    def produce(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.three.bootstrap_servers, "logger": QUIET})
        for value in values:
            producer.produce(self.topic, value)
        assert producer.flush(PATIENCE_S) == 0

    @property
    def leader(self) -> int:
        return self.three.leader(self.topic)

    def connect(self, node_id: int) -> Connection:
        address = dict(zip(self.three.node_ids, self.three.bootstrap_servers.split(","), strict=True))[node_id]
        host, _, port = address.rpartition(":")
        return Connection(Address(host, int(port)), "test", Deadline(PATIENCE_S))

    def ask(self, node_id: int, request: object, response_class: type[Any]) -> Any:
        connection = self.connect(node_id)
        try:
            return connection.call(request, response_class, Deadline(PATIENCE_S))
        finally:
            connection.close()

    def request(
        self, *settlements: LeaseSettlement, member: str = "m1", count: int = 0, wait_ms: int = 0
    ) -> LeaseFetchRequest:
        part = LeaseFetchRequestPartition(0, int(count > 0), list(settlements))
        return LeaseFetchRequest(
            self.group, member, wait_ms, 1 << 20, count, [LeaseFetchRequestTopic(self.topic_id, [part])]
        )

    def fetch(self, *settlements: LeaseSettlement, node_id: int | None = None, **options: Any) -> Any:
        """The answer for the partition, from its leader or from a given node."""
        asked = self.leader if node_id is None else node_id
        answer = self.ask(asked, self.request(*settlements, **options), LeaseFetchResponse)
        assert answer.error_code == 0, answer.error_message
        return answer.topics[0].partitions[0]

    def take(self, count: int, **options: Any) -> Any:
        """What is leased, as soon as there is something: a leader may just have changed."""
        return eventually(
            lambda: self.fetch(count=count, wait_ms=500, **options),
            lambda answer: answer.error_code == 0 and bool(answer.deliveries),
            what=f"records of {self.topic}",
        )

    def settle(self, *settlements: LeaseSettlement, **options: Any) -> Any:
        return eventually(
            lambda: self.fetch(*settlements, **options),
            lambda answer: answer.settle_error_code == 0,
            what="a settlement",
        )

    def describe(self, node_id: int, leases_max: int = 0) -> Any:
        answer = self.ask(node_id, DescribeLeasesRequest(self.group, [self.topic], leases_max), DescribeLeasesResponse)
        assert answer.error_code == 0, answer.error_message
        return answer.queues

    @property
    def shard(self) -> int:
        """The partition of the internal topic that decides about the queue."""
        broker = self.three.node(1).broker
        return self.three.call(1, lambda: broker.leases.index_of(QueueKey(self.group, self.topic_id, 0)))

    def elect(self, topic: str, index: int, node_id: int) -> None:
        """Let a node lead a partition, and wait until it does."""
        broker = self.three.node(node_id).broker

        def is_led() -> bool:
            topic_id = self.three.call(node_id, lambda: broker.catalog.topics[topic].topic_id)
            self.three.call(node_id, lambda: broker.elect(GroupId(topic_id, index), NodeId(node_id)))
            return self.three.leader(topic, index) == node_id

        eventually(is_led, lambda done: done, what=f"node {node_id} leads {topic}-{index}")


@pytest.fixture
def queue(three: Cluster) -> Queue:
    return Queue(three)


def offsets(taken: Any) -> list[tuple[int, int]]:
    return [(n, each.attempt) for each in taken.deliveries for n in range(each.first_offset, each.last_offset + 1)]


def values(taken: Any) -> list[bytes | None]:
    wanted, data = {offset for offset, _ in offsets(taken)}, bytes(taken.records)
    return [
        record.value
        for position, header in iter_batches(data)
        for record in iter_records(data[position : position + header.size], decompressed_size_max=1 << 20)
        if record.offset in wanted
    ]


def test_every_place_of_the_leases(queue: Queue) -> None:
    """The shard may be on the node of the data or on another one; a member sees no difference."""
    queue.produce(*(f"{n}".encode() for n in range(9)))
    first = queue.take(1)
    queue.settle(LeaseSettlement(0, 0, ACCEPT, -1, first.token))
    for turn, node_id in enumerate(queue.three.node_ids):
        queue.elect(SHARE_GROUP_STATE, queue.shard, node_id)
        taken = queue.take(2)
        begin = 1 + 2 * turn
        assert offsets(taken) == [(begin, 1), (begin + 1, 1)]
        assert values(taken) == [f"{begin}".encode(), f"{begin + 1}".encode()]
        both = LeaseSettlement(begin, begin + 1, ACCEPT, -1, taken.token)
        assert queue.settle(both).refusals == []
        assert queue.settle(both).refusals == [], "it may be repeated"
    assert queue.settle(LeaseSettlement(0, 6, ACCEPT), member="m2").refusals[0].reason == NOT_LEASED


def test_a_node_that_does_not_lead_names_the_leader(queue: Queue) -> None:
    queue.produce(b"x")
    queue.take(1)
    leader = queue.leader
    for node_id in queue.three.node_ids:
        if node_id != leader:
            answer = queue.fetch(LeaseSettlement(0, 0, ACCEPT), node_id=node_id, count=1)
            assert answer.error_code == answer.settle_error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader.leader_id == leader


def test_leases_and_outcomes_outlive_the_leaders_of_data_and_leases(queue: Queue) -> None:
    queue.produce(b"a", b"b", b"c")
    taken = queue.take(2)
    assert queue.settle(LeaseSettlement(0, 0, ACCEPT, -1, taken.token)).refusals == []
    for topic, index in ((queue.topic, 0), (SHARE_GROUP_STATE, queue.shard)):
        leader = queue.three.leader(topic, index)
        queue.elect(topic, index, next(node_id for node_id in queue.three.node_ids if node_id != leader))
        # What was accepted does not return, and what is leased is with nobody else.
        assert offsets(queue.fetch(member="m2", count=9)) in ([(2, 1)], [])
    assert queue.settle(LeaseSettlement(0, 1, ACCEPT, -1, taken.token)).refusals == []
    [described] = eventually(lambda: queue.describe(1), lambda found: found[0].error_code == 0)
    assert described.open_count == 1


def test_a_settlement_whose_answer_was_lost_is_repeated(queue: Queue) -> None:
    queue.produce(b"a")
    token = queue.take(1).token
    settlement = LeaseSettlement(0, 0, ACCEPT, -1, token)
    connection = queue.connect(queue.leader)
    connection.send(queue.request(settlement), Deadline(PATIENCE_S))
    connection.close()
    assert queue.settle(settlement).refusals == []
    assert queue.settle(settlement).refusals == []
    assert offsets(queue.fetch(member="m2", count=1)) == []


def test_a_member_that_disconnects_while_it_waits_gets_nothing(queue: Queue) -> None:
    queue.produce(b"a")
    queue.settle(LeaseSettlement(0, 0, ACCEPT, -1, queue.take(1).token))
    connection = queue.connect(queue.leader)
    connection.send(queue.request(count=5, wait_ms=60_000), Deadline(PATIENCE_S))
    eventually(lambda: waiting_in(queue), lambda count: count > 0, what="a request that waits")
    connection.close()
    eventually(lambda: waiting_in(queue), lambda count: count == 0, what="the request is withdrawn")
    queue.produce(b"b")
    assert offsets(queue.take(1, member="m2")) == [(1, 1)]


def waiting_in(queue: Queue) -> int:
    """Requests of members that wait on the leader of the data."""
    node_id = queue.leader
    watches = queue.three.node(node_id).broker.services.leases._watches
    return queue.three.call(node_id, lambda: sum(len(watch.takings) for watch in watches.values()))


def test_any_node_describes_the_group(queue: Queue) -> None:
    queue.produce(*[b"x"] * 10)
    taken = queue.take(4)
    assert not queue.settle(LeaseSettlement(0, 0, ACCEPT), LeaseSettlement(1, 1, RELEASE, 60_000)).refusals
    for node_id in queue.three.node_ids:
        [found] = queue.describe(node_id, leases_max=10)
        assert (found.topic, found.start_offset, found.end_offset, found.high_watermark) == (queue.topic, 1, 4, 10)
        assert (found.open_count, found.held_count, found.parked_count) == (9, 2, 1)
        assert found.oldest_open_ms > 0
        [lease] = found.leases
        assert (lease.first_offset, lease.last_offset, lease.member_id) == (2, 3, "m1")
        assert lease.token == taken.token
        assert 0 < lease.left_ms <= 30_000


def test_bytes_that_are_no_request_cost_their_connection_only(queue: Queue) -> None:
    queue.produce(b"a")
    frame = bytes(write_request(ApiKey.LEASE_FETCH, 0, 1, "x", queue.request(LeaseSettlement(0, 0, ACCEPT), count=1)))
    host, _, port = queue.three.bootstrap_servers.split(",")[0].rpartition(":")
    for cut in (20, 40, len(frame) - 30):
        damaged = (cut - 4).to_bytes(4, "big") + frame[4:cut]
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(damaged)
            assert connection.recv(100) == b""
    assert offsets(queue.take(1)) == [(0, 1)]
