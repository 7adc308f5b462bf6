"""`make run`: a living system within a minute, and no process left behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from support.http import ask
from support.polling import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parents[2]
_DASHBOARD = re.compile(r"Dashboard +(http://127\.0\.0\.1:\d+)")


@contextmanager
def run(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The running system, and the address of its dashboard."""
    log = directory.with_name("run.log")
    command = [sys.executable, "-m", "demo.run", "--directory", str(directory), "--poison-every", "5"]
    with log.open("wb") as output:
        environment = {**os.environ, "DRMQ_GATEWAY": "true"}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(
            lambda: _DASHBOARD.search(log.read_text()) is not None or process.poll() is not None, what="the address"
        )
        [address] = _DASHBOARD.findall(log.read_text())
        yield process, address
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        print(log.read_text())
        eventually(lambda: not left(directory), what="the keeper has stopped everything")


def left(directory: Path) -> list[str]:
    """The processes that have to do with this directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(directory) in word for word in process.cmdline()):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def seen(base: str) -> dict[str, Any]:
    _, groups = ask(base, "/api/v1/groups")
    _, topics = ask(base, "/api/v1/topics")
    return {
        "groups": sorted(each["group_id"] for each in groups["items"]),
        "records": {each["name"]: each["records"] for each in topics["items"]},
    }


def test_a_living_system_until_ctrl_c(tmp_path: Path) -> None:
    directory = tmp_path / "live"
    with run(directory) as (process, base):
        eventually(
            lambda: seen(base), lambda found: found["groups"] == ["arrivals", "billing"], what="both groups are there"
        )
        eventually(
            lambda: seen(base)["records"],
            lambda records: records["flights"] > 500 and records["orders"] > 10 and records.get("dlq.billing", 0) > 0,
            what="flights, orders and a dead letter",
            interval_s=1,
        )
        _, lab = ask(base, "/api/v1/lab")
        assert (lab["enabled"], len(lab["nodes"])) == (True, 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert not left(directory)
    assert not directory.exists()


def test_a_killed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    directory = tmp_path / "live"
    with run(directory) as (process, _):
        assert left(directory)
        process.kill()
    assert not directory.exists()
