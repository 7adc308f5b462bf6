"""Requests that the broker refuses: too large, or for topics that do not exist. The client stays usable."""

import subprocess
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import MessageSizeTooLargeError

from conformance.conftest import MakeTopic
from support.clients import RECORD_SIZE_BYTES_MAX, Client, KafkaFailure, Record
from support.polling import PATIENCE_S, eventually

MESSAGE_TOO_LARGE = 10


def test_oversize_record_is_refused(client: Client, topic: str) -> None:
    """A record above the broker's default limit (1 MiB and 12 bytes) gets MESSAGE_TOO_LARGE and leaves no trace."""
    with pytest.raises(KafkaFailure) as failed:
        client.produce(topic, [Record(b"x" * 1_200_000)])
    assert failed.value.code == MESSAGE_TOO_LARGE
    client.produce(topic, [Record(b"fits")])
    assert [(seen.offset, seen.value) for seen in client.consume(topic, 1)] == [(0, b"fits")]


def test_max_message_bytes_of_the_topic(client: Client, make_topic: MakeTopic) -> None:
    """max.message.bytes of a topic counts, also below and above the broker's own limit."""
    small = make_topic(suffix="-small", config={"max.message.bytes": "2000"})
    large = make_topic(suffix="-large", config={"max.message.bytes": "3000000"})
    client.produce(small, [Record(b"x" * 1_500)])
    with pytest.raises(KafkaFailure) as failed:
        client.produce(small, [Record(b"x" * 2_500)])
    assert failed.value.code == MESSAGE_TOO_LARGE
    client.produce(large, [Record(b"x" * 2_500_000)])
    assert [len(seen.value or b"") for seen in client.consume(large, 1)] == [2_500_000]


def test_limit_is_of_the_compressed_batch(client: Client, make_topic: MakeTopic) -> None:
    """What counts is the size on the wire: a large record that compresses well is accepted."""
    topic = make_topic(config={"max.message.bytes": "20000"})
    client.produce(topic, [Record(b"x" * 500_000)], codec="gzip")
    assert [len(seen.value or b"") for seen in client.consume(topic, 1)] == [500_000]


def test_connection_lives_on_after_oversize_with_confluent(bootstrap: str, topic: str) -> None:
    """One producer sends too much, is told so, and goes on."""
    errors: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": RECORD_SIZE_BYTES_MAX, "linger.ms": 0})
    for value in (b"a", b"x" * 1_200_000, b"b"):
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: errors.append(error.code() if error else None)
        )
        assert producer.flush(PATIENCE_S) == 0
    assert errors == [None, KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_connection_lives_on_after_oversize_with_kafka_python(bootstrap: str, topic: str) -> None:
    """One producer sends too much, is told so, and goes on. (An idempotent one gives up by itself.)"""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, max_request_size=RECORD_SIZE_BYTES_MAX, enable_idempotence=False
    )
    try:
        producer.send(topic, b"a").get(PATIENCE_S)
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, b"x" * 1_200_000).get(PATIENCE_S)
        assert producer.send(topic, b"b").get(PATIENCE_S).offset == 1
    finally:
        producer.close(timeout=PATIENCE_S)


def test_producing_creates_the_topic(client: Client, name: str) -> None:
    """A producer that asks for an unknown topic gets it, with the broker's default of one partition."""
    client.produce(name, [Record(b"first")])
    assert [(seen.partition, seen.offset, seen.value) for seen in client.consume(name, 1)] == [(0, 0, b"first")]


def test_consuming_may_create_the_topic(bootstrap: str, admin: AdminClient, name: str) -> None:
    """allow.auto.create.topics=true lets a consumer create the topic that it wants to read."""
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "allow.auto.create.topics": True}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        eventually(lambda: name in admin.list_topics(timeout=PATIENCE_S).topics, what=f"{name} is created")
    finally:
        consumer.close()


def test_consuming_does_not_create_the_topic_unasked(bootstrap: str, admin: AdminClient, name: str) -> None:
    """By default a consumer of confluent-kafka is told that the topic is unknown, and nothing is created."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "allow.auto.create.topics": False})
    try:
        consumer.subscribe([name])
        message = eventually(lambda: consumer.poll(0.1), lambda message: message is not None)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        consumer.close()
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


def test_kafka_python_does_not_create_the_topic_unasked(kafka_admin: Any, name: str) -> None:
    """Describing an unknown topic answers UNKNOWN_TOPIC_OR_PARTITION and creates nothing."""
    for _ in range(2):
        (described,) = kafka_admin.describe_topics([name])
        assert described["error_code"] == 3
    assert name not in kafka_admin.list_topics()


def test_kcat_does_not_create_the_topic_unasked(bootstrap: str, admin: AdminClient, name: str) -> None:
    """kcat consuming an unknown topic says so and ends."""
    command = ["kcat", "-b", bootstrap, "-C", "-t", name, "-p", "0", "-e", "-X", "allow.auto.create.topics=false"]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, text=True)
    assert ended.returncode != 0
    assert "Unknown topic or partition" in ended.stderr or "Unknown partition" in ended.stderr
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


@pytest.mark.parametrize("bad", ["with space", "sla/sh", "..", "ü" * 3, "x" * 250])
def test_invalid_names_are_not_created(bootstrap: str, admin: AdminClient, bad: str) -> None:
    """A producer that asks for a name Kafka does not allow gets INVALID_TOPIC_EXCEPTION, and no topic."""
    codes: list[int | None] = []

    def queued() -> Producer | None:
        producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
        try:
            producer.produce(bad, b"v", on_delivery=lambda error, _: codes.append(error.code() if error else None))
        except KafkaException as refused:
            # Seen once: librdkafka knew of the topic's fate before the record was in its queue, and took none. Only a
            # queued record tells what the broker said, so that is what must happen.
            if refused.args[0].code() != KafkaError._UNKNOWN_TOPIC:
                raise
            return None
        return producer

    producer = eventually(queued, what="the record is queued")
    assert producer is not None
    assert producer.flush(PATIENCE_S) == 0
    assert codes == [KafkaError.TOPIC_EXCEPTION]
    assert bad not in admin.list_topics(timeout=PATIENCE_S).topics


def test_partition_that_does_not_exist(bootstrap: str, topic: str) -> None:
    """Producing to a partition beyond the last fails at the producer and the topic does not grow."""
    codes: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    producer.produce(
        topic, b"v", partition=0, on_delivery=lambda error, _: codes.append(error.code() if error else None)
    )
    producer.flush(PATIENCE_S)
    assert codes == [None]
    with pytest.raises(KafkaException) as failed:
        producer.produce(topic, b"v", partition=7)
    assert failed.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
