"""IncrementalAlterConfigs: set, delete, append, subtract."""

from __future__ import annotations

import pytest

from drmq.kafka.config_resources import ResourceType
from drmq.kafka.incremental_alter_configs import ConfigOperation
from drmq.model import ErrorCode
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from support.broker_harness import Harness

SET, DELETE, APPEND, SUBTRACT = ConfigOperation

Change = tuple[str, int, str | None]


def change(harness: Harness, *changes: Change, version: int | None = None, validate_only: bool = False) -> ErrorCode:
    configs = [IncrementalAlterConfigsRequestConfig(*each) for each in changes]
    resource = IncrementalAlterConfigsRequestResource(ResourceType.TOPIC, "orders", configs)
    [answer] = harness.ask(IncrementalAlterConfigsRequest([resource], validate_only), version).responses
    assert (answer.resource_type, answer.resource_name) == (ResourceType.TOPIC, "orders")
    assert (answer.error_message is None) == (answer.error_code == 0)
    return ErrorCode(answer.error_code)


def configs(harness: Harness) -> dict[str, str]:
    return dict(harness.broker.catalog.topic("orders").configs)


@pytest.mark.parametrize("version", range(2))
def test_what_is_not_named_stays_as_it_is(harness: Harness, version: int) -> None:
    harness.create_topic("orders", retention_ms="1000", segment_ms="500")
    changes: list[Change] = [("retention.ms", SET, "2000"), ("max.message.bytes", SET, "99")]
    assert change(harness, *changes, version=version) is ErrorCode.NONE
    assert configs(harness) == {"retention.ms": "2000", "segment.ms": "500", "max.message.bytes": "99"}
    assert harness.partition("orders").config.max_message_bytes == 99
    assert change(harness, ("segment.ms", DELETE, None), ("retention.ms", DELETE, "x"), version=version) == 0
    assert configs(harness) == {"max.message.bytes": "99"}


def test_lists_grow_and_shrink(harness: Harness) -> None:
    harness.create_topic("orders")
    assert change(harness, ("cleanup.policy", APPEND, "delete")) is ErrorCode.NONE
    assert configs(harness) == {"cleanup.policy": "delete"}
    assert change(harness, ("cleanup.policy", SUBTRACT, "compact")) is ErrorCode.NONE
    assert configs(harness) == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("cleanup.policy", APPEND, "compact")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", SUBTRACT, "delete")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_one_bad_change_undoes_all_of_its_topic(harness: Harness, changes: list[Change], code: ErrorCode) -> None:
    harness.create_topic("orders")
    assert change(harness, ("segment.ms", SET, "500"), *changes) is code
    assert configs(harness) == {}


@pytest.mark.parametrize("name", ["retention.ms", "follower.replication.throttled.replicas", "no.such"])
def test_deleting_what_is_not_set_changes_nothing(harness: Harness, name: str) -> None:
    """Tools delete their settings when they are done, whether or not they have set them."""
    harness.create_topic("orders", segment_ms="500")
    assert change(harness, (name, DELETE, None)) is ErrorCode.NONE
    assert configs(harness) == {"segment.ms": "500"}
    assert change(harness, (name, DELETE, None), ("segment.ms", SET, "600")) is ErrorCode.NONE
    assert configs(harness) == {"segment.ms": "600"}


def test_unknown_topics_brokers_and_repeated_resources(harness: Harness) -> None:
    harness.create_topic("orders")
    settings = [IncrementalAlterConfigsRequestConfig("retention.ms", SET, "1")]
    answer = harness.ask(
        IncrementalAlterConfigsRequest(
            [
                IncrementalAlterConfigsRequestResource(ResourceType.TOPIC, "nowhere", settings),
                IncrementalAlterConfigsRequestResource(ResourceType.BROKER, "1", settings),
                IncrementalAlterConfigsRequestResource(ResourceType.TOPIC, "orders", settings),
                IncrementalAlterConfigsRequestResource(ResourceType.TOPIC, "orders", settings),
            ]
        )
    )
    assert [(each.resource_name, each.error_code) for each in answer.responses] == [
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("1", ErrorCode.INVALID_REQUEST),
        ("orders", ErrorCode.INVALID_REQUEST),
    ]
    assert configs(harness) == {}


def test_validation_changes_nothing(harness: Harness) -> None:
    harness.create_topic("orders")
    assert change(harness, ("retention.ms", SET, "1"), validate_only=True) is ErrorCode.NONE
    assert configs(harness) == {}
