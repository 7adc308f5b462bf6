"""`drmq.Consumer` in group mode, against a real broker in this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

import drmq
from drmq.client import Admin, NewTopic
from drmq.testing import Broker
from support.polling import PATIENCE_S, eventually
from support.queue_client import client_threads, nothing_comes, send, set_lease_ms, take


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


def consumer_of(bootstrap: str, topic: str, group: str | None = None) -> drmq.GroupConsumer[bytes]:
    consumer = drmq.Consumer(bootstrap, group or f"group-{topic}", start="earliest")
    consumer.subscribe(topic)
    return consumer


def test_a_message_has_all_that_was_sent(bootstrap: str, topic: str) -> None:
    with drmq.Producer(bootstrap) as producer:
        sent = producer.send(
            topic, b"value", key=b"key", headers={"trace": b"1", "empty": None}, timestamp=1_700_000_000_000
        )
        producer.send(topic, None, key=b"key")
    with consumer_of(bootstrap, topic) as consumer:
        message, tombstone = take(consumer, 2)
        assert (message.topic, message.partition, message.offset) == (sent.topic, sent.partition, sent.offset)
        assert (message.key, message.value) == (b"key", b"value")
        assert message.headers == (("trace", b"1"), ("empty", None))
        assert message.timestamp == 1_700_000_000_000
        assert message.time.isoformat() == "2023-11-14T22:13:20+00:00"
        assert message.attempt == 1
        assert message.lease_token > 0
        assert tombstone.value is None


def test_what_is_acknowledged_does_not_come_again(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(100)])
    with consumer_of(bootstrap, topic) as consumer:
        for message in take(consumer, 50):
            message.ack()
        for message in take(consumer, 50):
            message.ack(wait=False)
        consumer.flush()
    with consumer_of(bootstrap, topic) as consumer:
        assert nothing_comes(consumer)


def test_acknowledging_twice_succeeds_and_changing_ones_mind_does_not(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"a"])
    with consumer_of(bootstrap, topic) as consumer:
        [message] = take(consumer, 1)
        message.ack()
        message.ack()
        message.ack(wait=False)
        assert message.is_settled
        with pytest.raises(drmq.Error, match="settled already, in another way"):
            message.give_back()


def test_what_was_given_back_cannot_be_acknowledged(bootstrap: str, topic: str) -> None:
    """It is delivered again, so an acknowledgement that seems to succeed would be a lie."""
    send(bootstrap, topic, [b"a"])
    with consumer_of(bootstrap, topic) as consumer:
        [message] = take(consumer, 1)
        message.give_back()
        with pytest.raises(drmq.Error, match="settled already, in another way"):
            message.ack()


def test_each_outcome(bootstrap: str, topic: str) -> None:
    """Released counts as an attempt, given back does not, rejected goes to the dead letters."""
    send(bootstrap, topic, [b"nack", b"give back", b"reject"], key=b"one partition")
    with consumer_of(bootstrap, topic, "outcomes") as consumer:
        outcomes = {message.value: message for message in take(consumer, 3)}
        outcomes[b"nack"].nack()
        outcomes[b"give back"].give_back()
        outcomes[b"reject"].reject()
        again = {message.value: message.attempt for message in take(consumer, 2)}
        assert again == {b"nack": 2, b"give back": 1}
        assert nothing_comes(consumer)
    with drmq.Consumer(bootstrap, mode="single") as reader:
        eventually(lambda: _exists(bootstrap, "dlq.outcomes"))
        reader.subscribe("dlq.outcomes", "earliest")
        dead = eventually(lambda: reader.poll(10, 1.0))
        assert [message.value for message in dead] == [b"reject"]


def _exists(bootstrap: str, topic: str) -> bool:
    with Admin(bootstrap) as admin:
        return topic in {each.name for each in admin.topics.all()}


def test_a_block_settles_its_message(bootstrap: str, topic: str) -> None:
    """Accepted at the end, released after an exception, given back if the program is about to end."""
    send(bootstrap, topic, [b"a"])
    with consumer_of(bootstrap, topic) as consumer:
        [message] = take(consumer, 1)
        with pytest.raises(ZeroDivisionError), message:
            _ = 1 / 0
        [message] = take(consumer, 1)
        assert message.attempt == 2
        with pytest.raises(KeyboardInterrupt), message:
            raise KeyboardInterrupt
        [message] = take(consumer, 1)
        assert message.attempt == 2
        with message:
            message.reject()
        assert nothing_comes(consumer)


def test_a_delay_is_kept(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"later", b"now"], key=b"one partition")
    with consumer_of(bootstrap, topic) as consumer:
        later, now = take(consumer, 2)
        began = time.monotonic()
        later.nack(delay=2.0, wait=False)
        now.nack(delay=0)
        assert [message.value for message in take(consumer, 1)] == [b"now"]
        [message] = take(consumer, 1)
        assert (message.value, message.attempt) == (b"later", 2)
        assert time.monotonic() - began >= 2.0
        with pytest.raises(ValueError, match="delay is -1"):
            message.nack(-1)


def test_consumers_of_a_group_share_the_work_whatever_the_number_of_partitions(bootstrap: str, topic: str) -> None:
    """Five consumers on two partitions: each message goes to exactly one, and each consumer gets some."""
    values: list[bytes] = []
    got: list[list[bytes]] = [[] for _ in range(5)]
    done = threading.Event()

    def work(index: int) -> None:
        with drmq.Consumer(bootstrap, f"group-{topic}", start="earliest", prefetch=4) as consumer:
            consumer.subscribe(topic)
            ready.wait(PATIENCE_S)
            while not done.is_set():
                for message in consumer.poll(1, 0.2):
                    time.sleep(0.005)
                    got[index].append(message.value)
                    message.ack()

    ready = threading.Barrier(6)
    threads = [threading.Thread(target=work, args=(index,)) for index in range(5)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    try:
        # On a busy machine, the first that are ready may have done all by the time that the last one asks.
        while len(values) < 200 or (not all(got) and time.monotonic() < deadline):
            more = [b"%d" % (len(values) + number) for number in range(100)]
            send(bootstrap, topic, more)
            values.extend(more)
            eventually(lambda: sum(map(len, got)), lambda count: count >= len(values))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert sorted(value for each in got for value in each) == sorted(values)
    assert all(got), [len(each) for each in got]


def test_every_group_sees_everything(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"a", b"b"])
    for group in ("one", "two"):
        with consumer_of(bootstrap, topic, f"{group}-{topic}") as consumer:
            assert sorted(message.value for message in take(consumer, 2)) == [b"a", b"b"]


def test_closing_gives_back_what_is_held_and_what_was_prefetched(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(40)])
    with consumer_of(bootstrap, topic) as first:
        take(first, 3)
    with consumer_of(bootstrap, topic) as second:
        again = take(second, 40)
        assert {message.attempt for message in again} == {1}


def test_nothing_outlives_the_block(bootstrap: str, topic: str) -> None:
    with consumer_of(bootstrap, topic) as consumer, drmq.Producer(bootstrap) as producer:
        producer.send(topic, b"a")
        take(consumer, 1)[0].ack()
        assert client_threads() == ["drmq-consumer", "drmq-producer"]
    assert client_threads() == []
    with pytest.raises(drmq.Closed):
        consumer.poll()
    with pytest.raises(drmq.Closed):
        producer.send(topic, b"b")
    consumer.close()


def test_topics_and_partitions_that_are_added_later(bootstrap: str, broker: Broker) -> None:
    """A consumer subscribes before its topic exists, gets its messages, and those of partitions that are added."""
    name = f"later-{time.time_ns()}"
    with consumer_of(bootstrap, name) as consumer:
        broker.create_topic(name)
        send(bootstrap, name, [b"first"])
        take(consumer, 1)[0].ack()
        with Admin(bootstrap) as admin:
            admin.topics.add_partitions(name, 3)
        send(bootstrap, name, [b"second"], partition=2)
        assert take(consumer, 1)[0].partition == 2


def test_several_topics(bootstrap: str, broker: Broker) -> None:
    one, two = broker.create_topic(), broker.create_topic()
    with consumer_of(bootstrap, one) as consumer:
        consumer.subscribe(two)
        send(bootstrap, one, [b"1"])
        send(bootstrap, two, [b"2"])
        assert sorted((message.topic, message.value) for message in take(consumer, 2)) == sorted(
            [(one, b"1"), (two, b"2")]
        )
        consumer.unsubscribe(one)
        send(bootstrap, one, [b"3"])
        send(bootstrap, two, [b"4"])
        assert take(consumer, 1)[0].value == b"4"


def test_what_waits_when_a_topic_is_left_is_given_back(bootstrap: str, broker: Broker) -> None:
    """And what a request in flight brings afterwards."""
    one, two = broker.create_topic(), broker.create_topic()
    with consumer_of(bootstrap, one) as leaver, consumer_of(bootstrap, one, group=leaver.group) as stayer:
        stayer.unsubscribe(one)
        leaver.subscribe(two)
        for number in range(5):
            leaver.subscribe(one)
            send(bootstrap, one, [b"%d" % number] * 20)
            [first] = take(leaver, 1)
            first.ack()
            leaver.unsubscribe(one)
            send(bootstrap, one, [b"late"])
            send(bootstrap, two, [b"other"])
            stayer.subscribe(one)
            [other] = take(leaver, 1)
            assert (other.topic, other.value) == (two, b"other")
            other.ack()
            rest = take(stayer, 20)
            assert [(each.topic, each.attempt) for each in rest] == [(one, 1)] * 20
            for each in rest:
                each.ack(wait=False)
            stayer.flush()
            stayer.unsubscribe(one)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(bootstrap: str, topic: str, compression: str) -> None:
    """Also if only some records of a batch are leased at a time."""
    with drmq.Producer(bootstrap, properties={"compression.type": compression, "linger.ms": 100}) as producer:
        for number in range(50):
            producer.submit(topic, b"%d" % number * 100, key=b"one partition")
    with drmq.Consumer(bootstrap, f"group-{topic}", start="earliest", prefetch=7) as consumer:
        consumer.subscribe(topic)
        got: list[bytes] = []
        while len(got) < 50:
            for message in take(consumer, 5):
                got.append(message.value)
                message.ack(wait=False)
    assert got == [b"%d" % number * 100 for number in range(50)]


def test_codecs(bootstrap: str, topic: str) -> None:
    with drmq.Producer(bootstrap, codec="json") as producer:
        producer.send(topic, {"total": 10})
    with drmq.Consumer(bootstrap, f"json-{topic}", start="earliest", codec="json") as orders:
        orders.subscribe(topic)
        assert eventually(orders.poll)[0].value == {"total": 10}
    with drmq.Consumer(bootstrap, f"text-{topic}", start="earliest", codec="text") as texts:
        texts.subscribe(topic)
        assert eventually(texts.poll)[0].value == '{"total":10}'
    with drmq.Consumer(bootstrap, f"own-{topic}", start="earliest", codec=len) as sizes:
        sizes.subscribe(topic)
        assert eventually(sizes.poll)[0].value == 12


# ---- leases ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty_broker() -> Iterator[Broker]:
    """Its leases last 1.5 s."""
    with Broker() as broker:
        set_lease_ms(broker, 1_500)
        yield broker


@pytest.fixture
def hasty_topic(hasty_broker: Broker) -> str:
    return hasty_broker.create_topic()


def test_leases_are_renewed_while_a_message_is_worked_on(hasty_broker: Broker, hasty_topic: str) -> None:
    servers = hasty_broker.bootstrap_servers
    send(servers, hasty_topic, [b"a"])
    with consumer_of(servers, hasty_topic) as worker, consumer_of(servers, hasty_topic) as other:
        [message] = take(worker, 1)
        assert nothing_comes(other, for_s=4.0)
        message.extend()
        message.ack()


def test_a_lease_that_is_not_renewed_is_lost(hasty_broker: Broker, hasty_topic: str) -> None:
    """The late consumer learns of it, whether it waits for the answer or flushes; the other one is not disturbed."""
    servers = hasty_broker.bootstrap_servers
    send(servers, hasty_topic, [b"a", b"b"])
    with drmq.Consumer(servers, f"group-{hasty_topic}", start="earliest", renew_for=0.0, prefetch=0) as late:
        late.subscribe(hasty_topic)
        first, second = take(late, 2)
        with consumer_of(servers, hasty_topic) as other:
            again = take(other, 2)
            assert [message.attempt for message in again] == [2, 2]
            with pytest.raises(drmq.LeaseLost, match="1 message has ended") as lost:
                first.ack()
            assert lost.value.lost[0].first_offset == first.offset
            assert first.is_lost
            second.ack(wait=False)
            with pytest.raises(drmq.LeaseLost):
                late.flush()
            late.flush()
            with pytest.raises(drmq.LeaseLost):
                second.extend()
            for message in again:
                message.ack()


def test_what_waits_in_the_buffer_is_given_back_before_its_lease_ends(hasty_broker: Broker, hasty_topic: str) -> None:
    """A consumer that does not poll does not keep messages from others, and their deliveries do not count."""
    servers = hasty_broker.bootstrap_servers
    send(servers, hasty_topic, [b"%d" % number for number in range(10)])
    with consumer_of(servers, hasty_topic) as idle, consumer_of(servers, hasty_topic) as other:
        [held] = take(idle, 1)
        rest = take(other, 9)
        assert {message.attempt for message in rest} == {1}
        held.ack()
        for message in rest:
            message.ack()


def test_poison_does_not_block_its_neighbours(hasty_broker: Broker, hasty_topic: str) -> None:
    """A message that always fails ends in the dead letters; the others are done meanwhile."""
    servers = hasty_broker.bootstrap_servers
    send(servers, hasty_topic, [b"poison", *(b"%d" % number for number in range(20))])
    attempts = 0
    done: list[bytes] = []
    with consumer_of(servers, hasty_topic) as consumer:
        while len(done) < 20 or attempts < 5:
            for message in consumer.poll(5, 1.0):
                if message.value == b"poison":
                    attempts = message.attempt
                    message.nack(wait=False)
                else:
                    done.append(message.value)
                    message.ack(wait=False)
        consumer.flush()
        assert nothing_comes(consumer)
    assert sorted(done) == sorted(b"%d" % number for number in range(20))


# ---- errors and deadlines ----------------------------------------------------------------------------


def test_a_cluster_that_cannot_be_reached() -> None:
    """Calls fail at their deadline, with what to do; closing does not wait for what never was."""
    with drmq.Consumer("127.0.0.1:1", "billing", timeout=1.0) as consumer:
        with pytest.raises(drmq.Unreachable, match=r"127\.0\.0\.1:1") as failed:
            consumer.subscribe("orders")
        assert failed.value.retriable
        assert failed.value.advice
        with pytest.raises(drmq.Unreachable):
            consumer.poll(1, 0.1)
    with drmq.Producer("127.0.0.1:1", timeout=1.0) as producer, pytest.raises(drmq.DeadlineExceeded):
        producer.send("orders", b"a")


def test_a_cluster_that_has_gone(topic: str) -> None:
    """Calls fail at their deadline, and so does closing."""
    with Broker() as broker:
        name = broker.create_topic()
        consumer = consumer_of(broker.bootstrap_servers, name)
        send(broker.bootstrap_servers, name, [b"a"])
        [message] = take(consumer, 1)
    with pytest.raises(drmq.DeadlineExceeded, match="settling"):
        message.ack(timeout=0.5)
    assert consumer.poll(1, 0.2) == []
    with pytest.raises(drmq.Error):
        consumer.close(timeout=0.5)
    assert client_threads() == []


def test_a_group_of_the_other_kind_is_refused(bootstrap: str, topic: str) -> None:
    with drmq.Consumer(bootstrap, f"classic-{topic}", mode="single") as reader:
        reader.commit(topic, 0)
    with drmq.Consumer(bootstrap, f"classic-{topic}") as consumer, pytest.raises(drmq.Refused, match="consumer group"):
        consumer.subscribe(topic)


def test_wrong_arguments(bootstrap: str) -> None:
    with pytest.raises(ValueError, match="mode is 'both'"):
        drmq.Consumer(bootstrap, "g", mode="both")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="codec is 'xml'"):
        drmq.Consumer(bootstrap, "g", codec="xml")  # type: ignore[call-overload]
    with pytest.raises(drmq.Error, match="Bootstrap servers"):
        drmq.Consumer("", "g")
    assert client_threads() == []


def test_records_that_cannot_be_read_are_released(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come to their limit of attempts, and the log says why."""
    from drmq.client.leases import source

    monkeypatch.setattr(source, "DECOMPRESSED_BYTES_MAX", 10)
    with drmq.Producer(bootstrap, compression="gzip") as producer:
        producer.send(topic, b"x" * 1000, partition=0)
    with caplog.at_level(logging.ERROR), consumer_of(bootstrap, topic) as consumer:
        assert nothing_comes(consumer)
        eventually(lambda: _exists(bootstrap, f"dlq.group-{topic}"))
    assert "cannot be read" in caplog.text


def test_a_topic_that_is_deleted_does_not_stop_the_others(bootstrap: str, broker: Broker) -> None:
    gone, kept = broker.create_topic(), broker.create_topic()
    with consumer_of(bootstrap, gone) as consumer:
        consumer.subscribe(kept)
        with Admin(bootstrap) as admin:
            admin.topics.delete(gone)
        send(bootstrap, kept, [b"a"])
        take(consumer, 1)[0].ack()
        with Admin(bootstrap) as admin:
            eventually(lambda: _created(admin, gone))
        send(bootstrap, gone, [b"new"])
        take(consumer, 1)[0].ack()


def _created(admin: Admin, topic: str) -> bool:
    try:
        admin.topics.create(NewTopic(topic))
    except drmq.Refused:
        return False
    return True
