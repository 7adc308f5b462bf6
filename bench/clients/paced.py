"""confluent-kafka at a fixed rate, with the latency of every record.

A record's latency counts from the moment it was due, not from when the program got round to
sending it: a broker that stalls for a second owes that second to all records due in it.
Linger is 1 ms: less would measure requests of one record, and more would measure linger.
"""

import math
import time
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bench.clients import Clock, Report, Task, main
from bench.payloads import make_payloads

FLUSH_SECONDS_MAX = 30.0
POLL_SECONDS = 0.001


def produce(task: Task) -> Report:
    """Send for `seconds_max` at `records_per_second`, round-robin over the partitions."""
    errors: list[KafkaError] = []
    latencies: list[float] = []

    def on_delivery(due_at: float, error: KafkaError | None, _message: Message) -> None:
        latencies.append(time.perf_counter() - due_at)
        if error is not None:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap_servers,
            "client.id": "bench",
            "acks": "all",
            "linger.ms": 1,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    payloads = make_payloads(task.record_size)
    for partition in range(task.partition_count):
        producer.produce(task.topic, payloads[0], partition=partition)
    if producer.flush(FLUSH_SECONDS_MAX):
        raise SystemExit("the first records were not acknowledged")

    count = int(task.records_per_second * task.seconds_max)
    clock = Clock()
    for index in range(count):
        # The client waits in whole milliseconds; less would be a busy loop that takes the servers' processor. So what
        # belongs to a millisecond is due at its end, as in `paced_jetstream`.
        due_at = clock.started_at + math.ceil(index / task.records_per_second * 1000) / 1000
        while time.perf_counter() < due_at:
            producer.poll(POLL_SECONDS)
        producer.produce(
            task.topic, payloads[index % len(payloads)], partition=index % task.partition_count,
            on_delivery=partial(on_delivery, due_at),
        )  # fmt: skip
        if index % 64 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_SECONDS_MAX)
    if errors:
        raise KafkaException(errors[0])
    if left:
        raise SystemExit(f"{left} records were not acknowledged within {FLUSH_SECONDS_MAX:.0f} s")
    return clock.report(count, records_before=task.partition_count, latencies=latencies)


if __name__ == "__main__":
    main(produce, None)
