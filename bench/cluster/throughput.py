"""Full speed, and latencies at fixed rates, on the same cluster one after the other."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.cluster.nodes import ClusterSystem
from bench.measurement import Phase, median_phase
from bench.process import BenchError, Run
from bench.workloads import MEGABYTE, Batching, Workload

RECORD_SIZE = 1024
PARTITION_COUNTS = (1, 16)
RATES_MEGABYTES = (5, 10)
SETTLE_SECONDS = 1.0


@dataclass(frozen=True)
class Paced:
    """One fixed rate, once."""

    megabytes_per_second: int
    achieved_megabytes_per_second: float
    latency_seconds: dict[str, float]
    server_cpu_seconds_each: tuple[float, ...]
    seconds: float

    @property
    def has_kept_up(self) -> bool:
        """Whether the records left at the rate that was asked for."""
        return self.achieved_megabytes_per_second >= 0.95 * self.megabytes_per_second


@dataclass
class Cell:
    """One system with one number of partitions: all repetitions."""

    system: ClusterSystem
    workload: Workload
    produced: list[Phase] = field(default_factory=list)
    consumed: list[Phase] = field(default_factory=list)
    cpu_seconds_per_gigabyte_each: list[tuple[float, ...]] = field(default_factory=list)
    """While producing: per repetition, per node, leaders of more partitions included."""
    paced: list[Paced] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def produce(self) -> Phase | None:
        """The median of producing."""
        return median_phase(self.produced)

    @property
    def consume(self) -> Phase | None:
        """The median of consuming."""
        return median_phase(self.consumed)

    @property
    def cpu_each(self) -> tuple[float, ...]:
        """CPU seconds per GB and node, of the repetition that `produce` is."""
        median = self.produce
        return self.cpu_seconds_per_gigabyte_each[self.produced.index(median)] if median else ()

    def pace(self, megabytes: int) -> Paced | None:
        """The repetition with the median p99 at this rate."""
        runs = sorted(
            (p for p in self.paced if p.megabytes_per_second == megabytes), key=lambda p: p.latency_seconds["p99"]
        )
        return runs[(len(runs) - 1) // 2] if runs else None

    def as_json(self) -> dict[str, object]:
        """All repetitions, and which counts."""
        return {
            "system": self.system.label,
            "fsyncs_before_ack": self.system.fsyncs_before_ack,
            "partitions": self.workload.partition_count,
            "produce": self.produce.as_json() if self.produce else None,
            "consume": self.consume.as_json() if self.consume else None,
            "cpu_seconds_per_gigabyte_each": self.cpu_each,
            "produce_runs": [phase.as_json() for phase in self.produced],
            "consume_runs": [phase.as_json() for phase in self.consumed],
            "paced": [asdict(paced) for paced in self.paced],
            "errors": self.errors,
        }

    def repeat(self, *, pace_seconds: float) -> None:
        """Start the system, produce, consume all of it, send at fixed rates, stop; errors are kept."""
        try:
            try:
                self.system.start(self.workload.partition_count)
                self._run_fast()
                for megabytes in RATES_MEGABYTES:
                    # The disk still writes what the phase before left in its queues.
                    os.sync()
                    time.sleep(SETTLE_SECONDS)
                    rate = megabytes * MEGABYTE / RECORD_SIZE
                    self._add_pace(megabytes, self.system.pace(self.workload, rate, pace_seconds))
            finally:
                self.system.stop()
        except BenchError as failed:
            self.errors.append(str(failed))

    def _run_fast(self) -> None:
        run = self.system.produce(self.workload)
        if run is None:
            return
        phase = Phase.of(run, RECORD_SIZE)
        self.produced.append(phase)
        gigabytes = phase.records * RECORD_SIZE / 1e9
        self.cpu_seconds_per_gigabyte_each.append(tuple(cpu / gigabytes for cpu in run.server_cpu_seconds_each))
        expected = run.report.records + run.report.records_before
        run = self.system.consume(self.workload, expected)
        if run is not None:
            if run.report.records != expected:
                raise BenchError(f"consumed {run.report.records} of {expected} records in {run.report.seconds:.0f} s")
            self.consumed.append(Phase.of(run, RECORD_SIZE))

    def _add_pace(self, megabytes: int, run: Run | None) -> None:
        if run is not None:
            report = run.report
            achieved = report.records * RECORD_SIZE / report.seconds / 1e6
            self.paced.append(
                Paced(megabytes, achieved, report.latency_seconds, run.server_cpu_seconds_each, report.seconds)
            )


def measure(
    cells: list[Cell],
    systems: list[ClusterSystem],
    repeat_count: int,
    *,
    is_quick: bool,
    on_step: Callable[[str], None],
) -> None:
    """Fill `cells`, one per system and number of partitions, interleaved as in `bench.schedule`."""
    seconds = 1.5 if is_quick else 4.0
    workloads = [
        Workload(f"1k-{count}p", RECORD_SIZE, Batching.LARGE, count, 512 * MEGABYTE, seconds_max=seconds)
        for count in PARTITION_COUNTS
    ]
    cells += [Cell(system, workload) for workload in workloads for system in systems]
    for repetition in range(repeat_count):
        for workload in workloads:
            row = [cell for cell in cells if cell.workload is workload]
            turn = repetition % len(row)
            for cell in row[turn:] + row[:turn]:
                on_step(f"throughput: {cell.system.label}, {workload.partition_count} partitions")
                os.sync()
                cell.repeat(pace_seconds=2.0 if is_quick else 8.0)
