"""confluent-kafka's `ShareConsumer`, implicit or explicit, and its producer at a fixed rate.

In implicit mode a poll accepts what the one before returned. In explicit mode each message is acknowledged by a call,
and the next poll sends the acknowledgements.
"""

import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer, ShareConsumer

from bench.clients.leasing import POLL_SECONDS, QueueTask, Work, main, timed_values

FLUSH_SECONDS_MAX = 30.0


def work(task: QueueTask, work: Work) -> None:
    """Poll and acknowledge until told to stop."""
    is_explicit = task.mode == "explicit"
    consumer = ShareConsumer(
        {
            "bootstrap.servers": task.bootstrap_servers,
            "client.id": f"bench-{task.worker}",
            "group.id": task.group,
            "share.acknowledgement.mode": task.mode,
        }
    )
    consumer.subscribe([task.queue])
    while not work.is_stopped:
        batch = consumer.poll(POLL_SECONDS)
        if is_explicit:
            for message in batch:
                consumer.acknowledge(message)
        if task.is_timed:
            for message in batch:
                work.took(message.value() or b"")
        if len(batch):
            # An error arrives as a message whose value is its text; the size then comes out wrong.
            work.add(len(batch), sum(map(len, batch)))
            work.ready()
        work.hold_back()
    for partition, error in consumer.commit_sync(FLUSH_SECONDS_MAX).items():
        if error is not None:
            raise SystemExit(f"acknowledgements of {partition} were refused: {error}")
    consumer.close()


def send(task: QueueTask) -> int:
    """Send at the rate of the task, without linger."""
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {"bootstrap.servers": task.bootstrap_servers, "acks": "all", "linger.ms": 0, "on_delivery": on_delivery}
    )
    producer.list_topics(task.queue, timeout=FLUSH_SECONDS_MAX)
    count = 0
    for due_at, value in timed_values(task, time.perf_counter()):
        while time.perf_counter() < due_at:
            producer.poll(0.001)
        producer.produce(task.queue, value)
        count += 1
    left = producer.flush(FLUSH_SECONDS_MAX)
    if errors:
        raise KafkaException(errors[0])
    if left:
        raise SystemExit(f"{left} messages were not acknowledged within {FLUSH_SECONDS_MAX:.0f} s")
    return count


if __name__ == "__main__":
    main(work, send)
