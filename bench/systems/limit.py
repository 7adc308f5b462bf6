"""The bare limit as a system: the same senders as DRMQ's, a receiver of its own."""

import platform
import sys

from bench.systems.base import System
from bench.workloads import Workload


class LimitSystem(System):
    """`bench.limit` with one file."""

    name = "limit"

    def check(self) -> None:
        """Needs nothing."""

    def version(self) -> str:
        """It is Python and the kernel that are measured."""
        return f"Python {platform.python_version()}"

    def command(self, workload: Workload) -> list[str]:
        """One process."""
        path = str(self.directory / "log")
        return [sys.executable, "-m", "bench.limit", str(self.port), path, str(workload.partition_count)]

    def client(self, workload: Workload, action: str) -> str:
        """Produce like DRMQ; consume as bytes."""
        if action == "consume":
            return "drain"
        return "raw" if workload.batching.is_raw else "confluent"
