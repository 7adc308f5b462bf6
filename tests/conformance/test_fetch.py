"""How reading behaves over time and size: long polls, small limits, reading while writing, isolation."""

import threading
import time

from confluent_kafka import Consumer, TopicPartition

from conformance.conftest import MakeTopic
from support.clients import CLIENTS, Client, Record
from support.polling import eventually


def test_long_poll_wakes_when_data_arrives(client: Client, topic: str) -> None:
    """A fetch that may wait ten seconds returns as soon as a record is there."""
    writer = CLIENTS["confluent-kafka"](client.bootstrap)
    waited_s: list[float] = []
    ready = threading.Event()

    def read() -> None:
        ready.set()
        assert client.consume(topic, 1, fetch_wait_ms_max=10_000)
        waited_s.append(time.monotonic())

    reader = threading.Thread(target=read)
    reader.start()
    ready.wait()
    time.sleep(1.0)  # time for the client to connect and to park its fetch
    sent_s = time.monotonic()
    writer.produce(topic, [Record(b"wake up")])
    reader.join(20.0)
    # Closing a client may wait for its parked fetch, but never for the full ten seconds: the record arrives before.
    assert waited_s
    assert waited_s[0] - sent_s < 3.0


def test_fetch_waits_for_min_bytes(bootstrap: str, topic: str, name: str) -> None:
    """With fetch.min.bytes a lone small record is held back until the wait is over; enough bytes are not."""
    writer = CLIENTS["confluent-kafka"](bootstrap)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "fetch.min.bytes": 50_000,
            "fetch.wait.max.ms": 2_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(0.5) is None
        start_s = time.monotonic()
        writer.produce(topic, [Record(b"small")])
        eventually(lambda: consumer.poll(0.05), lambda message: message is not None)
        small_s = time.monotonic() - start_s
        time.sleep(0.3)
        start_s = time.monotonic()
        writer.produce(topic, [Record(b"x" * 60_000)])
        eventually(lambda: consumer.poll(0.05), lambda message: message is not None)
        large_s = time.monotonic() - start_s
    finally:
        consumer.close()
    assert 0.3 < small_s < 4.0
    assert large_s < 1.0


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
