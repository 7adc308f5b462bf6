"""The build of the compiled decoder: there with a compiler, and never in the way without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DECODER = "drmq/columnar/_decoder.abi3.so"
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"

HAS_COMPILER = shutil.which("cc") is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel from a copy of the project, as pip does."""
    project = folder / "project"
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project / name)
    return subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=project,
        env={name: value for name, value in os.environ.items() if name not in ("CC", "CFLAGS", "DRMQ_COLUMNAR")}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def wheel(folder: Path) -> tuple[str, set[str]]:
    """Name and content of the one wheel in `folder`."""
    [path] = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return path.name, set(archive.namelist())


@pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler and Python's headers (Debian: gcc, python3-dev)")
def test_with_a_compiler(tmp_path: Path) -> None:
    """One wheel for Python 3.11 and later, whose decoder can be imported and gives no warning when compiled."""
    result = build(tmp_path, CFLAGS="-Werror -Wconversion", DRMQ_COLUMNAR="compiled")
    assert result.returncode == 0, result.stderr
    name, files = wheel(tmp_path)
    assert "-cp311-abi3-" in name
    assert DECODER in files
    with zipfile.ZipFile(tmp_path / name) as archive:
        archive.extractall(tmp_path / "installed")
    code = "import drmq.columnar as c; print(c.IMPLEMENTATION, c.__file__)"
    imported = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "installed"), "DRMQ_COLUMNAR": "compiled"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert imported.stdout.split() == ["compiled", str(tmp_path / "installed/drmq/columnar/__init__.py")]


@pytest.mark.parametrize("environment", [{"CC": "no-such-compiler"}, {"CC": "false"}, {"DRMQ_COLUMNAR": "pure"}])
def test_without(tmp_path: Path, environment: dict[str, str]) -> None:
    """No compiler, one that fails, or not wanted: a wheel for any machine."""
    result = build(tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    name, files = wheel(tmp_path)
    assert name.endswith("-py3-none-any.whl")
    assert DECODER not in files
    assert "drmq/columnar/pure.py" in files


def test_asked_for_and_not_possible(tmp_path: Path) -> None:
    """If the compiled decoder is required, the error gives the reason."""
    result = build(tmp_path, CC="no-such-compiler", DRMQ_COLUMNAR="compiled")
    assert result.returncode != 0
    assert "there is no C compiler (no-such-compiler)" in result.stderr
