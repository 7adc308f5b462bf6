"""A probe with confluent-kafka as it comes: no setting but the addresses."""

import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.probe import Acknowledgements, ProbeTask, begin
from bench.payloads import make_payloads

FLUSH_SECONDS_MAX = 30.0


def run(task: ProbeTask, acknowledgements: Acknowledgements) -> None:
    """Write at the fixed rate; the library repeats what failed."""

    def on_delivery(begun_at: float, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            acknowledgements.add(begun_at)
        else:
            acknowledgements.failed += 1

    servers = ",".join(f"127.0.0.1:{port}" for port in task.ports)
    # It would report on standard error every connection that is refused, which is what we came to see.
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    value = make_payloads(task.record_size, 1)[0]
    due_at = time.perf_counter()
    while not acknowledgements.is_ended:
        due_at += 1 / task.records_per_second
        while (wait := due_at - time.perf_counter()) > 0:
            producer.poll(wait)
        try:
            producer.produce(task.topic, value, partition=0, on_delivery=partial(on_delivery, time.perf_counter()))
        except BufferError:
            producer.poll(0.01)
    acknowledgements.failed += producer.flush(FLUSH_SECONDS_MAX)
    acknowledgements.totals()


if __name__ == "__main__":
    run(*begin())
