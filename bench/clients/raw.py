"""A bare sender of Kafka Produce requests, encoded before the clock starts.

One thread, a few connections, a bounded number of requests in flight on each. While the clock
runs it only moves bytes, so it needs far less CPU per request than any client library: what it
measures is the other side.
"""

import selectors
import socket
import time

from bench.clients import Clock, Report, Task, main
from bench.kafka_frames import RESPONSE_SIZE, first_error, produce_request, record_batch
from bench.payloads import make_payloads

SINGLE_CONNECTIONS, SINGLE_BLOCK, SINGLE_IN_FLIGHT = 4, 32, 256
LARGE_CONNECTIONS, LARGE_BLOCK, LARGE_IN_FLIGHT = 1, 1, 5
LARGE_BATCH_BYTES = 1_000_000
WARM_UP_SECONDS_MAX = 10.0


class Lane:
    """One connection, its blocks of encoded requests, and how many are unanswered."""

    def __init__(self, port: int, blocks: list[bytes], block_count: int, in_flight_max: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._blocks = blocks
        self._next = 0
        self._block_count = block_count
        self._in_flight_max = in_flight_max
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self.sent = 0
        self.answered = 0

    def may_send(self) -> bool:
        """Whether there is room for another block, or a rest of one."""
        return bool(self._unsent) or self.sent - self.answered + self._block_count <= self._in_flight_max

    def send(self) -> None:
        """Send until the socket or the window is full."""
        while self.may_send():
            if not self._unsent:
                self._unsent = memoryview(self._blocks[self._next])
                self._next = (self._next + 1) % len(self._blocks)
                self.sent += self._block_count
            try:
                written = self.socket.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[written:]

    def finish_block(self) -> None:
        """Send what is left of a block that was begun; a peer cannot answer half a request."""
        while self._unsent:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return

    def has_unsent(self) -> bool:
        """Whether a block was begun and not finished."""
        return bool(self._unsent)

    def receive(self) -> None:
        """Count the answers that have arrived, and fail on the first that is an error."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            raise SystemExit("the broker closed the connection")
        self._received += data
        whole = len(self._received) // RESPONSE_SIZE * RESPONSE_SIZE
        with memoryview(self._received)[:whole] as responses:
            error = first_error(responses)
        if error:
            raise SystemExit(f"the broker answered with error code {error}")
        self.answered += whole // RESPONSE_SIZE
        del self._received[:whole]


def make_lanes(task: Task) -> tuple[list[Lane], int]:
    """Connections with their encoded requests, and how many records a request holds."""
    is_single = task.batching == "single"
    connections = SINGLE_CONNECTIONS if is_single else LARGE_CONNECTIONS
    block_count = SINGLE_BLOCK if is_single else LARGE_BLOCK
    in_flight_max = SINGLE_IN_FLIGHT if is_single else LARGE_IN_FLIGHT
    per_request = 1 if is_single else LARGE_BATCH_BYTES // task.record_size
    payloads = make_payloads(task.record_size, max(1024, per_request))
    now_ms = int(time.time() * 1000)
    lanes = []
    for lane in range(connections):
        blocks = []
        # Sixteen blocks per lane reach every partition and keep the values varied.
        for block in range(16):
            requests = []
            for index in range(block_count):
                at = (lane * 16 + block) * block_count + index
                start = at % len(payloads)
                values = (payloads + payloads)[start : start + per_request]
                requests.append(produce_request(task.topic, at % task.partition_count, record_batch(values, now_ms)))
            blocks.append(b"".join(requests))
        lanes.append(Lane(task.port, blocks, block_count, in_flight_max))
    return lanes, per_request


def warm_up(task: Task) -> None:
    """Send one record to each partition; a topic that was just created may need a moment."""
    batch = record_batch(make_payloads(task.record_size, 1), int(time.time() * 1000))
    deadline = time.perf_counter() + WARM_UP_SECONDS_MAX
    with socket.create_connection(("127.0.0.1", task.port), timeout=30) as connection:
        for partition in range(task.partition_count):
            while True:
                connection.sendall(produce_request(task.topic, partition, batch))
                response = connection.recv(RESPONSE_SIZE, socket.MSG_WAITALL)
                if len(response) < RESPONSE_SIZE:
                    raise SystemExit("the broker closed the connection")
                error = first_error(memoryview(response))
                if not error:
                    break
                if time.perf_counter() > deadline:
                    raise SystemExit(f"the broker still answers with error code {error}")
                time.sleep(0.05)


def produce(task: Task) -> Report:
    """Keep every connection's window full until the limit, then wait for the last answers."""
    warm_up(task)
    lanes, per_request = make_lanes(task)
    requests_max = max(1, task.records_max // per_request)
    selector = selectors.DefaultSelector()
    for lane in lanes:
        selector.register(lane.socket, selectors.EVENT_READ, lane)
    clock = Clock()
    deadline = clock.started_at + task.seconds_max
    is_sending = True
    while True:
        for lane in lanes:
            if is_sending:
                lane.send()
            else:
                lane.finish_block()
            wants = selectors.EVENT_READ | (selectors.EVENT_WRITE if lane.has_unsent() else 0)
            if selector.get_key(lane.socket).events != wants:
                selector.modify(lane.socket, wants, lane)
        for key, events in selector.select(10.0):
            if events & selectors.EVENT_READ:
                key.data.receive()
        sent = sum(lane.sent for lane in lanes)
        answered = sum(lane.answered for lane in lanes)
        now = time.perf_counter()
        is_sending = is_sending and sent < requests_max and now < deadline
        if not is_sending and answered == sent:
            return clock.report(answered * per_request, records_before=task.partition_count)
        if now > deadline + 30:
            raise SystemExit(f"{sent - answered} requests were not answered")


if __name__ == "__main__":
    main(produce, None)
