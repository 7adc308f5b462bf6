"""How long a message takes to a worker, at a rate that all systems can carry.

The time counts from the moment at which a message was due to be sent, so a stall counts for all messages that were due
during it. One worker acknowledges every message. The first second does not count.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.clients.leasing import WARM_UP_SECONDS
from bench.process import BenchError
from bench.queues.systems import Contender, QueueSystem
from bench.queues.throughput import Plan
from bench.queues.workers import Workers

RECORDS_PER_SECOND = 1000.0
RECORD_SIZE = 1024
GROUP = "timed"
FIRST_SECONDS = 0.2
"""Of sending before the measurement, so that a worker has messages to join with."""
LAST_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Timed:
    """One repetition."""

    latency_seconds: dict[str, float]
    achieved_per_second: float

    @property
    def has_kept_up(self) -> bool:
        """Whether the messages left at the rate that was asked for."""
        return self.achieved_per_second >= 0.95 * RECORDS_PER_SECOND


@dataclass
class LatencyCell:
    """One client on one system: all repetitions."""

    program: str
    label: str
    node_count: int
    fsyncs_before_ack: bool
    contender: Contender
    runs: list[Timed] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """System and client."""
        return f"{self.label}, {self.contender.name}"

    @property
    def timed(self) -> Timed | None:
        """The repetition with the median p99; of two in the middle, the better."""
        runs = sorted(self.runs, key=lambda run: run.latency_seconds["p99"])
        return runs[(len(runs) - 1) // 2] if runs else None

    def as_json(self) -> dict[str, object]:
        """All repetitions, and which counts."""
        timed = self.timed
        return {
            "system": self.label,
            "client": self.contender.name,
            "nodes": self.node_count,
            "fsyncs_before_ack": self.fsyncs_before_ack,
            "median": asdict(timed) if timed else None,
            "runs": [asdict(run) for run in self.runs],
            "errors": self.errors,
        }


def measure(
    cells: list[LatencyCell], systems: list[QueueSystem], plan: Plan, seconds: float, on_step: Callable[[str], None]
) -> None:
    """Add to `cells` the latencies of these systems."""
    pairs = [
        (system, LatencyCell(system.program, system.label, system.node_count, system.fsyncs_before_ack, contender))
        for system in systems
        for contender in plan.contenders(system)
        if contender.has_latency
    ]
    cells += [cell for _, cell in pairs]
    for repetition in range(plan.repeat_count if pairs else 0):
        turn = repetition % len(pairs)
        for system, cell in pairs[turn:] + pairs[:turn]:
            on_step(f"latency: {cell.name}")
            os.sync()
            try:
                cell.runs.append(_time(system, cell.contender, seconds))
            except BenchError as failed:
                cell.errors.append(str(failed))


def _time(system: QueueSystem, contender: Contender, seconds: float) -> Timed:
    try:
        system.start()
        system.open_group(GROUP)
        task = system.task(contender, GROUP, RECORD_SIZE, is_timed=True)
        with Workers(contender.module, task, 1, system.servers) as workers:
            sent = system.send(RECORD_SIZE, RECORDS_PER_SECOND, FIRST_SECONDS).count
            workers.go()
            report = system.send(RECORD_SIZE, RECORDS_PER_SECOND, WARM_UP_SECONDS + seconds)
            sent += report.count
            workers.wait(sent, LAST_SECONDS_MAX)
            [done] = workers.stop().reports
    finally:
        system.stop()
    if done.count != sent:
        raise BenchError(f"{sent} messages were sent, and {done.count} handed over")
    return Timed(done.latency_seconds, report.count / report.seconds)
