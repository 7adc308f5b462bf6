"""What `bench` makes of what it measured: a gap is found, and a target that is missed is said to be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_CHECK_GAPS = """
from bench.clients.probe import longest_gap
times = [1.0, 1.5, 1.75, 2.75, 3.0]
found = [longest_gap(times, *window) for window in ((1.0, 1.6), (1.6, 1.7), (1.6, 1.8), (2.8, 9.0), (0.0, 0.5))]
assert found == [0.5, 0.25, 1.0, 6.0, 1.0], found
assert longest_gap([], 1.0, 3.0) == 2.0
"""
_CHECK_VERDICTS = """
from bench.cluster.failover import Failover
from bench.cluster.report import Results, judge

def met(gap_seconds, failures, probe="library"):
    failover = Failover("drmq x 3", 0.0, eager_probes=["raw"])
    failover.stop_gap_seconds[probe] = [0.1, gap_seconds]
    failover.stop_failures[probe] = failures
    [verdict] = judge(Results(failovers=[failover]))
    return verdict.is_met

found = [met(0.3, 0), met(0.31, 0), met(0.2, 1), met(0.2, 1, "raw"), met(0.31, 0, "raw")]
assert found == [True, False, False, True, False], found
"""


@pytest.mark.parametrize("check", [_CHECK_GAPS, _CHECK_VERDICTS], ids=["gaps", "verdicts"])
def test_stops_in_order_are_judged(check: str) -> None:
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
