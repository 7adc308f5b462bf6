"""confluent-kafka, the usual client, against anything that speaks Kafka's protocol."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.clients import Clock, Report, Task, main
from bench.payloads import make_payloads

FLUSH_SECONDS_MAX = 60.0
RECEIVE_COUNT_MAX = 10_000


def produce(task: Task) -> Report:
    """Send records round-robin over the partitions, and wait until all are acknowledged."""
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    is_large = task.batching == "large"
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap_servers,
            "client.id": "bench",
            "acks": "all",
            "linger.ms": 20 if is_large else 0,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 64 * 1024,
            # A callback into Python for each record would measure Python. Errors still arrive,
            # and flush returns 0 only when every record has its answer.
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
        }
    )
    payloads = make_payloads(task.record_size)
    partitions = task.partition_count
    plan = [(payloads[i % len(payloads)], i % partitions) for i in range(len(payloads) * partitions)]
    for partition in range(partitions):
        producer.produce(task.topic, payloads[0], partition=partition)
    _flush(producer, errors)

    clock = Clock()
    deadline = clock.started_at + task.seconds_max
    sent, topic, send = 0, task.topic, producer.produce
    while sent < task.records_max and time.perf_counter() < deadline:
        for value, partition in plan[: task.records_max - sent]:
            while True:
                try:
                    send(topic, value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0)
                    time.sleep(0.001)
            sent += 1
    _flush(producer, errors)
    return clock.report(sent, records_before=partitions)


def _flush(producer: Producer, errors: list[KafkaError]) -> None:
    left = producer.flush(FLUSH_SECONDS_MAX)
    if errors:
        raise KafkaException(errors[0])
    if left:
        raise SystemExit(f"{left} records were not acknowledged within {FLUSH_SECONDS_MAX:.0f} s")


def consume(task: Task) -> Report:
    """Read every partition from its beginning, and verify how much arrived."""
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap_servers,
            "client.id": "bench",
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 64 * 1024,
            # The defaults stop fetching at 100,000 queued records and look again a second later.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,
            "fetch.message.max.bytes": 4 * 1024 * 1024,
        }
    )
    consumer.list_topics(task.topic, timeout=30)

    clock = Clock()
    deadline = clock.started_at + task.seconds_max
    consumer.assign([TopicPartition(task.topic, p, 0) for p in range(task.partition_count)])
    records = size = 0
    while records < task.records_max:
        batch = consumer.consume(min(RECEIVE_COUNT_MAX, task.records_max - records), 0.2)
        records += len(batch)
        # An error arrives as a message whose value is its text; the size then comes out wrong.
        size += sum(map(len, batch))
        if time.perf_counter() > deadline:
            break
    report = clock.report(records)
    expected = task.records_max * task.record_size
    if records > task.records_max or (records == task.records_max and size != expected):
        raise SystemExit(f"received {records} records of {size} bytes, not {task.records_max} of {expected}")
    consumer.close()
    return report


if __name__ == "__main__":
    main(produce, consume)
