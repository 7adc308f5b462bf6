"""Random crashes show every planted bug, and nothing where none is planted."""

from __future__ import annotations

import pytest

from .planted_bugs import BUGS, SeededBug, planted, seed_that_finds


@pytest.mark.parametrize("case", BUGS, ids=lambda case: case.bug.name)
def test_planted_bug_is_found(case: SeededBug) -> None:
    assert seed_that_finds(case), f"{case.bug.name} is not found"


def test_a_redrive_without_a_bug_is_not_blamed() -> None:
    with planted(None) as simulation:
        simulation.run_seed(1)
