"""A broker that dies just before the n-th step that matters for durability, for every n in turn.

Such a walk needs hundreds of starts, and a Python process takes half a second to import everything. So one process
imports the server once, and forks a broker for each start; a fork serves after some ten milliseconds.

In the fork every sync and rename of the operating system's file layer counts, over all threads, and the n-th is
replaced by SIGKILL. (`strace` can do that from outside, but counts for each thread on its own, so it cannot reach each
step. `tests/e2e/test_fsync_steps.py` uses it to check that no sync escapes this count.)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from types import TracebackType
from typing import Any, Self

STEPS = ("fsync", "fdatasync", "rename")
FILE_STEPS = ("fdatasync", "rename")
"""The steps that concern files. Directories are synced by `fsync`."""


class StepBrokers:
    """Starts brokers as forks of one prepared process. One at a time."""

    def __init__(self, log_path: Path, environment: dict[str, str] | None = None) -> None:
        self._log = log_path.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._pid: int | None = None
        self.file_steps = 0
        """How many steps of the last broker that ended concerned files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pid is not None:
            self.end(signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(90)
        self._process.stdout.close()
        self._log.close()

    def start(self, data_dir: Path, port: int, kill_at: int = 0) -> None:
        """Fork a broker that dies before its step number `kill_at`, counted from 1; 0: never."""
        assert self._pid is None
        self._pid = int(self._say({"data_dir": str(data_dir), "port": port, "kill_at": kill_at})["pid"])

    @property
    def has_ended(self) -> bool:
        """Whether the broker has died, and `wait` was not called yet."""
        stat = Path(f"/proc/{self._pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "Z"

    def wait(self) -> tuple[int, int]:
        """Wait until it is dead: its exit status, negative for a signal, and how many steps it took."""
        answer = self._say({"wait": True})
        self._pid = None
        self.file_steps = int(answer["file_steps"])
        return int(answer["status"]), int(answer["steps"])

    def end(self, number: signal.Signals) -> tuple[int, int]:
        """Send a signal and wait."""
        assert self._pid is not None
        os.kill(self._pid, number)
        return self.wait()

    def _say(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


# ---- the prepared process -----------------------------------------------------------------------


def _count_steps(counter: mmap, kill_at: int) -> None:
    """Let every step count, and die instead of taking the one at which to die."""
    lock = threading.Lock()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            with lock:
                steps = int.from_bytes(counter[:8], "little") + 1
                counter[:8] = steps.to_bytes(8, "little")
                if name in FILE_STEPS:
                    counter[8:] = (int.from_bytes(counter[8:], "little") + 1).to_bytes(8, "little")
                if steps == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                    threading.Event().wait()  # the signal may take a moment, and this step must not happen
            return real(*arguments)

        return step

    for name in STEPS:
        setattr(os, name, counted(name, getattr(os, name)))


def _serve(command: dict[str, Any], counter: mmap) -> int:
    from drmq.server.config import load
    from drmq.server.node import run
    from drmq.telemetry import logs

    flags = {"node_id": "1", "port": str(command["port"]), "data_dir": command["data_dir"]}
    loaded = load(flags, os.environ, None)
    logs.configure("info", "text")
    _count_steps(counter, command["kill_at"])
    return run(loaded.config)


def _prepare() -> None:
    """Import whatever a broker imports, also what it imports late."""
    from importlib import import_module

    import uvloop  # noqa: F401

    from drmq.server import node  # noqa: F401
    from drmq.telemetry import logs  # noqa: F401
    from drmq.wire import APIS

    for api in APIS.values():
        import_module(f"drmq.kafka.{api.key.name.lower()}")


def main() -> None:
    _prepare()
    counter = mmap(-1, 16)
    pid = 0
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            _, status = os.waitpid(pid, 0)
            steps = int.from_bytes(counter[:8], "little")
            file_steps = int.from_bytes(counter[8:], "little")
            answer = {"status": os.waitstatus_to_exitcode(status), "steps": steps, "file_steps": file_steps}
        else:
            counter[:] = bytes(16)
            pid = os.fork()
            if pid == 0:
                os.dup2(2, 1)
                code = 1
                try:
                    code = _serve(command, counter)
                finally:
                    os._exit(code)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
