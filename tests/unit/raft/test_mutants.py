"""The simulation finds every planted bug, and nothing where none is planted."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS, Mutant, planted, seed_that_finds


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_found(mutant: Mutant) -> None:
    """The bug shows within the recorded number of seeds; those that take long are begun where they were found."""
    found = seed_that_finds(mutant, range(mutant.first, mutant.first + 40))
    assert found or seed_that_finds(mutant, range(mutant.seeds)), f"{mutant.name} is not found"


def test_core_without_a_bug_is_not_blamed() -> None:
    """Loaded the same way, the right core passes."""
    with planted(None) as simulation:
        assert simulation.run_seed(1)
