"""A probe with nats-py: one publish at a time, repeated until it is acknowledged.

nats-py repeats no publish by itself, so every program that cares has such a loop. By default it
waits 5 s for an acknowledgement and 2 s before it connects anew; an eager probe waits for 250 ms
and 50 ms.
"""

import asyncio
import time

import nats
import nats.errors
import nats.js.errors
from nats.js import JetStreamContext

from bench.clients.probe import EAGER_PAUSE_SECONDS, Acknowledgements, ProbeTask, begin
from bench.payloads import make_payloads

EAGER_RESPONSE_SECONDS_MAX = 0.25


async def _run(task: ProbeTask, acknowledgements: Acknowledgements) -> None:
    async def on_error(_error: Exception) -> None:
        """Refused connections are what we came to see: not worth a line each."""

    settings: dict[str, object] = {"error_cb": on_error, "max_reconnect_attempts": -1}
    if task.is_eager:
        settings["reconnect_time_wait"] = EAGER_PAUSE_SECONDS
    connection = await nats.connect([f"nats://127.0.0.1:{port}" for port in task.ports], **settings)
    stream: JetStreamContext = connection.jetstream()
    value = make_payloads(task.record_size, 1)[0]
    seconds_max = EAGER_RESPONSE_SECONDS_MAX if task.is_eager else None
    while not acknowledgements.is_ended:
        begun_at = time.perf_counter()
        try:
            await stream.publish(f"{task.topic}-0", value, timeout=seconds_max)
        except (nats.errors.Error, nats.js.errors.Error, OSError):
            acknowledgements.failed += 1
            await asyncio.sleep(EAGER_PAUSE_SECONDS)
            continue
        acknowledgements.add(begun_at)
        await asyncio.sleep(1 / task.records_per_second)
    acknowledgements.totals()
    await connection.close()


if __name__ == "__main__":
    asyncio.run(_run(*begin()))
