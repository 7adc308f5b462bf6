"""FindCoordinator: this node for every group, and a final refusal for what is not offered."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire import ApiKey
from drmq.wire.messages.find_coordinator import FindCoordinatorRequest
from support.broker_harness import NODE, Harness
from support.kafka_harness import versions

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
