"""What a run of the cluster section says: tables and targets for people, a JSON file for comparing."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.markup import escape
from rich.table import Table

from bench import machine
from bench.cluster import scale_report
from bench.cluster.failover import Failover
from bench.cluster.idle import Idle
from bench.cluster.restart import Restart
from bench.cluster.scale import Scale
from bench.cluster.throughput import PARTITION_COUNTS, RATES_MEGABYTES, Cell
from bench.measurement import Phase
from bench.report import new_table, print_tables, ratio, targets_table, wide_console
from bench.targets import Verdict

WIDTH_MIN = 200
"""Narrower than this the rows wrap."""
IDLE_CORE_SHARE_MAX = 0.05
IDLE_START_SECONDS_MAX = 10.0
FAILOVER_MEDIAN_SECONDS_MAX = 2.0
FAILOVER_WORST_SECONDS_MAX = 4.0
STOP_GAP_SECONDS_MAX = 0.3
RESTART_SECONDS_MAX = 10.0


@dataclass
class Results:
    """Everything of one run."""

    cells: list[Cell] = field(default_factory=list)
    idles: list[Idle] = field(default_factory=list)
    failovers: list[Failover] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    scales: list[Scale] = field(default_factory=list)
    machine: dict[str, object] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def errors(self) -> list[str]:
        """What could not be measured, in words."""
        out = [
            f"throughput, {cell.system.label}, {cell.workload.partition_count} partitions: {error}"
            for cell in self.cells
            for error in cell.errors
        ]
        for name, parts in (("idle", self.idles), ("failover", self.failovers), ("restart", self.restarts)):
            out += [f"{name}, {part.system}: {error}" for part in parts for error in part.errors]
        for scale in self.scales:
            where = f"scale, {scale.partition_count:,} partitions, {scale.burner_count} burners"
            out += [f"{where}: {error}" for error in scale.errors]
        return out

    def cell(self, label: str, partition_count: int) -> Cell | None:
        """That system with that many partitions."""
        found = (c for c in self.cells if c.system.label == label and c.workload.partition_count == partition_count)
        return next(found, None)

    def shares(self, cell: Cell) -> dict[str, float | None]:
        """The cell's rate as a multiple of what one node, the bare limit and the limit with copies do."""
        count = cell.workload.partition_count
        others = {"one_drmq": "drmq × 1", "limit": "limit × 1", "replicated_limit": "limit × 3"}
        found = {name: self.cell(label, count) for name, label in others.items()}
        return {
            name: ratio(cell.produce, other.produce) if other and other is not cell else None
            for name, other in found.items()
        }


def judge(results: Results) -> list[Verdict]:
    """A verdict for each target this run has numbers for, about DRMQ alone."""
    out = []
    for idle in results.idles:
        if not idle.system.startswith("drmq"):
            continue
        if idle.core_shares:
            worst = max(idle.core_shares)
            name = f"{idle.partition_count} idle partitions cost a node at most 5 % of a core"
            each = ", ".join(f"{share:.1%}" for share in idle.core_shares)
            out.append(Verdict(name, each, worst <= IDLE_CORE_SHARE_MAX))
        for words, seconds in (("stop", idle.restart_seconds), ("SIGKILL", idle.restart_killed_seconds)):
            if seconds is not None:
                name = f"{idle.partition_count} partitions have leaders within 10 s of a cold start after {words}"
                out.append(Verdict(name, f"{seconds:.1f} s", seconds <= IDLE_START_SECONDS_MAX))
    for failover in results.failovers:
        if failover.system.startswith("drmq"):
            out += _failover_verdicts(failover)
    for restart in results.restarts:
        for words, seconds in restart.serves_seconds.items():
            name = f"a node with {restart.log_bytes / (1 << 30):.2f} GiB of log serves within 10 s ({words})"
            out.append(Verdict(name, f"{seconds:.1f} s", seconds <= RESTART_SECONDS_MAX))
    return out + scale_report.judge(results.scales)


def _failover_verdicts(failover: Failover) -> list[Verdict]:
    out = []
    for probe, times in failover.seconds.items():
        middle, worst = failover.median(probe), failover.worst(probe)
        if middle is not None and worst is not None:
            name = f"leader killed {len(times)} times ({probe}): median at most 2 s, worst at most 4 s"
            is_met = middle <= FAILOVER_MEDIAN_SECONDS_MAX and worst <= FAILOVER_WORST_SECONDS_MAX
            out.append(Verdict(name, f"median {middle:.2f} s, worst {worst:.2f} s", is_met))
    for probe, gaps in failover.stop_gap_seconds.items():
        # A client that asks for the leader by itself is refused once, by the node that goes: that is how it learns.
        failures = None if probe in failover.eager_probes else failover.stop_failures[probe]
        name = f"node stopped in order {len(gaps)} times ({probe}): no gap above 300 ms"
        words = f"longest {max(gaps) * 1000:.0f} ms"
        is_met = max(gaps) <= STOP_GAP_SECONDS_MAX
        if failures is not None:
            name, words, is_met = f"{name}, no error", f"{words}, {failures} errors", is_met and failures == 0
        out.append(Verdict(name, words, is_met))
    return out


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def throughput_table(results: Results) -> Table:
    """A block per number of partitions, a row per system."""
    rates = tuple(f"{rate} MB/s: ms\np50 / p99" for rate in RATES_MEGABYTES)
    table = new_table(
        "1 KB records, acks=all, a replica on every node",
        ("partitions", "system", "fsync"),
        ("MB/s", "of one\nDRMQ", "of\nlimit", "of limit\n× 3", "CPU s per GB\nper node", "RSS MB\nper node",
         "client\ncores", "bound", "read\nMB/s", *rates),
    )  # fmt: skip
    seen = 0
    for cell in results.cells:
        count = cell.workload.partition_count
        if count != seen:
            table.add_section()
        shares = results.shares(cell)
        produce, consume = cell.produce, cell.consume
        latencies = []
        for rate in RATES_MEGABYTES:
            paced = cell.pace(rate)
            text = "–"
            if paced:
                p50, p99 = (paced.latency_seconds[name] * 1000 for name in ("p50", "p99"))
                text = f"{p50:,.1f} / {p99:,.1f}" + ("" if paced.has_kept_up else " late")
            latencies.append(text)
        table.add_row(
            str(count) if count != seen else "", escape(cell.system.label),
            "yes" if cell.system.fsyncs_before_ack else "no",
            _number(produce.megabytes_per_second if produce else None, 1),
            *(_number(shares[name]) for name in ("one_drmq", "limit", "replicated_limit")),
            " ".join(f"{cpu:.2f}" for cpu in cell.cpu_each) or "–",
            _number(produce.server_rss_bytes_peak / cell.system.node_count / 1e6 if produce else None, 0),
            _number(produce.client_cores if produce else None), produce.bound if produce else "–",
            _number(consume.megabytes_per_second if consume else None, 0), *latencies,
            style={"drmq": "green", "limit": "dim"}.get(cell.system.program, ""),
        )  # fmt: skip
        seen = count
    return table


def idle_table(idles: list[Idle]) -> Table:
    """A row per system."""
    table = new_table(
        "Idle partitions, a replica on every node",
        ("system",),
        ("partitions", "form s", "create s", "CPU per node\n% of a core", "RSS MB\nper node", "cold start s",
         "after SIGKILL s"),
    )  # fmt: skip
    for idle in idles:
        table.add_row(
            escape(idle.system), f"{idle.partition_count:,}", _number(idle.form_seconds), _number(idle.create_seconds),
            " ".join(f"{share * 100:.1f}" for share in idle.core_shares) or "–",
            " ".join(f"{size / 1e6:.0f}" for size in idle.rss_bytes) or "–",
            _number(idle.restart_seconds), _number(idle.restart_killed_seconds),
        )  # fmt: skip
    return table


def failover_table(failovers: list[Failover]) -> Table:
    """A row per system and probe."""
    table = new_table(
        "Leader killed with SIGKILL: seconds to the next acknowledged write",
        ("system", "client"),
        ("kills", "median", "worst", "best", "in sync again\nmedian", "records\nacknowledged"),
    )
    for failover in failovers:
        for probe, times in failover.seconds.items():
            found = [seconds for seconds in times if seconds is not None]
            healed = sorted(failover.heal_seconds)
            table.add_row(
                escape(failover.system), probe, str(len(times)), _number(failover.median(probe)),
                _number(failover.worst(probe)), _number(min(found) if found else None),
                _number(healed[len(healed) // 2] if healed else None), f"{failover.acknowledged:,}",
            )  # fmt: skip
    return table


def stop_table(failovers: list[Failover]) -> Table:
    """A row per system and probe."""
    table = new_table(
        "Leader stopped in order: longest time between two acknowledgements",
        ("system", "client"),
        ("stops", "median ms", "worst ms", "best ms", "errors or\nrefusals"),
    )
    for failover in failovers:
        for probe, gaps in failover.stop_gap_seconds.items():
            middle, worst, best = (f(gaps) * 1000 for f in (median, max, min))
            table.add_row(
                escape(failover.system), probe, str(len(gaps)), _number(middle, 0), _number(worst, 0),
                _number(best, 0), f"{failover.stop_failures[probe]:,}",
            )  # fmt: skip
    return table


def restart_table(restarts: list[Restart]) -> Table:
    """A row per system and way of ending."""
    table = new_table("A follower with a large log", ("system", "was"), ("log MB", "answers s", "serves s"))
    for restart in restarts:
        for words, seconds in restart.serves_seconds.items():
            answers = restart.answers_seconds.get(words)
            log = f"{restart.log_bytes / 1e6:,.0f}"
            table.add_row(escape(restart.system), words, log, _number(answers), _number(seconds))
    return table


def summary_table(results: Results) -> Table:
    """A row per number that most readers want, a column per cluster: the table of the README."""
    cells = {cell.system.label: cell for cell in results.cells if cell.system.program != "limit"}
    labels = [label for label, cell in cells.items() if cell.system.node_count > 1]
    few, many = PARTITION_COUNTS
    rate = RATES_MEGABYTES[-1]
    names = (
        "Synced to disk before the acknowledgement", f"Produced, {few} partition", f"Produced, {many} partitions",
        f"p50 and p99 at {rate} MB/s, {few} partition", "Leader killed: median time to the next acknowledged write",
        "Memory per node while producing",
    )  # fmt: skip
    columns = []
    for label in labels:
        one, more = (results.cell(label, count) for count in (few, many))
        produce, paced = (one.produce, one.pace(rate)) if one else (None, None)
        killed = next((failover for failover in results.failovers if failover.system == label), None)
        middle = killed.median(next(iter(killed.seconds), "")) if killed else None
        fast, faster = (_megabytes(cell.produce if cell else None) for cell in (one, more))
        latency = memory = "–"
        if paced:
            shares = (paced.latency_seconds[name] * 1000 for name in ("p50", "p99"))
            latency = " and ".join(f"{ms:,.1f}" for ms in shares) + (" ms" if paced.has_kept_up else " ms, late")
        if produce:
            memory = f"{produce.server_rss_bytes_peak / cells[label].system.node_count / 1e6:,.0f} MB"
        is_synced = "yes" if cells[label].system.fsyncs_before_ack else "no"
        columns.append((is_synced, fast, faster, latency, "–" if middle is None else f"{middle:.1f} s", memory))
    table = new_table("Three nodes on one machine, 1 KB records, acks=all", ("",), tuple(map(escape, labels)))
    for name, *texts in zip(names, *columns, strict=True):
        table.add_row(name, *texts)
    return table


def _megabytes(phase: Phase | None) -> str:
    return f"{phase.megabytes_per_second:,.0f} MB/s" if phase else "–"


def print_report(results: Results, *, is_markdown: bool = False) -> None:
    """Everything a reader wants, on standard output."""
    console = wide_console(WIDTH_MIN)
    after = results.machine.get("load_average_after")
    print(machine.sentence(results.machine, after, results.versions), end="\n\n")
    tables = []
    if results.cells:
        tables.append(throughput_table(results))
        tables.append(summary_table(results))
    if results.idles:
        tables.append(idle_table(results.idles))
    if results.failovers:
        tables.append(failover_table(results.failovers))
    if any(failover.stop_gap_seconds for failover in results.failovers):
        tables.append(stop_table(results.failovers))
    if results.restarts:
        tables.append(restart_table(results.restarts))
    if results.scales:
        tables.append(scale_report.events_table(results.scales))
    if any(scale.core_shares for scale in results.scales):
        tables.append(scale_report.idle_table(results.scales))
    if verdicts := judge(results):
        tables.append(targets_table(verdicts))
    print_tables(console, tables, is_markdown=is_markdown)
    for name, reason in results.skipped.items():
        console.print(f"not measured: {name}: {escape(reason)}", highlight=False)
    for error in results.errors():
        console.print(f"[red]failed[/red]: {escape(error)}")


def write_json(path: Path, results: Results) -> None:
    """All of the run."""
    body = {
        "machine": results.machine,
        "options": results.options,
        "versions": results.versions,
        "not_measured": results.skipped,
        "throughput": [cell.as_json() | {"ratios": results.shares(cell)} for cell in results.cells],
        "idle": [idle.as_json() for idle in results.idles],
        "failover": [failover.as_json() for failover in results.failovers],
        "restart": [restart.as_json() for restart in results.restarts],
        "scale": [scale.as_json() for scale in results.scales],
        "targets": [{"target": v.target, "measured": v.measured, "is_met": v.is_met} for v in judge(results)],
        "errors": results.errors(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1) + "\n")
