"""`support.rerun`: a test with processes that fails once is named, and one that fails twice fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import rerun

TESTS = '''
import pathlib
import pytest


def runs(name):
    """How often this was called with that name."""
    path = pathlib.Path(name)
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())


def test_good():
    pass


@pytest.mark.parametrize("which", ["a b", "c::d"])
def test_that_fails_once(which):
    assert runs(which[:1]) > 1


def test_that_always_fails():
    assert False, runs("always")


@pytest.fixture
def broken_at_the_end():
    yield
    assert runs("end") > 1


def test_with_an_end_that_fails_once(broken_at_the_end):
    pass
'''
ONCE = ["test_that_fails_once[a b]", "test_that_fails_once[c::d]", "test_with_an_end_that_fails_once"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("tests/e2e", "tests/unit"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    return tmp_path


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(rerun.__file__)), "--flaky", "build/flaky.txt", *words],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_test_that_passes_alone_is_flaky_and_no_failure(project: Path) -> None:
    """Also if it failed at its end, by a worker of its own, or with a name that a shell would take apart."""
    done = run(project, "-q", "-n", "1", "tests/e2e", "-k", "not always")
    assert done.returncode == 0, done.stdout
    named = [f"tests/e2e/test_some.py::{name}" for name in ONCE]
    assert (project / "build/flaky.txt").read_text().splitlines() == named
    last = run(project, "--report", "0")
    assert last.returncode == 0
    assert last.stdout.splitlines()[1] == "All tests passed."
    assert last.stdout.splitlines()[-3:] == [f"  FLAKY {name}" for name in named]


def test_a_test_that_fails_again_fails_the_run(project: Path) -> None:
    """The others are named all the same."""
    done = run(project, "-q", "tests/e2e")
    assert done.returncode == rerun.FAILED, done.stdout
    assert (project / "always").read_text() == "xx"
    assert len((project / "build/flaky.txt").read_text().splitlines()) == len(ONCE)
    last = run(project, "--report", "1")
    assert last.returncode == rerun.FAILED
    assert "FAILED, with exit status 1" in last.stdout


def test_a_deterministic_test_is_not_run_again(project: Path) -> None:
    """Neither is what failed beside it: the run has failed anyway."""
    assert run(project, "-q", "tests").returncode == rerun.FAILED
    assert (project / "always").read_text() == "xx", "once in each folder"
    assert not (project / "build/flaky.txt").exists()
    assert run(project, "--report", "1").stdout.splitlines()[-1] == "FAILED, with exit status 1: see above."


def test_a_file_among_others_may_have_processes(project: Path) -> None:
    """The tests of its folder are deterministic, and it is not."""
    for name in ("test_packaging.py", "test_tidy.py"):
        (project / "tests" / name).write_text(TESTS)
    assert run(project, "-q", "tests/test_packaging.py", "-k", "not always").returncode == 0
    assert len((project / "build/flaky.txt").read_text().splitlines()) == len(ONCE)
    for seen in ("a", "c", "end"):
        (project / seen).unlink()
    assert run(project, "-q", "tests/test_tidy.py", "-k", "not always").returncode == rerun.FAILED


def test_many_failures_are_no_chance(project: Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test_many(n):\n    assert False\n"
    (project / "tests/e2e/test_some.py").write_text(many)
    done = run(project, "-q", "tests/e2e")
    assert done.returncode == rerun.FAILED
    assert "too many to be chance" in done.stdout
    assert "once more" not in done.stdout


def test_what_cannot_be_run_is_a_failure(project: Path) -> None:
    """A file that cannot be imported is no flaky test."""
    (project / "tests/e2e/test_some.py").write_text("import nothing_of_that_name")
    assert run(project, "-q", "tests/e2e").returncode > rerun.FAILED
    assert run(project, "-q", "tests/none").returncode > rerun.FAILED
