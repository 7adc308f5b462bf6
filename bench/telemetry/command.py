"""The command line: `python -m bench telemetry`."""

import argparse
import json
import shutil
import time
from pathlib import Path

from rich.console import Console

from bench import machine
from bench.process import ROOT
from bench.telemetry import browse, cost, viewed
from bench.telemetry.observed import ObservedCluster

SECTIONS = ("cost", "viewers", "browse")
COST_MAX, RATIO_MIN, PAGE_SECONDS_MAX = 0.02, 0.97, 0.2
GIGABYTE = 1_000_000_000


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench telemetry",
        description="Measure what watching a cluster costs it, and how fast the message browser answers.",
    )
    parser.add_argument("--quick", action="store_true", help="100 partitions, 5 s windows, 2 turns, 0.2 GB")
    parser.add_argument("--section", action="append", default=[], help=f"repeatable: {', '.join(SECTIONS)}")
    parser.add_argument("--partitions", type=int, help="in `cost` (default 1000)")
    parser.add_argument("--seconds", type=float, help="of a window in `cost` (default 20)")
    parser.add_argument("--viewers", type=int, default=5, help="in `viewers` (default %(default)s)")
    parser.add_argument("--turns", type=int, help="in `viewers` (default 6)")
    parser.add_argument("--gigabytes", type=float, help="in `browse` (default 5)")
    parser.add_argument("--pages", type=int, help="of each kind in `browse` (default 30)")
    parser.add_argument(
        "--json", type=Path, help="where to write results (default bench/results/telemetry-<time>.json)"
    )
    parser.add_argument("--directory", type=Path, help="where to put data while running (default: temporary)")
    options = parser.parse_args(arguments)
    if unknown := set(options.section) - set(SECTIONS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    is_quick = options.quick
    options.section = options.section or list(SECTIONS)
    options.partitions = options.partitions or (100 if is_quick else 1000)
    options.seconds = options.seconds or (5.0 if is_quick else 20.0)
    options.turns = options.turns or (2 if is_quick else 6)
    options.gigabytes = options.gigabytes or (0.2 if is_quick else 5.0)
    options.pages = options.pages or (5 if is_quick else 30)
    return options


def run(options: argparse.Namespace, directory: Path, say: Console) -> int:
    """Measure, print, write; 1 if a measurement failed."""
    needed = int(2 * options.gigabytes * GIGABYTE) + 2 * GIGABYTE
    if "browse" in options.section and shutil.disk_usage(directory).free < needed:
        say.print(f"needs {needed / GIGABYTE:.0f} GB free under {directory}; see --directory", markup=False)
        return 2
    described = machine.describe(directory)

    def on_step(text: str) -> None:
        say.print(text, markup=False, highlight=False)

    found: dict[str, object] = {"machine": described}
    errors: list[str] = []
    print(machine.sentence(described, machine.load_average(), {}), end="\n\n")
    if "cost" in options.section:
        cluster = ObservedCluster(directory, 3)
        paid = cost.measure(cluster, options.partitions, options.seconds, on_step)
        found["cost"], errors = paid.as_json(), errors + _said(say, paid.errors)
        if not paid.errors:
            _print_cost(paid)
    if "viewers" in options.section:
        seen = viewed.measure(ObservedCluster(directory, 3), options.viewers, options.turns, 4.0, on_step)
        found["viewers"], errors = seen.as_json(), errors + _said(say, seen.errors)
        if not seen.errors:
            rate = sum(seen.without) / len(seen.without)
            print(
                f"Producing 1 KB records to 3 nodes with {seen.viewer_count} viewers: {seen.ratio:.3f} of without "
                f"(at least {RATIO_MIN}); {rate:,.0f} records a second without; "
                f"processor time for a record: {seen.cpu_ratio:.3f} times"
            )
    if "browse" in options.section:
        pages = browse.measure(ObservedCluster(directory, 1), int(options.gigabytes * GIGABYTE), options.pages, on_step)
        found["browse"], errors = pages.as_json(), errors + _said(say, pages.errors)
        if not pages.errors:
            print(f"First page of 50 records on {options.gigabytes:g} GB (at most {PAGE_SECONDS_MAX * 1000:.0f} ms):")
            for where in pages.pages:
                p50, most = pages.percentile(where, "p50") * 1000, pages.percentile(where, "max") * 1000
                print(f"  {where:22} p50 {p50:6.1f} ms   max {most:6.1f} ms")
    path = options.json or ROOT / "bench" / "results" / f"telemetry-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
    say.print(f"written: {path}", markup=False, highlight=False)
    return 1 if errors else 0


def _said(say: Console, errors: list[str]) -> list[str]:
    for error in errors:
        say.print(f"failed: {error}", markup=False, style="red")
    return errors


def _print_cost(paid: cost.Cost) -> None:
    def shares(values: list[float]) -> str:
        return "  ".join(f"{value:6.2%}" for value in values)

    print(f"Processor time at {paid.partition_count} partitions, no traffic, share of a core, by node:")
    print(f"  node alone             {shares(paid.alone)}")
    print(f"  node, idle gateway     {shares(paid.beside_gateway)}")
    print(f"  node, one viewer       {shares(paid.beside_viewer)}")
    print(f"  what the viewer costs  {shares(paid.extra)}   (at most {COST_MAX:.0%})")
    print(f"  gateway, idle          {shares(paid.idle_gateways)}")
    print(f"  gateway, one viewer    {shares(paid.viewed_gateways)}")
    print(f"  gateway memory         {'  '.join(f'{size / 1e6:.0f} MB' for size in paid.gateway_rss_bytes)}")
