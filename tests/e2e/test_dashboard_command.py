"""`drmq dashboard`: finds the page, opens it, and says why there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.polling import eventually
from support.ports import lasting_port
from support.processes import BrokerProcess

_HTTP = re.compile(r"serves HTTP at (http://127\.0\.0\.1:\d+)")
_BUNDLE = Path(__file__).resolve().parents[2] / "src/drmq/gateway/static/index.html"
_NOT_BUILT = "has no dashboard, only the HTTP API"


def drmq(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.run(
        [sys.executable, "-m", "drmq", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=180,
        env={**variables, "DRMQ_GATEWAY": "true", **environment},
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    environment = {"DRMQ_GATEWAY": "true", "DRMQ_HTTP_PORT": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("dashboard") / "data", env=environment) as running:
        eventually(lambda: bool(_HTTP.search(running.log_text())))
        yield running


@pytest.mark.skipif(not _BUNDLE.exists(), reason="the dashboard is not built: make dashboard")
def test_it_opens_the_page_of_a_cluster(broker: BrokerProcess, tmp_path: Path) -> None:
    [http] = _HTTP.findall(broker.log_text())
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    done = drmq("dashboard", "-b", broker.bootstrap, cwd=tmp_path, BROWSER=f"{browser} %s")
    assert (done.returncode, done.stdout) == (0, f"{http}/\n"), done.stderr
    eventually((tmp_path / "opened").exists)
    assert (tmp_path / "opened").read_text() == f"{http}/\n"
    (tmp_path / "opened").unlink()
    done = drmq("dashboard", "--print", cwd=tmp_path, DRMQ_BOOTSTRAP=broker.bootstrap, BROWSER=f"{browser} %s")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{http}/\n", "")
    assert not (tmp_path / "opened").exists()
    done = drmq("dashboard", "-b", broker.bootstrap, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{http}/\n")
    assert "no browser" in done.stderr


@pytest.mark.skipif(_BUNDLE.exists(), reason="the dashboard is built")
def test_a_gateway_without_pages_is_named(broker: BrokerProcess, tmp_path: Path) -> None:
    done = drmq("dashboard", "-b", broker.bootstrap, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert _NOT_BUILT in done.stderr
    assert "make dashboard" in done.stderr


def test_the_cluster_of_this_directory_is_found(tmp_path: Path) -> None:
    assert drmq("up", "--port", "0", cwd=tmp_path).returncode == 0
    try:
        for arguments in ((), ("--data-dir", "drmq-local")):
            done = drmq("dashboard", "--print", *arguments, cwd=tmp_path)
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", done.stdout) or _NOT_BUILT in done.stderr, done
    finally:
        drmq("down", cwd=tmp_path)
    done = drmq("dashboard", "--data-dir", "drmq-local", cwd=tmp_path)
    assert done.returncode == 1
    assert "drmq up --data-dir drmq-local" in done.stderr


def test_it_says_why_there_is_none(tmp_path: Path) -> None:
    done = drmq("dashboard", "-b", f"127.0.0.1:{lasting_port()}", cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr.lower() or "connect" in done.stderr.lower(), done.stderr
    done = drmq("dashboard", "--data-dir", "nowhere", cwd=tmp_path)
    assert done.returncode == 1
    assert "There is no local cluster in nowhere" in done.stderr
    with BrokerProcess(tmp_path / "data", env={"DRMQ_GATEWAY": "false"}) as broker:
        done = drmq("dashboard", "-b", broker.bootstrap, cwd=tmp_path)
        assert done.returncode == 1
        assert f"drmq proxy -b {broker.bootstrap}" in done.stderr
