"""`make run`: three nodes with live traffic behind the dashboard, until Ctrl-C.

The data is in ./data-live, or in another directory that is named; a run begins with an empty one and removes it at its
end. Nodes and gateways end with this process, also if it is killed (`demo.keeper`).
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from demo.keeper import KeptCluster
from demo.live import ARRIVALS, BILLING, FLIGHTS, ORDERS, READERS, WORKERS, LiveTraffic

ROOT = Path(__file__).resolve().parents[1]
NODES, FIRST_PORT, PEER_PORT_DISTANCE = 3, 9092, 1000
BUNDLE = ROOT / "src" / "drmq" / "gateway" / "static" / "index.html"


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: _interrupt())
    port = FIRST_PORT if _are_free() else 0
    print("Starting three nodes ...", flush=True)
    try:
        with KeptCluster(
            arguments.directory.absolute(), "--nodes", str(NODES), "--lab", "--port", str(port)
        ) as cluster:
            with LiveTraffic(cluster.bootstrap_servers, poison_every=arguments.poison_every) as traffic:
                _explain(cluster)
                with suppress(KeyboardInterrupt):
                    _watch(traffic, arguments.seconds)
                print("\nStopping ...", flush=True)
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave the rest to the keeper
            print(traffic.summary() + ".", flush=True)
    except KeyboardInterrupt:
        print("\nStopped before the nodes served.", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("demo.run", description="Three nodes with live traffic behind the dashboard.")
    parser.add_argument("--directory", type=Path, default=ROOT / "data-live")
    parser.add_argument("--seconds", type=float, help="end after this time; without it at Ctrl-C")
    parser.add_argument("--poison-every", type=int, default=60, help="the orders that cannot be charged")
    return parser.parse_args()


def _interrupt() -> None:
    raise KeyboardInterrupt


def _are_free() -> bool:
    """Whether the usual ports are free, also those between the nodes."""
    for port in [FIRST_PORT + index + far for index in range(NODES) for far in (0, PEER_PORT_DISTANCE)]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def _explain(cluster: KeptCluster) -> None:
    drmq, directory = _shown(Path(sys.executable).parent / "drmq"), _shown(cluster.directory)
    first, *others = cluster.pages
    print(f"""
  Dashboard   {first}   (also {', '.join(others)})
  Fault lab   {first}/lab
  Kafka       {cluster.bootstrap_servers}

  {FLIGHTS:<10}  flights of 2013 are replayed; the group {ARRIVALS} with {READERS} consumers reads them
  {ORDERS:<10}  orders are charged by {WORKERS} workers of the group {BILLING}; a few fail and become dead letters

  Kill a node on the page Fault lab, and watch: nothing is lost. Or in another terminal:

    export DRMQ_BOOTSTRAP={cluster.bootstrap_servers}
    {drmq} top
    {drmq} consume {FLIGHTS} --from end -n 3
    {drmq} group lag {ARRIVALS}
    {drmq} dlq show {BILLING}
    {drmq} node kill 2 --data-dir {directory}
    {drmq} node start 2 --data-dir {directory}

  Ctrl-C stops everything and removes {directory}.
""", flush=True)  # fmt: skip
    if not BUNDLE.exists():
        print("  The pages are not built (no Node): the addresses above have the HTTP API only.\n", flush=True)


def _shown(path: Path) -> str:
    """A path as one would type it here."""
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))


def _watch(traffic: LiveTraffic, seconds: float | None) -> None:
    """Say now and then what was done, until the time is over or Ctrl-C."""
    deadline = None if seconds is None else time.monotonic() + seconds
    is_terminal = sys.stdout.isatty()
    step = 0
    while deadline is None or time.monotonic() < deadline:
        time.sleep(1)
        step += 1
        if is_terminal:
            print(f"\r  {traffic.summary()}   ", end="", flush=True)
        elif step % 30 == 0:
            print(f"  {traffic.summary()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
