"""A real broker in a process of its own, for tests that need the whole program.

`BrokerProcess` starts `drmq server`, waits until it answers a Kafka request, and ends exactly that process: by its
id, and with SIGTERM or SIGKILL as the test asks. Output goes to a file beside the data directory, so that a failing
start can show what the broker said, and so that a full pipe can never block the broker.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from support.polling import PATIENCE_S
from support.ports import HOST, lasting_port

# ApiVersions v0 with correlation id 0 and no client id: the smallest request that proves that the broker serves.
READY_PROBE = struct.pack(">ihhih", 10, 18, 0, 0, -1)
PROBE_TIMEOUT_S = 10.0


class BrokerProcess:
    """One broker and its data directory; a context manager that starts it and kills what is left.

    The port stays the same over restarts, so that clients which know it find the broker again. Only one process runs
    at a time, and `pid` is that process.
    """

    def __init__(
        self,
        data_dir: Path | str,
        port: int = 0,
        extra_args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        node_id: int = 1,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.port = port or lasting_port()
        self.extra_args = list(extra_args)
        self.env = dict(env or {})
        self.node_id = node_id
        self.log_path = self.data_dir.with_name(self.data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def command(self) -> list[str]:
        program = [sys.executable, "-m", "drmq", "server"]
        where = ["--node-id", str(self.node_id), "--port", str(self.port), "--data-dir", str(self.data_dir)]
        return program + where + self.extra_args

    def start(self) -> "BrokerProcess":
        """Start the process and return at once; `wait_ready` waits until it serves."""
        assert not self.running, f"broker {self.pid} still runs"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env},
            )
        return self

    def wait_ready(self, timeout_s: float = PATIENCE_S) -> "BrokerProcess":
        """Return once the broker has answered a request; raise with its output if it ends or stays silent."""
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            if not self.running:
                raise RuntimeError(f"the broker ended with status {self.exit_status()}:\n{self.log_text()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker does not serve after {timeout_s:g} s:\n{self.log_text()}")
            time.sleep(0.01)
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=PROBE_TIMEOUT_S) as connection:
                connection.sendall(READY_PROBE)
                return len(connection.recv(4)) > 0
        except OSError:
            return False

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL, PATIENCE_S)

    def terminate(self, timeout_s: float = PATIENCE_S) -> int:
        """Stop it cleanly with SIGTERM, and return the exit status."""
        return self._end(signal.SIGTERM, timeout_s)

    def restart(self, *, crash: bool = False) -> "BrokerProcess":
        """Stop it, cleanly or by a crash, and start it again on the same port and data directory."""
        if crash:
            self.kill()
        else:
            self.terminate()
        return self.start().wait_ready()

    def _end(self, signal_number: signal.Signals, timeout_s: float) -> int:
        assert self._process is not None, "the broker was not started"
        if self._process.poll() is None:
            self._process.send_signal(signal_number)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise TimeoutError(
                f"the broker did not end within {timeout_s:g} s of {signal_number.name}:\n{self.log_text()}"
            ) from None

    def exit_status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def log_text(self) -> str:
        """Everything that the broker has written so far, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def __enter__(self) -> "BrokerProcess":
        try:
            return self.start().wait_ready()
        except BaseException:
            if self.running:
                self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.running:
            self.kill()
