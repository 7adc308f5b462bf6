"""The path of the running Python, in a form that Spark can use.

Spark looks for the interpreter with a shell command in which the path is not quoted. If the path contains a space, for
example because the virtual environment is in `~/My Projects`, Spark reports no error: it just does not find any Python
data source. Spark then gets the path of a small script that starts the interpreter.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from drmq.spark.java import cache_directories

_PLAIN = re.compile(r"[\w./+:@%,-]+")
"""Paths that mean the same to a shell with and without quotes."""


def spark_python(executable: str = sys.executable, directories: Iterable[Path] | None = None) -> str:
    """The interpreter, or a script that starts it; the interpreter too if no script can be made."""
    if _PLAIN.fullmatch(executable):
        return executable
    for directory in cache_directories() if directories is None else directories:
        script = directory / f"python-{hashlib.sha256(executable.encode()).hexdigest()[:16]}"
        if _PLAIN.fullmatch(str(script)):
            try:
                _write(script, f'#!/bin/sh\nexec {shlex.quote(executable)} "$@"\n')
            except OSError:
                continue
            return str(script)
    return executable


def _write(script: Path, content: str) -> None:
    if script.exists() and script.read_text() == content:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    # Created under another name and renamed, so that a second process never runs it half-finished.
    number, building = tempfile.mkstemp(prefix=script.name, dir=script.parent)
    with os.fdopen(number, "w") as file:
        file.write(content)
    os.chmod(building, 0o755)
    os.rename(building, script)
