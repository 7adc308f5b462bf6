"""Java programs of Apache Kafka, for tests that run where its jars are at hand.

The jars are never a dependency. `KAFKA_JARS` names a directory with those of `kafka-tools` and `kafka_2.13` and all
that they need, as Maven's `dependency:copy-dependencies` makes it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.polling import PATIENCE_S

VARIABLE = "KAFKA_JARS"


def reason_to_skip() -> str | None:
    """Why no Java program can run, or None."""
    if not os.environ.get(VARIABLE):
        return f"{VARIABLE} names no directory with the jars of Apache Kafka's tools"
    if not list(Path(os.environ[VARIABLE]).glob("kafka-tools-*.jar")):
        return f"{VARIABLE}={os.environ[VARIABLE]} has no kafka-tools-*.jar"
    if shutil.which("javac") is None:
        return "there is no JDK on the PATH"
    return None


needs_jars = pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))


def run_java(*arguments: str | Path) -> str:
    """The output of a Java program, a class or a source file, and its arguments. It may not fail."""
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{os.environ[VARIABLE]}/*"]
    done = subprocess.run(
        [*java, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S
    )
    assert done.returncode == 0, (arguments, done.stdout[-2_000:], done.stderr[-2_000:])
    return done.stdout


def table(output: str) -> list[list[str]]:
    """The rows of a table that a tool printed, without its headings."""
    return [line.split() for line in output.splitlines() if line.strip()][1:]
