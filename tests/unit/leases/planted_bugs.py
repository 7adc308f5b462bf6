"""Planted bugs: each is put into the lease shard, and random events must show it.

    python tests/unit/leases/planted_bugs.py            # all: at which seed is each found, and by what?
    python tests/unit/leases/planted_bugs.py token      # those whose name contains a word

What a planted bug is, and how it finds its place: `tests/support/planted_bugs.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

# For those who run this file by itself: the tests are not installed.
sys.path.insert(0, str(Path(__file__).parents[2]))

from support.planted_bugs import PlantedBug, chosen, planted_on_import, try_seeds

SEEDS_MAX = 60
"""So many must be enough to see any of them."""


@dataclass(frozen=True)
class SeededBug:
    """A planted bug, and the seeds that show it."""

    bug: PlantedBug
    seeds: int = SEEDS_MAX


BUGS = [
    SeededBug(
        PlantedBug(
            "the member is not checked",
            symbol="LeaseShard._on_settle",
            right="queue.leases[hold.lease].member != request.member",
            wrong="False",
        )
    ),
    SeededBug(
        PlantedBug(
            "the token is not checked",
            symbol="LeaseShard._on_settle",
            right="settlement.token not in (0, hold.token)",
            wrong="False",
        )
    ),
    SeededBug(
        PlantedBug(
            "a failed delivery is not counted",
            symbol="LeaseShard._grant",
            right="min(history.attempt + 1, _ATTEMPT_MAX)",
            wrong="1",
        )
    ),
    SeededBug(
        PlantedBug(
            "a new leader takes leases for ended",
            symbol="LeaseShard._schedule",
            right="lease.deadline_ms = soft.now_ms + lease.duration_ms",
            wrong="lease.deadline_ms = soft.now_ms",
        )
    ),
    SeededBug(
        PlantedBug(
            "an accepted record returns",
            symbol="LeaseShard._fate_of",
            right="return Settled(first, last, Fate.DONE, 0, 0, 0, Reason.NONE)",
            wrong="return Settled(first, last, Fate.RETURNED, 0, 0, 0, Reason.NONE)",
        )
    ),
    SeededBug(
        PlantedBug(
            "a record is dropped before its dead letter is committed",
            symbol="given_up",
            right="if not options.writes_dead_letters:",
            wrong="if True:",
        )
    ),
    SeededBug(
        PlantedBug(
            "a snapshot without what is parked",
            symbol="Queue.snapshot",
            right="for due_ms, row in self.parked",
            wrong="for due_ms, row in ()",
        )
    ),
    SeededBug(
        PlantedBug(
            "a snapshot without what was settled recently",
            symbol="Queue.restore",
            right="queue._remember(member, ranges)",
            wrong="pass",
        )
    ),
    SeededBug(
        PlantedBug(
            "who released a record may accept it afterwards",
            symbol="refuse_missing",
            right="known.value not in fates",
            wrong="False",
        )
    ),
    SeededBug(
        PlantedBug(
            "records that are gone from the log are leased",
            symbol="LeaseShard._on_acquire",
            right="_first_available(queue) < request.log_start",
            wrong="False",
        )
    ),
    SeededBug(
        PlantedBug(
            "the limit of leases is not kept",
            symbol="LeaseShard._grant",
            right="min(request.count_max, options.leased_max - queue.held.count)",
            wrong="request.count_max",
        )
    ),
    SeededBug(
        PlantedBug(
            "what is leased again is still available",
            symbol="Queue.grant",
            right="self.returned.cut(first, last)",
            wrong="pass",
        )
    ),
    SeededBug(
        PlantedBug(
            "an expired lease loses its records",
            symbol="LeaseShard._end",
            right="add_settled(ended, expired(first, last, hold, options, wall_ms))",
            wrong="add_settled(ended, Settled(first, last, Fate.DONE, 0, 0, 0, Reason.NONE))",
        )
    ),
    SeededBug(
        PlantedBug(
            "a renewal does not last",
            symbol="Queue.renew",
            right="piece.value._replace(lease=record.lease)",
            wrong="piece.value",
        )
    ),
]


@contextmanager
def planted(bug: PlantedBug | None) -> Iterator[ModuleType]:
    """The simulation on a shard with the bug in it; the real one is untouched."""
    name = "lease_simulation_with_a_bug"
    with planted_on_import(bug, lambda module: module.startswith("drmq.leases") or module == "support.lease_harness"):
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "simulation.py")
        assert spec is not None
        assert spec.loader is not None
        simulation = importlib.util.module_from_spec(spec)
        sys.modules[name] = simulation
        try:
            spec.loader.exec_module(simulation)
            yield simulation
        finally:
            del sys.modules[name]


def seed_that_finds(case: SeededBug) -> tuple[int, str] | None:
    """The first seed at which the simulation fails, and how; None if at none."""
    with planted(case.bug) as simulation:
        for seed in range(case.seeds):
            try:
                simulation.run_seed(seed)
            except Exception as error:  # noqa: BLE001 (any failure is a find)
                return seed, f"{type(error).__name__}: {error}".split("\n")[0]
    return None


def main(words: list[str]) -> int:
    return try_seeds(chosen(BUGS, words[:1]), seed_that_finds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
