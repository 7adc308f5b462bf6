"""`drmq simulate`: what it prints and how it ends. What it finds is tested with the simulator."""

from __future__ import annotations

import pytest

from drmq.server.cli import main
from drmq.testing.simulation import Violation, simulate
from drmq.testing.simulation.cluster import Cluster


def test_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """A sound run is one line, which ends with the hash of its events."""
    assert main(["simulate", "--seed", "4", "--minutes", "0.05"]) == 0
    line = capsys.readouterr().out.strip()
    assert line.startswith("seed 4: ")
    assert line.endswith(f"hash {simulate(4, 3, 0.05).hash}")


def test_loud(capsys: pytest.CaptureFixture[str]) -> None:
    """The story begins with the nodes' own start and has what they log."""
    assert main(["simulate", "--seed", "4", "--minutes", "0.01", "--loud"]) == 0
    out = capsys.readouterr().out
    assert "starts (process run 1)" in out
    assert "formed cluster" in out


def test_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "2", "--nodes", "1", "--minutes", "0.02", "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("2 seeds, ")


def test_a_broken_rule(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1, and the last line says how to see it again."""

    def break_a_rule(*arguments: object) -> None:
        raise Violation("some-rule", "it was broken")

    monkeypatch.setattr(Cluster, "run", break_a_rule)
    assert main(["simulate", "--seed", "9", "--minutes", "2"]) == 1
    lines = capsys.readouterr().err.strip().split("\n")
    assert lines[0] == "seed 9 breaks an invariant: some-rule: it was broken"
    assert lines[-1] == "To reproduce it: drmq simulate --seed 9 --nodes 3 --minutes 2 --loud"
