"""Random events end well."""

from __future__ import annotations

import pytest

from .simulation import run_seed


@pytest.mark.parametrize("seed", range(40))
def test_random_events(seed: int) -> None:
    """A record is with one member at a time, is never lost, and never returns once it is over."""
    run_seed(seed)
