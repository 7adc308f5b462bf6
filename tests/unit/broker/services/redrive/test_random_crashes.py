"""A redrive that is ended at any step goes on at another node, and moves every letter exactly once."""

from __future__ import annotations

import pytest

from .simulation import run_seed


@pytest.mark.parametrize("seed", range(30))
def test_every_letter_is_moved_exactly_once(seed: int) -> None:
    run_seed(seed)
