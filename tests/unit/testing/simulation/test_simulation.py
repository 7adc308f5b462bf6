"""Fifty seeds of the whole cluster; and the simulator itself: the same seed is the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import click
import pytest

from drmq.server.cli.simulate import simulate as command
from drmq.testing.simulation import command_for, simulate
from drmq.testing.simulation.profile import KINDS
from drmq.testing.simulation.workload import FOLLOWER_READ
from drmq.testing.simulation.world import SECOND

SEEDS = range(50)
MINUTES = 0.25


def nodes_of(seed: int) -> int:
    """Mostly three nodes; alone and five are clusters too."""
    return {0: 5, 1: 1}.get(seed % 10, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken(seed: int) -> None:
    result = simulate(seed, nodes_of(seed), MINUTES)
    assert result.is_sound, result.report()
    assert result.acked >= 100, "a run with so little load shows nothing"
    assert result.read >= 100


def test_followers_are_read_from() -> None:
    """Else nothing that a follower shows would be looked at."""
    result = simulate(7, 3, 0.15, kind="quiet")
    assert result.is_sound, result.report()
    assert result.counts[FOLLOWER_READ] >= 20


def test_same_seed_same_events() -> None:
    first, again, other = (simulate(seed, 3, 0.1) for seed in (7, 7, 8))
    assert first.hash == again.hash
    assert first.story == again.story
    assert first.hash != other.hash


def test_same_seed_same_events_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set of objects is in the order of their addresses, which is another one in a heap that was used. Nodes stop in
    order in these runs, which ends connections, tasks and whatever waits."""
    monkeypatch.setitem(KINDS, "stops", lambda profile: replace(profile, stop_every_us=3 * SECOND))
    first, again = ([simulate(seed, 3, 0.3, kind="stops") for seed in seeds] for seeds in ((9, 13, 18), (18, 13, 9)))
    assert all(any("has stopped cleanly" in line for line in run.story) for run in first)
    assert [run.hash for run in first] == [run.hash for run in reversed(again)]


def test_same_seed_same_events_in_other_processes() -> None:
    """Sets of strings and bytes are in another order in each process, unless that is forbidden."""
    script = "from drmq.testing.simulation import simulate; print(simulate(3, 3, 0.1).hash)"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_command_for_replay() -> None:
    assert command_for(17, 3, 2.0) == "drmq simulate --seed 17 --nodes 3 --minutes 2 --loud"
    assert command_for(17, 3, 2.0, "groups") == "drmq simulate --seed 17 --nodes 3 --minutes 2 --kind groups --loud"


def test_every_kind_can_be_asked_for() -> None:
    option = next(one for one in command.params if one.name == "kind")
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == list(KINDS)


@pytest.mark.parametrize("kind", ["retention", "installs", "strands", "groups", "topics", "growth", "rot", "starved"])
def test_no_rule_is_broken_in_a_run_of_its_kind(kind: str) -> None:
    result = simulate(7, 3, 0.15, kind=kind)
    assert result.is_sound, result.report()
