"""What the programs that work on a queue have in common.

A worker takes messages and acknowledges each. It says `ready` once messages reach it (or once it is connected, if
joining takes no time), and takes few of them until it is told `go`, so that all members of a group have joined before
any of them is measured. From then on it says every 50 ms how many messages it has acknowledged, until it is told
`stop`. It also stops when its standard input ends, so it does not outlive the program that started it.

A sender sends at a fixed rate. The first eight bytes of a value are the time at which the message was due, by
`perf_counter`, which on Linux is one clock for all processes.
"""

import json
import math
import os
import resource
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from bench.clients import percentiles
from bench.payloads import make_payloads

PROGRESS_SECONDS = 0.05
SLOW_SECONDS = 0.1
"""Between two polls of a worker that was not told to go."""
POLL_SECONDS = 0.1
WARM_UP_SECONDS = 1.0
"""After go: the latencies of messages that were due before do not count."""
STAMP = struct.Struct(">d")


@dataclass(frozen=True)
class QueueTask:
    """What one worker or sender does. Which fields matter depends on the client."""

    ports: tuple[int, ...]
    queue: str
    """A topic, a stream or a queue."""
    group: str
    action: str = "work"
    """`work` or `send`."""
    mode: str = ""
    """How a worker acknowledges; what there is depends on the client."""
    worker: int = 0
    record_size: int = 100
    is_timed: bool = False
    """Whether values begin with the time at which they were due."""
    records_per_second: float = 0.0
    seconds: float = 0.0
    """Of a sender."""

    @property
    def bootstrap_servers(self) -> str:
        """The nodes as Kafka's clients want them."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)


@dataclass(frozen=True)
class QueueReport:
    """What one worker or sender did."""

    count: int
    """Messages that were acknowledged, or sent."""
    size: int = 0
    """Bytes of their values."""
    seconds: float = 0.0
    latency_seconds: dict[str, float] = field(default_factory=dict)
    """From the moment a message was due until a worker had it."""


class Work:
    """Counts what a worker does, and listens to what it is told."""

    def __init__(self) -> None:
        self.is_going = False
        self.is_stopped = False
        self._count = self._size = 0
        self._is_ready = False
        self._next_at = math.inf
        self._latencies: list[float] = []
        self._timed_from = math.inf
        self._told = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def ready(self) -> None:
        """Messages reach this worker."""
        if not self._is_ready:
            self._is_ready = True
            _say("ready")

    def add(self, count: int, size: int) -> None:
        """So many messages, of so many bytes, are acknowledged."""
        self._count += count
        self._size += size
        if time.perf_counter() >= self._next_at:
            self._tell_progress()

    def took(self, value: bytes | memoryview) -> None:
        """A message was handed over; only called if values are timed."""
        (stamp,) = STAMP.unpack_from(value)
        if stamp >= self._timed_from:
            self._latencies.append(time.perf_counter() - stamp)

    def hold_back(self) -> None:
        """Between two polls: none, or a pause if the worker was not told to go."""
        if not self.is_going:
            self._told.wait(SLOW_SECONDS)
        elif time.perf_counter() >= self._next_at:
            self._tell_progress()

    def wait_to_go(self) -> None:
        """Wait until told to go, or to stop."""
        self._told.wait()

    def report(self) -> QueueReport:
        """After the end."""
        return QueueReport(self._count, self._size, latency_seconds=percentiles(self._latencies))

    def _listen(self) -> None:
        for line in sys.stdin:
            if line == "go\n":
                self.is_going = True
                self._timed_from = time.perf_counter() + WARM_UP_SECONDS
                self._tell_progress()
                self._told.set()
            else:
                break
        self.is_stopped = True
        self._told.set()

    def _tell_progress(self) -> None:
        self._next_at = time.perf_counter() + PROGRESS_SECONDS
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _say(json.dumps([time.perf_counter(), self._count, usage.ru_utime + usage.ru_stime]))


def _say(line: str) -> None:
    # One write per line: two threads say something.
    os.write(1, f"{line}\n".encode())


def timed_values(task: QueueTask, started_at: float) -> Iterator[tuple[float, bytes]]:
    """When each message of a sender is due, and its value.

    The clients wait in whole milliseconds, so what belongs to a millisecond is due at its end.
    """
    payloads = [payload[STAMP.size :] for payload in make_payloads(task.record_size)]
    for index in range(int(task.records_per_second * task.seconds)):
        due_at = started_at + math.ceil(index / task.records_per_second * 1000) / 1000
        yield due_at, STAMP.pack(due_at) + payloads[index % len(payloads)]


def main(work: Callable[[QueueTask, Work], None], send: Callable[[QueueTask], int] | None = None) -> None:
    """Do the task of the command line."""
    given = json.loads(sys.argv[1])
    task = QueueTask(**given | {"ports": tuple(given["ports"])})
    if task.action == "work":
        progress = Work()
        work(task, progress)
        report = progress.report()
    else:
        assert send is not None, task
        started_at = time.perf_counter()
        count = send(task)
        report = QueueReport(count, seconds=time.perf_counter() - started_at)
    _say("report " + json.dumps(asdict(report)))
