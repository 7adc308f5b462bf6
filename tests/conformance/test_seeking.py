"""Where reading starts: at the ends, at an offset, at a time; and what happens outside of the log."""

import asyncio
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import OffsetSpec as KafkaOffsetSpec
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import OffsetOutOfRangeError

from conformance.conftest import MakeTopic
from support.clients import CLIENTS, Client, Record
from support.confluent_admin import OffsetSpec
from support.polling import PATIENCE_S, eventually

TIMES_MS = [1_600_000_000_000 + 1_000 * number for number in range(20)]


@pytest.fixture
def filled(bootstrap: str, make_topic: MakeTopic) -> str:
    """A topic with twenty records in several batches, a second apart; old ones, so it keeps them for ever."""
    topic = make_topic(config={"retention.ms": "-1"})
    writer = CLIENTS["confluent-kafka"](bootstrap)
    for start in range(0, 20, 5):
        writer.produce(topic, [Record(b"%d" % n, timestamp_ms=TIMES_MS[n]) for n in range(start, start + 5)])
    return topic


@pytest.fixture
def consumer(bootstrap: str, name: str) -> Iterator[Consumer]:
    """A consumer of confluent-kafka that fails when it leaves the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    yield consumer
    consumer.close()


@pytest.fixture
def kafka_consumer(bootstrap: str) -> Iterator[KafkaConsumer]:
    """A consumer of kafka-python that fails when it leaves the log."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none", enable_auto_commit=False)
    yield consumer
    consumer.close()


def wait_at_the_end(consumer: Consumer, topic: str) -> None:
    """Return once the consumer has fetched, and so knows the end of the log; nothing old may arrive meanwhile."""

    def known_end() -> int:
        assert consumer.poll(0.02) is None
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), cached=True)[1]

    eventually(known_end, lambda end: end == 20, what="the consumer knows the end")


@pytest.mark.parametrize("offset", [0, 1, 7, 10, 19])
def test_from_an_offset(client: Client, filled: str, offset: int) -> None:
    """Reading starts exactly at the offset, also inside a batch."""
    seen = client.consume(filled, 20 - offset, offset=offset)
    assert [record.offset for record in seen] == list(range(offset, 20))


def test_out_of_range_resets_to_earliest(client: Client, filled: str) -> None:
    """auto.offset.reset=earliest: an offset beyond the end starts again at the beginning."""
    assert [record.offset for record in client.consume(filled, 20, offset=1_000, reset="earliest")] == list(range(20))


def test_out_of_range_resets_to_latest(bootstrap: str, filled: str, name: str) -> None:
    """auto.offset.reset=latest: an offset beyond the end waits for the next record, and nothing old is read."""
    writer = CLIENTS["confluent-kafka"](bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "latest"})

    def write_and_read() -> Any:
        # No client tells when it has reset, so a new record follows until one of them is read.
        writer.produce(filled, [Record(b"new")])
        return consumer.poll(0.2)

    try:
        consumer.assign([TopicPartition(filled, 0, 1_000)])
        message = eventually(write_and_read, lambda message: message is not None)
        assert message.offset() >= 20
        assert message.value() == b"new"
    finally:
        consumer.close()


def test_out_of_range_is_an_error_if_asked(consumer: Consumer, kafka_consumer: KafkaConsumer, filled: str) -> None:
    """Without a reset policy the consumer is told that it left the log."""
    consumer.assign([TopicPartition(filled, 0, 1_000)])
    message = eventually(lambda: consumer.poll(0.1), lambda message: message is not None)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    partition = KafkaTopicPartition(filled, 0)
    kafka_consumer.assign([partition])
    kafka_consumer.seek(partition, 1_000)
    with pytest.raises(OffsetOutOfRangeError):
        eventually(lambda: kafka_consumer.poll(timeout_ms=200))


def test_latest_sees_only_what_comes_after(consumer: Consumer, bootstrap: str, filled: str) -> None:
    """A consumer at the end reads nothing old."""
    consumer.assign([TopicPartition(filled, 0, OFFSET_END)])
    wait_at_the_end(consumer, filled)
    CLIENTS["confluent-kafka"](bootstrap).produce(filled, [Record(b"new")])
    message = eventually(lambda: consumer.poll(0.1), lambda message: message is not None)
    assert message is not None
    assert (message.offset(), message.value()) == (20, b"new")


def test_watermarks(consumer: Consumer, kafka_consumer: KafkaConsumer, filled: str) -> None:
    """The low watermark is the first offset, the high one the next to be written."""
    assert consumer.get_watermark_offsets(TopicPartition(filled, 0), timeout=PATIENCE_S) == (0, 20)
    partition = KafkaTopicPartition(filled, 0)
    assert kafka_consumer.beginning_offsets([partition]) == {partition: 0}
    assert kafka_consumer.end_offsets([partition]) == {partition: 20}


@pytest.mark.parametrize(
    ("time_ms", "offset"),
    [
        pytest.param(0, 0, id="before-all"),
        pytest.param(TIMES_MS[0], 0, id="first"),
        pytest.param(TIMES_MS[7], 7, id="exact-inside-a-batch"),
        pytest.param(TIMES_MS[7] + 1, 8, id="just-after"),
        pytest.param(TIMES_MS[9] + 500, 10, id="between-batches"),
        pytest.param(TIMES_MS[19], 19, id="last"),
        pytest.param(TIMES_MS[19] + 1, None, id="after-all"),
    ],
)
def test_offsets_for_times(
    consumer: Consumer,
    kafka_consumer: KafkaConsumer,
    bootstrap: str,
    filled: str,
    time_ms: int,
    offset: int | None,
) -> None:
    """The answer is the first record that is not older than the time asked for; every client agrees."""
    (found,) = consumer.offsets_for_times([TopicPartition(filled, 0, time_ms)], timeout=PATIENCE_S)
    assert found.error is None
    assert found.offset == (OFFSET_END if offset is None else offset)

    answer = kafka_consumer.offsets_for_times({KafkaTopicPartition(filled, 0): time_ms})
    there = answer[KafkaTopicPartition(filled, 0)]
    assert (there and (there.offset, there.timestamp)) == (None if offset is None else (offset, TIMES_MS[offset]))

    async def ask() -> object:
        aio_consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await aio_consumer.start()
        try:
            partition = AioTopicPartition(filled, 0)
            here = (await aio_consumer.offsets_for_times({partition: time_ms}))[partition]
            return here and (here.offset, here.timestamp)
        finally:
            await aio_consumer.stop()

    assert asyncio.run(ask()) == (None if offset is None else (offset, TIMES_MS[offset]))

    command = ["kcat", "-b", bootstrap, "-Q", "-t", f"{filled}:0:{time_ms}"]
    asked = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True, text=True)
    assert f"{filled} [0] offset {-1 if offset is None else offset}" in asked.stdout


def test_kcat_reads_from_a_time(bootstrap: str, filled: str) -> None:
    """kcat's s@ and e@ are offset lookups at both ends."""
    command = ["kcat", "-b", bootstrap, "-C", "-q", "-e", "-t", filled, "-f", "%o "]
    command += ["-o", f"s@{TIMES_MS[5]}", "-o", f"e@{TIMES_MS[12]}"]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True, text=True)
    assert [int(word) for word in ended.stdout.split()] == list(range(5, 12))


def test_times_out_of_order(consumer: Consumer, bootstrap: str, topic: str) -> None:
    """With times that run backwards, the first offset whose time is late enough is meant."""
    times_ms = [3_000, 1_000, 5_000, 2_000, 4_000]
    for time_ms in times_ms:
        CLIENTS["confluent-kafka"](bootstrap).produce(topic, [Record(b"v", timestamp_ms=time_ms)])
    found = [
        consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], timeout=PATIENCE_S)[0].offset
        for time_ms in (500, 2_500, 3_001, 5_001)
    ]
    assert found == [0, 0, 2, OFFSET_END]


def test_list_offsets(admin: AdminClient, filled: str) -> None:
    """The administration client finds both ends, the record with the highest time, and one by time."""
    partition = TopicPartition(filled, 0)

    def ask(spec: Any) -> tuple[int, int]:
        result = admin.list_offsets({partition: spec}, request_timeout=PATIENCE_S)[partition].result()
        return result.offset, result.timestamp

    assert ask(OffsetSpec.earliest())[0] == 0
    assert ask(OffsetSpec.latest())[0] == 20
    assert ask(OffsetSpec.max_timestamp()) == (19, TIMES_MS[19])
    assert ask(OffsetSpec.for_timestamp(TIMES_MS[3] + 1)) == (4, TIMES_MS[4])
    assert ask(OffsetSpec.for_timestamp(TIMES_MS[19] + 1))[0] == -1


def test_max_timestamp_is_not_the_last(admin: AdminClient, kafka_admin: Any, bootstrap: str, topic: str) -> None:
    """The record with the highest time may lie anywhere, also in the middle of a compressed batch."""
    records = [Record(b"v", timestamp_ms=time_ms) for time_ms in (1_000, 9_000, 4_000)]
    CLIENTS["confluent-kafka"](bootstrap).produce(topic, records, codec="zstd")
    CLIENTS["confluent-kafka"](bootstrap).produce(topic, [Record(b"v", timestamp_ms=8_000)])
    partition = TopicPartition(topic, 0)
    result = admin.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result()
    assert (result.offset, result.timestamp) == (1, 9_000)
    theirs = KafkaTopicPartition(topic, 0)
    answer = kafka_admin.list_partition_offsets({theirs: KafkaOffsetSpec.MAX_TIMESTAMP})[theirs]
    assert (answer.offset, answer.timestamp) == (1, 9_000)


def test_empty_partition(admin: AdminClient, consumer: Consumer, topic: str) -> None:
    """Nothing written: both watermarks are 0 and there is no highest time."""
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, timeout=PATIENCE_S) == (0, 0)
    result = admin.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result()
    assert (result.offset, result.timestamp) == (-1, -1)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 5)], timeout=PATIENCE_S)
    assert found.offset == OFFSET_END


def test_seek_back_and_forth(consumer: Consumer, kafka_consumer: KafkaConsumer, filled: str) -> None:
    """A consumer may move while it reads."""
    consumer.assign([TopicPartition(filled, 0, 0)])
    for offset in (0, 17, 3, 12, 4):
        consumer.seek(TopicPartition(filled, 0, offset))
        message = eventually(lambda: consumer.poll(0.1), lambda message: message is not None)
        assert message is not None
        assert message.offset() == offset
    partition = KafkaTopicPartition(filled, 0)
    kafka_consumer.assign([partition])
    for offset in (17, 3, 12, 4):
        kafka_consumer.seek(partition, offset)
        polled = eventually(lambda: kafka_consumer.poll(timeout_ms=200, max_records=1))
        assert polled[partition][0].offset == offset


def test_reading_after_delete_records(client: Client, admin: AdminClient, filled: str) -> None:
    """Deleted records are gone for every reader, and the log starts where the deletion ended, inside a batch too."""
    partition = TopicPartition(filled, 0, 7)
    deleted = admin.delete_records([partition])[partition].result()
    assert deleted.low_watermark == 7
    assert [record.offset for record in client.consume(filled, 13)] == list(range(7, 20))
    assert [record.offset for record in client.consume(filled, 13, offset=2)] == list(range(7, 20))


def test_delete_all_records(admin: AdminClient, consumer: Consumer, bootstrap: str, make_topic: MakeTopic) -> None:
    """Deleting up to the end leaves an empty log that goes on with the next offset."""
    topic = make_topic()
    writer = CLIENTS["confluent-kafka"](bootstrap)
    writer.produce(topic, [Record(b"v")] * 5)
    partition = TopicPartition(topic, 0, OFFSET_END)
    assert admin.delete_records([partition])[partition].result().low_watermark == 5
    assert consumer.get_watermark_offsets(partition, timeout=PATIENCE_S) == (5, 5)
    (delivery,) = writer.produce(topic, [Record(b"next")])
    assert delivery.offset == 5
    assert [seen.offset for seen in writer.consume(topic, 1)] == [5]


def test_delete_records_beyond_the_end(admin: AdminClient, filled: str) -> None:
    """Records that do not exist cannot be deleted."""
    partition = TopicPartition(filled, 0, 21)
    with pytest.raises(Exception, match=r"OFFSET_OUT_OF_RANGE"):
        admin.delete_records([partition])[partition].result()
