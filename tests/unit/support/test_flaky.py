"""`support.flaky`: what fails in any part of any round is listed, with how often."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import flaky
from support.rerun import PLACES

GOOD = "def test_good():\n    pass\n"
FAILS_FIRST = """
import pathlib

def test_that_fails_once():
    path = pathlib.Path("seen")
    assert path.exists() or path.write_text("x") == 0
"""
FAILS = "def test_bad():\n    assert False\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    texts = dict.fromkeys(PLACES, GOOD) | {"tests/e2e/": FAILS_FIRST, "tests/spark/": FAILS}
    for place, text in texts.items():
        path = tmp_path / place / "test_some.py" if place.endswith("/") else tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    return tmp_path


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(flaky.__file__)), "--burners", "0", "--workers", "1", *words],
        cwd=project,
        # Each run of pytest would spend most of its time in the import of plugins that these tests do not use.
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_failures_of_all_parts_are_counted_over_the_rounds(project: Path) -> None:
    done = run(project, "--rounds", "2")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "2 rounds beside 0 processes that burn CPU: 2 tests failed",
        "   2  tests/spark/test_some.py::test_bad",
        "   1  tests/e2e/test_some.py::test_that_fails_once",
    ]
    logs = project / "build/flaky"
    assert "test_that_fails_once" in (logs / "round-1-tests.log").read_text()
    assert f"{len(PLACES) - 1} passed" in (logs / "round-2-tests.log").read_text()
    assert "test_bad" in (logs / "round-2-spark.log").read_text()


def test_a_list_without_failures_is_empty(project: Path) -> None:
    done = run(project, "--rounds", "1", "tests/conformance")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "1 rounds beside 0 processes that burn CPU: 0 tests failed"


def test_a_part_that_cannot_run_is_listed(project: Path) -> None:
    (project / "tests/spark/test_some.py").write_text("import nothing_of_that_name")
    done = run(project, "--rounds", "1")
    assert done.returncode == 1
    assert "   1  pytest ended with 2: build/flaky/round-1-spark.log" in done.stdout
