"""The command line: `python -m bench queues`."""

import argparse
import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import machine
from bench.process import ROOT
from bench.queues import latency, memory, report, throughput
from bench.queues.kafka import OWN, PARK, DrmqQueue, KafkaQueue
from bench.queues.redis import RedisQueue
from bench.queues.systems import QueueSystem
from bench.queues.throughput import Plan, Shape
from bench.systems import Unavailable

PROGRAMS = ("drmq", "kafka", "rabbitmq", "nats", "redis")
SECTIONS = ("throughput", "latency", "memory")
CLIENTS = ("implicit", "explicit", "own", "raw-runs", "raw-many", "raw-one", "peer")
DISK_NEEDED_BYTES = 8 << 30


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench queues", description="Measure work queues: messages leased and acknowledged one by one."
    )
    parser.add_argument("--quick", action="store_true", help="1 KB, 1 and 4 workers, once, 2 s each")
    parser.add_argument("--only", type=_names, default=list(PROGRAMS), help=f"comma-separated: {','.join(PROGRAMS)}")
    parser.add_argument("--section", action="append", default=[], help=f"repeatable: {', '.join(SECTIONS)}")
    parser.add_argument("--client", action="append", default=[], help=f"repeatable: {', '.join(CLIENTS)}")
    parser.add_argument("--nodes", type=_numbers, default=(1, 3), help="comma-separated (default 1,3)")
    parser.add_argument("--sizes", type=_numbers, help="bytes of a value (default 100,1024; 1024 with --quick)")
    parser.add_argument("--workers", type=_numbers, help="members of a group (default 1,4,16; 1,4 with --quick)")
    parser.add_argument("--repeat", type=int, help="repetitions (default 3; 1 with --quick)")
    parser.add_argument("--seconds", type=float, help="of a measurement at most (default 4; 2 with --quick)")
    parser.add_argument("--messages", type=int, default=1_000_000, help="in a queue at most (default %(default)s)")
    parser.add_argument("--done", type=int, default=1_000_000, help="messages of `memory` (default %(default)s)")
    parser.add_argument("--parked", type=int, default=100_000, help="put off in `memory` (default %(default)s)")
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables as docs/reference/benchmarks.md has them"
    )
    parser.add_argument("--json", type=Path, help="where to write results (default bench/results/queues-<time>.json)")
    parser.add_argument("--directory", type=Path, help="where to put data while running (default: temporary)")
    options = parser.parse_args(arguments)
    for given, known in ((options.only, PROGRAMS), (options.section, SECTIONS), (options.client, CLIENTS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in ("repeat", "seconds", "messages", "done", "parked"):
        if getattr(options, name) is not None and getattr(options, name) <= 0:
            parser.error(f"--{name} must be greater than 0")
    options.section = options.section or list(SECTIONS)
    options.seconds = options.seconds or (2.0 if options.quick else 4.0)
    sizes = options.sizes or ((1024,) if options.quick else (100, 1024))
    workers = options.workers or ((1, 4) if options.quick else (1, 4, 16))
    options.plan = Plan(
        tuple(Shape(size, count) for size in sizes for count in workers),
        options.repeat or (1 if options.quick else 3), options.seconds, options.messages, frozenset(options.client),
    )  # fmt: skip
    return options


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(",") if part)
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError("expects numbers of at least 1, separated by commas")
    return numbers


def available(names: list[str], directory: Path, node_count: int) -> tuple[list[QueueSystem], dict[str, str]]:
    """The systems that can be measured here with so many nodes, and why the others cannot."""
    skipped: dict[str, str] = {}
    every: list[QueueSystem] = [DrmqQueue(directory, node_count), KafkaQueue(directory, node_count)]
    if node_count == 1:
        every.append(RedisQueue(directory, node_count))
    try:
        from bench.queues.nats import NatsQueue

        every.append(NatsQueue(directory, node_count))
    except ImportError:
        skipped["nats"] = "needs the Python package nats-py (dependency group bench)"
    try:
        from bench.queues.rabbitmq import RabbitQueue

        every.append(RabbitQueue(directory, node_count))
    except ImportError:
        skipped["rabbitmq"] = "needs the Python package aio-pika (dependency group bench)"
    systems = []
    for system in every:
        if system.program in names:
            try:
                system.check()
                systems.append(system)
            except Unavailable as reason:
                skipped[system.program] = str(reason)
    return systems, {name: reason for name, reason in skipped.items() if name in names}


def take_sections(
    options: argparse.Namespace, directory: Path, out: report.Results, on_step: Callable[[str], None]
) -> None:
    """Every section that was asked for, into `out` as they come: an interrupted run keeps what it has."""
    for node_count in options.nodes:
        # Only the systems that are compared run, also if they keep running between measurements.
        systems, skipped = available(options.only, directory, node_count)
        out.skipped |= skipped
        out.versions |= {system.label: system.version() for system in systems}
        with contextlib.ExitStack() as stack:
            for system in systems:
                stack.callback(system.close)
            if "throughput" in options.section and systems:
                throughput.measure(out.cells, systems, options.plan, on_step)
            if "latency" in options.section:
                seconds = 3.0 if options.quick else 8.0
                latency.measure(out.timed, systems, options.plan, seconds, on_step)
            drmq = next((system for system in systems if isinstance(system, DrmqQueue)), None)
            if "memory" in options.section and drmq is not None and node_count == 1:
                out.memory = memory.measure(drmq, OWN, PARK, (options.done, options.parked), on_step)


def run(options: argparse.Namespace, directory: Path, say: Console) -> int:
    """Measure, print, write; 1 if a measurement failed."""
    file_system = machine.file_system(directory)
    if file_system in machine.VOLATILE_FILE_SYSTEMS:
        say.print(f"{directory} is on {file_system}: fsync costs nothing there, use --directory", markup=False)
    if shutil.disk_usage(directory).free < DISK_NEEDED_BYTES:
        say.print(f"needs {DISK_NEEDED_BYTES >> 30} GiB free under {directory}; see --directory", markup=False)
        return 2
    described = machine.describe(directory)
    started_at = time.perf_counter()

    def on_step(text: str) -> None:
        say.print(f"{time.perf_counter() - started_at:5.0f} s  {text}", markup=False, highlight=False)

    results = report.Results()
    is_whole = False
    with contextlib.suppress(KeyboardInterrupt):
        take_sections(options, directory, results, on_step)
        is_whole = True
    results.machine = described | {"load_average_after": machine.load_average()}
    results.options = {
        "quick": options.quick, "repeat": options.plan.repeat_count, "seconds": options.seconds,
        "messages": options.messages, "is_whole": is_whole,
    }  # fmt: skip
    report.print_report(results, is_markdown=options.markdown)
    path = options.json or ROOT / "bench" / "results" / f"queues-{time.strftime('%Y%m%d-%H%M%S')}.json"
    report.write_json(path, results)
    say.print(f"written: {path}", markup=False, highlight=False)
    if not is_whole:
        raise KeyboardInterrupt
    return 1 if results.errors() else 0
