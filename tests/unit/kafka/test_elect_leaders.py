"""ElectLeaders: preferred leaders, and why there are no others. What needs several nodes is in `tests/e2e`."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode, GroupId, NodeId
from drmq.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic
from support.broker_harness import Harness
from support.other_nodes import add_node, add_topic, announce, append

UNCLEAN = 1


def outcome(harness: Harness, topic: str, index: int = 0, *, election: int = 0, version: int = 2) -> tuple[int, str]:
    request = ElectLeadersRequest(election, [ElectLeadersRequestTopic(topic, [index])], 200)
    [answered] = harness.ask(request, version).replica_election_results
    assert answered.topic == topic
    [result] = answered.partition_result
    assert result.partition_id == index
    return result.error_code, result.error_message or ""


@pytest.mark.parametrize("version", range(3))
def test_who_leads_already_is_told_so(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    code, text = outcome(harness, "t", version=version)
    assert code == ErrorCode.ELECTION_NOT_NEEDED
    assert "node 1 already leads t-0" in text


def test_all_partitions_leaves_out_what_is_well(harness: Harness) -> None:
    harness.create_topic("well")
    add_node(harness, 2)
    add_topic(harness, "lost", [2, 1])
    announce(harness, "lost", 1, [1])
    [answered] = harness.ask(ElectLeadersRequest(0, None, 200)).replica_election_results
    assert answered.topic == "lost"


@pytest.mark.parametrize(("topic", "index"), [("missing", 0), ("t", 1), ("t", -1)])
def test_what_is_not_there(harness: Harness, topic: str, index: int) -> None:
    harness.create_topic("t")
    assert outcome(harness, topic, index)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome(harness, topic, index, election=UNCLEAN)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_is_answered_once(harness: Harness) -> None:
    harness.create_topic("t")
    twice = [ElectLeadersRequestTopic("t", [0, 0]), ElectLeadersRequestTopic("t", [0])]
    [answered] = harness.ask(ElectLeadersRequest(0, twice, 200)).replica_election_results
    assert len(answered.partition_result) == 1


def test_a_replica_that_is_not_in_sync_is_not_elected(harness: Harness) -> None:
    for node_id in (2, 3):
        add_node(harness, node_id)
    add_topic(harness, "t", [2, 3])
    announce(harness, "t", 3, [3])
    code, text = outcome(harness, "t")
    assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert "node 2, the preferred leader of t-0, is not in sync, so node 3 stays leader" in text
    append(harness, harness.broker.catalog.fence(NodeId(2)))
    announce(harness, "t", 3, [2, 3], term=8)
    code, text = outcome(harness, "t")
    assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert "is down" in text


@pytest.mark.parametrize(
    ("election", "expected"),
    [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
def test_without_a_leader_a_majority_must_come_back(harness: Harness, election: int, expected: ErrorCode) -> None:
    for node_id in (2, 3, 4):
        add_node(harness, node_id)
    add_topic(harness, "t", [2, 3, 4])
    code, text = outcome(harness, "t", election=election)
    assert code == expected
    assert "once 2 of its replicas (2, 3, 4) are up" in text


def test_the_leader_is_asked_to_hand_over_and_waited_for(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    for node_id in (2, 3):
        add_node(harness, node_id)
    topic = add_topic(harness, "t", [2, 3])
    announce(harness, "t", 3, [2, 3])
    asked: list[tuple[GroupId, int]] = []
    monkeypatch.setattr(
        harness.broker.services.elections, "_elect", lambda group, node_id: asked.append((group, node_id))
    )
    answer = harness.send(ElectLeadersRequest(0, [ElectLeadersRequestTopic("t", [0])], 60_000))
    assert asked == [(GroupId(topic.topic_id, 0), 2)]
    assert not answer.done()
    announce(harness, "t", 2, [2, 3], term=8)
    [answered] = harness.run(answer).replica_election_results
    assert answered.partition_result[0].error_code == 0


def test_the_wait_ends_with_the_time_that_was_given(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    for node_id in (2, 3):
        add_node(harness, node_id)
    add_topic(harness, "t", [2, 3])
    announce(harness, "t", 3, [2, 3])
    asked: list[int] = []
    monkeypatch.setattr(harness.broker.services.elections, "_elect", lambda group, node_id: asked.append(node_id))
    code, text = outcome(harness, "t")
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert "may still become its leader" in text
    assert asked == [2]


def test_an_unclean_election_of_what_has_a_leader_is_not_needed(harness: Harness) -> None:
    harness.create_topic("t")
    assert outcome(harness, "t", election=UNCLEAN)[0] == ErrorCode.ELECTION_NOT_NEEDED


def test_other_kinds_of_election_are_refused(harness: Harness) -> None:
    answer = harness.ask(ElectLeadersRequest(7, None, 200))
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])
