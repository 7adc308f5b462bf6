"""FindCoordinator: this node for every group, and a final refusal for what is not offered."""

from __future__ import annotations

import pytest

from drmq.catalog import TopicDeleted
from drmq.model import ErrorCode, NodeId
from drmq.model.names import CONSUMER_OFFSETS
from drmq.wire import ApiKey
from drmq.wire.messages.find_coordinator import FindCoordinatorRequest
from support.broker_harness import NODE, Harness
from support.kafka_harness import versions
from support.other_nodes import add_node, announce, append

GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_a_group_is_coordinated_here(harness: Harness, version: int) -> None:
    answer = harness.ask(FindCoordinatorRequest("g", GROUP, ["g"]), version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (0, NODE, "localhost", 9092)


def test_several_at_once(harness: Harness) -> None:
    answer = harness.ask(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["a", "", "b"]), 4)
    assert [(found.key, found.error_code) for found in answer.coordinators] == [
        ("a", 0),
        ("", ErrorCode.INVALID_GROUP_ID),
        ("b", 0),
    ]


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(TRANSACTION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), (SHARE, ErrorCode.INVALID_REQUEST)],
)
def test_what_is_not_offered_is_refused_for_good(harness: Harness, key_type: int, code: ErrorCode) -> None:
    assert harness.ask(FindCoordinatorRequest("x", key_type), 3).error_code == code


@pytest.mark.parametrize("is_missing", [False, True], ids=["just created", "created by the request"])
def test_the_first_coordinator_is_waited_for(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, is_missing: bool
) -> None:
    """The node hears that the groups' topic exists before it hears of its leaders. The client gets a coordinator."""
    catalog = harness.broker.catalog
    append(harness, [TopicDeleted(catalog.topic(CONSUMER_OFFSETS).topic_id, CONSUMER_OFFSETS)])
    add_node(harness, 2)
    topic_id = harness.broker.new_topic_id()
    facts = catalog.create_topic(CONSUMER_OFFSETS, topic_id, 1, {}, internal=True, replicas=[[NodeId(2), NODE]])
    if is_missing:

        async def create(name: str) -> None:
            """As if the controller were another node: the leaders are not known when it has answered."""
            harness.broker.metadata.append(facts)
            await harness.broker.metadata.committed("the creation of the topic")

        monkeypatch.setattr(harness.broker.services.topic_creation, "create_internal", create)
    else:
        append(harness, facts)
    answer = harness.send(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["g"]), 4)
    assert not answer.done()
    announce(harness, CONSUMER_OFFSETS, 2, [2, 1])
    (found,) = harness.run(answer).coordinators
    assert (found.error_code, found.node_id) == (0, 2)
