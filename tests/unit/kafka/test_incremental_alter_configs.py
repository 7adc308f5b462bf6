"""IncrementalAlterConfigs: set, delete, append, subtract."""

from __future__ import annotations

import pytest

from drmq.catalog import DEFINITIONS
from drmq.kafka.config_resources import ResourceType
from drmq.kafka.incremental_alter_configs import ConfigOperation, _new_value
from drmq.model import ErrorCode, NodeId
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


def change_brokers(harness: Harness, name: str, *changes: Change, validate_only: bool = False) -> tuple[int, str]:
    settings = [IncrementalAlterConfigsRequestConfig(*each) for each in changes]
    resource = IncrementalAlterConfigsRequestResource(ResourceType.BROKER, name, settings)
    [result] = harness.ask(IncrementalAlterConfigsRequest([resource], validate_only)).responses
    return result.error_code, result.error_message or ""


def test_throttles_of_a_reassignment_are_set_and_removed(harness: Harness) -> None:
    """As `kafka-reassign-partitions` does with `--throttle`, `--verify` and `--cancel`: it limits copies meanwhile."""
    harness.create_topic("orders")
    replica, rate_of = harness.partition("orders").replica, harness.broker.host.catch_up.rate_of
    own = harness.broker.options.reassignment_bytes_per_s
    leader, follower = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
    assert change_brokers(harness, "1", (leader, SET, "1000"), (follower, SET, "2000")) == (0, "")
    assert rate_of(replica, NodeId(2)) == own, "no replica of the topic is throttled yet"
    assert change(harness, ("leader.replication.throttled.replicas", SET, "0:1")) is ErrorCode.NONE
    assert rate_of(replica, NodeId(2)) == 1_000
    assert change_brokers(harness, "", (leader, SET, "10")) == (0, "")
    assert rate_of(replica, NodeId(2)) == 1_000
    done = [(leader, DELETE, None), (follower, DELETE, None)]
    log_dirs: Change = ("replica.alter.log.dirs.io.max.bytes.per.second", DELETE, None)
    assert change_brokers(harness, "1", *done, log_dirs) == (0, "")
    assert rate_of(replica, NodeId(2)) == 10
    assert change_brokers(harness, "", *done) == (0, "")
    assert change_brokers(harness, "1", *done, log_dirs) == (0, ""), "again, although nothing is set"
    assert rate_of(replica, NodeId(2)) == own
    assert harness.broker.catalog.broker_configs == {}


@pytest.mark.parametrize(
    ("name", "setting", "code", "text"),
    [
        ("1", "num.partitions", ErrorCode.INVALID_REQUEST, "change the node's configuration and restart it"),
        ("9", "leader.replication.throttled.rate", ErrorCode.BROKER_ID_NOT_REGISTERED, "there is no broker 9"),
        ("one", "leader.replication.throttled.rate", ErrorCode.INVALID_REQUEST, "'one' is no broker"),
        ("9" * 5_000, "leader.replication.throttled.rate", ErrorCode.INVALID_REQUEST, "is no broker"),
    ],
)
def test_settings_of_brokers_that_are_refused(
    harness: Harness, name: str, setting: str, code: ErrorCode, text: str
) -> None:
    found, message = change_brokers(harness, name, (setting, SET, "1"))
    assert found == code
    assert text in message


def test_validation_changes_nothing(harness: Harness) -> None:
    harness.create_topic("orders")
    assert change(harness, ("retention.ms", SET, "1"), validate_only=True) is ErrorCode.NONE
    assert configs(harness) == {}
    rate = ("leader.replication.throttled.rate", SET, "1")
    assert change_brokers(harness, "1", rate, validate_only=True) == (0, "")
    assert harness.broker.catalog.broker_configs == {}


@pytest.mark.parametrize("operation", [ConfigOperation.APPEND, ConfigOperation.SUBTRACT])
def test_long_lists_are_not_compared_item_by_item(operation: ConfigOperation) -> None:
    """A request has room for a million items. Each of them compared with each that there is would take hours."""
    compared = 0

    class Counted(str):
        __slots__ = ()

        def split(self, *_: object) -> list[str]:
            return [Counted(item) for item in super().split(",")]

        def strip(self, *_: object) -> str:
            return self

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, str(other))

        __hash__ = str.__hash__

    name = "leader.replication.throttled.replicas"
    present = Counted(",".join(f"{index}:1" for index in range(100)))
    given = Counted(",".join(f"{index}:2" for index in range(100)))
    config = IncrementalAlterConfigsRequestConfig(name, operation, given)
    changed = _new_value(DEFINITIONS, {name: present}, config)
    assert changed is not None
    assert changed.count(":") == (200 if operation is ConfigOperation.APPEND else 100)
    assert compared < 1_000
