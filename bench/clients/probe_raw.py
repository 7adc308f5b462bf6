"""A probe of bare sockets: one record at a time to the leader, which it looks up every 50 ms when in doubt.

What it waits for beyond those 50 ms is the broker's doing, not a client library's.
"""

import contextlib
import itertools
import socket
import time

from bench import kafka_metadata
from bench.clients.probe import EAGER_PAUSE_SECONDS, Acknowledgements, ProbeTask, begin
from bench.kafka_frames import RESPONSE_SIZE, first_error, produce_request, record_batch
from bench.payloads import make_payloads

RESPONSE_SECONDS_MAX = 1.0


def find_leader(ports: "itertools.cycle[int]", topic: str) -> socket.socket | None:
    """A connection to the leader of partition 0, as far as the next node knows it."""
    with contextlib.suppress(OSError):
        known = kafka_metadata.ask(next(ports), topic)
        partition = known.partitions.get(0)
        if partition is not None and partition.leader in known.ports:
            address = ("127.0.0.1", known.ports[partition.leader])
            connection = socket.create_connection(address, RESPONSE_SECONDS_MAX)
            connection.settimeout(RESPONSE_SECONDS_MAX)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    return None


def is_accepted(connection: socket.socket, request: bytes) -> bool:
    """Whether the record was acknowledged; if not, the connection is of no further use."""
    with contextlib.suppress(OSError):
        connection.sendall(request)
        response = bytearray()
        while len(response) < RESPONSE_SIZE:
            part = connection.recv(RESPONSE_SIZE - len(response))
            if not part:
                return False
            response += part
        return first_error(memoryview(response)) == 0
    return False


def run(task: ProbeTask, acknowledgements: Acknowledgements) -> None:
    """Write until asked to stop."""
    values = make_payloads(task.record_size, 1)
    request = produce_request(task.topic, 0, record_batch(values, int(time.time() * 1000)))
    ports = itertools.cycle(task.ports)
    connection = None
    while not acknowledgements.is_ended:
        if connection is None:
            connection = find_leader(ports, task.topic)
            if connection is None:
                time.sleep(EAGER_PAUSE_SECONDS)
                continue
        begun_at = time.perf_counter()
        if is_accepted(connection, request):
            acknowledgements.add(begun_at)
            time.sleep(1 / task.records_per_second)
        else:
            acknowledgements.failed += 1
            connection.close()
            connection = None
            time.sleep(EAGER_PAUSE_SECONDS)
    acknowledgements.totals()


if __name__ == "__main__":
    run(*begin())
