"""Settings of lease groups: what is allowed, what holds where nothing is set, and how they change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drmq.catalog import (
    GROUP_DEFINITIONS,
    Catalog,
    ConfigDefinition,
    ConfigType,
    FeatureLevelSet,
    GroupConfig,
    GroupConfigsSet,
    decode_fact,
    effective_group,
    encode_fact,
    group_configs,
)
from drmq.model import ApiError, ErrorCode, NodeId
from drmq.model.names import is_topic_name
from support.kafka_apis import KAFKA_SHARE_GROUP_SETTINGS

from .clusters import of, play

LOCK, LIMIT, START = "share.record.lock.duration.ms", "share.delivery.count.limit", "share.auto.offset.reset"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
LOCK_MIN, LOCK_MAX = "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"
NOTHING_SET = GroupConfig(
    lock_duration_ms=30_000,
    deliveries_max=5,
    locks_max=10_000,
    start_age_ms=0,
    renews=True,
    heartbeat_interval_ms=5_000,
    session_timeout_ms=45_000,
    dead_letter_topic="dlq.billing",
    copies_dead_letters=True,
    backoff_ms=0,
    backoff_factor=2.0,
    backoff_max_ms=3_600_000,
    backoff_jitter=0.2,
    parked_max=100_000,
)


def finalized(level: int = 4) -> Catalog:
    catalog = of(2)
    play(catalog, [FeatureLevelSet("metadata.version", level)])
    return catalog


def changed(name: str, value: str) -> GroupConfig:
    """What is in effect for a group that has set this only. Raises `ApiError`."""
    catalog = finalized()
    play(catalog, catalog.change_group_configs("billing", {name: value}))
    return effective_group("billing", catalog.group_configs["billing"], catalog.broker_configs)


def test_types_and_defaults_are_those_of_kafka() -> None:
    """But dead letters are written by default, and more records may be leased: 2,000 are too few for four fast members.

    DRMQ's own settings begin with `share.retry` or are about parking."""
    ours = {name: (definition.type.name, definition.default) for name, definition in GROUP_DEFINITIONS.items()}
    assert KAFKA_SHARE_GROUP_SETTINGS.keys() <= ours.keys()
    assert {name for name in KAFKA_SHARE_GROUP_SETTINGS if ours[name] != KAFKA_SHARE_GROUP_SETTINGS[name]} == {
        DEAD_LETTER_TOPIC,
        "errors.deadletterqueue.copy.record.enable",
        "share.partition.max.record.locks",
    }
    own = ours.keys() - KAFKA_SHARE_GROUP_SETTINGS.keys()
    assert all(name.startswith("share.retry.") or "parked" in name for name in own), own


@pytest.mark.parametrize("definition", GROUP_DEFINITIONS.values(), ids=GROUP_DEFINITIONS)
def test_every_setting_is_described_and_its_default_is_allowed(definition: ConfigDefinition) -> None:
    assert definition.doc
    assert definition.allowed
    assert definition.problem(definition.default) is None
    if definition.type in (ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE):
        assert definition.problem("many") is not None


def test_what_holds_where_nothing_is_set() -> None:
    assert effective_group("billing", {}, {}) == NOTHING_SET


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        (LOCK, "15000", "lock_duration_ms", 15_000),
        (LOCK, "60000", "lock_duration_ms", 60_000),
        (LIMIT, "2", "deliveries_max", 2),
        ("share.partition.max.record.locks", "4000", "locks_max", 4_000),
        (START, "latest", "start_age_ms", 0),
        (START, "earliest", "start_age_ms", None),
        (START, "by_duration:PT1H", "start_age_ms", 3_600_000),
        (START, "by_duration:P2DT3H4M5.678S", "start_age_ms", 183_845_678),
        (START, "by_duration:pt0.5s", "start_age_ms", 500),
        (START, "by_duration:P7D", "start_age_ms", 604_800_000),
        ("share.renew.acknowledge.enable", "False", "renews", False),
        ("share.heartbeat.interval.ms", "15000", "heartbeat_interval_ms", 15_000),
        ("share.session.timeout.ms", "60000", "session_timeout_ms", 60_000),
        (DEAD_LETTER_TOPIC, "dlq.shop", "dead_letter_topic", "dlq.shop"),
        (DEAD_LETTER_TOPIC, "", "dead_letter_topic", None),
        ("errors.deadletterqueue.copy.record.enable", "false", "copies_dead_letters", False),
        ("share.retry.backoff.ms", "250", "backoff_ms", 250),
        ("share.retry.backoff.factor", "1.5", "backoff_factor", 1.5),
        ("share.retry.backoff.max.ms", "9000", "backoff_max_ms", 9_000),
        ("share.retry.backoff.jitter", "0", "backoff_jitter", 0.0),
        ("share.partition.max.parked.records", "7", "parked_max", 7),
    ],
)
def test_each_setting_changes_what_it_is_about_and_nothing_else(
    name: str, value: str, field: str, expected: object
) -> None:
    assert changed(name, value) == replace(NOTHING_SET, **{field: expected})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["read_uncommitted", "read_committed"])
def test_both_isolation_levels_are_met(value: str) -> None:
    assert changed("share.isolation.level", value) == NOTHING_SET


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("share.no.such", "1", "unknown group setting 'share.no.such'; known are: share.record.lock.duration.ms, "),
        (LOCK, "14999", "'14999' is outside 15000 to 60000, the limits of the cluster"),
        (LOCK, "60001", "'60001' is outside 15000 to 60000, the limits of the cluster"),
        (LOCK, "1s", "is not a whole number; allowed are 1000 to 3600000"),
        (LIMIT, "1", "share.delivery.count.limit='1' is outside 2 to 10"),
        (LIMIT, "11", "is outside 2 to 10"),
        ("share.partition.max.record.locks", "99", "is outside 100 to 50000"),
        ("share.partition.max.record.locks", "50001", "is outside 100 to 50000"),
        ("share.isolation.level", "serializable", "is not read_uncommitted or read_committed"),
        ("share.renew.acknowledge.enable", "yes", "is neither true nor false"),
        ("share.heartbeat.interval.ms", "4999", "is outside 5000 to 15000"),
        ("share.session.timeout.ms", "44999", "is outside 45000 to 60000"),
        ("share.retry.backoff.factor", "0.5", "is not a number from 1 to 100"),
        ("share.retry.backoff.factor", "nan", "is not a number from 1 to 100"),
        ("share.retry.backoff.jitter", "1.1", "is not a number from 0 to 1"),
        ("share.retry.backoff.ms", "-1", "is outside 0 to 86400000"),
        (START, "none", "is not latest, earliest, or by_duration:"),
        (START, "by_duration:", "is not latest, earliest, or by_duration:"),
        (START, "by_duration:P", "is not latest, earliest, or by_duration:"),
        (START, "by_duration:PT", "is not latest, earliest, or by_duration:"),
        (START, "by_duration:P1DT", "is not latest, earliest, or by_duration:"),
        (START, "by_duration:-PT1H", "is not latest, earliest, or by_duration:"),
        (START, "by_duration:1h", "is not latest, earliest, or by_duration:"),
        (DEAD_LETTER_TOPIC, "__secret", "begins with __, which is reserved"),
        (DEAD_LETTER_TOPIC, "dlq.a/b", "is not the name of a topic"),
        (DEAD_LETTER_TOPIC, "orders", "does not begin with 'dlq.'"),
    ],
)
def test_what_is_refused_is_refused_with_the_reason(name: str, value: str, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        changed(name, value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert text in str(caught.value.message)


@pytest.mark.parametrize(
    ("group", "topic"), [("billing", "dlq.billing"), ("a/b c", "dlq.a_b_c"), ("é" * 300, "dlq." + "_" * 245)]
)
def test_every_group_has_a_legal_dead_letter_topic(group: str, topic: str) -> None:
    assert effective_group(group, {}, {}).dead_letter_topic == topic
    assert is_topic_name(topic)


def test_limits_of_the_cluster_are_settings_of_all_brokers() -> None:
    catalog = finalized()
    play(catalog, catalog.change_broker_configs(None, {LOCK_MIN: "1000", LOCK_MAX: "120000", PREFIX: "dead-"}))
    play(catalog, catalog.change_group_configs("billing", {LOCK: "1000", DEAD_LETTER_TOPIC: "dead-orders"}))
    play(catalog, catalog.change_group_configs("shipping", {LOCK: "120000"}))
    configs, broker_configs = catalog.group_configs, catalog.broker_configs
    assert effective_group("billing", configs["billing"], broker_configs).dead_letter_topic == "dead-orders"
    assert effective_group("shipping", configs["shipping"], broker_configs).dead_letter_topic == "dead-shipping"
    for changes in ({LOCK: "999"}, {LOCK: "120001"}, {DEAD_LETTER_TOPIC: "dlq.orders"}):
        with pytest.raises(ApiError):
            catalog.change_group_configs("billing", changes)
    play(catalog, catalog.change_broker_configs(None, {PREFIX: ""}))
    assert catalog.change_group_configs("billing", {DEAD_LETTER_TOPIC: "orders"})


@pytest.mark.parametrize("name", [PREFIX, LOCK_MIN, LOCK_MAX, "errors.deadletterqueue.auto.create.topics.enable"])
def test_a_limit_of_the_cluster_is_not_set_on_one_broker(name: str) -> None:
    """Nodes with different rules would decide differently about one group."""
    with pytest.raises(ApiError, match="set it on all brokers") as caught:
        finalized().change_broker_configs(NodeId(1), {name: "30000"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("prefix", ["__", "a/b", "a" * 101])
def test_a_prefix_that_no_topic_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(ApiError) as caught:
        finalized().change_broker_configs(None, {PREFIX: prefix})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_settings_change_one_by_one_or_all_together_and_survive_a_snapshot() -> None:
    catalog = finalized()
    play(catalog, catalog.change_group_configs("billing", {LIMIT: "3", START: "earliest"}))
    play(catalog, catalog.change_group_configs("billing", {LIMIT: None, START: "latest"}))
    assert catalog.group_configs == {"billing": {START: "latest"}}
    before = catalog.group_configs
    play(catalog, catalog.change_group_configs("billing", {LIMIT: "4"}, replace_all=True))
    assert before == {"billing": {START: "latest"}}, "it is replaced, never changed"
    again = Catalog()
    play(again, list(catalog.snapshot()))
    assert again.group_configs == catalog.copy().group_configs == {"billing": {LIMIT: "4"}}
    play(catalog, catalog.change_group_configs("billing", {LIMIT: None, "no.such": None}))
    assert catalog.group_configs == {}
    assert catalog.change_group_configs("billing", {LIMIT: None}) == []


def test_nothing_is_written_that_an_older_node_cannot_read() -> None:
    with pytest.raises(ApiError, match="drmq cluster upgrade --finalize") as caught:
        finalized(3).change_group_configs("billing", {LIMIT: "3"})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert finalized(3).change_group_configs("billing", {LIMIT: None}) == []


def test_the_number_of_groups_with_settings_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_configs, "GROUPS_MAX", 2)
    catalog = finalized()
    for name in ("a", "b"):
        play(catalog, catalog.change_group_configs(name, {LIMIT: "3"}))
    with pytest.raises(ApiError) as caught:
        catalog.change_group_configs("c", {LIMIT: "3"})
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    play(catalog, catalog.change_group_configs("a", {LIMIT: "4"}))
    play(catalog, catalog.change_group_configs("b", {LIMIT: None}))
    assert catalog.change_group_configs("c", {LIMIT: "3"})


@pytest.mark.parametrize("group", ["", "x" * 1_025])
def test_a_name_that_no_group_can_have_is_refused(group: str) -> None:
    with pytest.raises(ApiError) as caught:
        finalized().change_group_configs(group, {LIMIT: "3"})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_the_fact_names_its_group() -> None:
    fact = GroupConfigsSet("billing", {LIMIT: "3"})
    key, value = encode_fact(fact)
    assert key == b"group-configs-set:billing"
    assert decode_fact(value) == fact
