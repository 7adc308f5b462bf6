"""Many partitions without traffic: creating them, what they cost, and how fast they are back.

CPU is what the kernel counted for each node over the window, as a share of one core. A cold
start counts from before the first process exists until every node names a leader for every
partition; once after all nodes were told to stop, and once after all were killed.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.cluster.nodes import ClusterSystem
from bench.process import BenchError

SETTLE_SECONDS = 10.0
"""Longer than the last election and the leaders' farewell to sleep."""
CREATE_SECONDS_MAX = 120.0
START_SECONDS_MAX = 120.0


@dataclass
class Idle:
    """What was measured; None where it failed before."""

    system: str
    partition_count: int
    window_seconds: float
    form_seconds: float | None = None
    """From three processes that do not exist to an empty cluster."""
    create_seconds: float | None = None
    """From the request to the last partition with a leader."""
    core_shares: list[float] = field(default_factory=list)
    """Per node; 1.0 is one core."""
    rss_bytes: list[int] = field(default_factory=list)
    restart_seconds: float | None = None
    restart_killed_seconds: float | None = None
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def measure(system: ClusterSystem, partition_count: int, window_seconds: float, on_step: Callable[[str], None]) -> Idle:
    """Create, wait, watch, start again twice; an error ends it early and is kept."""
    out = Idle(system.label, partition_count, window_seconds)
    try:
        try:
            on_step(f"idle: {system.label} creates {partition_count} partitions")
            started_at = time.perf_counter()
            system.form(partition_count)
            out.form_seconds = time.perf_counter() - started_at
            started_at = time.perf_counter()
            system.create_topic(partition_count)
            system.wait_led(partition_count, CREATE_SECONDS_MAX)
            out.create_seconds = time.perf_counter() - started_at

            on_step(f"idle: {system.label} idles")
            time.sleep(SETTLE_SECONDS)
            before, started_at = system.usage(), time.perf_counter()
            time.sleep(window_seconds)
            after, seconds = system.usage(), time.perf_counter() - started_at
            spent = zip(before.cpu_seconds_each, after.cpu_seconds_each, strict=True)
            out.core_shares = [(b - a) / seconds for a, b in spent]
            out.rss_bytes = [node.server.usage().rss_bytes for node in system.nodes if node.server is not None]

            on_step(f"idle: {system.label} starts again")
            out.restart_seconds = _restart(system, partition_count, signal.SIGTERM)
            out.restart_killed_seconds = _restart(system, partition_count, signal.SIGKILL)
        finally:
            system.stop()
    except BenchError as failed:
        out.errors.append(str(failed))
    return out


def _restart(system: ClusterSystem, partition_count: int, how: signal.Signals) -> float:
    for node in system.nodes:
        system.halt(node, how)
    started_at = time.perf_counter()
    for node in system.nodes:
        system.launch(node, partition_count)
    system.wait_led(partition_count, START_SECONDS_MAX)
    return time.perf_counter() - started_at
