"""What a run of the queues says: tables and targets for people, a JSON file for comparing."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from bench import machine
from bench.measurement import Phase
from bench.queues.latency import LatencyCell
from bench.queues.memory import Memory
from bench.queues.targets import judge
from bench.queues.throughput import Cell
from bench.report import new_table, print_tables, targets_table, wide_console

WIDTH_MIN = 180


@dataclass
class Results:
    """Everything of one run."""

    cells: list[Cell] = field(default_factory=list)
    timed: list[LatencyCell] = field(default_factory=list)
    memory: Memory | None = None
    machine: dict[str, object] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def errors(self) -> list[str]:
        """What could not be measured, in words."""
        out = [f"throughput, {cell.name}, {cell.shape.words}: {error}" for cell in self.cells for error in cell.errors]
        out += [f"latency, {cell.name}: {error}" for cell in self.timed for error in cell.errors]
        return out + [f"memory: {error}" for error in (self.memory.errors if self.memory else [])]


def _number(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}"


def _rate(phase: Phase) -> str:
    thousands = phase.records_per_second / 1e3
    return _number(thousands, 0 if thousands >= 100 else 1)


def throughput_table(cells: list[Cell]) -> Table:
    """A block per number of nodes and shape, a row per client."""
    table = new_table(
        "Leased and acknowledged, median of the repetitions",
        ("nodes", "work", "system", "client"),
        ("k msg/s", "server CPU s\nper M", "server\ncores", "clients\ncores", "RSS\nMB", "spread"),
    )
    for nodes, shape in dict.fromkeys((cell.node_count, cell.shape) for cell in cells):
        table.add_section()
        titles = [str(nodes), shape.words]
        for cell in (cell for cell in cells if (cell.node_count, cell.shape) == (nodes, shape)):
            phase = cell.phase
            rates = [run.records_per_second for run in cell.runs]
            numbers = ["–"] * 6
            if phase:
                numbers = [
                    _rate(phase), _number(phase.cpu_seconds_per_million, 1), _number(phase.server_cores, 2),
                    _number(phase.client_cores, 2), _number(phase.server_rss_bytes_peak / 1e6),
                    f"{max(rates) / min(rates):.1f}" if len(rates) > 1 else "–",
                ]  # fmt: skip
            style = "green" if cell.program == "drmq" else ""
            table.add_row(*titles, escape(cell.label), cell.contender.name, *numbers, style=style)
            titles = ["", ""]
    return table


def pivot_table(cells: list[Cell], nodes: int) -> Table:
    """A row per client, a column per kind of work: thousands a second, and CPU seconds of the servers per million."""
    row_cells = [cell for cell in cells if cell.node_count == nodes]
    shapes = list(dict.fromkeys(cell.shape for cell in row_cells))
    title = f"{nodes} node{'' if nodes == 1 else 's'}, thousand messages a second (server CPU s per million)"
    table = new_table(title, ("system", "client", "fsync"), tuple(shape.words for shape in shapes))
    for label, contender in dict.fromkeys((cell.label, cell.contender) for cell in row_cells):
        found = [cell for cell in row_cells if cell.label == label and cell.contender == contender]
        texts = []
        for shape in shapes:
            phase = next((cell.phase for cell in found if cell.shape == shape), None)
            texts.append(f"{_rate(phase)} ({phase.cpu_seconds_per_million:.1f})" if phase else "–")
        table.add_row(escape(label), contender.name, "yes" if found[0].fsyncs_before_ack else "no", *texts)
    return table


def latency_table(timed: list[LatencyCell]) -> Table:
    """A row per client."""
    table = new_table(
        "From due to handed over, 1,000 messages of 1 KB a second, one worker",
        ("system", "client", "fsync"), ("p50 ms", "p99 ms", "max ms", "kept up"),
    )  # fmt: skip
    for cell in timed:
        run = cell.timed
        numbers = ["–"] * 4
        if run:
            shares = [_number(run.latency_seconds[share] * 1000, 1) for share in ("p50", "p99", "max")]
            numbers = [*shares, "yes" if run.has_kept_up else "no"]
        is_synced = "yes" if cell.fsyncs_before_ack else "no"
        table.add_row(escape(cell.label), cell.contender.name, is_synced, *numbers)
    return table


def print_report(results: Results, *, is_markdown: bool = False) -> None:
    """Everything a reader wants, on standard output."""
    console = wide_console(WIDTH_MIN)
    after = results.machine.get("load_average_after")
    print(machine.sentence(results.machine, after, results.versions), end="\n\n")
    tables = []
    if results.cells and is_markdown:
        tables += [pivot_table(results.cells, nodes) for nodes in dict.fromkeys(c.node_count for c in results.cells)]
    elif results.cells:
        tables.append(throughput_table(results.cells))
    if results.timed:
        tables.append(latency_table(results.timed))
    if verdicts := judge(results.cells, results.timed, results.memory):
        tables.append(targets_table(verdicts))
    print_tables(console, tables, is_markdown=is_markdown)
    for name, reason in results.skipped.items():
        console.print(f"not measured: {name}: {escape(reason)}", highlight=False)
    for error in results.errors():
        console.print(f"[red]failed[/red]: {escape(error)}")


def write_json(path: Path, results: Results) -> None:
    """All of the run."""
    verdicts = judge(results.cells, results.timed, results.memory)
    body = {
        "machine": results.machine,
        "options": results.options,
        "versions": results.versions,
        "not_measured": results.skipped,
        "throughput": [cell.as_json() for cell in results.cells],
        "latency": [cell.as_json() for cell in results.timed],
        "memory": results.memory.as_json() if results.memory else None,
        "targets": [{"target": v.target, "measured": v.measured, "is_met": v.is_met} for v in verdicts],
        "errors": results.errors(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1) + "\n")
