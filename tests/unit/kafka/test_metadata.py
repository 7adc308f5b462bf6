"""Metadata: all, some or no topics, by name or id, made on demand where that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drmq.broker import BrokerOptions
from drmq.broker.services.cluster_view import Look, PartitionView
from drmq.catalog import Topic, TopicDeleted
from drmq.kafka import metadata, server
from drmq.model import ErrorCode, NodeId
from drmq.wire import ApiKey
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness, versions
from support.other_nodes import add_node, add_topic, announce, append, heard


def named(*names: str, create: bool = True) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], create)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_every_version_describes_a_topic(harness: Harness, version: int) -> None:
    topic = harness.create_topic("t", 3)
    answer = harness.ask(named("t"), version)
    (described,) = answer.topics
    assert (described.error_code, described.name) == (0, "t")
    assert [partition.partition_index for partition in described.partitions] == [0, 1, 2]
    assert all(partition.leader_id == 1 and partition.isr_nodes == [1] for partition in described.partitions)
    assert described.topic_id == (topic.topic_id if version >= 10 else bytes(16))
    assert [broker.node_id for broker in answer.brokers] == [1]


@pytest.mark.parametrize(
    ("version", "topics", "everything"),
    [(0, [], True), (1, None, True), (1, [], False), (13, None, True), (13, [], False)],
)
def test_all_or_none(
    harness: Harness, version: int, topics: list[MetadataRequestTopic] | None, everything: bool
) -> None:
    """Null asks for all topics and an empty list for none, except in v0, which has no null."""
    harness.create_topic("t")
    names = [topic.name for topic in harness.ask(MetadataRequest(topics), version).topics]
    assert ("t" in names) is everything


def test_a_missing_topic_is_created_when_the_client_allows_it(harness: Harness) -> None:
    (created,) = harness.ask(named("new"), 4).topics
    assert (created.error_code, len(created.partitions)) == (0, 1)
    (refused,) = harness.ask(named("other", create=False), 4).topics
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "other" not in harness.broker.catalog.topics


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_an_unknown_id_without_a_name(harness: Harness, version: int) -> None:
    """The name in the answer may be null from v12 on. Before that it is empty, so that the answer can be sent."""
    (refused,) = harness.ask(MetadataRequest([MetadataRequestTopic(b"?" * 16, None)]), version).topics
    assert (refused.error_code, refused.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"?" * 16)
    assert refused.name == (None if version >= 12 else "")


def test_the_broker_may_forbid_creation() -> None:
    with Harness(options=BrokerOptions(auto_create_topics=False)) as harness:
        (refused,) = harness.ask(named("new"), 4).topics
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", "..", "a/b", "ü", "x" * 250, "__cluster_metadata"])
def test_a_bad_name_is_refused(harness: Harness, name: str) -> None:
    (refused,) = harness.ask(named(name), 4).topics
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_by_id(harness: Harness) -> None:
    topic = harness.create_topic("t")
    found, lost = harness.ask(
        MetadataRequest([MetadataRequestTopic(topic.topic_id, None), MetadataRequestTopic(b"\x01" * 16, None)], False),
        12,
    ).topics
    assert found.name == "t"
    assert lost.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("name", ["", "other", None])
def test_an_id_counts_whatever_the_name_beside_it(harness: Harness, name: str | None) -> None:
    """Java sends an empty name with each id. Several ids are several topics, and no id creates one."""
    topics = [harness.create_topic(each) for each in ("t", "u")]
    wanted = [MetadataRequestTopic(topic_id, name) for topic_id in (*(t.topic_id for t in topics), b"\x01" * 16)]
    *found, lost = harness.ask(MetadataRequest(wanted), 12).topics
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in found] == [
        (0, topic.name, topic.topic_id) for topic in topics
    ]
    assert (lost.error_code, lost.name, lost.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"\x01" * 16)
    assert "other" not in harness.broker.catalog.topics


def test_operations_are_told_when_asked_for(harness: Harness) -> None:
    harness.create_topic("t")
    request = named("t")
    assert harness.ask(request, 8).topics[0].topic_authorized_operations == -(2**31)
    request.include_topic_authorized_operations = request.include_cluster_authorized_operations = True
    answer = harness.ask(request, 8)
    assert answer.topics[0].topic_authorized_operations > 0
    assert answer.cluster_authorized_operations > 0


def test_a_node_that_is_cut_off_sends_clients_elsewhere(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers and then hangs up: a client that always asks the node it used last would never find the new leader."""
    # On a busy machine more than a second may pass before the answer is looked at.
    monkeypatch.setattr(server, "_CUT_OFF_CLOSE_S", 60.0)
    harness.create_topic("t")
    for node_id in (2, 3):
        add_node(harness, node_id)
    for up, is_cut_off in (({2, 3}, False), ({3}, False), (set(), True)):
        heard(harness).clear()
        heard(harness).update(map(NodeId, up))
        line = KafkaHarness(harness)
        assert [topic.name for topic in line.ask(named("t"), 9).topics] == ["t"]
        assert not line.paper.closed
        harness.advance(60_000)
        assert line.paper.closed is is_cut_off, up


def test_a_node_that_is_cut_off_closes_only_after_a_long_answer(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer about all topics is made in slices, which may take longer than the time until it closes."""
    monkeypatch.setattr(server, "_CUT_OFF_CLOSE_S", 0.0)
    monkeypatch.setattr(metadata, "_SLICE_TOPICS", 1)
    for topic in range(20):
        harness.create_topic(f"t{topic}")
    for node_id in (2, 3):
        add_node(harness, node_id)
    heard(harness).clear()
    line = KafkaHarness(harness)
    answered: list[bool] = []
    monkeypatch.setattr(line.paper, "close", lambda reason=None: answered.append(line.answered() == 1))
    assert len(line.ask(MetadataRequest(topics=None), 9).topics) > 20
    harness.advance(1)
    assert answered == [True]


# ---- answers that are remembered --------------------------------------------------------------------


CHANGES: dict[str, Callable[[Harness], object]] = {
    "another leader": lambda harness: announce(harness, "far", 3, [2, 3], term=9),
    "fewer in sync": lambda harness: announce(harness, "far", 2, [2], term=8),
    "a node is silent": lambda harness: heard(harness).discard(NodeId(2)),
    "a node is down": lambda harness: append(harness, harness.broker.catalog.fence(NodeId(3))),
    "a leader is lost": lambda harness: harness.call(lambda: harness.broker.host.on_peer_down(NodeId(2))),
    "more partitions": lambda harness: harness.run(
        harness.broker.topics.add_partitions("t", 4, replicas=[[NodeId(1)]])
    ),
    "a move": lambda harness: append(
        harness,
        harness.broker.catalog.start_reassignment(harness.broker.catalog.topic("far"), 0, [NodeId(1), NodeId(2)]),
    ),
    "no leader any more": lambda harness: harness.call(
        lambda: harness.partition("t", 2)._stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ),
    "damage": lambda harness: harness.call(
        lambda: harness.broker.partitions.publish_stopped(harness.broker.catalog.topic("far"), 0, "damaged")
    ),
    "a topic less": lambda harness: harness.run(harness.broker.topics.delete(harness.broker.catalog.topic("t"))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_remembered_description_is_not_used_after_a_change(
    harness: Harness, change: Callable[[Harness], object]
) -> None:
    """Whatever a description depends on is compared: clients must not be sent to a leader of the past."""
    harness.create_topic("t", 3)
    for node_id in (2, 3):
        add_node(harness, node_id)
    add_topic(harness, "far", [2, 3], [3, 2])
    announce(harness, "far", 2, [2, 3])
    announce(harness, "far", 3, [2, 3], index=1)

    def ask(*, afresh: bool) -> list[Any]:
        answers = []
        for request in (
            MetadataRequest(None, include_topic_authorized_operations=True),
            named("t", "far", create=False),
        ):
            if afresh:
                harness.broker.services.cluster._remembered.clear()
            answers.append(harness.ask(request, 10))
        return answers

    before = ask(afresh=False)
    assert ask(afresh=False) == before
    change(harness)
    after = ask(afresh=False)
    assert after != before
    assert after == ask(afresh=True)


def test_a_topic_is_not_described_anew_for_each_client(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients ask when a leader has changed. Thousands of partitions must be encoded for the first of them only."""
    harness.create_topic("t", 3)
    first = harness.ask(MetadataRequest(None), 12)
    described: list[str] = []
    partitions = Look.partitions

    def counted(look: Look, topic: Topic, indexes: range) -> list[PartitionView]:
        described.append(topic.name)
        return partitions(look, topic, indexes)

    monkeypatch.setattr(Look, "partitions", counted)
    assert harness.ask(MetadataRequest(None), 12) == first
    assert described == []
    harness.create_topic("u")
    harness.ask(MetadataRequest(None), 12)
    assert described == ["u"]


def test_many_topics_are_described_in_slices(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work on the event loop gets its turn meanwhile. What it deletes is not described."""
    monkeypatch.setattr(metadata, "_SLICE_TOPICS", 1)
    deleted = [harness.create_topic(name) for name in ("a", "b", "c")][1]
    catalog, partitions = harness.broker.metadata.committed_catalog, Look.partitions

    def look_and_delete(look: Look, topic: Topic, indexes: range) -> list[PartitionView]:
        if topic.name == "a":
            harness.loop.call_soon(catalog.replay, TopicDeleted(deleted.topic_id, "b"))
        return partitions(look, topic, indexes)

    monkeypatch.setattr(Look, "partitions", look_and_delete)
    names = [topic.name for topic in harness.ask(MetadataRequest(None), 12).topics]
    assert "b" not in names
    assert {"a", "c"} <= set(names)


# ---- topics that have just been created ------------------------------------------------------------


@pytest.mark.parametrize("request_", [named("new"), MetadataRequest(None)], ids=["named", "all"])
def test_a_new_topic_is_shown_with_its_leaders(harness: Harness, request_: MetadataRequest) -> None:
    """The node hears of a topic before it hears of its leaders. The client gets both at once."""
    add_node(harness, 2)
    add_topic(harness, "new", [2, 1], [2, 1], is_new=True)
    answer = harness.send(request_, 12)
    announce(harness, "new", 2, [2, 1])
    assert not answer.done()
    announce(harness, "new", 2, [2, 1], index=1)
    described = {topic.name: topic for topic in harness.run(answer).topics}["new"]
    assert [(each.error_code, each.leader_id) for each in described.partitions] == [(0, 2), (0, 2)]


def test_new_partitions_are_shown_with_their_leaders(harness: Harness) -> None:
    add_node(harness, 2)
    add_topic(harness, "grown", [2, 1])
    announce(harness, "grown", 2, [2, 1])
    append(harness, harness.broker.catalog.add_partitions("grown", 2, [[NodeId(2), NodeId(1)]]))
    answer = harness.send(named("grown"), 12)
    assert not answer.done()
    announce(harness, "grown", 2, [2, 1], index=1)
    (described,) = harness.run(answer).topics
    assert [each.leader_id for each in described.partitions] == [2, 2]


def test_a_new_topic_without_leaders_is_not_waited_for_long(harness: Harness) -> None:
    add_node(harness, 2)
    add_topic(harness, "new", [2, 1], is_new=True)
    answer = harness.send(named("new"), 12)
    harness.advance(3_100)
    (described,) = harness.run(answer).topics
    assert described.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    harness.advance(10_000)
    answer = harness.send(named("new"), 12)
    assert answer.done()


def test_a_leader_that_is_lost_is_not_waited_for(harness: Harness) -> None:
    """Only first leaders are waited for. Clients see at once that a partition has none any more."""
    add_node(harness, 2)
    add_topic(harness, "new", [2, 1], is_new=True)
    announce(harness, "new", 2, [2, 1])
    harness.call(lambda: harness.broker.host.on_peer_down(NodeId(2)))
    answer = harness.send(named("new"), 12)
    assert answer.done()
    (described,) = harness.run(answer).topics
    assert described.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_topic_that_is_deleted_is_not_waited_for(harness: Harness) -> None:
    add_node(harness, 2)
    topic = add_topic(harness, "new", [2, 1], is_new=True)
    answer = harness.send(named("new", create=False), 12)
    append(harness, harness.broker.catalog.delete_topic(topic))
    (described,) = harness.run(answer).topics
    assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
