"""The simulation finds planted bugs in lease groups, at the seed where each was found before or soon after.

Here are those that are found within seconds. The others take minutes: `planted_bugs.py` in this folder tries all.
"""

from __future__ import annotations

import pytest

from unit.testing.lease_simulation.planted_bugs import BUGS, SeededBug, seed_that_finds

FOUND_SOON = {
    "an acquisition is not recorded",
    "an accepted record is not recorded",
    "a new leader does not know what is leased",
    "a lease that ran out is still good",
    "a record is archived before its letter is committed",
    "a record has the count of its neighbour",
}


@pytest.mark.parametrize(
    "case", [case for case in BUGS if case.bug.name in FOUND_SOON], ids=lambda case: case.bug.name.replace(" ", "-")
)
def test_planted_bug_is_found(case: SeededBug) -> None:
    assert case.first < case.seeds
    assert seed_that_finds(case, range(case.first, case.seeds)) is not None, case.bug.name


def test_those_names_exist() -> None:
    assert {case.bug.name for case in BUGS} >= FOUND_SOON
