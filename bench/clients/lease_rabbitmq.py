"""A quorum queue of RabbitMQ through aio-pika: messages are pushed, and acknowledged one by one.

aio-pika sends an acknowledgement without waiting for an answer; AMQP has none. The prefetch count limits how many
messages a worker has at a time.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.clients.leasing import POLL_SECONDS, QueueTask, Work, main, timed_values

PREFETCH_COUNT = 500


async def _connect(task: QueueTask) -> aio_pika.abc.AbstractConnection:
    # The nodes in turn: each worker has one connection.
    port = task.ports[task.worker % len(task.ports)]
    return await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")


async def _work(task: QueueTask, work: Work) -> None:
    connection = await _connect(task)
    channel = await connection.channel(publisher_confirms=False)
    await channel.set_qos(prefetch_count=PREFETCH_COUNT)
    queue = await channel.get_queue(task.queue, ensure=False)

    async def on_message(message: AbstractIncomingMessage) -> None:
        if work.is_stopped:
            return
        if task.is_timed:
            work.took(message.body)
        await message.ack()
        work.add(1, len(message.body))

    work.ready()
    await asyncio.to_thread(work.wait_to_go)
    await queue.consume(on_message)
    while not work.is_stopped:
        await asyncio.sleep(POLL_SECONDS)
        work.add(0, 0)
    await connection.close()


async def _send(task: QueueTask) -> int:
    connection = await _connect(task)
    channel = await connection.channel(publisher_confirms=True)
    exchange = channel.default_exchange
    count = 0
    tasks: set[asyncio.Task[Any]] = set()
    errors: list[BaseException] = []

    def on_done(done: asyncio.Task[Any]) -> None:
        tasks.discard(done)
        if failed := done.exception():
            errors.append(failed)

    def begin(publish: Coroutine[Any, Any, Any]) -> None:
        started = asyncio.create_task(publish)
        tasks.add(started)
        started.add_done_callback(on_done)

    for due_at, value in timed_values(task, time.perf_counter()):
        wait = due_at - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        message = aio_pika.Message(value, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        begin(exchange.publish(message, routing_key=task.queue))
        count += 1
    await asyncio.gather(*tasks)
    if errors:
        raise SystemExit(f"{len(errors)} messages were not accepted: {errors[0]}")
    await connection.close()
    return count


if __name__ == "__main__":
    main(lambda task, work: asyncio.run(_work(task, work)), lambda task: asyncio.run(_send(task)))
