"""Traffic that goes on until it is stopped: something to watch on the dashboard.

Flights are replayed into a topic with a rate that rises and falls, and read by a group of two consumers. Orders are
sent to a second topic and charged by workers, which share it by leases. Now and then an order cannot be charged: after
a few attempts it is a dead letter.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import random
import threading
import time
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, Producer

import drmq
from demo.flights import flights
from demo.traffic import quiet_logger
from drmq.client import Admin, NewTopic

FLIGHTS, ARRIVALS = "flights", "arrivals"
ORDERS, BILLING = "orders", "billing"
READERS, WORKERS = 2, 4
_STEP_S = 0.1
_WAVE_S = 120.0
"""The rate of flights rises and falls in this time."""


class LiveTraffic:
    """All clients, each on threads of this process. A context manager: it starts them, and stops them at the end."""

    def __init__(
        self, bootstrap_servers: str, *, flights_per_s: int = 200, orders_per_s: int = 5, poison_every: int = 60
    ) -> None:
        self._servers = bootstrap_servers
        self._flights_per_s = flights_per_s
        self._orders_per_s = orders_per_s
        self._poison_every = poison_every
        self._is_ending = threading.Event()
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.sent = self.read = self.ordered = self.charged = self.failed = 0

    def __enter__(self) -> LiveTraffic:
        # Each failure is logged with its traceback, which is right for a worker and too much here.
        logging.getLogger("drmq.worker").setLevel(logging.CRITICAL)
        with Admin(self._servers, timeout_s=60) as admin:
            admin.topics.create(NewTopic(FLIGHTS, 6, -1, {"retention.bytes": str(64 << 20)}))
            admin.topics.create(NewTopic(ORDERS, 3, -1, {"retention.ms": str(3_600_000)}))
        made = drmq.worker(ORDERS, group=BILLING, concurrency=WORKERS, codec="json", start="earliest")
        self._worker = made(self._charge)
        targets = [self._send_flights, self._send_orders, *[self._read] * READERS]
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]
        self._threads.append(threading.Thread(target=self._worker.run, args=(self._servers,), daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_ending.set()
        self._worker.stop()
        for thread in self._threads:
            thread.join(10)

    def summary(self) -> str:
        return (
            f"{self.sent:,} flights sent, {self.read:,} read; {self.ordered:,} orders, {self.charged:,} charged, "
            f"{self.failed:,} attempts failed"
        )

    def _send_flights(self) -> None:
        producer = _producer(self._servers)
        records = itertools.chain.from_iterable(flights() for _ in itertools.count())
        for step in itertools.count():
            rate = self._flights_per_s * (1 + 0.6 * math.sin(step * _STEP_S * 2 * math.pi / _WAVE_S))
            for key, value in itertools.islice(records, max(1, round(rate * _STEP_S))):
                try:
                    producer.produce(FLIGHTS, value, key)
                    self.sent += 1
                except (BufferError, KafkaException):
                    break  # the cluster takes nothing now; the next step tries again
            producer.poll(0)
            if self._is_ending.wait(_STEP_S):
                producer.flush(5)
                return

    def _send_orders(self) -> None:
        producer = _producer(self._servers)
        chance = random.Random(1)
        for number in itertools.count(1):
            order = {"id": number, "total": round(chance.lognormvariate(3.5, 0.8), 2), "country": "DE"}
            if number % self._poison_every == 0:
                order["country"] = None
            try:
                producer.produce(ORDERS, json.dumps(order).encode(), str(number % 997).encode())
                self.ordered += 1
            except (BufferError, KafkaException):
                pass
            producer.poll(0)
            if self._is_ending.wait(1 / self._orders_per_s):
                producer.flush(5)
                return

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": ARRIVALS,
                "client.id": "arrivals-board",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "logger": quiet_logger(),
            }
        )
        consumer.subscribe([FLIGHTS])
        while not self._is_ending.is_set():
            count = sum(message.error() is None for message in consumer.consume(1_000, 0.2))
            with self._counting:
                self.read += count
        consumer.close()

    def _charge(self, message: drmq.LeasedMessage[object]) -> None:
        order = message.value
        assert isinstance(order, dict)
        time.sleep(0.05)
        if order["country"] is None:
            with self._counting:
                self.failed += 1
            raise ValueError(f"order {order['id']} has no country")
        with self._counting:
            self.charged += 1


def _producer(servers: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "demo",
            "enable.idempotence": True,
            "linger.ms": 5,
            "logger": quiet_logger(),
        }
    )
