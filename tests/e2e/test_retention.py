"""Old records go, by time, by size, by request and with their topic; their disk space comes back; nothing else goes.

A real process with a short retention interval, asked through an unmodified client and looked at on disk.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess
from support.wire import RawConnection, batch, list_offsets, produce

OLD_MS = 1_700_000_000_000
_ids = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("retention") / "data"
    with BrokerProcess(data, env={"DRMQ_RETENTION_CHECK_INTERVAL_MS": "100"}) as running:
        yield running


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(admin: AdminClient, name: str, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(PATIENCE_S)


def fill(broker: BrokerProcess, topic: str, count: int, timestamp_ms: int | None = None) -> None:
    """Write records of 1 kB, a batch each, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    failures: list[object] = []
    for index in range(count):
        producer.produce(
            topic,
            index.to_bytes(4, "big") * 256,
            timestamp=timestamp_ms if timestamp_ms is not None else int(time.time() * 1000),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def bounds(broker: BrokerProcess, topic: str) -> tuple[int, int]:
    """First and last offset, asked with plain bytes."""
    found = []
    with RawConnection(broker.bootstrap) as connection:
        for question in (-2, -1):
            correlation_id = next(_ids)
            reader = connection.ask(list_offsets(topic, 1, question, correlation_id), correlation_id)
            reader.int32(), reader.string(), reader.int32(), reader.int32()
            assert reader.int16() == 0
            reader.int64()
            found.append(reader.int64())
    return found[0], found[1]


def disk_bytes(broker: BrokerProcess, topic: str) -> int:
    """What the segments of a topic take on disk."""
    return sum(path.stat().st_size for path in Path(broker.data_dir).glob(f"topics/{topic}.*/**/*.log"))


def test_by_size(broker: BrokerProcess, admin: AdminClient) -> None:
    create(admin, "by-size", segment_bytes="20000", retention_bytes="50000")
    fill(broker, "by-size", 200)
    # At least as much as asked for is kept, and in the end at most a segment more.
    kept = eventually(lambda: disk_bytes(broker, "by-size"), lambda size: size <= 75_000, what="old segments gone")
    assert kept >= 50_000
    start, end = bounds(broker, "by-size")
    assert 120 < start < 160
    assert end == 200


def test_by_time(broker: BrokerProcess, admin: AdminClient) -> None:
    """Age is that of the records, not of the files: old records go though they were written just now."""
    create(admin, "by-time", segment_bytes="20000", retention_ms="3600000")
    fill(broker, "by-time", 50, timestamp_ms=OLD_MS)
    fill(broker, "by-time", 10)
    start, end = eventually(lambda: bounds(broker, "by-time"), lambda found: found[0] > 30, what="old records gone")
    assert start <= 50
    assert end == 60


def test_what_is_young_stays(broker: BrokerProcess, admin: AdminClient) -> None:
    create(admin, "young", segment_bytes="20000", retention_ms="3600000")
    create(admin, "witness", segment_bytes="20000", retention_ms="1")
    fill(broker, "young", 60)
    fill(broker, "witness", 60, timestamp_ms=OLD_MS)
    eventually(lambda: bounds(broker, "witness"), lambda found: found[0] > 0, what="a round of retention")
    assert bounds(broker, "young") == (0, 60)


def test_a_deleted_topic_gives_its_space_back(broker: BrokerProcess, admin: AdminClient) -> None:
    create(admin, "doomed")
    fill(broker, "doomed", 100)
    assert disk_bytes(broker, "doomed") > 100_000
    admin.delete_topics(["doomed"])["doomed"].result(PATIENCE_S)
    eventually(lambda: list(Path(broker.data_dir).glob("topics/doomed.*")), lambda left: not left, what="files gone")


def test_deleted_records_stay_deleted(broker: BrokerProcess, admin: AdminClient) -> None:
    create(admin, "trimmed", segment_bytes="20000")
    fill(broker, "trimmed", 100)
    before = disk_bytes(broker, "trimmed")
    admin.delete_records([TopicPartition("trimmed", 0, 70)])
    eventually(lambda: bounds(broker, "trimmed"), lambda found: found == (70, 100), what="the new start")
    # The files go once the producers' table that is made from them is safe elsewhere.
    eventually(lambda: disk_bytes(broker, "trimmed"), lambda size: size < before // 2, what="old segments gone")
    broker.restart(crash=True).wait_ready()
    assert bounds(broker, "trimmed") == (70, 100)


def test_a_retry_is_recognised_after_retention_and_restarts(broker: BrokerProcess, admin: AdminClient) -> None:
    """The producers' table outlives the batches it was made from, a crash, and a clean stop."""
    create(admin, "dedup", segment_bytes="1024", retention_ms="1")
    first = batch([b"x" * 400], producer_id=7_000_001, producer_epoch=0, base_sequence=0)
    later = batch([b"x" * 400], producer_id=7_000_001, producer_epoch=0, base_sequence=1)
    assert send(broker, "dedup", first) == (0, 0)
    assert send(broker, "dedup", later) == (0, 1)
    for _ in range(8):
        assert send(broker, "dedup", batch([b"y" * 400]))[0] == 0
    eventually(lambda: bounds(broker, "dedup"), lambda found: found[0] > 1, what="the producer's batches gone")
    for crash in (True, False):
        end = bounds(broker, "dedup")[1]
        assert send(broker, "dedup", later) == (0, 1)
        assert send(broker, "dedup", first) == (0, 0)
        assert bounds(broker, "dedup")[1] == end
        broker.restart(crash=crash).wait_ready()
    gap = batch([b"x"], producer_id=7_000_001, producer_epoch=0, base_sequence=9)
    assert send(broker, "dedup", gap)[0] == 45


def send(broker: BrokerProcess, topic: str, records: bytes) -> tuple[int, int]:
    """Error and offset that a batch is answered with."""
    correlation_id = next(_ids)
    with RawConnection(broker.bootstrap) as connection:
        reader = connection.ask(produce(topic, records, correlation_id), correlation_id)
        reader.int32(), reader.string(), reader.int32(), reader.int32()
        error = reader.int16()
        return error, reader.int64()
