"""What of `chaos` belongs into every test run, and the harness itself: what it reports is what happened.

The scenarios here are about bad disks, full ones on most of several nodes and the only copy of a record damaged, and
about a lease group on a node that is killed. All of them, for longer, are `make chaos`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_CHECK_LIST = """
from chaos.__main__ import TOOLS
from chaos.scenarios import ABSENT, SCENARIOS
from support.networks import ProxyNetwork, SwitchNetwork
names = [scenario.name for scenario in SCENARIOS] + [name for name, _ in ABSENT]
assert len(names) == len(set(names)), names
known = set(TOOLS) | SwitchNetwork.features | ProxyNetwork.features
for scenario in SCENARIOS:
    assert set(scenario.needs.split()) <= known, f"{scenario.name} needs what no tool can do, and would never run"
    assert scenario.text.endswith("."), scenario.name
"""
_CHECK_STATES = """
from chaos.__main__ import Result
from support.cluster_load import Verdict
good, bad = Verdict(), Verdict(["lost"])
assert Result("x", None, "no tool").state == "not run"
assert Result("x", good, "").state == "passed"
assert Result("x", bad, "").state == "FAILED"
assert Result("x", bad, "", "a known weakness").state == "KNOWN"
assert Result("x", good, "", "a known weakness").state == "FAILED"
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["K5-disk-full-on-majority", "K7-records-alone"])
def test_scenario(name: str, tmp_path: Path) -> None:
    """A bad disk costs nothing that was acknowledged."""
    done = run("-m", "chaos", name, "--seed", "1", "--keep", str(tmp_path))
    print(done.stdout)
    if "NOT RUN" in done.stdout:
        pytest.skip(done.stdout.partition("NOT RUN: ")[2].partition("\n")[0])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: passed" in done.stdout


def test_a_lease_group_survives_kills(tmp_path: Path) -> None:
    """What was accepted does not return, what was leased stays with its member, and every job ends."""
    done = run("-m", "chaos", "L1-all-killed", "--nodes", "1", "--seed", "1", "--keep", str(tmp_path))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "L1-all-killed: passed" in done.stdout


@pytest.mark.parametrize("check", [_CHECK_LIST, _CHECK_STATES], ids=["list", "states"])
def test_harness(check: str) -> None:
    """Every scenario can run somewhere, and what is known to fail is never reported as passed."""
    done = run("-c", f"import chaos\n{check}")
    assert done.returncode == 0, done.stderr


def test_unknown_names_are_refused() -> None:
    """A typing error must not look like a run in which nothing failed."""
    assert run("-m", "chaos", "no-such-scenario").returncode == 2
    assert run("-m", "chaos", "F5-ring", "--nodes", "1").returncode == 2
