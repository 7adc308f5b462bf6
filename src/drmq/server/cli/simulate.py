"""`drmq simulate`: a whole cluster in this process, on a simulated clock, network and disk, under all kinds of faults.

The same seed gives the same run, event for event. Nothing touches a real disk, port or network.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.progress import Progress

if TYPE_CHECKING:
    from drmq.testing.simulation import Result

_KINDS = (
    "any",
    "plain",
    "quiet",
    "retention",
    "installs",
    "strands",
    "groups",
    "topics",
    "growth",
    "rot",
    "starved",
    "work",
    "leases",
    "letters",
    "poison",
)


def _run(seed: int, nodes: int, minutes: float, kind: str, **listeners: Any) -> Result:
    # `testing` is above `server`: the simulator is loaded like a plug-in, and only by this command.
    return import_module("drmq.testing.simulation").simulate(seed, nodes, minutes, kind=kind, **listeners)  # type: ignore[no-any-return]


def _summary(result: Result) -> str:
    return (
        f"seed {result.seed}: {result.virtual_s:.0f} s of {result.nodes} nodes in {result.real_s:.1f} s, "
        f"{result.events} events, {result.acked} records acknowledged, {result.read} read, "
        f"{result.committed} offsets committed; hash {result.hash}"
    )


@click.command()
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random decisions.")
@click.option(
    "--seeds",
    "count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of seeds to run, starting with --seed.",
)
@click.option("--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="Number of nodes.")
@click.option(
    "--minutes", type=click.FloatRange(min=0.01), default=1.0, show_default=True, help="Virtual minutes with faults."
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=None, help="Number of processes.  [default: one per core]"
)
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    default=_KINDS[0],
    show_default=True,
    help="What the run concentrates on; `any` lets the seed choose.",
)
@click.option("--loud", is_flag=True, help="Print every event as it happens.")
def simulate(seed: int, count: int, nodes: int, minutes: float, workers: int | None, kind: str, loud: bool) -> int:
    """Run a simulated cluster through crashes, network cuts and full disks.

    Runs real brokers, and clients that produce, consume and commit, while machines lose power, links are cut, disks
    fill up and clocks jump. After every event the invariants of consensus are checked; at the end, all guarantees to
    clients. A seed that breaks an invariant is printed with the command that reproduces it. Exit code 1 if any does.

    \b
      drmq simulate --seeds 100 --minutes 2
    """
    if count > 1:
        return _many(range(seed, seed + count), nodes, minutes, kind, workers or os.cpu_count() or 1)
    bar: Any = nullcontext() if loud else Progress("simulating (virtual seconds)", int(minutes * 60))
    with bar as progress:
        result = _run(
            seed,
            nodes,
            minutes,
            kind,
            on_line=print if loud else None,
            on_progress=(lambda us: None) if loud else (lambda us: progress.advance(round(us / 1e6))),
        )
    if not result.is_sound:
        print(result.report(), file=sys.stderr)
        return 1
    print(_summary(result))
    return 0


def _many(seeds: range, nodes: int, minutes: float, kind: str, workers: int) -> int:
    """Run many seeds in several processes. Failures are printed as they are found."""
    failed = []
    virtual_s = 0.0
    rest = iter(seeds)
    with Progress("seeds", len(seeds)) as progress, ProcessPoolExecutor(workers) as pool:
        running = {
            pool.submit(_run, seed, nodes, minutes, kind) for seed, _ in zip(rest, range(2 * workers), strict=False)
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                virtual_s += result.virtual_s
                progress.advance(1)
                if not result.is_sound:
                    failed.append(result.seed)
                    print(f"{result.report()}\n", file=sys.stderr)
                for seed in rest:
                    running.add(pool.submit(_run, seed, nodes, minutes, kind))
                    break
    hours = virtual_s / 3_600
    if failed:
        print(f"{len(failed)} of {len(seeds)} seeds broke an invariant: {' '.join(map(str, sorted(failed)))}")
        return 1
    print(f"{len(seeds)} seeds, {hours:.1f} virtual hours of {nodes} nodes: no invariant was broken")
    return 0
