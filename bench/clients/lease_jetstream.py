"""A work queue of NATS JetStream through nats-py: a durable consumer, and an acknowledgement for each message.

nats-py sends an acknowledgement without waiting for an answer. In mode `push` the server sends messages to a queue
group; in mode `pull` each worker fetches up to 500 at a time.
"""

import asyncio
import time

import nats
import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from bench.clients.leasing import POLL_SECONDS, QueueTask, Work, main, timed_values

FETCH_COUNT_MAX = 500
LAST_ANSWERS_SECONDS_MAX = 30.0


async def _work(task: QueueTask, work: Work) -> None:
    connection = await nats.connect([f"nats://127.0.0.1:{port}" for port in task.ports], pending_size=64 << 20)
    stream: JetStreamContext = connection.jetstream(timeout=30)
    await (_pull if task.mode == "pull" else _push)(task, work, stream)
    await connection.close()


async def _push(task: QueueTask, work: Work, stream: JetStreamContext) -> None:
    async def on_message(message: Msg) -> None:
        if work.is_stopped:
            return
        if task.is_timed:
            work.took(message.data)
        await message.ack()
        work.add(1, len(message.data))

    # A server sends as soon as there is a subscription: it is the last step.
    work.ready()
    await asyncio.to_thread(work.wait_to_go)
    await stream.subscribe(
        task.queue, queue=task.group, durable=task.group, stream=task.queue, cb=on_message, manual_ack=True
    )
    while not work.is_stopped:
        await asyncio.sleep(POLL_SECONDS)
        work.add(0, 0)


async def _pull(task: QueueTask, work: Work, stream: JetStreamContext) -> None:
    subscription = await stream.pull_subscribe_bind(task.group, stream=task.queue)
    work.ready()
    await asyncio.to_thread(work.wait_to_go)
    while not work.is_stopped:
        try:
            batch = await subscription.fetch(FETCH_COUNT_MAX, timeout=POLL_SECONDS)
        except (TimeoutError, nats.errors.TimeoutError):
            batch = []
        for message in batch:
            if task.is_timed:
                work.took(message.data)
            await message.ack()
        work.add(len(batch), sum(len(message.data) for message in batch))


async def _send(task: QueueTask) -> int:
    connection = await nats.connect([f"nats://127.0.0.1:{port}" for port in task.ports])
    inbox = connection.new_inbox()
    answers = 0
    errors: list[bytes] = []

    async def on_answer(message: Msg) -> None:
        nonlocal answers
        answers += 1
        if b'"error"' in message.data or not message.data:
            errors.append(message.data or b"no responders")

    await connection.subscribe(inbox, cb=on_answer, pending_msgs_limit=-1, pending_bytes_limit=-1)
    count = 0
    for due_at, value in timed_values(task, time.perf_counter()):
        wait = due_at - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        await connection.publish(task.queue, value, reply=inbox)
        count += 1
    ended_at = time.perf_counter()
    while answers < count:
        if time.perf_counter() - ended_at > LAST_ANSWERS_SECONDS_MAX:
            raise SystemExit(f"{count - answers} publishes were not answered")
        await asyncio.sleep(0.01)
    if errors:
        raise SystemExit(f"{len(errors)} publishes failed: {errors[0].decode()}")
    await connection.close()
    return count


if __name__ == "__main__":
    main(lambda task, work: asyncio.run(_work(task, work)), lambda task: asyncio.run(_send(task)))
