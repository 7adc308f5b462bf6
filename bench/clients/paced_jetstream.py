"""nats-py at a fixed rate, with the latency of every record: the counterpart of `paced`.

Acknowledgements of one stream come in the order of its messages, so the oldest record due in a
stream is the one that is answered. Each stream has an inbox of its own for that.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from bench.clients import Clock, Report, Task, main
from bench.clients.jetstream import add_streams, servers, subjects
from bench.payloads import make_payloads

LAST_ANSWERS_SECONDS_MAX = 30.0
UNANSWERED_MAX = 4000
"""More than this, and JetStream begins to drop messages; the lateness still counts."""


async def _produce(task: Task) -> Report:
    payloads, names = make_payloads(task.record_size), subjects(task)
    connection = await nats.connect(servers(task))
    stream: JetStreamContext = connection.jetstream(timeout=30)
    await add_streams(stream, task)
    latencies: list[float] = []
    errors: list[bytes] = []
    due: dict[str, deque[float]] = {name: deque() for name in names}

    def answers_of(name: str) -> Callable[[Msg], Awaitable[None]]:
        waiting = due[name]

        async def on_answer(message: Msg) -> None:
            latencies.append(time.perf_counter() - waiting.popleft())
            if b'"error"' in message.data or not message.data:
                errors.append(message.data or b"no responders")

        return on_answer

    inboxes = {}
    for name in names:
        inboxes[name] = connection.new_inbox()
        await connection.subscribe(
            inboxes[name], cb=answers_of(name), pending_msgs_limit=-1, pending_bytes_limit=-1
        )  # fmt: skip

    count = int(task.records_per_second * task.seconds_max)
    clock = Clock()
    for index in range(count):
        # asyncio sleeps in whole milliseconds, so what belongs to one is due at its end.
        due_at = clock.started_at + math.ceil(index / task.records_per_second * 1000) / 1000
        wait = due_at - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        while index - len(latencies) > UNANSWERED_MAX:
            await asyncio.sleep(0.001)
            if time.perf_counter() - due_at > LAST_ANSWERS_SECONDS_MAX:
                raise SystemExit("the server stopped answering")
        name = names[index % len(names)]
        due[name].append(due_at)
        await connection.publish(name, payloads[index % len(payloads)], reply=inboxes[name])
        if index % 16 == 0:
            await asyncio.sleep(0)
    ended_at = time.perf_counter()
    while len(latencies) < count:
        if time.perf_counter() - ended_at > LAST_ANSWERS_SECONDS_MAX:
            raise SystemExit(f"{count - len(latencies)} publishes were not answered")
        await asyncio.sleep(0.001)
    if errors:
        raise SystemExit(f"{len(errors)} publishes failed: {errors[0].decode()}")
    report = clock.report(count, latencies=latencies)
    await connection.close()
    return report


if __name__ == "__main__":
    main(lambda task: asyncio.run(_produce(task)), None)
