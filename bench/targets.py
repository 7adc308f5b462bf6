"""What DRMQ is meant to reach, and whether this run shows it."""

from dataclasses import dataclass

from bench.lifecycle import GIGABYTE, Lifecycle
from bench.measurement import Cell, Phase
from bench.workloads import Batching

LIMIT_SHARE_MIN = 0.7
CLIENT_BOUND_SHARE_MIN = 0.9
SINGLE_PER_CORE_MIN = 30_000
RSS_IDLE_MAX = 80e6
RSS_GROWTH_MAX = 100e6
FIRST_ACK_SECONDS_MAX = 1.0
FIRST_ACK_SEALED_SECONDS_MAX = 2.0


@dataclass(frozen=True)
class Verdict:
    """One target; `is_met` is None when nothing was promised about this number."""

    target: str
    measured: str
    is_met: bool | None


def judge(cells: list[Cell], life: Lifecycle | None) -> list[Verdict]:
    """A verdict for each target this run has numbers for."""
    ours = [cell for cell in cells if cell.system.name == "drmq"]
    limits = {cell.workload.name: cell for cell in cells if cell.system.name == "limit"}
    verdicts: list[Verdict] = []
    for cell in ours:
        limit = limits.get(cell.workload.name)
        if cell.produce:
            verdicts += _produce_verdicts(cell, cell.produce, limit.produce if limit else None)
        if cell.produce and cell.consume:
            ratio = cell.consume.records_per_second / cell.produce.records_per_second
            name = f"{cell.workload.name}: consuming at least as fast as producing"
            cores = f"client {cell.consume.client_cores:.2f}, broker {cell.consume.server_cores:.2f} cores"
            verdicts.append(Verdict(name, f"{ratio:.2f} times ({cores})", ratio >= 1.0))
    if life is not None:
        verdicts += _lifecycle_verdicts(life)
    return verdicts


def _produce_verdicts(cell: Cell, produce: Phase, limit: Phase | None) -> list[Verdict]:
    workload = cell.workload
    if workload.batching is Batching.SINGLE:
        per_core = produce.records / max(produce.server_cpu_seconds, 1e-9)
        text = f"{per_core:,.0f} ({produce.records_per_second:,.0f} a second on {produce.server_cores:.2f} cores)"
        name = f"{workload.name}: at least {SINGLE_PER_CORE_MIN:,} single-record requests per second and core"
        return [Verdict(name, text, per_core >= SINGLE_PER_CORE_MIN)]
    if workload.record_size >= 1000 and workload.batching in (Batching.LARGE, Batching.RAW) and limit:
        share = produce.records_per_second / limit.records_per_second
        name = f"{workload.name}: producing 1 KB at least {LIMIT_SHARE_MIN} of the limit"
        return [Verdict(name, f"{share:.2f}", share >= LIMIT_SHARE_MIN)]
    if workload.record_size < 1000 and workload.batching is Batching.LARGE:
        share = produce.records_per_second / limit.records_per_second if limit else 0.0
        cores = f"client {produce.client_cores:.2f}, broker {produce.server_cores:.2f} cores"
        text = f"{produce.bound}, {share:.2f} of the limit ({cores})"
        # With a limit that does next to nothing, the same client is no faster: it was the client.
        is_met = produce.bound == "client" or share >= CLIENT_BOUND_SHARE_MIN
        return [Verdict(f"{workload.name}: bound by the client, not the broker", text, is_met)]
    return []


def _lifecycle_verdicts(life: Lifecycle) -> list[Verdict]:
    out = []
    if life.rss_idle_bytes is not None:
        is_met = life.rss_idle_bytes <= RSS_IDLE_MAX
        out.append(Verdict("idle broker at most 80 MB resident", f"{life.rss_idle_bytes / 1e6:.0f} MB", is_met))
    if life.rss_idle_bytes is not None and life.rss_after_bytes is not None:
        growth = life.rss_after_bytes - life.rss_idle_bytes
        peak = (life.rss_peak_bytes or 0) / 1e6
        passed = life.passed_through_bytes / GIGABYTE
        out.append(
            Verdict(
                f"writing and reading {passed:.1f} GB grows it by at most 100 MB",
                f"{growth / 1e6:+.0f} MB (peak {peak:.0f} MB)",
                growth <= RSS_GROWTH_MAX,
            )
        )
    if life.first_ack_seconds:
        slowest = max(life.first_ack_seconds)
        text = f"{slowest:.2f} s, the slowest of {len(life.first_ack_seconds)}"
        out.append(Verdict("start to first acknowledgement under 1 s", text, slowest < FIRST_ACK_SECONDS_MAX))
    sealed = f"{life.sealed_bytes / GIGABYTE:.1f} GB of log"
    if life.first_ack_sealed_seconds is not None:
        seconds = life.first_ack_sealed_seconds
        is_met = seconds < FIRST_ACK_SEALED_SECONDS_MAX
        out.append(Verdict(f"start with {sealed} under 2 s", f"{seconds:.2f} s", is_met))
    if life.first_ack_killed_seconds is not None:
        out.append(Verdict(f"start with {sealed} after SIGKILL", f"{life.first_ack_killed_seconds:.2f} s", None))
    out += [Verdict("lifecycle", error, False) for error in life.errors]
    return out
