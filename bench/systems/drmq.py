"""DRMQ itself, started by its command on its defaults: fsync before every acknowledgement."""

import subprocess
import sys
from pathlib import Path

from bench.systems.base import System, Unavailable
from bench.systems.kafka_admin import answers, create_topic
from bench.workloads import Workload


class DrmqSystem(System):
    """One broker, one process."""

    name = "drmq"

    def __init__(self, directory: Path, program: Path | None = None, variant: str = "") -> None:
        """`program` is the command; by default that of the virtual environment that runs the benchmark."""
        self.variant = variant
        super().__init__(directory)
        self.program = program or Path(sys.executable).with_name("drmq")

    def check(self) -> None:
        """The command must exist and know `server`."""
        if not self.program.exists():
            raise Unavailable(f"there is no {self.program}; install the project first")
        tried = subprocess.run([self.program, "server", "--help"], capture_output=True, text=True, check=False)
        if tried.returncode:
            words = tried.stderr.strip().splitlines() or ["no message"]
            raise Unavailable(f"`drmq server --help` fails: {words[-1]}")

    def version(self) -> str:
        """The installed version."""
        from importlib.metadata import version

        return version("drmq")

    def command(self, workload: Workload) -> list[str]:
        """Defaults for everything but the address and the place, and no gateway.

        That would take a core while it starts, which is when the measurement begins. `bench telemetry` and
        `bench.doors` measure what it costs. The variable, unlike the option, is known to all versions.
        """
        return [
            "env", "DRMQ_GATEWAY=false", str(self.program), "server", "--node-id", "1", "--port", str(self.port),
            "--data-dir", str(self.directory),
        ]  # fmt: skip

    def client(self, workload: Workload, action: str) -> str:
        """confluent-kafka, and the raw sender for raw workloads."""
        return "raw" if action == "produce" and workload.batching.is_raw else "confluent"

    def is_ready(self) -> bool:
        """Whether it answers Kafka requests."""
        return super().is_ready() and answers(self.port)

    def prepare(self, workload: Workload) -> None:
        """Create the topic with the broker's defaults."""
        create_topic(self.port, self.topic, workload.partition_count)
