"""Planted bugs in lease groups: each is put into DRMQ, and a simulation of the whole cluster must notice.

    python tests/unit/testing/lease_simulation/planted_bugs.py            # all: at which seed is each found, by what?
    python tests/unit/testing/lease_simulation/planted_bugs.py token 20   # those with a word in their name, in 20 seeds

The bugs of one queue alone are in `tests/unit/leases`. These are about the shard, its log, the members, the dead
letters, and what lies between them. What a planted bug is, and how it finds its place: `tests/support/planted_bugs.py`.

Not here, because nobody can tell: a renewal that only its leader knows. A new leader gives every lease its full time.
Nor one that takes too long to find, and has a test of its own: a parked record that waits for the clock of an earlier
leader (`tests/unit/leases/test_shard.py`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

# For those who run this file by itself: the tests are not installed.
sys.path.insert(0, str(Path(__file__).parents[3]))

from support.planted_bugs import PlantedBug, chosen, planted_on_import, try_seeds

MINUTES = 0.15
SEEDS_MAX = 60


@dataclass(frozen=True)
class SeededBug:
    """A planted bug, and the runs that show it."""

    bug: PlantedBug
    seeds: int
    """So many, from 0, must be enough to see it."""
    first: int = 0
    """Where the tests begin to look: where it was found last."""
    kind: str = "leases"
    """The kind of run that shows it soonest."""


BUGS = [
    SeededBug(
        PlantedBug(
            "an acquisition is answered before it is replicated",
            symbol="Coordinator._finish",
            right="if records or answers or callbacks:",
            wrong="""
                for ticket, response in answers:
                    if type(response).__name__ == "Acquired":
                        self._respond(ticket, response)
                if records or answers or callbacks:
            """,
        ),
        seeds=23,
        first=11,
    ),
    SeededBug(
        PlantedBug(
            "a settlement is answered before it is replicated",
            symbol="Coordinator._finish",
            right="if records or answers or callbacks:",
            wrong="""
                for ticket, response in answers:
                    if type(response).__name__ == "SettleResult":
                        self._respond(ticket, response)
                if records or answers or callbacks:
            """,
        ),
        seeds=22,
        first=10,
    ),
    SeededBug(
        PlantedBug(
            "an acquisition is not recorded",
            symbol="LeaseShard._on_acquire",
            right="return Step((record,), (Answer(ticket, answer),))",
            wrong="""
                self.replay(record)
                return Step((), (Answer(ticket, answer),))
            """,
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "an accepted record is not recorded",
            symbol="LeaseShard._on_settle",
            right="if ended:",
            wrong="""
                kept = [each for each in ended if each.fate is not Fate.DONE]
                if len(kept) < len(ended):
                    self.replay(LeaseEnded(queue.key, request.member, tuple(ended), soft.wall_ms))
                elif ended:
            """,
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "the token is not checked",
            symbol="LeaseShard._on_settle",
            right="settlement.token not in (0, hold.token)",
            wrong="False",
        ),
        seeds=20,
        first=8,
    ),
    SeededBug(
        PlantedBug(
            "a new leader does not know what is leased",
            symbol="LeaseShard.become_leader",
            right="soft.now_ms = now_ms",
            wrong="""
                soft.now_ms = now_ms
                for queue in self.queues.values():
                    for first, last, hold in queue.held.cut(0, queue.end):
                        queue._shrink(hold.lease, last - first + 1)
            """,
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "a lease that ran out is still good",
            symbol="LeaseShard._on_settle",
            right="refuse_missing(queue, request.member, at, settlement.last, settlement.outcome, options, refused)",
            wrong="""
                if settlement.last >= queue.end:
                    refuse_missing(queue, request.member, at, settlement.last, settlement.outcome, options, refused)
            """,
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "a record is archived before its letter is committed",
            symbol="DeadLetters._bury",
            right="await self._append(topic, name, run, copies)",
            wrong="asyncio.gather(self._append(topic, name, run, copies), return_exceptions=True)",
        ),
        seeds=30,
        kind="letters",
    ),
    SeededBug(
        PlantedBug(
            "a record has the count of its neighbour",
            symbol="LeaseShard._grant",
            right="offsets.append(Leased(first, end - 1, 1, 0))",
            wrong="offsets.append(Leased(first, end - 1, offsets[-1].attempt if offsets else 1, 0))",
        ),
        seeds=20,
        kind="poison",
    ),
    SeededBug(
        PlantedBug(
            "leases run out by the wall clock",
            symbol="LeaseShard._expire",
            right="(lease.deadline_ms or 0) <= soft.now_ms",
            wrong="(lease.deadline_ms or 0) <= max(soft.now_ms, wall_ms - (soft.wall_offset_ms or 0))",
        ),
        seeds=24,
        first=9,
    ),
    SeededBug(
        PlantedBug(
            "what is given back counts",
            symbol="given_back",
            right="hold.attempt - 1",
            wrong="hold.attempt",
        ),
        seeds=20,
        first=8,
    ),
    SeededBug(
        PlantedBug(
            "a snapshot without what is parked",
            symbol="Queue.snapshot",
            right="for due_ms, row in self.parked",
            wrong="for due_ms, row in ()",
        ),
        seeds=30,
        kind="letters",
    ),
    SeededBug(
        PlantedBug(
            "a renewal is answered, and not recorded",
            symbol="LeaseShard._on_settle",
            right="if renewed:",
            wrong="if False:",
        ),
        seeds=13,
        first=1,
    ),
    SeededBug(
        PlantedBug(
            "a release loses its delay",
            symbol="LeaseShard._fate_of",
            right="if not wait_ms:",
            wrong="if True:",
        ),
        seeds=20,
        kind="poison",
    ),
    SeededBug(
        PlantedBug(
            "who released a record may accept it afterwards",
            symbol="refuse_missing",
            right="known.value not in fates",
            wrong="False",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "nothing new is leased while something waits",
            symbol="_is_paused",
            right="queue.parked.count >= options.parked_max",
            wrong="queue.parked.count > 0",
        ),
        seeds=20,
        kind="poison",
    ),
    SeededBug(
        PlantedBug(
            "a letter has the time of death, by the clock of then",
            symbol="DeadLetters._append",
            right="now_ms = broker.clock.wall_ms()",
            wrong="now_ms = run.death.ended_ms",
        ),
        seeds=13,
        first=1,
        kind="letters",
    ),
    SeededBug(
        PlantedBug(
            "a node that stops waits for what it cannot commit",
            symbol="Maintenance._save_machine",
            right="if not waits:",
            wrong="if False:",
        ),
        seeds=30,
        kind="letters",
    ),
]


def _is_ours(name: str) -> bool:
    return name == "drmq" or name.startswith("drmq.")


@contextmanager
def planted(bug: PlantedBug) -> Iterator[ModuleType]:
    """The simulation on a DRMQ with the bug in it; the real one is untouched."""
    with planted_on_import(bug, _is_ours):
        yield importlib.import_module("drmq.testing.simulation")


def seed_that_finds(case: SeededBug, seeds: range) -> tuple[int, str] | None:
    """The first of `seeds` at which the simulation fails, and how; None if at none."""
    with planted(case.bug) as simulation:
        for seed in seeds:
            result = simulation.simulate(seed, 3, MINUTES, kind=case.kind)
            if result.violation is not None:
                return seed, str(result.violation).split("\n", 1)[0]
    return None


def main(words: list[str]) -> int:
    count = int(words[1]) if len(words) > 1 else SEEDS_MAX
    return try_seeds(chosen(BUGS, words[:1]), lambda case: seed_that_finds(case, range(count)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
