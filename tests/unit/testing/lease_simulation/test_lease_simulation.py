"""A few seeds of clusters with a lease group, of each kind. Many more: `drmq simulate --kind leases --seeds 1000`."""

from __future__ import annotations

import pytest

from drmq.testing.simulation import simulate

MINUTES = 0.15


@pytest.mark.parametrize(
    ("kind", "seed", "nodes"),
    [("leases", 1, 3), ("leases", 2, 5), ("leases", 3, 1), ("letters", 1, 3)],
)
def test_no_rule_is_broken(kind: str, seed: int, nodes: int) -> None:
    result = simulate(seed, nodes, MINUTES, kind=kind)
    assert result.is_sound, result.report()
    assert result.counts["jobs"] >= 40, "a run with so little load shows nothing"
    assert result.counts["deliveries of jobs"] > result.counts["jobs"]


def test_what_is_done_in_time_is_delivered_once() -> None:
    result = simulate(1, 3, MINUTES, kind="work")
    assert result.is_sound, result.report()
    assert result.counts["deliveries of jobs"] == result.counts["jobs"] >= 100
    assert not result.counts["dead letters"]


def test_poison_fills_the_window_and_blocks_nobody() -> None:
    result = simulate(1, 3, MINUTES, kind="poison")
    assert result.is_sound, result.report()
    assert result.counts["dead letters"] >= 50


def test_the_same_seed_is_the_same_run() -> None:
    first, again = (simulate(5, 3, 0.05, kind="letters") for _ in range(2))
    assert first.hash == again.hash
    assert first.story == again.story
