"""What every measured system offers, and how most of them do it.

A system is started on an empty directory, does one workload (produce, then consume what was
produced), and is stopped; nothing is left over for the next. One whose start costs more than a
measurement, or that gets faster as it runs, may stay up: see `kafka`.
"""

import contextlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from bench.clients import Task
from bench.process import BenchError, Run, Server, free_port, port_answers, run_client
from bench.workloads import TOPIC, Workload

START_SECONDS_MAX = 30.0
CONSUME_SECONDS_FACTOR = 5.0
"""Reading may take this much longer than writing was allowed to before it is cut off."""


class Unavailable(Exception):
    """The system cannot be measured on this machine; the text says what would help."""


class System(ABC):
    """One system under one configuration, stopped or started."""

    name: str
    """As in `--only`; systems that share it are variants of one program."""
    variant: str = ""
    """What distinguishes it from similar systems, for the table."""
    fsyncs_before_ack: bool = True
    """Whether an acknowledged record is on disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / f"{self.name}{'-' + self.variant if self.variant else ''}"
        self.port = 0
        self._server: Server | None = None

    @property
    def label(self) -> str:
        """Name and variant."""
        return f"{self.name} ({self.variant})" if self.variant else self.name

    @property
    def server(self) -> Server:
        """The running server."""
        if self._server is None:
            raise BenchError(f"{self.label} is not running")
        return self._server

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self.server.pid

    @abstractmethod
    def check(self) -> None:
        """Raise `Unavailable` if this machine lacks something; may download into bench/.cache."""

    @abstractmethod
    def version(self) -> str:
        """The version that is measured."""

    @abstractmethod
    def command(self, workload: Workload) -> list[str]:
        """The command line that starts the server on `port` with data in `directory`."""

    @abstractmethod
    def client(self, workload: Workload, action: str) -> str | None:
        """The module of `bench.clients` that does `action`, or None if it makes no sense here."""

    def is_ready(self) -> bool:
        """Whether the server answers."""
        return port_answers(self.port)

    def prepare(self, workload: Workload) -> None:
        """Create what the workload writes to; most clients do that themselves."""
        return

    def start(self, workload: Workload) -> None:
        """Start on an empty directory, and wait until it answers."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.launch(workload)
        self.prepare(workload)

    def launch(self, workload: Workload, is_ready: Callable[[], bool] | None = None) -> None:
        """Start on the directory as it is, and wait until it answers or `is_ready`."""
        self.port = free_port()
        log = self.directory.parent / f"{self.directory.name}.log"
        self._server = Server(self.command(workload), log)
        self._server.wait_ready(is_ready or self.is_ready, START_SECONDS_MAX)

    def stop(self) -> None:
        """End the server and remove its data."""
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            if self._server is not None:
                self._server.stop()
        self._server = None

    def close(self) -> None:
        """End what `stop` may have left running; after this, nothing is."""
        self.stop()

    def produce(self, workload: Workload) -> Run | None:
        """Send the workload."""
        client = self.client(workload, "produce")
        task = self._task("produce", workload, workload.records_max, workload.seconds_max)
        return run_client(client, task, self.server) if client else None

    def consume(self, workload: Workload, record_count: int) -> Run | None:
        """Receive the `record_count` records that are there."""
        client = self.client(workload, "consume")
        seconds = workload.seconds_max * CONSUME_SECONDS_FACTOR
        task = self._task("consume", workload, record_count, seconds)
        return run_client(client, task, self.server) if client else None

    def _task(self, action: str, workload: Workload, records_max: int, seconds_max: float) -> Task:
        return Task(
            action=action, port=self.port, topic=self.topic, partition_count=workload.partition_count,
            record_size=workload.record_size, records_max=records_max, seconds_max=seconds_max,
            batching=workload.batching.value,
        )  # fmt: skip

    @property
    def topic(self) -> str:
        """Where records go; the raw sender and the limit know only this name."""
        return TOPIC
