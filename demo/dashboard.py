"""The end of `make demo`: a cluster with live traffic, its dashboard, and screenshots of the pages.

python -m demo.dashboard [--seconds N]

The screenshots need a Chromium and the packages of the dashboard, which `make dashboard` installs with Node. Without
these it says so, and is done.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from demo.keeper import KeptCluster
from demo.live import LiveTraffic

ROOT = Path(__file__).resolve().parents[1]
SHOTS = ROOT / "build" / "screenshots"
BUNDLE = ROOT / "src" / "drmq" / "gateway" / "static" / "index.html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_SHOTS_TIMEOUT_S = 300


def main() -> int:
    parser = argparse.ArgumentParser("demo.dashboard", description="The dashboard of a cluster with live traffic.")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the traffic runs before it is looked at")
    seconds: float = parser.parse_args().seconds
    print("1 starting three nodes with live traffic:   make run does this until Ctrl-C", flush=True)
    with tempfile.TemporaryDirectory(prefix="drmq-demo-") as directory:
        cluster = KeptCluster(Path(directory) / "cluster", "--nodes", "3", "--lab", "--port", "0")
        with cluster, LiveTraffic(cluster.bootstrap_servers, poison_every=10) as traffic:
            print(f"2 the dashboard:   {cluster.pages[0]}", flush=True)
            time.sleep(seconds)
            print(f"  {traffic.summary()}", flush=True)
            return _take_shots(cluster.pages[0])


def _take_shots(base: str) -> int:
    missing = _missing()
    if missing is not None:
        print(f"  no screenshots: {missing}")
        return 0
    node = subprocess.run(
        [sys.executable, "dashboard/tool.py", "node"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]
    SHOTS.mkdir(parents=True, exist_ok=True)
    browser = next(path for name in BROWSERS if (path := shutil.which(name)))
    done = subprocess.run(
        [node, str(ROOT / "demo" / "screenshots.mjs"), base, str(SHOTS)],
        env={**os.environ, "CHROMIUM": browser},
        capture_output=True,
        text=True,
        timeout=_SHOTS_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        return 1
    names = done.stdout.split()
    print(f"3 {len(names)} screenshots of its pages are in {os.path.relpath(SHOTS)}: {', '.join(names)}")
    return 0


def _missing() -> str | None:
    """What is missing for screenshots; None if nothing is."""
    if not BUNDLE.exists():
        return "the dashboard is not built, because there is no Node"
    if not (ROOT / "dashboard" / "node_modules" / "playwright-core").is_dir():
        return "the packages of the dashboard are not installed (make dashboard)"
    if not any(map(shutil.which, BROWSERS)):
        return "there is no Chromium (Debian package chromium)"
    return None


if __name__ == "__main__":
    sys.exit(main())
