"""UnregisterBroker: a node is drained before it goes; what cannot be spared stays."""

from __future__ import annotations

from drmq.model import ErrorCode, GroupId, NodeId
from drmq.wire.messages.unregister_broker import UnregisterBrokerRequest
from support.broker_harness import NODE, Harness
from support.other_nodes import add_node, add_topic, append


def unregister(harness: Harness, node_id: int) -> tuple[int, str]:
    answer = harness.ask(UnregisterBrokerRequest(node_id))
    return answer.error_code, answer.error_message or ""


def test_a_node_begins_to_be_drained(harness: Harness) -> None:
    for node_id in (2, 3):
        add_node(harness, node_id)
    add_topic(harness, "t", [2])
    assert unregister(harness, 2) == (0, "")
    assert harness.broker.catalog.brokers[NodeId(2)].draining
    assert unregister(harness, 2) == (0, ""), "asked again, it is still so"


def test_a_node_that_is_not_there(harness: Harness) -> None:
    code, text = unregister(harness, 5)
    assert code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "there are 1" in text


def test_a_node_whose_replicas_find_no_other_place(harness: Harness) -> None:
    for node_id in (2, 3):
        add_node(harness, node_id)
    add_topic(harness, "t", [1, 2, 3])
    code, text = unregister(harness, 2)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "t-0 would have fewer replicas" in text
    assert not harness.broker.catalog.brokers[NodeId(2)].draining


def test_a_node_whose_replicas_are_too_many_for_the_others(harness: Harness) -> None:
    """They would run out of memory. Nodes that leave already have no room, and need some."""
    for node_id in (2, 3, 4):
        add_node(harness, node_id)
    add_topic(harness, "t", *[[1]] * 4, *[[2]] * 4, *[[3]] * 2)
    harness.broker.topics.replicas_max = 4
    assert unregister(harness, 2) == (0, ""), "3 has room for 2, and 4 has room for 4"
    code, text = unregister(harness, 3)
    assert code == ErrorCode.POLICY_VIOLATION
    assert "its 2 replicas" in text
    assert "6 in all" in text
    assert "4 (replicas_max)" in text
    assert "room for 4;" in text
    assert not harness.broker.catalog.brokers[NodeId(3)].draining
    harness.broker.topics.replicas_max = 1
    assert unregister(harness, 2) == (0, ""), "that was decided before"
    assert unregister(harness, 4) == (0, ""), "it has no replicas"


def test_a_node_that_is_down_has_no_room(harness: Harness) -> None:
    for node_id in (2, 3, 4):
        add_node(harness, node_id)
    add_topic(harness, "t", *[[1]] * 4, *[[2]] * 4)
    harness.broker.topics.replicas_max = 3
    append(harness, harness.broker.catalog.fence(NodeId(3)))
    code, text = unregister(harness, 2)
    assert code == ErrorCode.POLICY_VIOLATION
    assert "room for 3;" in text
    harness.broker.topics.replicas_max = 4
    assert unregister(harness, 2) == (0, "")


def test_the_only_one_that_votes_stays(harness: Harness) -> None:
    for node_id in (2, 3):
        add_node(harness, node_id)
    code, text = unregister(harness, NODE)
    assert code == ErrorCode.INVALID_REQUEST
    assert "is the only voter of the metadata log" in text
    assert not harness.broker.catalog.brokers[NODE].draining


def test_a_move_to_a_node_that_dies_meanwhile_is_given_up(harness: Harness) -> None:
    for node_id in (2, 3, 4):
        add_node(harness, node_id)
    group = GroupId(add_topic(harness, "t", [2]).topic_id, 0)
    catalog = harness.broker.catalog
    append(harness, catalog.start_reassignment(catalog.topic("t"), 0, [NodeId(3)]))
    assert unregister(harness, 2) == (0, "")
    harness.call(harness.broker.controller._drain)
    assert catalog.reassignments == {group: (3,)}
    append(harness, catalog.fence(NodeId(3)))
    harness.call(harness.broker.controller._drain)
    assert catalog.reassignments == {group: (2,)}, "it goes back to where it was"
    append(harness, catalog.finish_reassignment(catalog.topic("t"), 0))
    harness.call(harness.broker.controller._drain)
    [target] = catalog.reassignments.values()
    assert target[0] in (1, 4), "and from there to one that is up"


def test_a_node_that_keeps_nothing_is_removed(harness: Harness) -> None:
    for node_id in (2, 3):
        add_node(harness, node_id)
    assert unregister(harness, 2) == (0, "")
    harness.call(harness.broker.controller._drain)
    assert set(harness.broker.catalog.brokers) == {1, 3}
    assert set(harness.broker.catalog.former_brokers) == {2}


def test_without_the_metadata_nothing_is_decided(harness: Harness) -> None:
    add_node(harness, 2)
    with harness.failing(harness.broker.metadata.log.partition):
        assert unregister(harness, 2)[0] == ErrorCode.KAFKA_STORAGE_ERROR
