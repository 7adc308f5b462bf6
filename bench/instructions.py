"""How many instructions a node executes for a Produce request, counted by valgrind's callgrind.

    git worktree add ../before REVISION && cp src/drmq/columnar/*.so ../before/src/drmq/columnar/
    python -m bench.instructions ../before .

Times of two revisions differ by several percent from run to run on a busy machine. Instructions of the same work differ
by a few tenths, whatever else the machine does, because the layout of the memory differs. Instructions of the kernel
are not counted. One connection sends as many requests as `--window` at a time and waits for all responses. Each tree is
started `--repeat` times in turn; the median of its phases counts. A node under callgrind is about fifty times slower.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.kafka_frames import RESPONSE_SIZE, first_error, produce_request, record_batch
from bench.payloads import make_payloads
from bench.process import BenchError
from bench.systems.kafka_admin import create_topic
from bench.workloads import TOPIC
from drmq.server.ports import free_ports

PHASES = 4
WARM_UP_REQUESTS = 320
_START_S, _TIMEOUT_S = 300.0, 120.0
_SERVER = "from drmq.server.cli import main; main()"


class CountedNode:
    """A node of one source tree under callgrind."""

    def __init__(self, tree: Path, directory: Path) -> None:
        [self._port] = free_ports("127.0.0.1", 1)
        self._output = directory / "callgrind.out"
        self._log = directory / "node.log"
        command = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={self._output}", sys.executable, "-c", _SERVER,
            "server", "--port", str(self._port), "--data-dir", str(directory / "data"),
        ]  # fmt: skip
        source = tree.resolve() / "src"
        if "--no-gateway" in (source / "drmq/server/cli/server.py").read_text():
            command.append("--no-gateway")
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONHASHSEED": "0"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def connect(self) -> socket.socket:
        """Wait until the node serves, create the topic, and connect."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self._port), 1.0):
                    break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise BenchError(f"the node does not serve: {self._log.read_text()[-600:]}") from None
                time.sleep(0.5)
        create_topic(self._port, TOPIC, 1, {}, 1, _TIMEOUT_S)
        connection = socket.create_connection(("127.0.0.1", self._port), _TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def take(self) -> int:
        """The instructions since the last call."""
        before = set(self._dumps())
        subprocess.run(["callgrind_control", "--dump", str(self._process.pid)], check=True, capture_output=True)
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            for path in set(self._dumps()) - before:
                totals = [line for line in path.read_text().splitlines() if line.startswith("totals:")]
                if totals:
                    return int(totals[-1].split()[1])
            time.sleep(0.1)
        raise BenchError("callgrind has written no numbers")

    def _dumps(self) -> Iterator[Path]:
        return self._output.parent.glob(self._output.name + ".*")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def produce(connection: socket.socket, request: bytes, count: int, window: int) -> None:
    """Send `count` requests, `window` at a time."""
    for _ in range(count // window):
        connection.sendall(request * window)
        received = bytearray()
        while len(received) < RESPONSE_SIZE * window:
            part = connection.recv(1 << 16)
            if not part:
                raise BenchError("the node has closed the connection")
            received += part
        if error := first_error(memoryview(received)):
            raise BenchError(f"a record was refused with error code {error}")


def measure(tree: Path, batch: bytes, count: int, window: int) -> float:
    """Instructions per request with this batch."""
    with tempfile.TemporaryDirectory() as directory:
        node = CountedNode(tree, Path(directory))
        try:
            request = produce_request(TOPIC, 0, batch, 60_000)
            with node.connect() as connection:
                produce(connection, request, WARM_UP_REQUESTS, window)
                found = []
                node.take()
                for _ in range(PHASES):
                    produce(connection, request, count, window)
                    found.append(node.take() / count)
        finally:
            node.close()
    return statistics.median(found)


def main() -> None:
    """Measure each tree, and print each repetition and the ratio to the first tree."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("trees", nargs="*", type=Path, default=[Path()], help="source trees; this one if none is given")
    parser.add_argument("--requests", type=int, default=3_200, help=f"in each of {PHASES} phases (default 3200)")
    parser.add_argument("--window", type=int, default=64, help="requests in flight (default 64)")
    parser.add_argument("--records", type=int, default=1, help="in each request (default 1)")
    parser.add_argument("--record-size", type=int, default=100, help="bytes of a record (default 100)")
    parser.add_argument("--repeat", type=int, default=2, help="starts of each tree (default 2)")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("error: valgrind is not installed; install the package valgrind of your system")
    batch = record_batch(make_payloads(options.record_size, options.records), int(time.time() * 1000))
    found: dict[Path, list[float]] = {tree: [] for tree in options.trees}
    try:
        for number in range(options.repeat):
            for tree, results in found.items():
                results.append(measure(tree, batch, options.requests, options.window))
                print(f"{tree}, start {number + 1}: {results[-1]:,.0f} instructions a request", flush=True)
    except BenchError as error:
        raise SystemExit(f"error: {error}") from error
    first = statistics.median(found[options.trees[0]])
    for tree, results in found.items():
        median = statistics.median(results)
        print(f"{tree}: {median:,.0f}, {median / first:.4f} of {options.trees[0]}")


if __name__ == "__main__":
    main()
