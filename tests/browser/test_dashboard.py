"""The dashboard in a browser, on real nodes: the first ten minutes, hostile messages, axe, a killed node."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.polling import eventually
from support.processes import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
_HTTP = re.compile(r"serves HTTP at (http://127\.0\.0\.1:\d+)")
_JOURNEY_S = 400


@pytest.fixture(scope="module")
def node() -> str:
    """The program that runs the journeys; a test without what it needs is skipped."""
    if not (ROOT / "src/drmq/gateway/static/index.html").exists():
        pytest.skip("the dashboard is not built: make dashboard")
    if not (ROOT / "dashboard/node_modules/playwright-core").is_dir():
        pytest.skip("the packages of the dashboard are not installed: make dashboard")
    if shutil.which("chromium") is None:
        pytest.skip("there is no Chromium (Debian package chromium)")
    command = [sys.executable, "dashboard/tool.py", "node"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def start(node: str, script: str, base: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [node, str(HERE / script), base],
        env={**os.environ, "CHROMIUM": shutil.which("chromium") or ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_first_ten_minutes(node: str, tmp_path: Path) -> None:
    environment = {"DRMQ_GATEWAY": "true", "DRMQ_HTTP_PORT": "0"}
    with BrokerProcess(tmp_path / "data", env=environment) as broker:
        eventually(lambda: bool(_HTTP.search(broker.log_text())))
        [base] = _HTTP.findall(broker.log_text())
        with start(node, "ten_minutes.mjs", base) as journey:
            said, _ = journey.communicate(timeout=_JOURNEY_S)
        assert journey.returncode == 0, said


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "cluster"

    def drmq(*arguments: str) -> None:
        environment = {**os.environ, "DRMQ_GATEWAY": "true"}
        command = [sys.executable, "-m", "drmq", *arguments, "--data-dir", str(directory)]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)

    drmq("up", "--nodes", "3", "--port", "0")
    yield directory
    drmq("down")


def test_a_page_goes_on_when_its_node_is_killed(node: str, cluster: Path) -> None:
    nodes = json.loads((cluster / "cluster.json").read_text())["nodes"]
    with start(node, "failover.mjs", f"http://{nodes[0]['http']}") as journey:
        assert journey.stdin is not None
        assert journey.stdout is not None
        first = journey.stdout.readline()
        if first.strip() == "ready":
            os.kill(nodes[0]["pid"], 9)
        said, _ = journey.communicate("killed\n", timeout=_JOURNEY_S)
    assert journey.returncode == 0, first + said
