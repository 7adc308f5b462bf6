"""The programs that send and receive, one process each, and the two values they exchange.

A client is started with a `Task` as JSON in its only argument. It connects and prepares
everything, prints a line, waits for a line, works against the clock, and prints a `Report` as
JSON. It never sends for longer than `seconds_max`.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Task:
    """What one client does. Which fields matter depends on the client."""

    action: str
    """`produce` or `consume`."""
    port: int
    topic: str
    partition_count: int
    record_size: int
    records_max: int
    """Produce: stop after this many. Consume: exactly this many are there."""
    seconds_max: float
    batching: str
    """A value of `bench.workloads.Batching`."""


@dataclass(frozen=True)
class Report:
    """What one client did while the clock ran."""

    records: int
    """Records acknowledged, or received."""
    seconds: float
    cpu_seconds: float
    """All threads of the client process."""
    records_before: int = 0
    """Records sent to warm up before the clock started; a consumer finds them as well."""


class Clock:
    """Says ready, waits for the word, and measures from then on."""

    def __init__(self) -> None:
        print("ready", flush=True)
        sys.stdin.readline()
        self._cpu = self._cpu_now()
        self.started_at = time.perf_counter()

    @staticmethod
    def _cpu_now() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    def report(self, records: int, records_before: int = 0) -> Report:
        """What happened since the clock started."""
        seconds = time.perf_counter() - self.started_at
        return Report(records, seconds, self._cpu_now() - self._cpu, records_before)


def main(produce: Callable[[Task], Report] | None, consume: Callable[[Task], Report] | None) -> None:
    """Do the task of the command line."""
    task = Task(**json.loads(sys.argv[1]))
    action = produce if task.action == "produce" else consume
    if action is None:
        raise SystemExit(f"this client cannot {task.action}")
    print(json.dumps(asdict(action(task))), flush=True)
