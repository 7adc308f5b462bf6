"""The simulation finds every planted bug, at the seed where it was found before or soon after."""

from __future__ import annotations

import pytest

from unit.testing.simulation.mutants import MUTANTS, Mutant, seed_that_finds


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_planted_bug_is_found(mutant: Mutant) -> None:
    assert mutant.first < mutant.seeds
    assert seed_that_finds(mutant, range(mutant.first, mutant.seeds)) is not None, mutant.name
