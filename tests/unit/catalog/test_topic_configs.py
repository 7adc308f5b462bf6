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
    throttled_replicas,
)
from drmq.catalog.topic_configs import checked_configs
from drmq.model import ApiError, ErrorCode
from support.kafka_apis import KAFKA_TOPIC_SETTINGS


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_default_is_allowed(name: str) -> None:
    check_config(name, DEFINITIONS[name].default)
    assert DEFINITIONS[name].name == name
    assert DEFINITIONS[name].doc


def test_every_setting_of_kafka_has_a_decision() -> None:
    """Of each, type and default are Kafka's, unless DRMQ does something else by default."""
    ours = {name: (definition.type.name, definition.default) for name, definition in DEFINITIONS.items()}
    differs = {
        "segment.bytes": ("INT", "268435456"),  # Recovery reads up to a segment.
        "file.delete.delay.ms": ("LONG", "0"),
        "flush.messages": ("LONG", "1"),
        "flush.ms": ("LONG", "0"),
        "message.downconversion.enable": ("BOOLEAN", "false"),  # Known to Kafka before 4.0, and true there.
    }
    assert ours == KAFKA_TOPIC_SETTINGS | differs


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
        # What DRMQ does anyway.
        ("unclean.leader.election.enable", "false"),
        ("preallocate", "False"),
        ("remote.storage.enable", "false"),
        ("local.retention.ms", "-2"),
        ("flush.messages", "1"),
        ("flush.messages", str(2**63 - 1)),
        ("flush.ms", "0"),
        ("delete.retention.ms", "0"),
        ("min.cleanable.dirty.ratio", "0.99"),
        ("min.cleanable.dirty.ratio", "1"),
        ("min.cleanable.dirty.ratio", ".5"),
        ("min.cleanable.dirty.ratio", "5e-1"),
        ("min.cleanable.dirty.ratio", "0.50000000000000000000"),
        ("max.compaction.lag.ms", "1"),
        ("compression.type", "producer"),
        ("compression.type", "uncompressed"),
        ("compression.type", "gzip"),
        ("compression.type", "snappy"),
        ("compression.type", "lz4"),
        ("compression.type", "zstd"),
        ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "9"),
        ("compression.lz4.level", "17"),
        ("compression.zstd.level", "-131072"),
        ("segment.jitter.ms", "1000"),
        ("message.timestamp.before.max.ms", "0"),
        ("message.timestamp.after.max.ms", str(2**63 - 1)),
        ("leader.replication.throttled.replicas", "0:1, 1:2"),
        ("follower.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", ""),
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
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "DELETE"),
        ("cleanup.policy", ""),
        ("compression.type", "none"),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "logappendtime"),
        ("min.insync.replicas", "0"),
        # What would be a lie.
        ("unclean.leader.election.enable", "true"),
        ("preallocate", "true"),
        ("preallocate", "no"),
        ("remote.storage.enable", "true"),
        ("local.retention.bytes", "1000"),
        ("file.delete.delay.ms", "60000"),
        ("message.downconversion.enable", "true"),
        ("segment.index.bytes", "4096"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("compression.zstd.level", "-131073"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "1e1"),
        ("min.cleanable.dirty.ratio", "."),
        ("min.cleanable.dirty.ratio", "e1"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("leader.replication.throttled.replicas", "0"),
        ("leader.replication.throttled.replicas", "0:1;1:2"),
        ("follower.replication.throttled.replicas", "*,0:1"),
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


@pytest.mark.parametrize(
    ("text", "replicas"),
    [("", frozenset()), ("*", None), (" * ", None), ("0:1", {(0, 1)}), ("0:1, 12:3,", {(0, 1), (12, 3)})],
)
def test_throttled_replicas(text: str, replicas: set[tuple[int, int]] | None) -> None:
    assert throttled_replicas(text) == replicas


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "setting"),
    [
        (-100, 50, None),
        (-101, 0, "message.timestamp.before.max.ms allows 100"),
        (0, 51, "message.timestamp.after.max.ms allows 50"),
    ],
)
def test_timestamps_far_from_the_clock(first_ms: int, last_ms: int, setting: str | None) -> None:
    now_ms = 1_000_000
    configs = {"message.timestamp.before.max.ms": "100", "message.timestamp.after.max.ms": "50"}
    config = effective(configs, TopicDefaults())
    config.check_times(-1, -1, now_ms)
    if setting is None:
        config.check_times(now_ms + first_ms, now_ms + last_ms, now_ms)
        return
    with pytest.raises(ApiError, match=setting) as caught:
        config.check_times(now_ms + first_ms, now_ms + last_ms, now_ms)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


THROTTLED = "leader.replication.throttled.replicas"


@pytest.mark.parametrize("partition_count", [1, 100])
def test_the_settings_of_a_topic_have_a_size(partition_count: int) -> None:
    """Lists may have every replica of a large cluster's topic, and not the megabytes that a request has room for."""
    fits = ",".join(f"{index}:{node}" for index in range(partition_count) for node in range(1001, 1007))
    both = {THROTTLED: fits, "follower.replication.throttled.replicas": fits}
    assert checked_configs(both, partition_count) == both
    with pytest.raises(ApiError) as caught:
        checked_configs({THROTTLED: ",".join(["0:1"] * 10_000)}, partition_count)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
