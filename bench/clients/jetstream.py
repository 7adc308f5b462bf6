"""NATS JetStream through nats-py: asynchronous publishes with many in flight, then a push consumer.

nats-py is a slow client (one coroutine step and a few objects per message), so rates here are
mostly its own; the server's CPU time per record is the fairer number. Its own `publish_async`
costs a token, a future and a timer per message, and stops at 12,000 a second on a machine where
this does several times that: one inbox for all acknowledgements, counted.
"""

import asyncio
import contextlib
import time

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType

from bench.clients import Clock, Report, Task, main
from bench.payloads import make_payloads

IN_FLIGHT_MAX = 4000
CHECK_EVERY = 500


def subjects(task: Task) -> list[str]:
    """A stream with one subject per partition."""
    return [f"{task.topic}-{partition}" for partition in range(task.partition_count)]


def servers(task: Task) -> list[str]:
    """The addresses of all nodes."""
    return [f"nats://127.0.0.1:{port}" for port in task.ports]


async def add_streams(stream: JetStreamContext, task: Task) -> None:
    """Make the streams, or find them as they are wanted."""
    for name in subjects(task):
        await stream.add_stream(
            name=name, subjects=[name], storage=StorageType.FILE, num_replicas=task.replica_count
        )  # fmt: skip


async def _produce(task: Task) -> Report:
    payloads, names = make_payloads(task.record_size), subjects(task)
    connection = await nats.connect(servers(task))
    stream: JetStreamContext = connection.jetstream(timeout=30)
    await add_streams(stream, task)
    inbox = connection.new_inbox()
    answered = asyncio.Event()
    sent = acknowledged = 0
    errors: list[bytes] = []

    async def on_answer(message: Msg) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if b'"error"' in message.data or not message.data:
            errors.append(message.data or b"no responders")
        answered.set()

    await connection.subscribe(inbox, cb=on_answer, pending_msgs_limit=-1, pending_bytes_limit=-1)

    async def wait_in_flight(count_max: int) -> None:
        while sent - acknowledged > count_max:
            answered.clear()
            await asyncio.wait_for(answered.wait(), 60)
        if errors:
            raise SystemExit(f"{len(errors)} publishes failed: {errors[0].decode()}")

    clock = Clock()
    deadline = clock.started_at + task.seconds_max
    while sent < task.records_max and time.perf_counter() < deadline:
        for _ in range(min(CHECK_EVERY, task.records_max - sent)):
            await connection.publish(names[sent % len(names)], payloads[sent % len(payloads)], reply=inbox)
            sent += 1
        await wait_in_flight(IN_FLIGHT_MAX)
    await wait_in_flight(0)
    report = clock.report(sent)
    await connection.close()
    return report


async def _consume(task: Task) -> Report:
    connection = await nats.connect(servers(task), pending_size=64 * 1024 * 1024)
    stream: JetStreamContext = connection.jetstream(timeout=30)
    done = asyncio.Event()
    records = size = 0

    async def on_message(message: Msg) -> None:
        nonlocal records, size
        records += 1
        size += len(message.data)
        if records == task.records_max:
            done.set()

    clock = Clock()
    for name in subjects(task):
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
        await stream.subscribe(
            name, stream=name, cb=on_message, config=config, ordered_consumer=True,
            pending_msgs_limit=1_000_000, pending_bytes_limit=1 << 30,
        )  # fmt: skip
    # What arrived until then counts; the caller sees that it is not all.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), task.seconds_max)
    report = clock.report(records)
    if records == task.records_max and size != records * task.record_size:
        raise SystemExit(f"received {size} bytes in {records} records")
    await connection.close()
    return report


if __name__ == "__main__":
    main(lambda task: asyncio.run(_produce(task)), lambda task: asyncio.run(_consume(task)))
