"""What every measured queue offers, and how fast clients use it."""

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from bench.clients.leasing import QueueReport, QueueTask
from bench.process import Watched
from bench.queues.workers import Program
from bench.workloads import Batching, Workload

QUEUE = "queue"
ONE_PARTITION = Workload(QUEUE, 1024, Batching.LARGE, 1, 1)
"""For systems that are started for a workload: only the number of partitions matters."""
SEND_GRACE_SECONDS = 60.0
FILL_SECONDS = 15.0


@dataclass(frozen=True)
class Contender:
    """One way to work on a queue: a client, and how it acknowledges."""

    key: str
    """As in `--client`."""
    name: str
    """For the table."""
    module: str
    """Of `bench.clients`."""
    mode: str = ""
    has_latency: bool = True
    """Whether it is also measured at a fixed rate."""


class QueueSystem(ABC):
    """A queue of one program, on one node or several. `start` gives an empty one."""

    program: str
    """As in `--only`."""
    variant: str = ""
    contenders: tuple[Contender, ...] = ()
    sender: str
    """The module of `bench.clients` that sends at a fixed rate."""
    fsyncs_before_ack: bool = True
    """Whether a sent message that was acknowledged is on disk, on most nodes."""

    def __init__(self, directory: Path, node_count: int) -> None:
        self.directory = directory
        self.node_count = node_count

    @property
    def label(self) -> str:
        """Program, nodes and variant."""
        return f"{self.program} × {self.node_count}" + (f" ({self.variant})" if self.variant else "")

    @abstractmethod
    def check(self) -> None:
        """Raise `Unavailable` if this machine lacks something."""

    @abstractmethod
    def version(self) -> str:
        """The version that is measured."""

    @abstractmethod
    def start(self) -> None:
        """Start the servers, and make an empty queue."""

    @abstractmethod
    def stop(self) -> None:
        """Remove the queue; end the servers, unless they start so slowly that they stay."""

    def close(self) -> None:
        """End what `stop` has left running."""
        self.stop()

    @property
    @abstractmethod
    def servers(self) -> Watched:
        """What is measured."""

    @property
    @abstractmethod
    def ports(self) -> tuple[int, ...]:
        """Where clients connect."""

    @property
    def queue(self) -> str:
        """The name of the queue that `start` made."""
        return QUEUE

    @abstractmethod
    def fill(self, record_size: int, count: int) -> int:
        """Send `count` messages, or fewer if `FILL_SECONDS` are over; return how many, when all are acknowledged."""

    @abstractmethod
    def open_group(self, group: str) -> None:
        """Make a group that begins with the first message."""

    def send(self, record_size: int, records_per_second: float, seconds: float) -> QueueReport:
        """Send at a fixed rate, with times in the values."""
        task = QueueTask(
            self.ports, self.queue, "", action="send", record_size=record_size, is_timed=True,
            records_per_second=records_per_second, seconds=seconds,
        )  # fmt: skip
        with contextlib.closing(Program(self.sender, task)) as program:
            return program.result(seconds + SEND_GRACE_SECONDS)

    @property
    def keeps_messages(self) -> bool:
        """Whether each group gets all messages, also those that another group is done with."""
        return True

    def records_max(self, record_size: int) -> int:
        """How many messages a measurement needs at most."""
        return 80_000

    def task(self, contender: Contender, group: str, record_size: int, *, is_timed: bool = False) -> QueueTask:
        """The task of a worker."""
        return QueueTask(
            self.ports, self.queue, group, mode=contender.mode, record_size=record_size, is_timed=is_timed
        )  # fmt: skip
