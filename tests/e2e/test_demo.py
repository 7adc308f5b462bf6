"""`make demo` shows what the README promises: it ends by itself, and ends well."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_loses_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing that was acknowledged was lost." in done.stdout
    assert "WRONG" not in done.stdout


def test_the_demo_of_queues_brings_the_poison_back() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo.queues"], cwd=ROOT, capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed 5 times and is in the dead-letter topic dlq.billing" in done.stdout
    assert "300 of 300 orders are charged, each once" in done.stdout


def test_the_demo_of_the_dashboard_ends_well_without_a_browser(tmp_path: Path) -> None:
    (tmp_path / "ps").symlink_to(shutil.which("ps") or "ps")
    done = subprocess.run(
        [sys.executable, "-m", "demo.dashboard", "--seconds", "1"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^2 the dashboard:   http://127\.0\.0\.1:\d+$", done.stdout, re.MULTILINE)
    assert re.search(r"^  no screenshots: .+$", done.stdout, re.MULTILINE)
    assert not done.stderr
