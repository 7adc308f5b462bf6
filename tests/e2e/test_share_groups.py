"""Share groups over kill -9: what was accepted never returns, and what was not is delivered."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from drmq.testing import cluster
from support.confluent_admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess

TOPIC = "orders"


def produce(bootstrap: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(PATIENCE_S) == 0


def member(bootstrap: str) -> Any:
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([TOPIC])
    return consumer


def accept_until(consumer: Any, wanted: bytes) -> list[bytes]:
    """Accept what comes until a value is among it; returns all values once the broker has confirmed them."""
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in values:
        assert time.monotonic() < deadline, values
        for message in consumer.poll(0.5):
            assert message.error() is None, message.error()
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            values.append(message.value())
        results = consumer.commit_sync(PATIENCE_S)
        assert all(error is None for error in results.values()), results
    return values


def test_what_was_accepted_does_not_return_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            future.result()
        consumer = member(broker.bootstrap)
        deadline = time.monotonic() + PATIENCE_S
        while not list(consumer.poll(0.2)):
            assert time.monotonic() < deadline, "the group does not begin"
            produce(broker.bootstrap, b"mark")
        consumer.close()
        # The marks were given back, so they come again, before what is produced now.
        consumer = member(broker.bootstrap)
        accepted = [f"{number}".encode() for number in range(200)]
        produce(broker.bootstrap, *accepted)
        accept_until(consumer, accepted[-1])
        broker.restart(crash=True)
        produce(broker.bootstrap, b"last")
        again = member(broker.bootstrap)
        assert accept_until(again, b"last") == [b"last"]
        again.close()
        consumer.close()


def test_settings_hold_on_every_node_and_a_deleted_group_leaves_queues_on_none() -> None:
    """Data, queues and coordinator are spread over three nodes. The group begins at the start, twice."""
    values = {str(number).encode() for number in range(60)}
    with cluster(nodes=3) as three:
        bootstrap = three.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 6, 3)])[TOPIC].result(PATIENCE_S)
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, "billing", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number, value in enumerate(sorted(values)):
            producer.produce(TOPIC, value, partition=number % 6)
        assert producer.flush(PATIENCE_S) == 0
        for _ in range(2):
            got: set[bytes] = set()
            consumer = member(bootstrap)
            deadline = time.monotonic() + PATIENCE_S
            while got != values:
                assert time.monotonic() < deadline, len(got)
                for message in consumer.poll(0.5):
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                    got.add(message.value())
            results = consumer.commit_sync(PATIENCE_S)
            assert all(error is None for error in results.values()), results
            consumer.close()
            eventually(lambda: _deleted(admin), bool, what="the deletion of the group")


def _deleted(admin: AdminClient) -> bool:
    """Whether the group could be deleted. It has a member until the consumer has left."""
    try:
        admin.delete_consumer_groups(["billing"])["billing"].result(PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError.NON_EMPTY_GROUP, KafkaError.COORDINATOR_NOT_AVAILABLE):
            raise
        return False
    return True
