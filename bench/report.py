"""One table for people, one JSON file for comparing runs."""

import json
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bench.lifecycle import Lifecycle
from bench.measurement import Cell, Phase
from bench.targets import Verdict
from bench.workloads import Workload

WIDTH_MIN = 150
"""Narrower than this the rows wrap; a terminal that is narrower scrolls better than it reads."""


def ratio(ours: Phase | None, theirs: Phase | None) -> float | None:
    """Our rate divided by theirs, if there are both."""
    if ours is None or theirs is None:
        return None
    return ours.records_per_second / theirs.records_per_second


class Comparison:
    """The cells of one workload, and how each stands to the limit and to DRMQ."""

    def __init__(self, cells: list[Cell]) -> None:
        self.cells = [cell for cell in cells if cell.is_applicable]
        self._by_name = {cell.system.name: cell for cell in self.cells}

    def of_limit(self, cell: Cell, phase: str) -> float | None:
        """This system's rate as a share of the limit's."""
        return self._ratio(cell, self._by_name.get("limit"), phase) if cell.system.name != "limit" else None

    def drmq_ratio(self, cell: Cell, phase: str) -> float | None:
        """DRMQ's rate as a multiple of this peer's."""
        if cell.system.name in ("drmq", "limit"):
            return None
        return self._ratio(self._by_name.get("drmq"), cell, phase)

    @staticmethod
    def _ratio(ours: Cell | None, theirs: Cell | None, phase: str) -> float | None:
        return ratio(getattr(ours, phase), getattr(theirs, phase)) if ours and theirs else None


def grouped(cells: list[Cell]) -> list[tuple[Workload, Comparison]]:
    """Cells by workload, in the order of the run."""
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    return [(w, Comparison([cell for cell in cells if cell.workload is w])) for w in workloads]


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _phase_columns(phase: Phase | None) -> list[str]:
    if phase is None:
        return ["–"] * 8
    return [
        _number(phase.megabytes_per_second, 0 if phase.megabytes_per_second >= 10 else 1),
        _number(phase.records_per_second / 1e3, 0 if phase.records_per_second >= 1e4 else 1),
        _number(phase.cpu_seconds_per_gigabyte, 2), _number(phase.cpu_seconds_per_million, 2),
        _number(phase.server_cores, 2), _number(phase.client_cores, 2), phase.bound,
        _number(phase.server_rss_bytes_peak / 1e6),
    ]  # fmt: skip


def _spread(phases: list[Phase]) -> str:
    """How far the repetitions lie apart: the fastest as a multiple of the slowest."""
    if len(phases) < 2:
        return "–"
    rates = [phase.records_per_second for phase in phases]
    return f"{max(rates) / min(rates):.1f}"


def new_table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    """A table with columns of text, then columns of numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in texts:
        table.add_column(column, no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def markdown(table: Table) -> str:
    """The table as a page of the documentation has it, below its title."""
    heads = [Text.from_markup(str(column.header)).plain.replace("\n", " ") for column in table.columns]
    rules = ["---:" if column.justify == "right" else "---" for column in table.columns]
    cells = [[Text.from_markup(str(cell)).plain for cell in column.cells] for column in table.columns]
    rows = [heads, rules, *(list(row) for row in zip(*cells, strict=True))]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"{table.title}:", "", *lines, ""])


def results_table(cells: list[Cell]) -> Table:
    """A block per workload and phase, a row per system."""
    table = new_table(
        "Median of the repetitions",
        ("workload", "phase", "system"),
        ("MB/s", "k rec/s", "of limit", "DRMQ ×", "CPU s\nper GB", "CPU s\nper M rec", "broker\ncores",
         "client\ncores", "bound", "RSS\nMB", "spread"),
    )  # fmt: skip
    for workload, comparison in grouped(cells):
        for phase in ("produce", "consume"):
            table.add_section()
            titles = [f"[bold]{workload.name}[/bold]", phase]
            for cell in comparison.cells:
                rates = _phase_columns(getattr(cell, phase))
                runs = cell.produced if phase == "produce" else cell.consumed
                ratios = [comparison.of_limit(cell, phase), comparison.drmq_ratio(cell, phase)]
                table.add_row(
                    *titles, escape(cell.system.label) + ("" if cell.system.fsyncs_before_ack else ", no fsync"),
                    *rates[:2], _number(ratios[0], 2), _number(ratios[1], 2), *rates[2:], _spread(runs),
                    style={"drmq": "green", "limit": "dim"}.get(cell.system.name, ""),
                )  # fmt: skip
                titles = ["", ""]
    return table


def pivot_table(cells: list[Cell], phase: str) -> Table:
    """A row per system, a column per workload: rates, and in brackets what part of the limit's they are."""
    groups = grouped(cells)
    columns = [f"{workload.name}\n{'MB/s' if workload.record_size >= 1000 else 'k rec/s'}" for workload, _ in groups]
    table = new_table(f"{phase.capitalize()}, median of the repetitions", ("system", "fsync"), tuple(columns))
    for system in dict.fromkeys(cell.system for cell in cells):
        row = []
        for workload, comparison in groups:
            cell = next((cell for cell in comparison.cells if cell.system is system), None)
            found: Phase | None = getattr(cell, phase) if cell is not None else None
            if cell is None or found is None:
                row.append("–")
                continue
            rate = found.megabytes_per_second if workload.record_size >= 1000 else found.records_per_second / 1e3
            share = comparison.of_limit(cell, phase) if phase == "produce" else None
            row.append(_number(rate, 0 if rate >= 10 else 1) + ("" if share is None else f" ({share:.2f})"))
        table.add_row(escape(system.label), "yes" if system.fsyncs_before_ack else "no", *row)
    return table


def targets_table(verdicts: list[Verdict]) -> Table:
    """A row per target."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="Targets", title_justify="left")
    for column in ("target", "measured", ""):
        table.add_column(column)
    words = {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}
    for verdict in verdicts:
        table.add_row(escape(verdict.target), escape(verdict.measured), words[verdict.is_met])
    return table


def wide_console(width_min: int = WIDTH_MIN) -> Console:
    """Standard output, with lines long enough for a row of a table."""
    console = Console()
    return console if console.width >= width_min else Console(width=width_min)


def print_tables(console: Console, tables: list[Table], *, is_markdown: bool) -> None:
    """On standard output, for the eye or for a page of the documentation."""
    for table in tables:
        if is_markdown:
            print(markdown(table))
        else:
            console.print(table)


def print_report(
    cells: list[Cell], verdicts: list[Verdict], skipped: dict[str, str], *, is_markdown: bool = False
) -> None:
    """Everything a reader wants, on standard output."""
    console = wide_console()
    if cells:
        pivots = [pivot_table(cells, phase) for phase in ("produce", "consume")]
        print_tables(console, pivots if is_markdown else [results_table(cells)], is_markdown=is_markdown)
        for workload, _ in grouped(cells):
            console.print(f"{workload.name}: {workload.title}", highlight=False)
        console.print()
    if verdicts:
        print_tables(console, [targets_table(verdicts)], is_markdown=is_markdown)
    for name, reason in skipped.items():
        console.print(f"not measured: {name}: {escape(reason)}", highlight=False)
    for cell in cells:
        for error in cell.errors:
            console.print(f"[red]failed[/red]: {cell.workload.name}, {escape(cell.system.label)}: {escape(error)}")


def _cell_json(comparison: Comparison, cell: Cell) -> dict[str, Any]:
    out: dict[str, Any] = {"system": cell.system.label, "fsyncs_before_ack": cell.system.fsyncs_before_ack}
    for phase, runs in (("produce", cell.produced), ("consume", cell.consumed)):
        median: Phase | None = getattr(cell, phase)
        out[phase] = {
            "median": median.as_json() if median else None,
            "ratio_to_limit": comparison.of_limit(cell, phase),
            "drmq_ratio": comparison.drmq_ratio(cell, phase),
            "runs": [run.as_json() for run in runs],
        }
    return out | {"errors": cell.errors}


def write_json(
    path: Path, head: dict[str, object], cells: list[Cell], life: Lifecycle | None, verdicts: list[Verdict]
) -> None:
    """All of the run; `head` describes the machine, the options and the systems."""
    body = {
        "workloads": [
            {
                "name": workload.name,
                "title": workload.title,
                "systems": [_cell_json(comparison, cell) for cell in comparison.cells],
            }
            for workload, comparison in grouped(cells)
        ],
        "lifecycle": life.as_json() if life else None,
        "targets": [{"target": v.target, "measured": v.measured, "is_met": v.is_met} for v in verdicts],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(head | body, indent=1) + "\n")
