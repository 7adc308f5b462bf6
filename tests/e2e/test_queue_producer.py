"""`drmq.Producer`, and `drmq.Consumer` in single mode, against a real broker in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import drmq
from drmq.client import Admin
from drmq.client.reader import time_ms
from drmq.testing import Broker
from support.polling import PATIENCE_S


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(partitions=2)


def read(reader: drmq.SingleConsumer[bytes], count: int) -> list[drmq.Message[bytes]]:
    found: list[drmq.Message[bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += reader.poll(count - len(found), 0.5)
    return found


# ---- producing ---------------------------------------------------------------------------------------


def test_send_returns_where_the_message_is(bootstrap: str, topic: str) -> None:
    with drmq.Producer(bootstrap) as producer:
        before_ms = time.time_ns() // 1_000_000
        sent = producer.send(topic, b"a", partition=1)
        assert (sent.topic, sent.partition, sent.offset) == (topic, 1, 0)
        assert sent.timestamp >= before_ms
        assert producer.send(topic, b"b", partition=1).offset == 1


def test_keys_have_the_partition_that_java_clients_choose(bootstrap: str, broker: Broker) -> None:
    topic = broker.create_topic(partitions=8)
    keys = [b"order-%d" % number for number in range(10)]
    with drmq.Producer(bootstrap) as producer:
        chosen = [producer.send(topic, b"a", key=key).partition for key in keys]
    # murmur2 of each key modulo 8, computed by kafka-python.
    assert chosen == [4, 6, 3, 7, 2, 6, 1, 1, 5, 2]


def test_submit_is_ordered_and_flush_waits(bootstrap: str, topic: str) -> None:
    with drmq.Producer(bootstrap) as producer:
        sending = [producer.submit(topic, b"%d" % number, partition=0) for number in range(1_000)]
        producer.flush()
        assert [each.result(0).offset for each in sending] == list(range(1_000))


def test_the_block_flushes(bootstrap: str, topic: str) -> None:
    with drmq.Producer(bootstrap) as producer:
        sending = producer.submit(topic, b"a")
    assert sending.result(0).offset == 0


def test_a_full_queue_makes_submit_wait(bootstrap: str, topic: str) -> None:
    with drmq.Producer(bootstrap, properties={"queue.buffering.max.messages": 10}) as producer:
        sending = [producer.submit(topic, b"a", partition=0) for _ in range(100)]
    assert [each.result(0).offset for each in sending] == list(range(100))


def test_what_is_refused_says_why(bootstrap: str, topic: str) -> None:
    with drmq.Producer(bootstrap, timeout=5.0) as producer:
        with pytest.raises(TypeError, match="must be bytes; or choose a codec"):
            producer.send(topic, "text")  # type: ignore[arg-type]
        with pytest.raises(drmq.Error) as refused:
            producer.send(topic, b"a", partition=7)
        assert refused.value.code is not None
        with pytest.raises(drmq.Error) as too_large:
            producer.send(topic, b"x" * 2_000_000)
        assert "MESSAGE_TOO_LARGE" in str(too_large.value) or "large" in str(too_large.value)
        with pytest.raises(drmq.Error):
            producer.send("no/such name", b"a")
    with pytest.raises(drmq.Error, match="cannot be created"):
        drmq.Producer(bootstrap, properties={"no.such.setting": 1})


# ---- reading -----------------------------------------------------------------------------------------


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """Ten messages in partition 0, one each second from 1970-01-01T00:00:10Z on."""
    with drmq.Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(
                topic, b"%d" % number, partition=0, timestamp=(10 + number) * 1_000, headers={"n": b"%d" % number}
            )
    return topic


def test_positions(bootstrap: str, filled: str) -> None:
    with drmq.Consumer(bootstrap, mode="single") as reader:
        reader.subscribe(filled)
        first = read(reader, 10)
        assert [message.offset for message in first] == list(range(10))
        assert (first[3].value, first[3].headers, first[3].timestamp) == (b"3", (("n", b"3"),), 13_000)
        assert (first[3].topic, first[3].partition, first[3].key) == (filled, 0, None)
        for position, expected in (
            ({"offset": 7}, 7),
            ({"offset": {0: 4}}, 4),
            ({"start": "earliest"}, 0),
            ({"time": "1970-01-01T00:00:15Z"}, 5),
            ({"time": datetime(1970, 1, 1, 0, 0, 15, 500_000, tzinfo=UTC)}, 6),
            ({"time": 18.0}, 8),
        ):
            reader.seek(filled, **position)
            assert read(reader, 1)[0].offset == expected, position
        reader.seek(filled, "latest")
        assert reader.poll(1, 0.3) == []
        with drmq.Producer(bootstrap) as producer:
            producer.send(filled, b"new", partition=0)
        assert read(reader, 1)[0].value == b"new"


def test_committed_offsets_need_a_group_and_are_where_reading_goes_on(bootstrap: str, filled: str) -> None:
    with drmq.Consumer(bootstrap, f"r-{filled}", mode="single") as reader:
        reader.subscribe(filled)
        message = read(reader, 5)[-1]
        assert reader.committed(filled) is None
        reader.commit(filled, message.offset + 1)
    with drmq.Consumer(bootstrap, f"r-{filled}", mode="single") as reader:
        assert reader.committed(filled) == 5
        reader.subscribe(filled)
        assert read(reader, 1)[0].offset == 5
    with drmq.Consumer(bootstrap, mode="single") as reader, pytest.raises(ValueError, match="group name"):
        reader.commit(filled, 1)


def test_topics_and_partitions_that_are_added_later(
    bootstrap: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drmq.client.reader._LOOK_S", 0.2)
    name = f"later-{time.time_ns()}"
    with drmq.Consumer(bootstrap, mode="single") as reader:
        reader.subscribe(name)
        assert reader.poll(1, 0.1) == []
        broker.create_topic(name)
        with drmq.Producer(bootstrap) as producer:
            producer.send(name, b"a")
            assert read(reader, 1)[0].value == b"a"
        with Admin(bootstrap) as admin:
            admin.topics.add_partitions(name, 2)
        with drmq.Producer(bootstrap) as producer:
            producer.send(name, b"b", partition=1)
        assert read(reader, 1)[0].partition == 1


def test_wrong_arguments(bootstrap: str, filled: str) -> None:
    with drmq.Consumer(bootstrap, mode="single") as reader:
        with pytest.raises(ValueError, match="exclude"):
            reader.subscribe(filled, "earliest", offset=3)
        with pytest.raises(ValueError, match="start is 'begin'"):
            reader.subscribe(filled, "begin")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="no partition 5"):
            reader.subscribe(filled, partitions=[5])
        with pytest.raises(ValueError, match="call `subscribe` first"):
            reader.seek(filled, "earliest")
        reader.subscribe(filled, partitions=[1])
        with pytest.raises(ValueError, match="no position"):
            reader.seek(filled)
    with pytest.raises(drmq.Closed):
        reader.poll()


def test_times() -> None:
    assert time_ms("2026-11-01T00:00:00Z") == time_ms(datetime(2026, 11, 1, tzinfo=UTC)) == time_ms(1_793_491_200)
    with pytest.raises(ValueError, match="yesterday"):
        time_ms("yesterday")


def test_a_cluster_that_cannot_be_reached() -> None:
    with drmq.Consumer("127.0.0.1:1", mode="single", timeout=1.0) as reader, pytest.raises(drmq.Unreachable):
        reader.subscribe("orders")
