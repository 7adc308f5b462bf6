"""How long a partition cannot be written when its leader dies: the figure that people ask for first.

A cluster on the loopback, settings as shipped. One idempotent producer sends to one partition all the time and notes
every answer; the leader of that partition is killed with SIGKILL, and the time from the signal to the first
acknowledgement of a record sent after it is one sample. The dead node is started again, and all is well, before the
next one. Nothing is judged but that no acknowledged offset was given twice and all of them are there: figures belong
into a report, with the machine they come from.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from support.checked_clients import QUIET
from support.cluster import ClusterProcesses

TOPIC = "failover"
_SEND_EVERY_S = 0.005


class Pulse(threading.Thread):
    """A producer that sends a record every few milliseconds; when each was sent and acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.answers: list[tuple[float, float]] = []
        self.offsets: set[int] = set()
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "logger": QUIET}
        )

    def run(self) -> None:
        while not self._stopping.is_set():
            sent_at = time.monotonic()

            def on_delivery(error: KafkaError | None, message: Message, sent_at: float = sent_at) -> None:
                if error is not None:
                    self.errors.append(str(error))
                else:
                    self.answers.append((sent_at, time.monotonic()))
                    self.offsets.add(int(message.offset() or 0))

            self._producer.produce(TOPIC, b"%.6f" % sent_at, on_delivery=on_delivery)
            self._producer.poll(_SEND_EVERY_S)
        self._producer.flush(30)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)

    def wait_first_after(self, moment: float, timeout_s: float = 60.0) -> float:
        """When the first record that was sent after `moment` was acknowledged."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            later = [answered for sent, answered in self.answers[-2_000:] if sent >= moment]
            if later:
                return min(later)
            time.sleep(0.005)
        raise TimeoutError(f"no acknowledgement within {timeout_s:g} s; errors: {self.errors[:3]}")


def read_offsets(bootstrap: str) -> set[int]:
    """Every offset that can be read."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "logger": QUIET})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: set[int] = set()
        deadline = time.monotonic() + 60
        while len(found) < end and time.monotonic() < deadline:
            found.update(int(message.offset() or 0) for message in consumer.consume(1_000, 0.5) if not message.error())
        return found
    finally:
        consumer.close()


def measure_failover(times: int, seed: int = 1) -> int:
    """Kill the leader a number of times, and print the figures."""
    samples: list[float] = []
    with tempfile.TemporaryDirectory() as directory, ClusterProcesses(Path(directory), 3) as cluster:
        cluster.create_topic(TOPIC)
        cluster.wait_healthy()
        pulse = Pulse(cluster.bootstrap)
        pulse.start()
        for number in range(1, times + 1):
            before = len(pulse.answers)
            while len(pulse.answers) < before + 100:
                time.sleep(0.01)
            leader = cluster.leader_of(TOPIC)
            killed = time.monotonic()
            os.kill(cluster[leader].pid, signal.SIGKILL)
            samples.append(pulse.wait_first_after(killed) - killed)
            cluster[leader].kill()
            cluster[leader].start().wait_ready()
            cluster.wait_healthy()
            print(f"{number:3}: node {leader} killed, next acknowledged write after {samples[-1]:.3f} s", flush=True)
        pulse.stop()
        missing = pulse.offsets - read_offsets(cluster.bootstrap)
    ordered = sorted(samples)
    print(
        f"{times} kills: median {statistics.median(ordered):.3f} s, worst {ordered[-1]:.3f} s, "
        f"best {ordered[0]:.3f} s; {len(pulse.answers)} records acknowledged, {len(pulse.errors)} errors, "
        f"{len(missing)} lost, {len(pulse.answers) - len(pulse.offsets)} offsets given twice"
    )
    return int(bool(pulse.errors or missing or len(pulse.answers) != len(pulse.offsets)))
