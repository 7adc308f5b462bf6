"""Run one seed, and say what came of it."""

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
    """What came of one run."""

    seed: int
    nodes: int
    minutes: float
    kind: str
    violation: Violation | None
    hash: str
    """Of all events. Two runs with the same hash were the same run."""
    story: list[str]
    """What happened, in words; the last lines of it."""
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
        """A failure for people: what is wrong, what led to it, how to see it again."""
        assert self.violation is not None
        return "\n".join(
            [
                f"seed {self.seed} breaks a rule: {self.violation}",
                "",
                "What happened last:",
                *self.story[-_TAIL_LINES:],
                "",
                f"To see it again: {command_for(self.seed, self.nodes, self.minutes, self.kind)}",
            ]
        )


def command_for(seed: int, nodes: int, minutes: float, kind: str = ANY) -> str:
    """The command that runs a seed again."""
    of_kind = "" if kind == ANY else f" --kind {kind}"
    return f"drmq simulate --seed {seed} --nodes {nodes} --minutes {minutes:g}{of_kind} --loud"


def simulate(
    seed: int,
    nodes: int = 3,
    minutes: float = 1.0,
    *,
    kind: str = ANY,
    tell: Callable[[str], None] | None = None,
    on_progress: Callable[[int], None] = lambda us: None,
) -> Result:
    """Run a cluster of so many nodes for so many virtual minutes.

    `kind` is one of `profile.KINDS`. `tell` gets every line of the story as it happens; `on_progress` hears how many
    virtual microseconds have passed.
    """
    started = time.monotonic()
    violation = None
    with _few_collections():
        cluster = Cluster(seed, nodes, tell, kind)
        try:
            cluster.run(int(minutes * 60 * SECOND), on_progress)
        except Violation as broken:
            violation = broken
        except Exception as error:  # noqa: BLE001 - a bug here, or one that only the checks have met
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
    """Look for cycles rarely: a run makes millions of small objects and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
