"""ListConfigResources: topics and brokers, by type."""

from __future__ import annotations

import pytest

from drmq.kafka.config_resources import ResourceType
from drmq.model import ErrorCode
from drmq.wire.messages.list_config_resources import ListConfigResourcesRequest
from support.broker_harness import Harness
from support.other_nodes import add_node

TOPICS = [("__consumer_offsets", ResourceType.TOPIC), ("bills", ResourceType.TOPIC), ("orders", ResourceType.TOPIC)]
BROKERS = [("1", ResourceType.BROKER), ("2", ResourceType.BROKER)]


@pytest.mark.parametrize(
    ("types", "version", "expected"),
    [
        ([], 1, TOPICS + BROKERS),
        ([ResourceType.TOPIC], 1, TOPICS),
        ([ResourceType.BROKER], 1, BROKERS),
        ([ResourceType.GROUP, ResourceType.CLIENT_METRICS, ResourceType.BROKER_LOGGER], 1, []),
        ([], 0, []),
    ],
)
def test_resources_by_type(
    harness: Harness, types: list[int], version: int, expected: list[tuple[str, ResourceType]]
) -> None:
    """v0 knows only client metrics, of which there are none."""
    for name in ("orders", "bills"):
        harness.create_topic(name)
    add_node(harness, 2)
    answer = harness.ask(ListConfigResourcesRequest(types), version)
    assert answer.error_code == 0
    assert [(each.resource_name, each.resource_type) for each in answer.config_resources] == expected


def test_an_unknown_type_is_refused(harness: Harness) -> None:
    answer = harness.ask(ListConfigResourcesRequest([ResourceType.TOPIC, 99]), 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
