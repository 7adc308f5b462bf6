"""AddRaftVoter and RemoveRaftVoter: what is refused. That votes move is shown with real nodes, in `tests/e2e`."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode, NodeId
from drmq.wire.messages.add_raft_voter import AddRaftVoterRequest
from drmq.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from support.broker_harness import NODE, Harness
from support.other_nodes import add_node, append, directory_id

ANY = bytes(16)


def add(
    harness: Harness, node_id: int, directory: bytes = ANY, *, cluster_id: str | None = None, timeout_ms: int = 50
) -> tuple[int, str]:
    answer = harness.ask(AddRaftVoterRequest(cluster_id, timeout_ms, node_id, directory, []))
    return answer.error_code, answer.error_message or ""


def remove(harness: Harness, node_id: int, directory: bytes = ANY, *, cluster_id: str | None = None) -> tuple[int, str]:
    answer = harness.ask(RemoveRaftVoterRequest(cluster_id, node_id, directory))
    return answer.error_code, answer.error_message or ""


def test_who_votes_already(harness: Harness) -> None:
    assert add(harness, NODE)[0] == ErrorCode.DUPLICATE_VOTER
    assert add(harness, NODE, cluster_id=harness.broker.cluster_id)[0] == ErrorCode.DUPLICATE_VOTER


def test_the_last_vote_stays(harness: Harness) -> None:
    code, text = remove(harness, NODE)
    assert code == ErrorCode.INVALID_REQUEST
    assert "is the only voter of the metadata log; give another node a vote first" in text


def test_who_has_no_vote(harness: Harness) -> None:
    add_node(harness, 2)
    code, text = remove(harness, 2)
    assert code == ErrorCode.VOTER_NOT_FOUND
    assert "the voters are nodes 1" in text


@pytest.mark.parametrize("change", [add, remove])
def test_another_cluster_and_an_unknown_node(harness: Harness, change: type) -> None:
    assert change(harness, NODE, cluster_id="another")[0] == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert change(harness, 9)[0] == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_another_life_of_the_node(harness: Harness) -> None:
    add_node(harness, 2)
    code, text = add(harness, 2, directory_id(3))
    assert code == ErrorCode.INVALID_REQUEST
    assert "no longer has the data directory that the request names" in text


def test_a_node_that_cannot_be_reached_gets_no_vote(harness: Harness) -> None:
    add_node(harness, 2)
    code, text = add(harness, 2, directory_id(2))
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert "node 2 cannot be given a vote yet" in text
    node = harness.broker.metadata.log.partition.replica.node
    assert node is not None
    assert node.configuration.voters == {NODE}


def test_a_node_that_only_serves_or_is_leaving_gets_no_vote(harness: Harness) -> None:
    add_node(harness, 2, roles=["broker"])
    code, text = add(harness, 2)
    assert (code, "its roles are broker" in text) == (ErrorCode.INVALID_REQUEST, True)
    add_node(harness, 3)
    append(harness, harness.broker.catalog.drain(NodeId(3)))
    code, text = add(harness, 3)
    assert (code, "is being removed" in text) == (ErrorCode.INVALID_REQUEST, True)


@pytest.mark.parametrize("change", [add, remove])
def test_without_the_metadata_nothing_is_decided(harness: Harness, change: type) -> None:
    with harness.failing(harness.broker.metadata.log.partition):
        assert change(harness, NODE)[0] == ErrorCode.KAFKA_STORAGE_ERROR
