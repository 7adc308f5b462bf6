"""DescribeConfigs: values, sources and synonyms of topics and of the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drmq.broker import BrokerOptions
from drmq.catalog import BROKER_DEFINITIONS, DEFINITIONS, ConfigType
from drmq.kafka.config_entries import ConfigSource
from drmq.kafka.config_resources import ResourceType
from drmq.model import ErrorCode, NodeId
from drmq.model.names import CONSUMER_OFFSETS
from drmq.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
)
from support.broker_harness import NODE, Harness
from support.other_nodes import add_node, append


def describe(
    harness: Harness, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **flags: bool
) -> DescribeConfigsResponseResult:
    resource = DescribeConfigsRequestResource(kind, name, keys)
    [result] = harness.ask(DescribeConfigsRequest([resource], **flags), version).results
    assert isinstance(result, DescribeConfigsResponseResult)
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def named(result: DescribeConfigsResponseResult) -> dict[str, DescribeConfigsResponseConfig]:
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def synonyms(config: DescribeConfigsResponseConfig) -> list[tuple[Any, ...]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_has_all_settings_with_their_sources(harness: Harness, version: int) -> None:
    harness.create_topic("orders", retention_ms="1000")
    configs = named(describe(harness, ResourceType.TOPIC, "orders", version=version))
    assert sorted(configs) == sorted(DEFINITIONS)
    assert configs["retention.ms"].value == "1000"
    assert configs["retention.ms"].config_source == ConfigSource.TOPIC
    assert configs["max.message.bytes"].config_source == ConfigSource.DEFAULT
    assert not configs["retention.ms"].read_only
    assert configs["retention.ms"].synonyms == []
    if version >= 3:
        assert configs["cleanup.policy"].config_type == ConfigType.LIST


def test_synonyms_go_from_the_topic_over_the_node_to_the_default() -> None:
    with Harness(options=BrokerOptions(retention_ms=5_000)) as harness:
        harness.create_topic("orders", retention_ms="1000")
        harness.create_topic("bills")
        own = named(describe(harness, ResourceType.TOPIC, "orders", include_synonyms=True))["retention.ms"]
        assert synonyms(own) == [
            ("retention.ms", "1000", ConfigSource.TOPIC),
            ("log.retention.ms", "5000", ConfigSource.STATIC_BROKER),
            ("log.retention.ms", "604800000", ConfigSource.DEFAULT),
        ]
        inherited = named(describe(harness, ResourceType.TOPIC, "bills", include_synonyms=True))["retention.ms"]
        assert (inherited.value, inherited.config_source) == ("5000", ConfigSource.STATIC_BROKER)
        assert synonyms(inherited) == synonyms(own)[1:]


def test_replication_factors_are_those_of_the_cluster_as_it_is(harness: Harness) -> None:
    """A tool that reads them and asks for as many must not be refused."""

    def factors() -> tuple[str | None, str | None]:
        configs = named(describe(harness, ResourceType.BROKER, str(NODE)))
        return configs["default.replication.factor"].value, configs["offsets.topic.replication.factor"].value

    assert factors() == ("1", "1")
    add_node(harness, 2)
    assert factors() == ("2", "1")
    for node_id in (3, 4):
        add_node(harness, node_id)
    assert factors() == ("3", "1")
    offsets = harness.broker.catalog.topic(CONSUMER_OFFSETS)
    append(harness, harness.broker.catalog.start_reassignment(offsets, 0, [NODE, NodeId(2), NodeId(3)]))
    assert factors() == ("3", "3")
    append(harness, harness.broker.catalog.fence(NodeId(2)) + harness.broker.catalog.fence(NodeId(3)))
    assert factors() == ("2", "3")


def test_keys_choose_among_the_settings_and_unknown_ones_are_passed_over(harness: Harness) -> None:
    harness.create_topic("orders")
    assert list(named(describe(harness, ResourceType.TOPIC, "orders", ["segment.ms", "no.such"]))) == ["segment.ms"]
    assert len(describe(harness, ResourceType.TOPIC, "orders", []).configs) == len(DEFINITIONS)


def test_documentation_is_sent_when_asked_for(harness: Harness) -> None:
    harness.create_topic("orders")
    silent = describe(harness, ResourceType.TOPIC, "orders")
    assert {config.documentation for config in silent.configs} == {None}
    spoken = describe(harness, ResourceType.TOPIC, "orders", include_documentation=True)
    assert all(config.documentation for config in spoken.configs)


def test_a_broker_has_kafkas_names_for_its_options() -> None:
    options = BrokerOptions(num_partitions=3, auto_create_topics=False, offsets_retention_ms=120_000)
    with Harness(options=options) as harness:
        configs = named(describe(harness, ResourceType.BROKER, str(NODE), include_synonyms=True))
    assert configs["num.partitions"].value == "3"
    assert configs["num.partitions"].config_source == ConfigSource.STATIC_BROKER
    assert synonyms(configs["num.partitions"])[-1] == ("num.partitions", "1", ConfigSource.DEFAULT)
    assert configs["auto.create.topics.enable"].value == "false"
    assert configs["auto.create.topics.enable"].config_type == ConfigType.BOOLEAN
    assert configs["offsets.retention.minutes"].value == "2"
    assert configs["socket.request.max.bytes"].config_source == ConfigSource.DEFAULT
    assert configs["log.dirs"].value == "memory"
    assert {definition.broker_name for definition in DEFINITIONS.values()} - {None} <= set(configs)
    assert {name for name, config in configs.items() if not config.read_only} == BROKER_DEFINITIONS.keys()
    assert not any(config.is_sensitive for config in configs.values())


@pytest.mark.parametrize(
    ("rack", "source"), [("north", ConfigSource.STATIC_BROKER), (None, ConfigSource.DEFAULT)], ids=["a rack", "none"]
)
def test_the_rack_of_a_broker(harness: Harness, rack: str | None, source: ConfigSource) -> None:
    """A node without a rack has the setting too, without a value."""
    harness.broker.cluster = replace(harness.broker.cluster, rack=rack)
    configs = named(describe(harness, ResourceType.BROKER, str(NODE), ["broker.rack"]))
    assert [(name, each.value, each.config_source) for name, each in configs.items()] == [("broker.rack", rack, source)]


def test_what_can_be_changed_at_run_time_has_two_more_layers() -> None:
    rate = "leader.replication.throttled.rate"
    with Harness(options=BrokerOptions(reassignment_bytes_per_s=77)) as harness:
        assert named(describe(harness, ResourceType.BROKER, "")) == {}
        append(harness, harness.broker.catalog.change_broker_configs(NODE, {rate: "5"}))
        append(harness, harness.broker.catalog.change_broker_configs(None, {rate: "6"}))
        own = named(describe(harness, ResourceType.BROKER, str(NODE), [rate], include_synonyms=True))[rate]
        assert (own.value, own.config_source, own.read_only) == ("5", ConfigSource.BROKER, False)
        assert synonyms(own) == [
            (rate, "5", ConfigSource.BROKER),
            (rate, "6", ConfigSource.ALL_BROKERS),
            (rate, "77", ConfigSource.STATIC_BROKER),
            (rate, "33554432", ConfigSource.DEFAULT),
        ]
        everyone = named(describe(harness, ResourceType.BROKER, ""))
        assert [(name, each.value, each.config_source) for name, each in everyone.items()] == [
            (rate, "6", ConfigSource.ALL_BROKERS)
        ]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ResourceType.TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceType.BROKER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "one", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "x" * 1_025, ErrorCode.INVALID_REQUEST),
        (99, "?", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_is_an_error_with_a_sentence(
    harness: Harness, kind: int, name: str, code: ErrorCode
) -> None:
    result = describe(harness, kind, name)
    assert result.error_code == code
    assert result.error_message
    assert result.configs == []
