"""Redis Streams through the redis package: pipelined XADD, then XREAD.

Commands are packed before the clock starts; while it runs the package sends them and parses
the answers, a window at a time.
"""

import time
from typing import Any

import redis

from bench.clients import Clock, Report, Task, main
from bench.payloads import make_payloads

WINDOW_COUNT = {"large": 1000, "linger0": 100, "single": 256}
"""XADDs in one write, and so in flight at once."""
READ_COUNT = 2000


def stream_names(task: Task) -> list[str]:
    """A stream per partition."""
    return [f"{task.topic}-{partition}" for partition in range(task.partition_count)]


def produce(task: Task) -> Report:
    """Send windows of XADD, and read every answer."""
    payloads, streams = make_payloads(task.record_size), stream_names(task)
    window = WINDOW_COUNT[task.batching]
    client = redis.Redis(port=task.port, socket_timeout=60)
    # The package's own types do not reach down to the connection.
    connection: Any = client.connection_pool.make_connection()
    connection.connect()
    commands = [("XADD", streams[i % len(streams)], "*", "v", payloads[i % len(payloads)]) for i in range(window * 4)]
    blocks = [connection.pack_commands(commands[at : at + window]) for at in range(0, len(commands), window)]
    clock = Clock()
    deadline = clock.started_at + task.seconds_max
    sent = 0
    while sent < task.records_max and time.perf_counter() < deadline:
        connection.send_packed_command(blocks[sent // window % len(blocks)])
        for _ in range(window):
            # An error of the server is raised here.
            connection.read_response()
        sent += window
    return clock.report(sent)


def consume(task: Task) -> Report:
    """Read all streams to their end, and verify how much arrived."""
    client: Any = redis.Redis(port=task.port, socket_timeout=60)
    client.ping()
    places: dict[str, bytes | str] = dict.fromkeys(stream_names(task), "0")
    clock = Clock()
    deadline = clock.started_at + task.seconds_max
    records = size = 0
    while records < task.records_max and time.perf_counter() < deadline:
        answer = client.xread(places, count=READ_COUNT)
        pairs = answer.items() if isinstance(answer, dict) else answer
        got = 0
        for name, found in pairs:
            # A newer protocol version wraps the entries of each stream in one more list.
            entries = found[0] if found and isinstance(found[0], list) else found
            places[name.decode()] = entries[-1][0]
            got += len(entries)
            size += sum(len(fields[b"v"]) for _, fields in entries)
        if not got:
            break
        records += got
    if records == task.records_max and size != records * task.record_size:
        raise SystemExit(f"received {size} bytes in {records} records")
    return clock.report(records)


if __name__ == "__main__":
    main(produce, consume)
