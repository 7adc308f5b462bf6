"""Planted bugs in the Python client and in what it asks of a broker: the unit tests must notice each.

    python tests/unit/client/planted_bugs.py            # all, a minute
    python tests/unit/client/planted_bugs.py renews     # those whose name contains a word

What a planted bug is, and how it finds its place: `tests/support/planted_bugs.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The tests are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.planted_bugs import PlantedBug, TestedBug, chosen, try_tests

_BUGS = {
    "tests/unit/client/leases/test_source.py": [
        PlantedBug(
            "a client accepts what did not arrive",
            symbol="Source.receive",
            right="self._settle_all(_clipped(leased, at, last), GIVE_BACK, token)",
            wrong="self._settle_all(_clipped(leased, at, last), ACCEPT, token)",
        ),
        PlantedBug(
            "a client accepts what it cannot read",
            symbol="Source.receive",
            right="self._settle_all(part, RELEASE, token)",
            wrong="self._settle_all(part, ACCEPT, token)",
        ),
        PlantedBug(
            "a client settles over offsets that are missing",
            symbol="LeasedBatch._pieces",
            right="not self.has_gaps or",
            wrong="True or",
        ),
        PlantedBug(
            "a client settles an offset twice in a request",
            symbol="Source.take_runs",
            right="run.first_offset > chosen[-1].last_offset",
            wrong="True",
        ),
        PlantedBug(
            "a client forgets what was not answered",
            symbol="LeasedBatch.on_failed",
            right="self._change(run, _SENT_TO_WANTED)",
            wrong="self._change(run, _SENT_TO_DONE)",
        ),
        PlantedBug(
            "a client takes a refusal for a confirmation",
            symbol="LeasedBatch.on_lost",
            right="self.states[row] = LOST",
            wrong="self.states[row] = DONE[0]",
        ),
        PlantedBug(
            "a client keeps a lease that was given to it again",
            symbol="Source.receive",
            right="self._supersede(found)",
            wrong="pass",
        ),
        PlantedBug(
            "a client takes a release that is on its way for lost",
            symbol="LeasedBatch.lose_between",
            right="in _LETTERS_NOT_SENT",
            wrong='in b"PHARJGarjg"',
        ),
        PlantedBug(
            "a client renews with every request",
            symbol="LeasedBatch.wanted",
            right="_RUNS_WANTED_OR_HELD if self.renews else _RUNS_WANTED",
            wrong="_RUNS_WANTED_OR_HELD",
        ),
    ],
    "tests/unit/kafka/test_lease_fetch.py": [
        PlantedBug(
            "a lease for a request that is withdrawn stays",
            symbol="Coordinator.withdraw",
            right="if ticket in self._waiting:",
            wrong="if self._waiting.pop(ticket, None) is not None:",
        ),
    ],
}
"""By the tests that must notice them."""

BUGS = [TestedBug(bug, tests) for tests, bugs in _BUGS.items() for bug in bugs]


def main(words: list[str]) -> int:
    """Try those whose names contain one of `words`, or all; the exit code tells if any was missed."""
    return try_tests(chosen(BUGS, words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
