"""The simulation finds every planted bug, and nothing where none is planted."""

from __future__ import annotations

import pytest

from .planted_bugs import BUGS, SeededBug, planted, seed_that_finds


@pytest.mark.parametrize("case", BUGS, ids=lambda case: case.bug.name)
def test_planted_bug_is_found(case: SeededBug) -> None:
    """The bug shows within the recorded number of seeds; those that take long are begun where they were found."""
    found = seed_that_finds(case, range(case.first, case.first + 40))
    assert found or seed_that_finds(case, range(case.seeds)), f"{case.bug.name} is not found"


def test_core_without_a_bug_is_not_blamed() -> None:
    """Loaded the same way, the right core passes."""
    with planted(None) as simulation:
        assert simulation.run_seed(1)
