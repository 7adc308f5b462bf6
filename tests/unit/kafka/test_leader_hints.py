"""Refusals that name the leader (KIP-951), and only refusals."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.model import ErrorCode, NodeId
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from support.batches import a_batch
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness
from support.other_nodes import add_node, add_topic, announce, heard

NOBODY = -1


@pytest.fixture
def line(harness: Harness) -> KafkaHarness:
    harness.create_topic("here")
    add_node(harness, 2, rack="north")
    add_topic(harness, "there", [2])
    return KafkaHarness(harness)


def produced(harness: Harness, line: KafkaHarness, version: int, *topics: str) -> tuple[Any, list[Any]]:
    data = [
        ProduceRequestTopic(
            name, harness.broker.catalog.topic(name).topic_id, [ProduceRequestPartition(0, bytes(a_batch()))]
        )
        for name in topics
    ]
    answer = line.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), version)
    return answer, [result for topic in answer.responses for result in topic.partition_responses]


def fetched(harness: Harness, line: KafkaHarness, version: int, *topics: str, epoch: int = -1) -> tuple[Any, list[Any]]:
    wanted = [
        FetchRequestTopic(
            name,
            harness.broker.catalog.topic(name).topic_id,
            [FetchRequestPartition(0, current_leader_epoch=epoch, partition_max_bytes=1000)],
        )
        for name in topics
    ]
    answer = line.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=wanted), version)
    return answer, [result for topic in answer.responses for result in topic.partitions]


@pytest.mark.parametrize(("ask", "versions"), [(produced, (10, 12, 13)), (fetched, (16, 17))])
def test_the_leader_and_its_address(harness: Harness, line: KafkaHarness, ask: Any, versions: tuple[int, ...]) -> None:
    announce(harness, "there", 2, [2], term=9)
    for version in versions:
        answer, (away, home) = ask(harness, line, version, "there", "here")
        assert away.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (away.current_leader.leader_id, away.current_leader.leader_epoch) == (2, 9)
        assert (home.error_code, home.current_leader.leader_id) == (0, NOBODY)
        [node] = answer.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (2, "node-2", 9092, "north")


@pytest.mark.parametrize(("ask", "version"), [(produced, 9), (fetched, 15)])
def test_older_versions_hear_nothing_of_it(harness: Harness, line: KafkaHarness, ask: Any, version: int) -> None:
    announce(harness, "there", 2, [2])
    _, [away] = ask(harness, line, version, "there")
    assert away.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert away.current_leader.leader_id == NOBODY


@pytest.mark.parametrize(("ask", "version"), [(produced, 13), (fetched, 17)])
def test_no_hint_where_nothing_good_is_known(harness: Harness, line: KafkaHarness, ask: Any, version: int) -> None:
    def hint() -> tuple[int, list[Any]]:
        answer, [away] = ask(harness, line, version, "there")
        assert away.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return away.current_leader.leader_id, answer.node_endpoints

    assert hint() == (NOBODY, []), "nobody has said that he leads"
    announce(harness, "there", 1, [1], term=8)
    assert hint() == (NOBODY, []), "it is not this node, whatever was said once"
    announce(harness, "there", 2, [2], term=9)
    assert hint()[0] == 2
    heard(harness).discard(NodeId(2))
    assert hint() == (NOBODY, []), "the leader is down"


def test_a_client_of_an_earlier_leader_is_told_too(harness: Harness, line: KafkaHarness) -> None:
    partition = harness.partition("here")
    partition.leader_epoch = 5  # type: ignore[assignment]
    answer, [result] = fetched(harness, line, 17, "here", epoch=4)
    assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
    # This node leads, and its own hint says nothing that the client does not know.
    assert (result.current_leader.leader_id, answer.node_endpoints) == (NOBODY, [])


def test_a_refusal_waits_a_moment_for_the_leader_that_is_being_elected(harness: Harness, line: KafkaHarness) -> None:
    """A client that was told at once would come back here, and wait longer each time."""
    add_topic(harness, "both", [1, 2])
    harness.run(harness.broker.assignments.settled())
    topic_id = harness.broker.catalog.topic("both").topic_id
    data = [ProduceRequestTopic("both", topic_id, [ProduceRequestPartition(0, bytes(a_batch()))])]
    for answer_comes in ("with the news", "when the time is up", "at once"):
        answered = line.answered()
        line.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 13)
        if answer_comes == "when the time is up":
            announce(harness, "there", 2, [2], term=11)
            assert line.answered() == answered, "news of another partition"
            harness.advance(200)
            expected = NOBODY
        else:
            assert line.answered() == answered + (answer_comes == "at once")
            announce(harness, "both", 2, [2], term=9)
            expected = 2
        [refused] = line.answer().responses[0].partition_responses
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader.leader_id == expected
        if answer_comes == "with the news":
            heard(harness).discard(NodeId(2))
        else:
            heard(harness).add(NodeId(2))
    assert not harness.broker.host._news._waiters
