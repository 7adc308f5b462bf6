"""A producer and a group of consumers that write down everything they see, so that it can be compared.

Both are unmodified confluent-kafka clients. What they note is the least that proves the promise: for
each record its place (partition and offset) and a checksum of its bytes.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, Message, Producer

Place = tuple[int, int]


class Sender(threading.Thread):
    """Sends all records with acks=all and idempotence, and notes where each acknowledged one landed."""

    def __init__(self, bootstrap_servers: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        super().__init__(name="sender", daemon=True)
        self._topic = topic
        self._records = records
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 20_000,
                "logger": quiet_logger(),
            }
        )
        self.sent = 0
        self.acknowledged: dict[Place, int] = {}
        self.refused: list[str] = []

    def run(self) -> None:
        for key, value in self._records:
            while True:
                try:
                    self._producer.produce(self._topic, value, key, on_delivery=self._on_delivery)
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        place = (int(message.partition() or 0), int(message.offset() or 0))
        self.acknowledged[place] = zlib.crc32(message.value() or b"")


class Reader(threading.Thread):
    """One member of a consumer group; notes every record it is given, also those it is given again."""

    def __init__(self, bootstrap_servers: str, topic: str, group: str, is_done: Callable[[], bool]) -> None:
        super().__init__(name="reader", daemon=True)
        self._is_done = is_done
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "logger": quiet_logger(),
            }
        )
        self._consumer.subscribe([topic])
        self.received: dict[Place, int] = {}
        self.deliveries = 0

    def run(self) -> None:
        while not self._is_done():
            for message in self._consumer.consume(1_000, 0.2):
                if message.error() is None:
                    self.deliveries += 1
                    place = (int(message.partition() or 0), int(message.offset() or 0))
                    self.received[place] = zlib.crc32(message.value() or b"")
        self._consumer.close()


def wait_until(reached: Callable[[], bool], timeout_s: float, tick: Callable[[], None]) -> bool:
    """Call `tick` about ten times a second until `reached`, for at most `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if reached():
            return True
        tick()
        time.sleep(0.1)
    return reached()


def quiet_logger() -> object:
    """librdkafka reports each lost connection; here the crash is the point, so it goes unsaid."""
    import logging

    logger = logging.getLogger("demo.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
