"""How reading behaves over time and size: long polls, small limits, reading while writing, isolation."""

import threading
import time

from confluent_kafka import Consumer, TopicPartition

from conformance.conftest import MakeTopic
from support.clients import CLIENTS, Client, Record
from support.polling import PATIENCE_S, eventually


def test_long_poll_wakes_when_data_arrives(client: Client, topic: str) -> None:
    """A fetch that may wait for 25 seconds returns as soon as a record is there."""
    writer = CLIENTS["confluent-kafka"](client.bootstrap)
    waited_s: list[float] = []
    ready = threading.Event()

    def read() -> None:
        ready.set()
        assert client.consume(topic, 1, fetch_wait_ms_max=25_000)
        waited_s.append(time.monotonic())

    reader = threading.Thread(target=read)
    reader.start()
    ready.wait()
    time.sleep(1.0)  # time for the client to connect and to park its fetch
    sent_s = time.monotonic()
    writer.produce(topic, [Record(b"wake up")])
    reader.join(PATIENCE_S)
    # Closing a client may wait for its parked fetch, but never for all of its time: the record arrives before.
    assert waited_s
    assert waited_s[0] - sent_s < 20.0


def test_fetch_waits_for_min_bytes(bootstrap: str, topic: str, name: str) -> None:
    """With fetch.min.bytes a lone small record is held back until there are enough bytes, or until the wait is over."""
    writer = CLIENTS["confluent-kafka"](bootstrap)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "fetch.min.bytes": 50_000,
        "fetch.queue.backoff.ms": 1,
    }
    patient = Consumer({**settings, "fetch.wait.max.ms": 120_000, "socket.timeout.ms": 180_000})
    try:
        patient.assign([TopicPartition(topic, 0, 0)])
        writer.produce(topic, [Record(b"small")])
        assert patient.poll(2.0) is None
        writer.produce(topic, [Record(b"x" * 60_000)])
        # Far sooner than the two minutes that it may wait.
        message = eventually(lambda: patient.poll(0.05), lambda message: message is not None)
        assert message is not None
        assert message.value() == b"small"
    finally:
        patient.close()
    impatient = Consumer({**settings, "fetch.wait.max.ms": 1_000})
    try:
        impatient.assign([TopicPartition(topic, 0, 2)])
        writer.produce(topic, [Record(b"lone")])
        message = eventually(lambda: impatient.poll(0.05), lambda message: message is not None)
        assert message is not None
        assert message.value() == b"lone"
    finally:
        impatient.close()


def test_limit_smaller_than_a_batch_makes_progress(client: Client, topic: str) -> None:
    """A partition limit below the size of one batch still yields that batch, so that the consumer never stalls."""
    records = [Record(b"%d" % number + b"x" * 20_000) for number in range(10)]
    CLIENTS["confluent-kafka"](client.bootstrap).produce(topic, records)
    CLIENTS["kafka-python"](client.bootstrap).produce(topic, records)
    seen = client.consume(topic, 20, partition_fetch_bytes_max=1_000)
    assert [record.offset for record in seen] == list(range(20))


def test_small_limit_over_many_partitions(client: Client, make_topic: MakeTopic) -> None:
    """No partition starves when each response has room for only one batch."""
    topic = make_topic(partitions=4)
    records = [Record(b"x" * 5_000, partition=partition) for partition in range(4) for _ in range(10)]
    CLIENTS["confluent-kafka"](client.bootstrap).produce(topic, records)
    seen = client.consume(topic, 40, partitions=range(4), partition_fetch_bytes_max=6_000)
    assert sorted((record.partition, record.offset) for record in seen) == [(p, n) for p in range(4) for n in range(10)]


def test_reading_from_the_middle_of_a_compressed_batch(client: Client, topic: str) -> None:
    """The broker sends the whole batch, the client drops its head."""
    records = [Record(b"%d" % number) for number in range(100)]
    CLIENTS["confluent-kafka"](client.bootstrap).produce(topic, records)
    CLIENTS["confluent-kafka"](client.bootstrap).produce(topic, records, codec="lz4")
    for offset in (50, 150):
        seen = client.consume(topic, 20, offset=offset)
        assert [record.offset for record in seen][:20] == list(range(offset, offset + 20))


def test_reading_while_writing(client: Client, topic: str) -> None:
    """A consumer that reads along sees every record once and in order."""
    writer = CLIENTS["confluent-kafka"](client.bootstrap)

    def write() -> None:
        for start in range(0, 1_000, 50):
            writer.produce(topic, [Record(b"%d" % number) for number in range(start, start + 50)])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen = client.consume(topic, 1_000)
    finally:
        thread.join()
    assert [record.value for record in seen] == [b"%d" % number for number in range(1_000)]
    assert [record.offset for record in seen] == list(range(1_000))


def test_read_committed_without_transactions(client: Client, topic: str) -> None:
    """For data outside of transactions read_committed changes nothing, idempotent producers included."""
    client.produce(topic, [Record(b"plain")])
    client.produce(topic, [Record(b"idempotent")], idempotent=True)
    assert [seen.value for seen in client.consume(topic, 2, read_committed=True)] == [b"plain", b"idempotent"]
