"""AlterConfigs: all of a topic's settings at once."""

from __future__ import annotations

import pytest

from drmq.kafka.config_resources import ResourceType
from drmq.model import ErrorCode, NodeId
from drmq.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
)
from support.broker_harness import Harness


def resource(
    name: str, *configs: tuple[str, str | None], kind: int = ResourceType.TOPIC
) -> AlterConfigsRequestResource:
    return AlterConfigsRequestResource(kind, name, [AlterConfigsRequestConfig(*each) for each in configs])


def codes(response: AlterConfigsResponse) -> list[tuple[str, int]]:
    return [(each.resource_name, each.error_code) for each in response.responses]


@pytest.mark.parametrize("version", range(3))
def test_what_is_left_out_goes_back_to_its_default(harness: Harness, version: int) -> None:
    harness.create_topic("orders", retention_ms="1000", segment_ms="500")
    answer = harness.ask(AlterConfigsRequest([resource("orders", ("retention.ms", "2000"))]), version)
    assert codes(answer) == [("orders", 0)]
    assert harness.broker.catalog.topic("orders").configs == {"retention.ms": "2000"}
    assert harness.partition("orders").config.retention_ms == 2_000
    assert harness.partition("orders").log.options.segment_ms == 604_800_000


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("no.such", "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_settings_change_nothing(harness: Harness, configs: list[tuple[str, str | None]], code: ErrorCode) -> None:
    harness.create_topic("orders", segment_ms="500")
    answer = harness.ask(AlterConfigsRequest([resource("orders", ("segment.ms", "1"), *configs)]))
    assert codes(answer) == [("orders", code)]
    assert answer.responses[0].error_message
    assert harness.broker.catalog.topic("orders").configs == {"segment.ms": "500"}


def test_settings_of_a_broker_are_replaced(harness: Harness) -> None:
    leader, follower = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
    for configs in ({leader: "1", follower: "2"}, {follower: "3"}, {}):
        wanted = resource("1", *configs.items(), kind=ResourceType.BROKER)
        assert codes(harness.ask(AlterConfigsRequest([wanted]))) == [("1", 0)]
        assert harness.broker.catalog.broker_configs == ({NodeId(1): configs} if configs else {})


def test_resources_that_cannot_be_changed(harness: Harness) -> None:
    harness.create_topic("orders")
    answer = harness.ask(
        AlterConfigsRequest(
            [
                resource("nowhere"),
                resource("1", ("num.partitions", "3"), kind=ResourceType.BROKER),
                resource("1", kind=ResourceType.BROKER_LOGGER),
                resource("orders"),
            ]
        )
    )
    assert [each.error_code for each in answer.responses] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        0,
    ]
    assert "change the node's configuration and restart it" in answer.responses[1].error_message


def test_a_resource_that_is_twice_in_a_request_is_refused(harness: Harness) -> None:
    harness.create_topic("orders")
    twice = [resource("orders", ("retention.ms", "1")), resource("orders", ("retention.ms", "2"))]
    assert codes(harness.ask(AlterConfigsRequest(twice))) == [("orders", ErrorCode.INVALID_REQUEST)]
    assert harness.broker.catalog.topic("orders").configs == {}


def test_validation_changes_nothing(harness: Harness) -> None:
    harness.create_topic("orders")
    request = AlterConfigsRequest([resource("orders", ("retention.ms", "1"))], validate_only=True)
    assert codes(harness.ask(request)) == [("orders", 0)]
    assert harness.broker.catalog.topic("orders").configs == {}
