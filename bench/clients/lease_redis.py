"""A group of Redis Streams through the redis package: XREADGROUP, and an XACK for each message.

The XACKs of one read leave in one pipeline together with the next read. That is much faster than to wait for each.
"""

import time
from typing import Any

import redis

from bench.clients.leasing import POLL_SECONDS, QueueTask, Work, main, timed_values

READ_COUNT_MAX = 500
FIELD = b"v"


def entries_of(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The messages in the answer of XREADGROUP about one stream."""
    if not answer:
        return []
    [found] = answer.values() if isinstance(answer, dict) else [found for _, found in answer]
    # A newer protocol version wraps the entries of each stream in one more list.
    entries: list[tuple[bytes, dict[bytes, bytes]]] = found[0] if found and isinstance(found[0], list) else found
    return entries


def work(task: QueueTask, work: Work) -> None:
    """Read and acknowledge until told to stop."""
    client: Any = redis.Redis(port=task.ports[0], socket_timeout=60)
    taken: list[bytes] = []
    while not work.is_stopped:
        pipeline = client.pipeline(transaction=False)
        if task.mode == "at once" and taken:
            pipeline.xack(task.queue, task.group, *taken)
        else:
            for entry in taken:
                pipeline.xack(task.queue, task.group, entry)
        pipeline.xreadgroup(
            task.group, f"worker-{task.worker}", {task.queue: ">"}, count=READ_COUNT_MAX, block=int(POLL_SECONDS * 1000)
        )
        *_, answer = pipeline.execute()
        entries = entries_of(answer)
        taken = [entry for entry, _ in entries]
        if task.is_timed:
            for _, fields in entries:
                work.took(fields[FIELD])
        if entries:
            work.add(len(entries), sum(len(fields[FIELD]) for _, fields in entries))
            work.ready()
        work.hold_back()
    if taken:
        client.xack(task.queue, task.group, *taken)
    client.close()


def send(task: QueueTask) -> int:
    """Send at the rate of the task, and wait for each answer: what is due meanwhile is sent together."""
    client: Any = redis.Redis(port=task.ports[0], socket_timeout=60)
    client.ping()
    count = 0
    pipeline = client.pipeline(transaction=False)
    for due_at, value in timed_values(task, time.perf_counter()):
        wait = due_at - time.perf_counter()
        if wait > 0:
            if len(pipeline):
                pipeline.execute()
            wait = due_at - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
        pipeline.xadd(task.queue, {FIELD: value})
        count += 1
    pipeline.execute()
    client.close()
    return count


if __name__ == "__main__":
    main(work, send)
