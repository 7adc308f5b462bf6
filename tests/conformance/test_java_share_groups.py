"""Share groups with Apache Kafka's own tools and its `KafkaShareConsumer`. They run where the jars are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from conformance.conftest import MakeTopic
from support.kafka_jars import needs_jars, run_java, table
from support.polling import PATIENCE_S

pytestmark = needs_jars

CHECK = Path(__file__).parent / "java" / "ShareConsumerCheck.java"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


def produce(bootstrap: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def begin_at_the_start(bootstrap: str, group: str) -> None:
    group_configs(bootstrap, group, "--alter", "--add-config", "share.auto.offset.reset=earliest")


def group_configs(bootstrap: str, group: str, *arguments: str) -> str:
    return run_java(
        CONFIGS, "--bootstrap-server", bootstrap, "--entity-type", "groups", "--entity-name", group, *arguments
    )


def share_groups(bootstrap: str, group: str, *arguments: str) -> list[list[str]]:
    return table(run_java(SHARE_GROUPS, "--bootstrap-server", bootstrap, "--group", group, *arguments))


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(partitions=1)


def test_kafka_configs_changes_and_shows_settings_of_a_group(bootstrap: str, name: str) -> None:
    begin_at_the_start(bootstrap, name)
    assert "share.auto.offset.reset=earliest" in group_configs(bootstrap, name, "--describe")
    group_configs(bootstrap, name, "--alter", "--delete-config", "share.auto.offset.reset")
    assert "share.auto.offset.reset=latest" in group_configs(bootstrap, name, "--describe", "--all")


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_kafka_share_consumer(bootstrap: str, topic: str, name: str, mode: str) -> None:
    """In explicit mode the records say what to do with them."""
    begin_at_the_start(bootstrap, name)
    produce(bootstrap, topic, "a", "release", "reject", "renew", "b")
    lines = run_java(CHECK, bootstrap, topic, name, mode, "5").splitlines()
    if mode == "implicit":
        assert lines == [f"{value} 1 accept" for value in ("a", "release", "reject", "renew", "b")] + ["done"]
        return
    assert sorted(lines) == [
        "a 1 accept",
        "b 1 accept",
        "done",
        "reject 1 reject",
        "release 1 release",
        "release 2 accept",
        "renew 1 accept",
        "renew 1 renew",
    ]
    assert lines.index("renew 1 renew") < lines.index("renew 1 accept")


def test_console_consumer_and_kafka_share_groups(bootstrap: str, topic: str, name: str) -> None:
    """A group is consumed, listed, described, reset, and deleted with its queues."""
    begin_at_the_start(bootstrap, name)
    produce(bootstrap, topic, *map(str, range(10)))
    consume = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", name, "--timeout-ms", "30000")
    assert run_java(CONSOLE, *consume, "--max-messages", "10").split()[:10] == list(map(str, range(10)))
    assert [name, "Share", "share"] in table(run_java(GROUPS, "--bootstrap-server", bootstrap, "--list"))
    assert share_groups(bootstrap, name, "--describe") == [[name, topic, "0", "10", "0"]]
    [state] = [row for row in share_groups(bootstrap, name, "--describe", "--state") if row[0] == name]
    assert state[-2:] == ["Empty", "0"]
    reset = ("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    assert share_groups(bootstrap, name, *reset) == [[name, topic, "0", "0"]]
    assert share_groups(bootstrap, name, "--describe") == [[name, topic, "0", "0", "10"]]
    assert share_groups(bootstrap, name, "--delete-offsets", "--topic", topic) == [[topic, "Successful"]]
    assert share_groups(bootstrap, name, "--describe") == []
    run_java(SHARE_GROUPS, "--bootstrap-server", bootstrap, "--delete", "--group", name)
    assert name not in run_java(SHARE_GROUPS, "--bootstrap-server", bootstrap, "--list").split()
