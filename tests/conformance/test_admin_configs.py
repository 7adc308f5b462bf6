"""Settings of topics and of the broker: described with sources and defaults, changed one by one or all together."""

import asyncio
import time
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from kafka.admin import ConfigResource as KafkaConfigResource
from kafka.admin import ConfigResourceType as KafkaConfigResourceType

from conformance.conftest import MakeTopic
from support.confluent_admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from support.polling import PATIENCE_S, eventually

DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}
"""Kafka's defaults for the settings that clients rely on. How large a segment is is the broker's own affair."""


def describe(admin: AdminClient, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described: dict[str, Any] = admin.describe_configs([resource])[resource].result()
    return described


def shown(admin: AdminClient, topic: str, expected: dict[str, str]) -> dict[str, Any]:
    """The settings, once they have the expected values: Apache Kafka confirms a change a moment before it shows."""
    return eventually(
        lambda: describe(admin, topic),
        lambda described: {key: described[key].value for key in expected} == expected,
        what=f"settings {expected}",
    )


def alter(admin: AdminClient, topic: str, *entries: tuple[str, str | None, Any]) -> None:
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry(name, value, incremental_operation=op) for name, value, op in entries],
    )
    admin.incremental_alter_configs([resource])[resource].result()


def test_defaults(admin: AdminClient, topic: str) -> None:
    """A topic without settings of its own shows Kafka's defaults, and says that they are defaults."""
    described = describe(admin, topic)
    assert {name: described[name].value for name in DEFAULTS} == DEFAULTS
    for name in DEFAULTS:
        assert described[name].is_default, name
        assert described[name].source == ConfigSource.DEFAULT_CONFIG.value, name
        assert not described[name].is_read_only
        assert not described[name].is_sensitive


def test_settings_that_only_confirm_what_happens_anyway(admin: AdminClient, make_topic: MakeTopic) -> None:
    """Tools that declare topics send such settings. They are stored and shown, each with its type and documentation."""
    config = {
        "unclean.leader.election.enable": "false",
        "preallocate": "false",
        "flush.messages": "10000",
        "flush.ms": "1000",
        "segment.jitter.ms": "500",
        "delete.retention.ms": "1000",
        "min.cleanable.dirty.ratio": "0.7",
        "index.interval.bytes": "8192",
        "message.timestamp.before.max.ms": "86400000",
    }
    topic = make_topic(config=config)
    described = shown(admin, topic, config)
    assert {described[name].source for name in config} == {ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
    alter(admin, topic, ("flush.ms", None, AlterConfigOpType.DELETE), ("preallocate", None, AlterConfigOpType.DELETE))
    alter(admin, topic, ("flush.ms", None, AlterConfigOpType.DELETE))
    described = eventually(lambda: describe(admin, topic), lambda found: found["flush.ms"].is_default, what="deleted")
    assert described["preallocate"].is_default


def test_a_timestamp_far_in_the_future_is_refused(bootstrap: str, make_topic: MakeTopic) -> None:
    """One hour ahead is the limit unless the topic sets another: such records would never be removed by age."""
    strict, lenient = make_topic(), make_topic(suffix="-b", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    results: dict[str, int | None] = {}

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        results[message.topic()] = None if error is None else error.code()

    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in (strict, lenient):
        later_ms = int((time.time() + 2 * 3600) * 1000)
        producer.produce(topic, b"later", timestamp=later_ms, on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0
    assert results == {strict: KafkaError.INVALID_TIMESTAMP, lenient: None}


def test_settings_of_the_topic(admin: AdminClient, make_topic: MakeTopic) -> None:
    """A setting given at creation has the topic as its source, and the default among its synonyms."""
    described = describe(admin, make_topic(config={"retention.ms": "1234567", "max.message.bytes": "5000"}))
    assert described["retention.ms"].value == "1234567"
    assert described["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not described["retention.ms"].is_default
    synonyms = described["max.message.bytes"].synonyms
    assert synonyms["max.message.bytes"].value == "5000"
    assert synonyms["message.max.bytes"].value == DEFAULTS["max.message.bytes"]
    assert described["segment.bytes"].is_default


def test_describe_chosen_keys(kafka_admin: Any, make_topic: MakeTopic) -> None:
    """Only the keys that were asked for come back; types and synonyms come along in the newer versions."""
    topic = make_topic(config={"retention.ms": "99"})
    resource = KafkaConfigResource(KafkaConfigResourceType.TOPIC, topic, {"retention.ms": None, "segment.bytes": None})
    answer = kafka_admin.describe_configs([resource], include_synonyms=True, config_filter="all")["topic"][topic]
    assert set(answer) == {"retention.ms", "segment.bytes"}
    assert answer["retention.ms"]["value"] == "99"
    assert answer["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert answer["retention.ms"]["config_type"] == "LONG"
    assert answer["segment.bytes"]["config_type"] == "INT"
    assert answer["retention.ms"]["synonyms"][0]["name"] == "retention.ms"


def test_describe_with_aiokafka(bootstrap: str, topic: str) -> None:
    """The old versions of DescribeConfigs answer as well."""

    async def run() -> dict[str, str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            resource = AioConfigResource(AioConfigResourceType.TOPIC, topic)
            (answer,) = await admin.describe_configs([resource])
            ((error_code, _, _, described_name, entries),) = answer.resources
            assert (error_code, described_name) == (0, topic)
            return {entry[0]: entry[1] for entry in entries}
        finally:
            await admin.close()

    described = asyncio.run(run())
    assert {name: described[name] for name in DEFAULTS} == DEFAULTS


def test_describe_unknown_topic(admin: AdminClient, name: str) -> None:
    """A topic that does not exist has no settings."""
    with pytest.raises(KafkaException) as failed:
        describe(admin, name)
    assert failed.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_broker(admin: AdminClient) -> None:
    """The broker describes itself by its node id."""
    resource = ConfigResource(ResourceType.BROKER, "1")
    described = admin.describe_configs([resource])[resource].result()
    assert described["message.max.bytes"].value == "1048588"
    assert described["auto.create.topics.enable"].value == "true"


def test_set_and_delete(admin: AdminClient, topic: str) -> None:
    """Settings change one by one, and go back to the default when deleted."""
    alter(
        admin,
        topic,
        ("retention.ms", "1000", AlterConfigOpType.SET),
        ("segment.bytes", "2000000", AlterConfigOpType.SET),
    )
    shown(admin, topic, {"retention.ms": "1000", "segment.bytes": "2000000"})
    alter(admin, topic, ("retention.ms", None, AlterConfigOpType.DELETE))
    described = shown(admin, topic, {"retention.ms": DEFAULTS["retention.ms"], "segment.bytes": "2000000"})
    assert described["retention.ms"].is_default


@pytest.mark.parametrize(
    ("key", "value"),
    [("no.such.setting", "1"), ("retention.ms", "soon"), ("message.timestamp.type", "Never"), ("segment.bytes", "-5")],
)
def test_wrong_settings_are_refused(admin: AdminClient, topic: str, key: str, value: str) -> None:
    """A setting that does not exist, or a value that it cannot have, changes nothing."""
    with pytest.raises(KafkaException) as failed:
        alter(admin, topic, (key, value, AlterConfigOpType.SET), ("retention.bytes", "77", AlterConfigOpType.SET))
    assert failed.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert describe(admin, topic)["retention.bytes"].value == "-1"


def test_append_needs_a_list(admin: AdminClient, topic: str) -> None:
    """Appending to a number makes no sense; to a list it does, and what is there already stays there once."""
    with pytest.raises(KafkaException) as failed:
        alter(admin, topic, ("retention.ms", "1", AlterConfigOpType.APPEND))
    assert failed.value.args[0].code() == KafkaError.INVALID_CONFIG
    alter(admin, topic, ("cleanup.policy", "delete", AlterConfigOpType.APPEND))
    shown(admin, topic, {"cleanup.policy": "delete"})


def test_append_and_subtract_a_policy(admin: AdminClient, topic: str) -> None:
    """Members of a list come and go one by one."""
    alter(admin, topic, ("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    shown(admin, topic, {"cleanup.policy": "delete,compact"})
    alter(admin, topic, ("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    shown(admin, topic, {"cleanup.policy": "compact"})


def test_alter_unknown_topic(admin: AdminClient, name: str) -> None:
    """Settings of a topic that does not exist cannot change."""
    with pytest.raises(KafkaException) as failed:
        alter(admin, name, ("retention.ms", "1", AlterConfigOpType.SET))
    assert failed.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only(kafka_admin: Any, admin: AdminClient, topic: str) -> None:
    """A dry run answers and changes nothing."""
    resource = KafkaConfigResource(KafkaConfigResourceType.TOPIC, topic, {"retention.ms": "5"})
    assert kafka_admin.alter_configs([resource], validate_only=True) == {"topic": {topic: "OK"}}
    assert describe(admin, topic)["retention.ms"].is_default


@pytest.mark.filterwarnings("ignore:.*alter_configs.*:DeprecationWarning")
def test_alter_all_together(admin: AdminClient, make_topic: MakeTopic) -> None:
    """The legacy request replaces all settings of the topic: what it does not name goes back to its default."""
    topic = make_topic(config={"retention.ms": "1", "segment.bytes": "2000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "2"})
    admin.alter_configs([resource])[resource].result()
    assert shown(admin, topic, {"retention.ms": "2"})["segment.bytes"].is_default


def test_alter_all_together_with_aiokafka(bootstrap: str, admin: AdminClient, topic: str) -> None:
    """The old versions of AlterConfigs work as well."""

    async def run() -> None:
        aio_admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await aio_admin.start()
        try:
            resource = AioConfigResource(AioConfigResourceType.TOPIC, topic, configs={"retention.ms": "3"})
            (answer,) = await aio_admin.alter_configs([resource])
            assert [(entry[0], entry[3]) for entry in answer.resources] == [(0, topic)]
        finally:
            await aio_admin.close()

    asyncio.run(run())
    shown(admin, topic, {"retention.ms": "3"})


def test_kafka_python_sets_and_resets(kafka_admin: Any, admin: AdminClient, topic: str) -> None:
    """kafka-python changes settings, one by one and all together, and resets them."""
    for incremental, value in ((True, "11"), (False, "12")):
        resource = KafkaConfigResource(KafkaConfigResourceType.TOPIC, topic, {"retention.ms": value})
        assert kafka_admin.alter_configs([resource], incremental=incremental) == {"topic": {topic: "OK"}}
        shown(admin, topic, {"retention.ms": value})
    resource = KafkaConfigResource(KafkaConfigResourceType.TOPIC, topic, {"retention.ms": None})
    assert kafka_admin.reset_configs([resource]) == {"topic": {topic: "OK"}}
    assert shown(admin, topic, {"retention.ms": DEFAULTS["retention.ms"]})["retention.ms"].is_default


def test_throttles_of_a_broker(admin: AdminClient) -> None:
    """Tools set them for the time of a reassignment, and delete them afterwards whether or not they are set."""
    name = "follower.replication.throttled.rate"
    node = str(next(iter(admin.list_topics(timeout=PATIENCE_S).brokers)))

    def rate() -> Any:
        resource = ConfigResource(ResourceType.BROKER, node)
        return admin.describe_configs([resource])[resource].result()[name]

    def change(value: str | None, operation: Any) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, node, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()

    change("1000000", AlterConfigOpType.SET)
    found = eventually(rate, lambda found: found.value == "1000000", what="the rate")
    assert found.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    assert not found.is_read_only
    change(None, AlterConfigOpType.DELETE)
    eventually(rate, lambda found: found.is_default, what="the rate is deleted")
    change(None, AlterConfigOpType.DELETE)


# ---- groups -----------------------------------------------------------------------------------------


def test_settings_of_a_share_group_take_effect_on_its_members(
    admin: AdminClient, bootstrap: str, topic: str, name: str
) -> None:
    """A group that begins at the start of the log, and gives up after two deliveries."""
    limit = "share.delivery.count.limit"
    resource = ConfigResource(ResourceType.GROUP, name)
    before: dict[str, Any] = admin.describe_configs([resource])[resource].result()
    assert (before["share.auto.offset.reset"].value, before[limit].value) == ("latest", "5")
    changes = {"share.auto.offset.reset": "earliest", limit: "2"}
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()]
    changed = ConfigResource(ResourceType.GROUP, name, incremental_configs=entries)
    admin.incremental_alter_configs([changed])[changed].result()
    after: dict[str, Any] = admin.describe_configs([resource])[resource].result()
    assert {key: after[key].value for key in changes} == changes
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"poison", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    config = {"bootstrap.servers": bootstrap, "group.id": name, "share.acknowledgement.mode": "explicit"}
    consumer: Any = ShareConsumer(config)
    try:
        consumer.subscribe([topic])
        times, deadline = 0, time.monotonic() + PATIENCE_S
        while times < 2:
            assert time.monotonic() < deadline, times
            for message in consumer.poll(0.5):
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
                times += 1
        consumer.commit_sync(PATIENCE_S)
    finally:
        consumer.close()
    eventually(lambda: f"dlq.{name}" in admin.list_topics(timeout=PATIENCE_S).topics, bool, what="a dead letter")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("share.delivery.count.limit", "11", "is outside 2 to 10"),
        ("share.no.such", "1", "unknown group setting"),
        ("errors.deadletterqueue.topic.name", "orders", "does not begin with 'dlq.'"),
    ],
)
def test_a_setting_of_a_group_that_is_not_allowed_is_refused(
    admin: AdminClient, name: str, key: str, value: str, text: str
) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    with pytest.raises(KafkaException) as caught:
        admin.incremental_alter_configs([resource])[resource].result()
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert text in caught.value.args[0].str()
