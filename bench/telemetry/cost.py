"""The processor time of idle nodes with many partitions: alone, with a gateway, and with somebody who looks."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.process import BenchError
from bench.telemetry.observed import ObservedCluster

SETTLE_SECONDS = 5.0
CALM_SECONDS = 25.0
"""After the partitions were created: until they are all asleep."""


@dataclass
class Cost:
    """Shares of a core, for each node: 0.02 is two hundredths."""

    partition_count: int
    window_seconds: float
    alone: list[float] = field(default_factory=list)
    beside_gateway: list[float] = field(default_factory=list)
    """Of the node itself, with an idle gateway."""
    beside_viewer: list[float] = field(default_factory=list)
    """Of the node itself, while one page is open at the first node's gateway."""
    idle_gateways: list[float] = field(default_factory=list)
    viewed_gateways: list[float] = field(default_factory=list)
    gateway_rss_bytes: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def extra(self) -> list[float]:
        """What a viewer costs each node."""
        return [after - before for before, after in zip(self.alone, self.beside_viewer, strict=True)]

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def measure(
    cluster: ObservedCluster, partition_count: int, window_seconds: float, on_step: Callable[[str], None]
) -> Cost:
    """Three windows of the same processes. In the first one, the gateways are stopped in their tracks."""
    out = Cost(partition_count, window_seconds)
    try:
        try:
            on_step(f"{partition_count} partitions are created")
            cluster.form(partition_count)
            cluster.create_topic(partition_count)
            cluster.wait_led(partition_count, 120.0)
            cluster.wait_gateways()
            time.sleep(CALM_SECONDS)
            on_step(f"{partition_count} partitions, without gateways")
            with cluster.without_gateways():
                out.alone, _ = _window(cluster, window_seconds)
            on_step(f"{partition_count} partitions, with gateways")
            out.beside_gateway, out.idle_gateways = _window(cluster, window_seconds)
            out.gateway_rss_bytes = cluster.gateway_rss_bytes()
            on_step(f"{partition_count} partitions, with a viewer")
            with cluster.viewers(1):
                out.beside_viewer, out.viewed_gateways = _window(cluster, window_seconds)
        finally:
            cluster.stop()
    except BenchError as failed:
        out.errors.append(str(failed))
    return out


def _window(cluster: ObservedCluster, seconds: float) -> tuple[list[float], list[float]]:
    time.sleep(SETTLE_SECONDS)
    before, began = cluster.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    after, took = cluster.cpu_seconds(), time.perf_counter() - began
    nodes, gateways = (
        [(end - start) / took for start, end in zip(was, now, strict=True)]
        for was, now in zip(before, after, strict=True)
    )
    return nodes, gateways
