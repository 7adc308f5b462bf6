"""The command line: `python -m bench cluster`."""

import argparse
import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import machine
from bench.cluster import burners, failover, idle, report, restart, scale, throughput
from bench.cluster.drmq import DrmqCluster
from bench.cluster.kafka import KafkaCluster, KafkaNodes
from bench.cluster.limit import LimitCluster
from bench.cluster.nodes import ClusterSystem
from bench.process import ROOT
from bench.systems import Unavailable

PROGRAMS = ("limit", "drmq", "nats", "kafka")
SECTIONS = ("throughput", "idle", "failover", "restart", "scale")
NODE_COUNT = 3
GIBIBYTE = 1 << 30
DISK_NEEDED_BYTES = 8 * GIBIBYTE


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench cluster", description="Measure clusters of three nodes on this machine."
    )
    parser.add_argument("--quick", action="store_true", help="short phases, once; 5 kills; peers not in `idle`")
    parser.add_argument("--only", default=",".join(PROGRAMS), help=f"comma-separated: {','.join(PROGRAMS)}")
    parser.add_argument("--section", action="append", default=[], help=f"repeatable: {', '.join(SECTIONS)}")
    parser.add_argument("--repeat", type=int, help="repetitions of `throughput` (default 3; 1 with --quick)")
    parser.add_argument("--times", type=int, help="kills in `failover` (default 30; 5 with --quick)")
    parser.add_argument("--stops", type=int, help="stops in order in `failover`, of DRMQ (default 10; 3 with --quick)")
    parser.add_argument(
        "--calm-seconds", type=float, default=failover.CALM_SECONDS,
        help="between kills, from when the cluster is healed (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--partitions", type=int, default=1000, help="in `idle` (default %(default)s)")
    parser.add_argument("--idle-seconds", type=float, default=20.0, help="window of `idle` (default %(default)s)")
    parser.add_argument("--log-bytes", type=int, default=GIBIBYTE, help="in `restart` (default 1 GiB)")
    plan = scale.Plan()
    parser.add_argument("--sizes", type=_numbers, help="partitions in `scale` (default 3000,10000; 300 with --quick)")
    parser.add_argument("--burners", type=_numbers, help="processes beside it (default 0,8,24; 0,8 with --quick)")
    parser.add_argument("--events", default=",".join(plan.events), help="in `scale` (default %(default)s)")
    parser.add_argument(
        "--event-seconds", type=float, default=plan.event_seconds_max,
        help="limit of an event in `scale`, 2.5 times that with more than 8 burners (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables as docs/reference/benchmarks.md has them"
    )
    parser.add_argument("--json", type=Path, help="where to write results (default bench/results/cluster-<time>.json)")
    parser.add_argument("--directory", type=Path, help="where to put data while running (default: temporary)")
    options = parser.parse_args(arguments)
    options.only = [name for name in options.only.split(",") if name]
    options.events = tuple(name for name in options.events.split(",") if name)
    for given, known in ((options.only, PROGRAMS), (options.section, SECTIONS), (options.events, scale.EVENTS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in ("repeat", "times", "stops", "partitions"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    options.section = options.section or list(SECTIONS)
    options.repeat = options.repeat or (1 if options.quick else 3)
    options.times = options.times or (5 if options.quick else 30)
    options.stops = options.stops or (3 if options.quick else 10)
    options.plan = scale.Plan(
        options.sizes or ((300,) if options.quick else plan.sizes),
        options.burners or ((0, 8) if options.quick else plan.burner_counts),
        options.events, options.event_seconds,
        min(5.0, options.idle_seconds) if options.quick else options.idle_seconds,
        3.0 if options.quick else plan.settle_seconds,
    )  # fmt: skip
    return options


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(",") if part)
    if not numbers or min(numbers) < 0:
        raise argparse.ArgumentTypeError("expects numbers of at least 0, separated by commas")
    return numbers


def available(names: list[str], directory: Path) -> tuple[list[ClusterSystem], dict[str, str]]:
    """The systems that can be measured here, and why the others cannot."""
    shared = KafkaNodes()
    skipped: dict[str, str] = {}
    every: list[ClusterSystem] = [
        LimitCluster(directory, 1),
        LimitCluster(directory, NODE_COUNT),
        DrmqCluster(directory, 1),
        DrmqCluster(directory, NODE_COUNT),
    ]
    try:
        from bench.cluster.nats import NatsCluster

        every += [NatsCluster(directory, NODE_COUNT, fsyncs=fsyncs) for fsyncs in (True, False)]
    except ImportError:
        if "nats" in names:
            skipped["nats"] = "needs the Python package nats-py (dependency group bench)"
    every += [KafkaCluster(directory, NODE_COUNT, shared, fsyncs=fsyncs) for fsyncs in (True, False)]
    systems: list[ClusterSystem] = []
    for system in every:
        if system.program in names and system.program not in skipped:
            try:
                system.check()
                systems.append(system)
            except Unavailable as reason:
                skipped[system.program] = str(reason)
    return systems, skipped


def take_sections(
    options: argparse.Namespace, systems: list[ClusterSystem], out: report.Results, on_step: Callable[[str], None]
) -> None:
    """Every section that was asked for, into `out` as they come: an interrupted run keeps what it has."""
    clusters = [system for system in systems if system.node_count > 1]
    if "throughput" in options.section:
        throughput.measure(out.cells, systems, options.repeat, is_quick=options.quick, on_step=on_step)
    if "idle" in options.section:
        for system in clusters:
            if _idles(system, options):
                out.idles.append(idle.measure(system, options.partitions, options.idle_seconds, on_step))
    if "failover" in options.section:
        for system in clusters:
            if system.has_failover:
                stops = options.stops if system.hands_over else 0
                out.failovers.append(failover.measure(system, options.times, stops, options.calm_seconds, on_step))
    if "restart" in options.section:
        for system in clusters:
            if isinstance(system, DrmqCluster):
                out.restarts.append(restart.measure(system, options.log_bytes, on_step))
    if "scale" in options.section:
        for system in clusters:
            if isinstance(system, DrmqCluster):
                scale.measure(system, options.plan, out.scales, on_step)


def step_count(options: argparse.Namespace, systems: list[ClusterSystem]) -> int:
    """How many steps `take_sections` reports; an error makes it fewer."""
    clusters = [system for system in systems if system.node_count > 1]
    ours = sum(isinstance(system, DrmqCluster) for system in clusters)
    counts = {
        "throughput": len(systems) * len(throughput.PARTITION_COUNTS) * options.repeat,
        "idle": 3 * sum(_idles(system, options) for system in clusters),
        "failover": sum(
            1 + options.times + (options.stops if system.hands_over else 0)
            for system in clusters
            if system.has_failover
        ),
        "restart": 3 * ours,
        "scale": options.plan.step_count * ours,
    }
    return sum(counts[name] for name in set(options.section))


def _idles(system: ClusterSystem, options: argparse.Namespace) -> bool:
    # Creating a thousand replicated streams takes the peers long, and is not our concern in a hurry.
    is_left_out = bool(options.quick) and system.program != "drmq"
    return system.partitions_are_groups and system.fsyncs_before_ack and not is_left_out


def run(options: argparse.Namespace, directory: Path, say: Console) -> int:
    """Measure, print, write; 1 if a measurement failed."""
    file_system = machine.file_system(directory)
    if file_system in machine.VOLATILE_FILE_SYSTEMS:
        say.print(f"{directory} is on {file_system}: fsync costs nothing there, use --directory", markup=False)
    if shutil.disk_usage(directory).free < DISK_NEEDED_BYTES:
        say.print(f"needs {DISK_NEEDED_BYTES // GIBIBYTE} GiB free under {directory}; see --directory", markup=False)
        return 2
    described = machine.describe(directory)
    systems, skipped = available(options.only, directory)
    started_at = time.perf_counter()

    if "scale" in options.section and max(options.plan.burner_counts) and not burners.are_fair():
        say.print("the scheduler does not share the processor by session: burners weigh less than nodes", markup=False)
    columns = TextColumn("{task.description:50}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    progress = Progress(*columns, console=say, transient=True)
    bar = progress.add_task("", total=step_count(options, systems), completed=-1)

    def on_step(text: str) -> None:
        say.print(f"{time.perf_counter() - started_at:5.0f} s  {text}", markup=False, highlight=False)
        progress.update(bar, advance=1, description=text)

    results = report.Results()
    is_whole = False
    with contextlib.ExitStack() as stack:
        for system in systems:
            stack.callback(system.close)
        stack.enter_context(progress)
        with contextlib.suppress(KeyboardInterrupt):
            take_sections(options, systems, results, on_step)
            is_whole = True
    results.machine = described | {"load_average_after": machine.load_average()}
    results.versions = {system.label: system.version() for system in systems}
    results.skipped = skipped
    results.options = {
        "quick": options.quick, "repeat": options.repeat, "times": options.times, "partitions": options.partitions,
        "is_whole": is_whole,
    }  # fmt: skip
    report.print_report(results, is_markdown=options.markdown)
    path = options.json or ROOT / "bench" / "results" / f"cluster-{time.strftime('%Y%m%d-%H%M%S')}.json"
    report.write_json(path, results)
    say.print(f"written: {path}", markup=False, highlight=False)
    if not is_whole:
        raise KeyboardInterrupt
    return 1 if results.errors() else 0
