"""The simulation finds every planted bug in lease groups, at the seed where it was found before or soon after."""

from __future__ import annotations

import pytest

from unit.testing.lease_simulation.planted_bugs import BUGS, SeededBug, seed_that_finds


@pytest.mark.parametrize("case", BUGS, ids=lambda case: case.bug.name.replace(" ", "-"))
def test_planted_bug_is_found(case: SeededBug) -> None:
    assert case.first < case.seeds
    assert seed_that_finds(case, range(case.first, case.seeds)) is not None, case.bug.name
