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
from dataclasses import asdict, dataclass, field


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
    more_ports: tuple[int, ...] = ()
    """The other nodes, if it is a cluster."""
    replica_count: int = 1
    """Copies of each partition, for a client that makes its streams itself."""
    records_per_second: float = 0.0
    """The fixed rate of `paced` and `paced_jetstream`."""

    @property
    def ports(self) -> tuple[int, ...]:
        """Where the nodes listen."""
        return (self.port, *self.more_ports)

    @property
    def bootstrap_servers(self) -> str:
        """The nodes as librdkafka wants them."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)


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
    latency_seconds: dict[str, float] = field(default_factory=dict)
    """From the moment a record was due until it was acknowledged; see `percentiles`."""


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

    def report(self, records: int, records_before: int = 0, latencies: list[float] | None = None) -> Report:
        """What happened since the clock started."""
        seconds = time.perf_counter() - self.started_at
        cpu_seconds = self._cpu_now() - self._cpu
        return Report(records, seconds, cpu_seconds, records_before, percentiles(latencies or []))


def percentiles(seconds: list[float]) -> dict[str, float]:
    """The ones that are reported, of any number of latencies."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in shares.items()}


def main(produce: Callable[[Task], Report] | None, consume: Callable[[Task], Report] | None) -> None:
    """Do the task of the command line."""
    task = Task(**json.loads(sys.argv[1]))
    action = produce if task.action == "produce" else consume
    if action is None:
        raise SystemExit(f"this client cannot {task.action}")
    print(json.dumps(asdict(action(task))), flush=True)
