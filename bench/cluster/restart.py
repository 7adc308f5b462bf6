"""A follower with a large log comes back: how long until it serves.

It *answers* when it says it sees the whole cluster, and *serves* when it is in sync for the partition again:
from then on it may lead. Nothing is written while it is away, so this is the cost of opening the log,
not of catching up.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.cluster.kafka_nodes import KafkaProtocolCluster
from bench.cluster.nodes import wait_until
from bench.process import BenchError
from bench.workloads import Batching, Workload

RECORD_SIZE = 1024
FILL_SECONDS_MAX = 150.0
SERVE_SECONDS_MAX = 90.0


@dataclass
class Restart:
    """Times in seconds, from before the process exists."""

    system: str
    log_bytes: int = 0
    answers_seconds: dict[str, float] = field(default_factory=dict)
    """After a clean stop, and after SIGKILL."""
    serves_seconds: dict[str, float] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def measure(system: KafkaProtocolCluster, log_bytes: int, on_step: Callable[[str], None]) -> Restart:
    """Fill the log, then start a follower twice; an error ends it early and is kept."""
    out = Restart(system.label)
    shape = Workload("fill", RECORD_SIZE, Batching.LARGE, 1, log_bytes, seconds_max=FILL_SECONDS_MAX)
    try:
        try:
            on_step(f"restart: {system.label} fills its log")
            system.start(1)
            run = system.produce(shape)
            assert run is not None
            out.log_bytes = run.report.records * RECORD_SIZE
            wait_until(system.is_in_sync, SERVE_SECONDS_MAX, f"all replicas of {system.label} in sync")
            leader = system.leader()
            follower = next(node for node in system.nodes if node is not leader)
            for words, how in (("stopped", signal.SIGTERM), ("killed", signal.SIGKILL)):
                on_step(f"restart: {system.label}, {words}")
                system.halt(follower, how)
                # The others must have noticed, or what they said before would count.
                wait_until(lambda: not system.is_listed(follower), SERVE_SECONDS_MAX, "the others notice")
                started_at = time.perf_counter()
                system.launch(follower)
                wait_until(lambda: system.answers(follower), SERVE_SECONDS_MAX, f"{system.label} answers")
                out.answers_seconds[words] = time.perf_counter() - started_at
                wait_until(system.is_in_sync, SERVE_SECONDS_MAX, f"{system.label} serves")
                out.serves_seconds[words] = time.perf_counter() - started_at
        finally:
            system.stop()
    except BenchError as failed:
        out.errors.append(str(failed))
    return out
