"""Planted bugs: each is put into the redrive, and random crashes must show it.

    python tests/unit/broker/services/redrive/planted_bugs.py            # all: at which seed is each found?
    python tests/unit/broker/services/redrive/planted_bugs.py intent     # those whose name contains a word

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
sys.path.insert(0, str(Path(__file__).parents[4]))

from support.planted_bugs import PlantedBug, chosen, planted_on_import, try_seeds

SEEDS_MAX = 60
"""So many must be enough to see any of them."""
AFFECTED = ("drmq.leases", "drmq.broker.services.redrive")


@dataclass(frozen=True)
class SeededBug:
    """A planted bug, and the seeds that show it."""

    bug: PlantedBug
    seeds: int = SEEDS_MAX


BUGS = [
    SeededBug(
        PlantedBug(
            "no intent: the letters of a batch are not remembered",
            symbol="leases.redrive:_replay_in",
            right="redrive.batches[record.origin] = SavedBatch(key.partition, *record[1:])",
            wrong="pass",
        )
    ),
    SeededBug(
        PlantedBug(
            "a new leader uses another producer",
            symbol="RedriveRun._finish_batches",
            right="await self._append(batch, letters)",
            wrong="await self._append(batch._replace(epoch=batch.epoch + 1, sequence=0), letters)",
        )
    ),
    SeededBug(
        PlantedBug(
            "a new leader does not look for the batch",
            symbol="RedriveRun._finish_batches",
            right="await self._world.has_batch(batch, self._redrive.started.producer_id)",
            wrong="False",
        )
    ),
    SeededBug(
        PlantedBug(
            "a batch with an open outcome is given up",
            symbol="RedriveRun._on_refused",
            right="if isinstance(error, OutcomeOpen) or error.code in _TEMPORARY:",
            wrong="if False:",
        )
    ),
    SeededBug(
        PlantedBug(
            "letters are done before their batch is committed",
            symbol="RedriveRun._append",
            right="await self._on_refused(batch, letters, is_whole, error)",
            wrong="await self._end(batch, is_done=True)",
        )
    ),
    SeededBug(
        PlantedBug(
            "a batch that was given up leaves a gap in the numbers",
            symbol="leases.redrive:_replay_in",
            right="Numbers(batch.epoch + 1, 0) if record.new_epoch",
            wrong="Numbers(batch.epoch, following) if record.new_epoch",
        )
    ),
    SeededBug(
        PlantedBug(
            "sequence numbers do not go on",
            symbol="leases.redrive:_replay_in",
            right="(batch.sequence + size_of(batch.runs)) % _SEQUENCE_LIMIT",
            wrong="batch.sequence",
        )
    ),
    SeededBug(
        PlantedBug(
            "a snapshot without the batches under way",
            symbol="Letters.restore",
            right="redrive.batches = {batch.origin: batch for batch in saved.redrive.batches}",
            wrong="pass",
        )
    ),
    SeededBug(
        PlantedBug(
            "a snapshot without the sequence numbers",
            symbol="Letters.restore",
            right="in saved.redrive.sequences",
            wrong="in ()",
        )
    ),
    SeededBug(
        PlantedBug(
            "a second redrive begins while one runs",
            symbol="leases.redrive:_start",
            right="if letters.running is not None:",
            wrong="if False:",
        )
    ),
    SeededBug(
        PlantedBug(
            "letters are purged while a redrive runs",
            symbol="leases.redrive:_purge",
            right="if letters.running is not None:",
            wrong="if False:",
        )
    ),
    SeededBug(
        PlantedBug(
            "a redrive ends with a batch under way",
            symbol="leases.redrive:_end",
            right="if redrive.batches:",
            wrong="if False:",
        )
    ),
    SeededBug(
        PlantedBug(
            "a redrive stops with a batch under way",
            symbol="RedriveRun.run",
            right="if not self._redrive.batches and (not self._may_take or not (self._blocked or self._wants_pass)):",
            wrong="""
            if not self._may_take or not (self._blocked or self._wants_pass):
                for batch in list(self._redrive.batches.values()):
                    await self._end(batch, is_done=False)
            """,
        )
    ),
    SeededBug(
        PlantedBug(
            "a letter that is done is moved again",
            symbol="Letters.are_waiting",
            right="if done is not None and any(done.find(first, last) for first, last in runs):",
            wrong="if False:",
        )
    ),
    SeededBug(
        PlantedBug(
            "more letters are moved than asked for",
            symbol="Redrive.left",
            right="if not self.started.count_max:",
            wrong="if True:",
        )
    ),
]


@contextmanager
def planted(bug: PlantedBug | None) -> Iterator[ModuleType]:
    """The simulation of a redrive with the bug in it; the real one is untouched."""
    name = "redrive_simulation_with_a_bug"
    with planted_on_import(bug, lambda module: module.startswith(AFFECTED) or module == "support.lease_harness"):
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
