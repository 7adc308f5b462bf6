"""Clients under load that record everything in a `History`, each on a thread of its own.

They expect a broker that crashes and restarts: a lost connection is normal, and leaves the outcome of pending requests
open. What no client should ever see (an error that ends an idempotent producer, an offset that is out of range, an
answer that contradicts an earlier one) is recorded in `problems`, and `stop` raises it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from support.checked import Headers, History, Place, Send, Stamp, payload
from support.polling import PATIENCE_S, Deadline
from support.raw_client import RawClient

QUIET = logging.getLogger("checked-clients")
"""librdkafka complains aloud about every broker that is down, which is what these tests are about."""
QUIET.disabled = True

LINES_KEPT = 3_000


class ClientLog(logging.Handler):
    """The last lines that librdkafka logged about a client, in case it behaves unexpectedly.

    Its lines about partitions and groups are few and say why a position changes; those about every fetch
    (`debug=fetch`) are so many that they would push out the important ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        logger = logging.Logger("checked-client", logging.DEBUG)
        logger.addHandler(self)
        self.settings: dict[str, object] = {"logger": logger, "debug": "topic,cgrp"}

    def emit(self, record: logging.LogRecord) -> None:
        stamp = f"{time.strftime('%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}"
        self._lines.append(f"{stamp} {record.getMessage()}")

    def lines(self) -> list[str]:
        return list(self._lines)


_RECONNECT_PAUSE_S = 0.02
_IN_FLIGHT_MAX = 200
_STOP_TIMEOUT_S = 60.0


class CheckedClient(threading.Thread):
    """A thread that works until it is stopped."""

    def __init__(self, name: str, bootstrap: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.history = history
        self.problems: list[str] = []
        self.log = ClientLog()
        self._stopping = threading.Event()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def abandon(self) -> None:
        """End the work of a run that is given up. What is left is not sent: the next cluster may have the address."""
        self.ask_to_stop()
        self.join(_STOP_TIMEOUT_S)

    def stop(self) -> None:
        """End the work and wait for it; raises what went wrong in it."""
        self.ask_to_stop()
        self.join(_STOP_TIMEOUT_S)
        assert not self.is_alive(), f"{self.name} did not end"
        assert not self.problems, f"{self.name}: {self.problems}"

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the outermost frame of the thread; `stop` raises it
            self.problems.append(repr(error))

    def work(self) -> None:
        raise NotImplementedError


class IdempotentProducer(CheckedClient):
    """confluent-kafka with acks=all and idempotence: it retries on its own, and must never write anything twice."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        places: Sequence[Place],
        seed: int = 0,
        compression: str = "none",
        size_max: int = 600,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(name, bootstrap, history)
        self._places = places
        self._random = random.Random(f"{name}/{seed}")
        self._size_max = size_max
        self._open = 0
        self._is_abandoned = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "compression.type": compression,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "logger": QUIET,
                **(settings or {}),
            }
        )

    def abandon(self) -> None:
        self._is_abandoned = True
        super().abandon()

    def work(self) -> None:
        sequence = 0
        while not self.is_stopping:
            if self._open >= _IN_FLIGHT_MAX:
                self._producer.poll(0.05)
                continue
            self._send(self._random.choice(self._places), sequence)
            sequence += 1
            self._producer.poll(0)
        if self._is_abandoned:
            self._producer.purge()
            return
        left = self._producer.flush(_STOP_TIMEOUT_S / 2)
        if left:
            self.problems.append(f"{left} records were never answered")

    def _send(self, place: Place, sequence: int) -> None:
        stamp = Stamp(place, self.name, sequence)
        value = payload(stamp, self._random.randrange(self._size_max))
        key = b"%d" % (sequence % 10)
        headers: list[tuple[str, bytes | None]] = [("sequence", b"%d" % sequence)]
        send = self.history.on_send(stamp, value, key, headers)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._open -= 1
            if error is not None:
                # Nothing here is refused for a reason, and nothing may time out while the broker comes back.
                self.problems.append(f"{stamp}: {error}")
                return
            offset = message.offset()
            self.history.on_acked(send, None if offset is None or offset < 0 else int(offset))

        self._open += 1
        self._producer.produce(place.topic, value, key, place.partition, on_delivery=on_delivery, headers=list(headers))


class _RawProducer(CheckedClient):
    """Sends one batch at a time on a connection of its own."""

    def __init__(self, name: str, bootstrap: str, history: History, place: Place, seed: int = 0) -> None:
        super().__init__(name, bootstrap, history)
        self.place = place
        self.random = random.Random(f"{name}/{seed}")
        self.sequence = 0

    def connect(self) -> RawClient | None:
        """A connection as soon as there is one; None if we are to stop first."""
        while not self.is_stopping:
            try:
                return RawClient(self.bootstrap)
            except OSError:
                self._stopping.wait(_RECONNECT_PAUSE_S)
        return None

    def note_batch(self) -> tuple[list[Send], list[bytes]]:
        """The next batch, noted as started."""
        sends, values = [], []
        for _ in range(self.random.randint(1, 5)):
            stamp = Stamp(self.place, self.name, self.sequence)
            self.sequence += 1
            value = payload(stamp, self.random.randrange(200))
            values.append(value)
            sends.append(self.history.on_send(stamp, value))
        return sends, values

    def note_acked(self, sends: Sequence[Send], base_offset: int) -> None:
        for delta, send in enumerate(sends):
            self.history.on_acked(send, base_offset + delta)


class LeaderAckProducer(_RawProducer):
    """acks=1 without retries: what the connection loses stays open.

    An answer here means "in the log of the broker". A killed process loses nothing that it gave to the kernel, so
    even these must all be there after SIGKILL; only a power cut may take them.
    """

    def work(self) -> None:
        client: RawClient | None = None
        while not self.is_stopping:
            client = client or self.connect()
            if client is None:
                return
            sends, values = self.note_batch()
            try:
                self.note_acked(sends, client.produce(self.place.topic, values, partition=self.place.partition, acks=1))
            except OSError:
                client.close()
                client = None
        if client is not None:
            client.close()


class RetryingProducer(_RawProducer):
    """An idempotent producer made by hand, which knows the answer to every attempt.

    After every lost connection it sends the last answered batch again, and must receive the old offset, and then the
    batch that was pending.
    """

    def work(self) -> None:
        client = self.connect()
        while client is not None:
            try:
                producer_id, epoch = self._new_producer(client)
                break
            except OSError:
                client.close()
                client = self.connect()
        if client is None:
            return
        sequence = 0
        last: tuple[list[bytes], int, int] | None = None
        while not self.is_stopping:
            sends, values = self.note_batch()
            tries = 0
            while True:
                try:
                    if tries and last is not None:
                        again = self._produce(client, last[0], producer_id, epoch, last[1])
                        if again != last[2]:
                            self.problems.append(f"a batch was answered with {last[2]}, and its repeat with {again}")
                    offset = self._produce(client, values, producer_id, epoch, sequence)
                    break
                except OSError:
                    client.close()
                    next_client = self.connect()
                    if next_client is None:
                        return
                    client = next_client
                    tries += 1
            self.note_acked(sends, offset)
            last = (values, sequence, offset)
            sequence += len(values)
        client.close()

    def _new_producer(self, client: RawClient) -> tuple[int, int]:
        return client.init_producer_id()

    def _produce(self, client: RawClient, values: list[bytes], producer_id: int, epoch: int, sequence: int) -> int:
        return client.produce(
            self.place.topic,
            values,
            partition=self.place.partition,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )


class TailReader(CheckedClient):
    """Reads partitions from their beginning, and on as they grow; never seeks."""

    def __init__(self, name: str, bootstrap: str, history: History, places: Sequence[Place]) -> None:
        super().__init__(name, bootstrap, history)
        settings = _consumer_settings(bootstrap, group=f"{name}-unused", reset="error")
        self._consumer = Consumer(settings | self.log.settings)
        self._consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in places])

    def work(self) -> None:
        try:
            while not self.is_stopping:
                for message in self._consumer.consume(500, 0.1):
                    _note_read(self, message, 0)
        finally:
            self._consumer.close()


class GroupMember(CheckedClient):
    """A member of a group that commits what it has read, after every few records.

    If leaders change, the group should begin with committed offsets and `reset` be "error". If librdkafka (2.16) has
    asked a leader where a log begins, and the request fails only after the leader has changed, it asks again and goes
    back there, wherever it has come meanwhile: records are seen twice without any fault of a broker. With "error" any
    reset of a position, which an answer must have caused then, is a visible problem.
    """

    def __init__(
        self, name: str, bootstrap: str, history: History, topics: list[str], group: str, reset: str = "earliest"
    ) -> None:
        super().__init__(name, bootstrap, history)
        self._group = group
        self._sitting = 0
        self.commit_count = 0
        self._consumer = Consumer(_consumer_settings(bootstrap, group=group, reset=reset) | self.log.settings)
        self._consumer.subscribe(topics, on_assign=self._on_assign)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._sitting += 1

    def work(self) -> None:
        try:
            while not self.is_stopping:
                before = self._sitting
                messages = self._consumer.consume(100, 0.1)
                reached: dict[Place, int] = {}
                for message in messages:
                    place = _note_read(self, message, self._sitting)
                    if place is not None:
                        reached[place] = int(message.offset() or 0) + 1
                if reached and before == self._sitting:
                    self._commit(reached)
        finally:
            self._consumer.close()

    def _commit(self, reached: dict[Place, int]) -> None:
        commits = [self.history.on_commit(self._group, place, offset) for place, offset in reached.items()]
        try:
            self._consumer.commit(
                offsets=[TopicPartition(place.topic, place.partition, offset) for place, offset in reached.items()],
                asynchronous=False,
            )
        except KafkaException:
            return  # the broker went away, or a rebalance came first: open
        for commit in commits:
            self.history.on_confirmed(commit)
        self.commit_count += len(commits)


def read_everything(bootstrap: str, history: History, places: Sequence[Place], timeout_s: float = PATIENCE_S) -> None:
    """The final pass: every record of every partition, from the first to the high watermark."""
    consumer = Consumer(_consumer_settings(bootstrap, group="final-unused", reset="error"))
    try:
        ends = {}
        deadline = Deadline(timeout_s)
        for place in places:
            low, high = _watermarks(consumer, place, deadline)
            assert low == 0, (place, low)
            if high:
                ends[place] = high
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in ends])
        while ends:
            assert not deadline.passed(), f"not read to the end: {ends}"
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                assert error is None, error
                place = _place(message)
                offset = int(message.offset() or 0)
                _note(history, "final", 0, message, final=True)
                if offset + 1 >= ends.get(place, 0):
                    ends.pop(place, None)
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, place: Place, deadline: Deadline) -> tuple[int, int]:
    """Where a partition begins and ends. The client does not retry when the leader has just changed."""
    while True:
        try:
            found = consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), timeout=30)
        except KafkaException as error:
            if deadline.passed() or error.args[0].code() not in _LEADER_CHANGES:
                raise
        else:
            assert found is not None
            return found


def _note_read(client: CheckedClient, message: Message, sitting: int) -> Place | None:
    error = message.error()
    if error is not None:
        if not error.retriable() and error.code() not in _BROKER_AWAY:
            client.problems.append(str(error))
        return None
    _note(client.history, client.name, sitting, message)
    return _place(message)


def _note(history: History, reader: str, sitting: int, message: Message, *, final: bool = False) -> None:
    headers = cast(Headers | None, message.headers())
    value, key = message.value(), message.key()
    history.on_read(reader, sitting, _place(message), int(message.offset() or 0), value, key, headers, final=final)


_LEADER_CHANGES = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT)
_BROKER_AWAY = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


def _place(message: Message) -> Place:
    return Place(str(message.topic()), int(message.partition() or 0))


def _consumer_settings(bootstrap: str, *, group: str, reset: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": reset,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "fetch.wait.max.ms": 100,
        "check.crcs": True,
        "logger": QUIET,
    }
