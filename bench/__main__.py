"""The command line: `python -m bench`, `python -m bench cluster`, `... queues`, `... telemetry`, `... compare`."""

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import compare, lifecycle, machine, report, schedule, targets, workloads
from bench.cluster import command as cluster
from bench.process import ROOT
from bench.queues import command as queues
from bench.systems import System, Unavailable
from bench.systems.drmq import DrmqSystem
from bench.systems.kafka import KafkaNode, KafkaSystem
from bench.systems.limit import LimitSystem
from bench.systems.nats import NatsSystem
from bench.systems.redis import RedisSystem
from bench.telemetry import command as telemetry

NAMES = ("drmq", "limit", "redis", "nats", "kafka")
LIFECYCLE = "lifecycle"
PARTS = {
    "cluster": (cluster.parse, cluster.run),
    "compare": (compare.parse, compare.run),
    "queues": (queues.parse, queues.run),
    "telemetry": (telemetry.parse, telemetry.run),
}
DISK_HEADROOM_BYTES = 8 * lifecycle.GIGABYTE


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure DRMQ, a bare limit, and peers.",
        epilog="`python -m bench cluster` measures three nodes; it follows a full run by itself. "
        "`python -m bench queues` measures work queues, `python -m bench telemetry` what watching costs. "
        "`python -m bench compare` measures two checkouts in turns.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer workloads, once each: a minute or two")
    parser.add_argument("--only", default=",".join(NAMES), help=f"systems, comma-separated: {','.join(NAMES)}")
    names = ", ".join([*(w.name for w in workloads.ALL), LIFECYCLE])
    parser.add_argument("--workload", action="append", default=[], help=f"repeatable: {names}")
    parser.add_argument("--repeat", type=int, help="repetitions (default 3; 1 with --quick)")
    parser.add_argument("--json", type=Path, help="where to write results (default bench/results/<time>.json)")
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables as docs/reference/benchmarks.md has them"
    )
    parser.add_argument("--directory", type=Path, help="where to put data while running (default: temporary)")
    options = parser.parse_args(arguments)
    options.only = [name for name in options.only.split(",") if name]
    if unknown := set(options.only) - set(NAMES):
        parser.error(f"unknown system {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if options.repeat is not None and options.repeat < 1:
        parser.error("--repeat must be at least 1")
    options.repeat = options.repeat or (1 if options.quick else 3)
    options.lifecycle = "drmq" in options.only and (not options.workload or LIFECYCLE in options.workload)
    shapes = [name for name in options.workload if name != LIFECYCLE]
    options.chosen = []
    if shapes or not options.workload:
        try:
            options.chosen = workloads.select(shapes, is_quick=options.quick)
        except ValueError as wrong:
            parser.error(str(wrong))
    return options


def available(names: list[str], directory: Path) -> tuple[list[System], dict[str, str]]:
    """The systems that can be measured here, and why the others cannot."""
    node = KafkaNode(directory)
    every: list[System] = [
        LimitSystem(directory),
        DrmqSystem(directory),
        RedisSystem(directory),
        NatsSystem(directory, fsyncs=True),
        NatsSystem(directory, fsyncs=False),
        KafkaSystem(directory, node, fsyncs=True),
        KafkaSystem(directory, node, fsyncs=False),
    ]
    systems: list[System] = []
    skipped: dict[str, str] = {}
    for system in every:
        if system.name in names and system.name not in skipped:
            try:
                system.check()
                systems.append(system)
            except Unavailable as reason:
                skipped[system.name] = str(reason)
    return systems, skipped


def run(options: argparse.Namespace, directory: Path, say: Console) -> int:
    """Measure, print, write; 1 if a measurement failed."""
    file_system = machine.file_system(directory)
    if file_system in machine.VOLATILE_FILE_SYSTEMS:
        say.print(f"{directory} is on {file_system}: fsync costs nothing there, use --directory", markup=False)
    through, sealed = (1, 1) if options.quick else (5, 10)
    needed = DISK_HEADROOM_BYTES + (2 * sealed * lifecycle.GIGABYTE if options.lifecycle else 0)
    if shutil.disk_usage(directory).free < needed:
        say.print(f"needs {needed // lifecycle.GIGABYTE} GB free under {directory}; see --directory", markup=False)
        return 2
    described = machine.describe(directory)
    systems, skipped = available(options.only, directory)
    versions = {system.label: system.version() for system in systems}
    drmq = next((system for system in systems if isinstance(system, DrmqSystem)), None)
    life = None
    with contextlib.ExitStack() as stack:
        for system in systems:
            stack.callback(system.close)
        progress = stack.enter_context(
            Progress(
                TextColumn("{task.description:32}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=say,
            )
        )
        has_life = bool(options.lifecycle and drmq)
        steps = len(systems) * len(options.chosen) * options.repeat + (lifecycle.STEPS if has_life else 0)
        bar = progress.add_task("", total=steps, completed=-1)

        def on_step(text: str) -> None:
            progress.update(bar, advance=1, description=text)

        cells = schedule.run_all(systems, options.chosen, options.repeat, on_step)
        if has_life and drmq is not None:
            life = lifecycle.measure(
                drmq, through_bytes=through * lifecycle.GIGABYTE, sealed_bytes=sealed * lifecycle.GIGABYTE,
                start_count=max(3, options.repeat), on_step=on_step,
            )  # fmt: skip
        progress.update(bar, completed=steps, description="done")
    verdicts = targets.judge(cells, life)
    print(machine.sentence(described, machine.load_average(), versions), end="\n\n")
    report.print_report(cells, verdicts, skipped, is_markdown=options.markdown)
    path = options.json or ROOT / "bench" / "results" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    head: dict[str, object] = {
        "machine": described,
        "options": {"quick": options.quick, "repeat": options.repeat},
        "versions": versions,
        "not_measured": skipped,
    }
    report.write_json(path, head, cells, life, verdicts)
    say.print(f"written: {path}", markup=False, highlight=False)
    return 1 if any(cell.errors for cell in cells) or (life is not None and life.errors) else 0


def _stop(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run in a directory that is gone afterwards, however it ends."""
    part = PARTS.get("".join(sys.argv[1:2]))
    options = part[0](sys.argv[2:]) if part else parse()
    # Without this, a plain kill would leave the servers running and the data lying around.
    signal.signal(signal.SIGTERM, _stop)
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
    say = Console(stderr=True)
    try:
        with tempfile.TemporaryDirectory(prefix="drmq-bench-", dir=options.directory) as name:
            directory = Path(name).resolve()
            if part:
                return part[1](options, directory, say)
            failed = run(options, directory, say)
            is_full = not options.quick and not options.workload and set(options.only) == set(NAMES)
            return max(failed, cluster.run(cluster.parse([]), directory, say)) if is_full else failed
    except KeyboardInterrupt:
        say.print("interrupted; servers are stopped and data is removed")
        return 130


if __name__ == "__main__":
    sys.exit(main())
