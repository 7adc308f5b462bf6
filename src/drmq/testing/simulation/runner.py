"""Runs one seed, and reports the result."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drmq.testing.simulation.cluster import Cluster
from drmq.testing.simulation.profile import ANY, Profile
from drmq.testing.simulation.world import SECOND, Violation

_TAIL_LINES = 60


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run."""

    seed: int
    nodes: int
    minutes: float
    kind: str
    violation: Violation | None
    hash: str
    """Hash of all events. Two runs with the same hash were identical."""
    story: list[str]
    """The last lines of what happened."""
    events: int
    virtual_s: float
    real_s: float
    acked: int
    read: int
    committed: int
    counts: dict[str, int]
    profile: Profile

    @property
    def is_sound(self) -> bool:
        return self.violation is None

    def report(self) -> str:
        """A failure for people: which invariant was broken, what led to it, and how to reproduce it."""
        assert self.violation is not None
        return "\n".join(
            [
                f"seed {self.seed} breaks an invariant: {self.violation}",
                "",
                "The last events:",
                *self.story[-_TAIL_LINES:],
                "",
                f"To reproduce it: {command_for(self.seed, self.nodes, self.minutes, self.kind)}",
            ]
        )


def command_for(seed: int, nodes: int, minutes: float, kind: str = ANY) -> str:
    """The command that repeats a run."""
    of_kind = "" if kind == ANY else f" --kind {kind}"
    return f"drmq simulate --seed {seed} --nodes {nodes} --minutes {minutes:g}{of_kind} --loud"


def simulate(
    seed: int,
    nodes: int = 3,
    minutes: float = 1.0,
    *,
    kind: str = ANY,
    on_line: Callable[[str], None] | None = None,
    on_progress: Callable[[int], None] = lambda us: None,
) -> Result:
    """Run a cluster of `nodes` nodes for a number of virtual minutes.

    `kind` is one of `profile.KINDS`. `on_line` is called with every line of the story as it happens; `on_progress` with
    the number of virtual microseconds that have passed since its last call.
    """
    started = time.monotonic()
    violation = None
    with _few_collections():
        cluster = Cluster(seed, nodes, on_line, kind)
        try:
            cluster.run(int(minutes * 60 * SECOND), on_progress)
        except Violation as broken:
            violation = broken
        except Exception as error:  # noqa: BLE001 - a bug in the simulator or in the checks, or one found by them
            violation = Violation("no-bug", "".join(traceback.format_exception(error)[-4:]))
    world, history = cluster.world, cluster.history
    return Result(
        seed=seed,
        nodes=nodes,
        minutes=minutes,
        kind=kind,
        violation=violation,
        hash=world.hash,
        story=world.story,
        events=world.event_count,
        virtual_s=world.now_us / SECOND,
        real_s=time.monotonic() - started,
        acked=history.acked_count,
        read=history.read_count,
        committed=history.committed_count,
        counts=dict(world.counts),
        profile=cluster.profile,
    )


@contextmanager
def _few_collections() -> Iterator[None]:
    """Run the garbage collector rarely: a run creates millions of small objects and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
