"""Producing with and without viewers, in turns, on one cluster."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.process import BenchError
from bench.telemetry.observed import ObservedCluster
from bench.workloads import MEGABYTE, Batching, Workload


@dataclass
class Viewed:
    """Records per second of each turn."""

    viewer_count: int
    without: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    cpu_without: list[float] = field(default_factory=list)
    """Of nodes and gateways together: seconds for a million records."""
    cpu_beside: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median of pairs: a turn with viewers by the mean of its neighbours without."""
        pairs = [
            with_viewers / ((before + after) / 2)
            for before, with_viewers, after in zip(self.without, self.beside, self.without[1:], strict=False)
        ]
        return statistics.median(pairs) if pairs else 0.0

    @property
    def cpu_ratio(self) -> float:
        """Processor time with viewers by that without. Other programs on the machine disturb it less."""
        return statistics.median(self.cpu_beside) / statistics.median(self.cpu_without)

    def as_json(self) -> dict[str, object]:
        """All of it, and the ratio."""
        return asdict(self) | {"ratio": self.ratio}


def measure(
    cluster: ObservedCluster, viewer_count: int, turns: int, seconds: float, on_step: Callable[[str], None]
) -> Viewed:
    """Turns without, with, without ... so that a slow minute of the machine is in both."""
    out = Viewed(viewer_count)
    workload = Workload("viewed", 1024, Batching.LARGE, 16, 100_000 * MEGABYTE, seconds)
    try:
        try:
            cluster.start(workload.partition_count)
            cluster.wait_gateways()
            _turn(cluster, workload, [], [])  # the first one warms up
            for turn in range(turns):
                on_step(f"producing, turn {turn + 1} of {turns}")
                _turn(cluster, workload, out.without, out.cpu_without)
                with cluster.viewers(viewer_count):
                    _turn(cluster, workload, out.beside, out.cpu_beside)
            _turn(cluster, workload, out.without, out.cpu_without)
        finally:
            cluster.stop()
    except BenchError as failed:
        out.errors.append(str(failed))
    return out


def _turn(cluster: ObservedCluster, workload: Workload, rates: list[float], cpu: list[float]) -> None:
    run = cluster.produce(workload)
    assert run is not None
    rates.append(run.report.records / run.report.seconds)
    cpu.append(run.server_cpu_seconds / run.report.records * 1e6)
