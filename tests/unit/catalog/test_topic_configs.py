"""The settings of topics: what is allowed, and what holds where nothing is set."""

from __future__ import annotations

from dataclasses import fields

import pytest

from drmq.catalog import (
    DEFINITIONS,
    TimestampType,
    TopicDefaults,
    check_config,
    default_texts,
    effective,
)
from drmq.model import ApiError, ErrorCode


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_default_is_allowed(name: str) -> None:
    check_config(name, DEFINITIONS[name].default)
    assert DEFINITIONS[name].name == name
    assert DEFINITIONS[name].doc


def test_the_defaults_are_those_of_a_broker_that_sets_nothing() -> None:
    assert default_texts(TopicDefaults()) == {name: definition.default for name, definition in DEFINITIONS.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", "0"),
        ("retention.bytes", "-1"),
        ("max.message.bytes", "0"),
        ("message.timestamp.type", "LogAppendTime"),
        ("segment.bytes", "1024"),
        ("min.insync.replicas", "1"),
        ("min.insync.replicas", "3"),
    ],
)
def test_values_at_the_edge(name: str, value: str) -> None:
    check_config(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.ms", "1_000"),
        ("retention.ms", " 5"),
        ("retention.ms", "٣"),
        ("retention.ms", ""),
        ("retention.ms", str(2**63)),
        ("max.message.bytes", str(2**31)),
        ("segment.bytes", "1023"),
        ("segment.ms", "0"),
        ("cleanup.policy", "compact"),
        ("compression.type", "zstd"),
        ("message.timestamp.type", "logappendtime"),
        ("min.insync.replicas", "0"),
        ("retention.ms", None),
        ("no.such.setting", "1"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(name: str, value: str | None) -> None:
    with pytest.raises(ApiError, match=name) as caught:
        check_config(name, value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_what_a_topic_sets_goes_before_what_the_broker_gives() -> None:
    defaults = TopicDefaults(retention_ms=5, segment_bytes=2_000)
    config = effective({"retention.ms": "7", "message.timestamp.type": "LogAppendTime"}, defaults)
    assert (config.retention_ms, config.segment_bytes) == (7, 2_000)
    assert config.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert effective({}, TopicDefaults()).timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("name", [field.name for field in fields(TopicDefaults)])
def test_what_the_broker_gives_reaches_topics_that_set_nothing(name: str) -> None:
    config = effective({}, TopicDefaults(**{name: 2_222}))
    assert getattr(config, name) == 2_222
    assert effective({name.replace("_", "."): "3333"}, TopicDefaults(**{name: 2_222})) != config
