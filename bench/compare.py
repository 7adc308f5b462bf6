"""`python -m bench compare OLD NEW`: two checkouts of DRMQ in turns, in one run.

Numbers of different runs differ by more than most changes do. So each repetition measures both checkouts one after the
other, in an order that alternates, and what counts is the ratio new to old within a repetition: its mean, how certain
that is, and the smallest and largest. Each checkout needs its own `.venv` (any `make` target creates it). The clients
are those of the checkout that runs this.
"""

import argparse
import contextlib
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import machine, schedule, workloads
from bench.cluster import throughput
from bench.cluster.drmq import DrmqCluster
from bench.measurement import Phase
from bench.process import ROOT
from bench.report import new_table, print_tables, wide_console
from bench.systems import Unavailable
from bench.systems.drmq import DrmqSystem

NAMES = ("old", "new")
NODE_COUNT = 3


@dataclass(frozen=True)
class Ratio:
    """New divided by old for one number, a value per repetition."""

    workload: str
    what: str
    old: tuple[float, ...]
    new: tuple[float, ...]
    is_better_below: bool = False

    @property
    def ratios(self) -> list[float]:
        """One per repetition that has both."""
        return [new / old for old, new in zip(self.old, self.new, strict=False) if old > 0 and new > 0]

    @property
    def mean(self) -> float:
        """The geometric mean: halved and doubled cancel out."""
        return math.exp(statistics.fmean(math.log(ratio) for ratio in self.ratios))

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None with fewer than three repetitions."""
        if len(self.ratios) < 3:
            return None
        logarithms = [math.log(ratio) for ratio in self.ratios]
        return self.mean * statistics.stdev(logarithms) / math.sqrt(len(logarithms))


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench compare", description="Measure two checkouts of DRMQ in turns; print ratios new to old."
    )
    parser.add_argument("old", type=Path, metavar="OLD", help="a checkout with its .venv")
    parser.add_argument("new", type=Path, metavar="NEW", help="a checkout with its .venv")
    names = ", ".join(w.name for w in workloads.ALL)
    parser.add_argument(
        "--workload", action="append", default=[], help=f"repeatable (default: the quick ones): {names}"
    )
    parser.add_argument("--cluster", action="store_true", help="three nodes each, as in `cluster --section throughput`")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="shorter phases")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    parser.add_argument("--json", type=Path, help="where to write results (default bench/results/compare-<time>.json)")
    parser.add_argument("--directory", type=Path, help="where to put data while running (default: temporary)")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    if options.cluster and options.workload:
        parser.error("--cluster has a workload of its own; leave out --workload")
    try:
        chosen = options.workload or [w.name for w in workloads.select([], is_quick=True)]
        options.chosen = workloads.select(chosen, is_quick=options.quick)
    except ValueError as wrong:
        parser.error(str(wrong))
    return options


def run(options: argparse.Namespace, directory: Path, say: Console) -> int:
    """Measure, print, write; 1 if a measurement failed."""
    programs = [(tree / ".venv" / "bin" / "drmq").absolute() for tree in (options.old, options.new)]
    for program in programs:
        if not program.exists():
            say.print(f"there is no {program}: run `make check` in that checkout first", markup=False)
            return 2
    described = machine.describe(directory)
    started_at = time.perf_counter()

    def on_step(text: str) -> None:
        say.print(f"{time.perf_counter() - started_at:5.0f} s  {text}", markup=False, highlight=False)

    try:
        measure = _cluster_ratios if options.cluster else _node_ratios
        ratios, errors = measure(options, directory, programs, on_step)
    except Unavailable as reason:
        say.print(str(reason), markup=False)
        return 2
    console = wide_console()
    console.print(
        f"load average {described['load_average']} before and {machine.load_average()} after, {options.repeat} "
        f"repetitions; old {options.old}, new {options.new}", markup=False, highlight=False,
    )  # fmt: skip
    print_tables(console, [ratio_table(ratios)], is_markdown=options.markdown)
    for error in errors:
        console.print(f"failed: {error}", markup=False)
    path = options.json or ROOT / "bench" / "results" / f"compare-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"workload": r.workload, "what": r.what, "old": r.old, "new": r.new, "mean": r.mean, "error": r.error}
        for r in ratios
    ]
    path.write_text(json.dumps({"machine": described, "ratios": rows, "errors": errors}, indent=1) + "\n")
    say.print(f"written: {path}", markup=False, highlight=False)
    return 1 if errors else 0


def ratio_table(ratios: list[Ratio]) -> Table:
    """A row per number."""
    table = new_table(
        "New to old, both in each repetition",
        ("workload", "number"),
        ("old\nmedian", "new\nmedian", "ratio\nmean", "± standard\nerror", "smallest", "largest", "better is"),
    )
    for ratio in ratios:
        table.add_row(
            ratio.workload, ratio.what, f"{statistics.median(ratio.old):,.2f}", f"{statistics.median(ratio.new):,.2f}",
            f"{ratio.mean:.3f}", "–" if ratio.error is None else f"{ratio.error:.3f}", f"{min(ratio.ratios):.3f}",
            f"{max(ratio.ratios):.3f}", "below 1" if ratio.is_better_below else "above 1",
        )  # fmt: skip
    return table


def _phase_ratios(workload: str, action: str, old: list[Phase], new: list[Phase]) -> list[Ratio]:
    def both(of: Callable[[Phase], float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return tuple(map(of, old)), tuple(map(of, new))

    return [
        Ratio(workload, f"{action}, k records/s", *both(lambda phase: phase.records_per_second / 1e3)),
        Ratio(workload, f"{action}, CPU s per M records", *both(lambda phase: phase.cpu_seconds_per_million), True),
    ]


def _node_ratios(
    options: argparse.Namespace, directory: Path, programs: list[Path], on_step: Callable[[str], None]
) -> tuple[list[Ratio], list[str]]:
    systems = [DrmqSystem(directory, *pair) for pair in zip(programs, NAMES, strict=True)]
    with contextlib.ExitStack() as stack:
        for system in systems:
            system.check()
            stack.callback(system.close)
        cells = schedule.run_all(list(systems), options.chosen, options.repeat, on_step)
    ratios = []
    for workload in options.chosen:
        old, new = (cell for cell in cells if cell.workload is workload)
        ratios += _phase_ratios(workload.name, "produce", old.produced, new.produced)
        ratios += _phase_ratios(workload.name, "consume", old.consumed, new.consumed)
    errors = [f"{cell.workload.name}, {cell.system.label}: {error}" for cell in cells for error in cell.errors]
    return [ratio for ratio in ratios if ratio.ratios], errors


def _cluster_ratios(
    options: argparse.Namespace, directory: Path, programs: list[Path], on_step: Callable[[str], None]
) -> tuple[list[Ratio], list[str]]:
    systems = [DrmqCluster(directory, NODE_COUNT, *pair) for pair in zip(programs, NAMES, strict=True)]
    cells: list[throughput.Cell] = []
    with contextlib.ExitStack() as stack:
        for system in systems:
            system.check()
            stack.callback(system.close)
        throughput.measure(cells, list(systems), options.repeat, is_quick=options.quick, on_step=on_step)
    ratios = []
    for count in throughput.PARTITION_COUNTS:
        old, new = (cell for cell in cells if cell.workload.partition_count == count)
        name = f"{count} partitions"
        ratios += _phase_ratios(name, "produce", old.produced, new.produced)
        ratios += _phase_ratios(name, "consume", old.consumed, new.consumed)
        for rate in throughput.RATES_MEGABYTES:
            for share in ("p50", "p99"):
                values = [
                    tuple(p.latency_seconds[share] * 1e3 for p in cell.paced if p.megabytes_per_second == rate)
                    for cell in (old, new)
                ]
                ratios.append(Ratio(name, f"{rate} MB/s, {share} ms", values[0], values[1], is_better_below=True))
    errors = [
        f"{cell.system.label}, {cell.workload.partition_count} partitions: {error}"
        for cell in cells
        for error in cell.errors
    ]
    return [ratio for ratio in ratios if ratio.ratios], errors
