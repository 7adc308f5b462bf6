"""A Python whose path has a space: Spark gets another path to the same Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from drmq.spark.interpreter import spark_python

ASK = "import sys; print(sys.prefix, sys.argv[1:])"


def test_a_plain_path_is_used_as_it_is(tmp_path: Path) -> None:
    assert spark_python("/usr/bin/python3.11", [tmp_path]) == "/usr/bin/python3.11"
    assert not list(tmp_path.iterdir())


def test_a_path_with_a_space_is_hidden_from_spark(tmp_path: Path) -> None:
    """The script starts the same environment and passes its arguments on; it is made once."""
    (tmp_path / "a b").symlink_to(sys.prefix)
    awkward = str(tmp_path / "a b/bin" / Path(sys.executable).name)
    found = spark_python(awkward, [tmp_path / "cache"])
    # As Spark looks for it: a path in a shell command, without quotes.
    assert subprocess.run(["sh", "-c", f"command -v {found}"], check=False, capture_output=True).returncode == 0
    words = ["-c", ASK, "one two", "$HOME"]
    ran = subprocess.run([found, *words], capture_output=True, text=True, check=True)
    assert ran.stdout == subprocess.run([awkward, *words], capture_output=True, text=True, check=True).stdout
    assert "['one two', '$HOME']" in ran.stdout
    made = Path(found).stat().st_mtime_ns
    assert spark_python(awkward, [tmp_path / "cache"]) == found
    assert Path(found).stat().st_mtime_ns == made
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [Path(found).name]


def test_the_first_directory_that_can_be_used_is(tmp_path: Path) -> None:
    """Not one with a space in its own name, and not one that cannot be written. If there is none, nothing changes."""
    (tmp_path / "file").write_text("")
    unusable = [tmp_path / "with space", tmp_path / "file/below"]
    assert spark_python("/a b/python", [*unusable, tmp_path / "good"]).startswith(f"{tmp_path}/good/python-")
    assert spark_python("/a b/python", unusable) == "/a b/python"
