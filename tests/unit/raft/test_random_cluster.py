"""Clusters in a rough world: the invariants hold after every event, and all is well after healing.

A failing seed is replayed, with its story, by `python tests/unit/raft/simulation.py SEED`; many are run by
`python tests/unit/raft/simulation.py FIRST END`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from .simulation import run_seed

SEEDS = 320
BLOCK = 40


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_invariants_hold_and_the_cluster_recovers(first: int) -> None:
    """Whatever is lost, delayed, duplicated, cut, suspended or crashed: no promise is broken, and work resumes."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        counts += run_seed(seed).counts
    # A run without enough of everything in it would prove nothing.
    for name, least in (
        ("elections won", 60),
        ("proposed", 1000),
        ("read confirmed", 100),
        ("changes", 10),
        ("compactions", 50),
        ("snapshots received", 5),
        ("transfers", 10),
        ("turns given", 50),
        ("restarts seen", 20),
        ("crash", 100),
        ("cut", 100),
        ("pause", 100),
    ):
        assert counts[name] >= least, (name, counts[name])


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_replays(seed: int) -> None:
    """The same seed gives the same events, to the last one."""
    assert run_seed(seed) == run_seed(seed)


def test_seeds_differ() -> None:
    """Different seeds are different worlds."""
    assert len({run_seed(seed).hash for seed in range(5)}) == 5
