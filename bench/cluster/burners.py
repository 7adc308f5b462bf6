"""Processes that burn CPU beside the nodes.

Linux shares the processor between sessions first (`sched_autogroup_enabled`) and between the processes of a session
second. So each burner is a session of its own, as each node is: it gets as much as a node does.
"""

import contextlib
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import bench.clients
from bench.process import BenchError

PROGRAM = Path(bench.clients.__file__).with_name("burner.py")
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


class Burners:
    """A number of burners, between `start` and `stop`; as a context manager, stopped at its end."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Burners":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """Of those that run."""
        return [process.pid for process in self._processes]

    def start(self) -> None:
        """Start them, and return when all of them burn."""
        for _ in range(self.count - len(self._processes)):
            self._processes.append(
                subprocess.Popen(
                    # Without site packages: there are many, and they start beside each other.
                    [sys.executable, "-I", "-S", str(PROGRAM)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            )
        for process in self._processes:
            assert process.stdout is not None
            if not process.stdout.closed and not process.stdout.readline():
                raise BenchError("a process that was to burn CPU ended")
            process.stdout.close()

    def stop(self) -> None:
        """End them all."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                assert process.stdin is not None
                process.stdin.close()
        self._processes = []


def are_fair() -> bool:
    """Whether the scheduler gives each session as much as each other."""
    try:
        return AUTOGROUP.read_text().strip() == "1"
    except OSError:
        return False
