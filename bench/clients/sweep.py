"""One record to every partition, as soon as each takes it, over plain sockets.

It lives through several events, and is told line by line when to sweep:

    go 1234.5 120         answered by a `Swept` as JSON, when all took a record, or 120 s after the moment 1234.5

A partition whose record is refused, or not acknowledged within `PRODUCE_TIMEOUT_MS`, gets another one when the next
Metadata response arrived; a thread asks for one as long as a partition needs it. All partitions of a node are written
to at the same time, over a few connections, so that a partition that does not answer delays few others.
"""

import contextlib
import json
import selectors
import socket
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, field

from bench import kafka_metadata
from bench.kafka_frames import RESPONSE_SIZE, first_error, produce_request, record_batch
from bench.payloads import make_payloads

RECORD_SIZE = 100
LANES_PER_NODE = 4
IN_FLIGHT_MAX = 64
"""Per connection; a node stops to read from one at twice as many."""
PRODUCE_TIMEOUT_MS = 5_000
SILENCE_SECONDS_MAX = 15.0
"""A connection without a response for longer is given up."""
CONNECT_SECONDS_MAX = 1.0
ASK_SECONDS = 0.5
"""Between two Metadata requests."""
ASK_TIMEOUT_SECONDS = 10.0
MARKS_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 240)


@dataclass(frozen=True)
class SweepTask:
    """Where to write."""

    ports: tuple[int, ...]
    topic: str
    partition_count: int


@dataclass(frozen=True)
class Swept:
    """How it went; seconds are from the moment that was given."""

    seconds: float | None
    """Until the last partition took a record; None if not all did."""
    count: int
    """How many did."""
    counts: dict[str, int]
    """How many did within each of `MARKS_SECONDS` that has passed."""
    errors: dict[str, int] = field(default_factory=dict)
    """How many records were not acknowledged, by Kafka's error code or by what happened."""


class Leaders:
    """Asks for the leaders in a thread of its own: a node that is slow to answer must not delay the clock."""

    def __init__(self, task: SweepTask) -> None:
        self._task = task
        self._wanted = threading.Event()
        self._fresh: kafka_metadata.Metadata | None = None
        threading.Thread(target=self._ask, daemon=True).start()

    def want(self) -> None:
        """A new answer is needed."""
        self._wanted.set()

    def take(self) -> kafka_metadata.Metadata | None:
        """The last answer, once."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def _ask(self) -> None:
        ports = deque(self._task.ports)
        while True:
            self._wanted.wait()
            self._wanted.clear()
            ports.rotate()
            with contextlib.suppress(OSError):
                self._fresh = kafka_metadata.ask(ports[0], self._task.topic, ASK_TIMEOUT_SECONDS)
            time.sleep(ASK_SECONDS)


class Lane:
    """One connection to a node, and the partitions that wait for a response on it, in order."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.pending: deque[int] = deque()
        self.heard_at = time.perf_counter()
        self._unsent = bytearray()
        self._received = bytearray()

    def has_room(self) -> bool:
        """Whether another request may be sent."""
        return len(self.pending) < IN_FLIGHT_MAX

    def has_unsent(self) -> bool:
        """Whether the socket was too full for all of them."""
        return bool(self._unsent)

    def add(self, partition: int, request: bytes) -> None:
        """Send a request, or keep it for when the socket has room."""
        if not self.pending:
            self.heard_at = time.perf_counter()
        self.pending.append(partition)
        self._unsent += request

    def flush(self) -> None:
        """Send what fits; raises OSError if the node is gone."""
        if self._unsent:
            with contextlib.suppress(BlockingIOError):
                del self._unsent[: self.socket.send(self._unsent)]

    def responses(self) -> list[tuple[int, int]]:
        """Partitions with their error codes, as far as they have arrived; raises OSError if the node is gone."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionError("closed")
        self.heard_at = time.perf_counter()
        self._received += data
        out = []
        at = 0
        while len(self._received) - at >= RESPONSE_SIZE:
            error = first_error(memoryview(bytes(self._received[at : at + RESPONSE_SIZE])))
            out.append((self.pending.popleft(), error))
            at += RESPONSE_SIZE
        del self._received[:at]
        return out


class Sweep:
    """One pass over all partitions."""

    def __init__(self, task: SweepTask, leaders: Leaders, requests: list[bytes], moment: float) -> None:
        self._task = task
        self._leaders = leaders
        self._requests = requests
        self._moment = moment
        self._times: dict[int, float] = {}
        self._homeless = set(range(task.partition_count))
        """Partitions without a known leader, or whose record was not acknowledged."""
        self._queues: dict[int, deque[int]] = {}
        """By port: partitions that wait for room on a connection to their leader."""
        self._lanes: dict[int, list[Lane]] = {}
        self._errors: Counter[str] = Counter()
        self._selector = selectors.DefaultSelector()

    def run(self, seconds_max: float) -> Swept:
        """Write until all partitions took a record, or `seconds_max` after the moment."""
        deadline = self._moment + seconds_max
        while len(self._times) < self._task.partition_count and time.perf_counter() < deadline:
            if self._homeless:
                self._leaders.want()
                if found := self._leaders.take():
                    self._distribute(found)
            self._send()
            self._receive(min(0.05, max(0.0, deadline - time.perf_counter())))
        for port, lanes in list(self._lanes.items()):
            for lane in list(lanes):
                self._close(port, lane, "not answered when the time was over")
        times = sorted(self._times.values())
        is_whole = len(times) == self._task.partition_count
        passed = seconds_max if not is_whole else times[-1]
        marks = {str(mark): sum(t <= mark for t in times) for mark in MARKS_SECONDS if mark < passed}
        return Swept(times[-1] if is_whole and times else None, len(times), marks, dict(self._errors))

    def _distribute(self, found: kafka_metadata.Metadata) -> None:
        for partition in sorted(self._homeless):
            state = found.partitions.get(partition)
            port = found.ports.get(state.leader) if state is not None else None
            if port is not None:
                self._queues.setdefault(port, deque()).append(partition)
                self._homeless.discard(partition)

    def _send(self) -> None:
        for port, queue in self._queues.items():
            lanes = self._lanes.setdefault(port, [])
            while queue:
                lane = min(
                    (lane for lane in lanes if lane.has_room()), key=lambda lane: len(lane.pending), default=None
                )
                if len(lanes) < LANES_PER_NODE:
                    try:
                        lane = Lane(port)
                    except OSError:
                        self._errors["not connected"] += 1
                        self._homeless.update(queue)
                        queue.clear()
                        break
                    lanes.append(lane)
                    self._selector.register(lane.socket, selectors.EVENT_READ, (port, lane))
                if lane is None:
                    break
                partition = queue.popleft()
                lane.add(partition, self._requests[partition])
            for lane in list(lanes):
                try:
                    lane.flush()
                except OSError:
                    self._close(port, lane, "disconnected")

    def _receive(self, wait_seconds: float) -> None:
        for key, _ in self._selector.select(wait_seconds):
            port, lane = key.data
            try:
                responses = lane.responses()
            except OSError:
                self._close(port, lane, "disconnected")
                continue
            now = time.perf_counter()
            for partition, error in responses:
                if error:
                    self._errors[str(error)] += 1
                    self._homeless.add(partition)
                else:
                    self._times.setdefault(partition, now - self._moment)
        now = time.perf_counter()
        for port, lanes in self._lanes.items():
            for lane in list(lanes):
                if lane.pending and now - lane.heard_at > SILENCE_SECONDS_MAX:
                    self._close(port, lane, "not answered")

    def _close(self, port: int, lane: Lane, why: str) -> None:
        self._selector.unregister(lane.socket)
        lane.socket.close()
        self._lanes[port].remove(lane)
        if lane.pending:
            self._errors[why] += len(lane.pending)
        self._homeless.update(lane.pending)


def main() -> None:
    """Sweep whenever told, until standard input ends."""
    task = SweepTask(**json.loads(sys.argv[1]))
    batch = record_batch(make_payloads(RECORD_SIZE, 1), int(time.time() * 1000))
    requests = [
        produce_request(task.topic, partition, batch, PRODUCE_TIMEOUT_MS) for partition in range(task.partition_count)
    ]
    leaders = Leaders(task)
    print("ready", flush=True)
    for line in sys.stdin:
        _, moment, seconds_max = line.split()
        leaders.take()
        swept = Sweep(task, leaders, requests, float(moment)).run(float(seconds_max))
        print(json.dumps(asdict(swept)), flush=True)


if __name__ == "__main__":
    main()
