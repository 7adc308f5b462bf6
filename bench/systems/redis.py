"""Redis Streams with `appendfsync always`: every XADD is in the synced append-only file first."""

import shutil
import subprocess

from bench.systems.base import System, Unavailable
from bench.workloads import Batching, Workload


class RedisSystem(System):
    """One server; a stream per partition. Redis keeps all of it in memory as well."""

    name = "redis"
    variant = "fsync always"

    def check(self) -> None:
        """Needs the server on PATH and the Python package."""
        if shutil.which("redis-server") is None:
            raise Unavailable("needs redis-server on PATH, e.g. apt install redis-server")
        try:
            import redis  # noqa: F401
        except ImportError as missing:
            raise Unavailable("needs the Python package redis (dependency group bench)") from missing

    def version(self) -> str:
        """As the server says."""
        out = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
        return next((word[2:] for word in out.split() if word.startswith("v=")), out.strip())

    def command(self, workload: Workload) -> list[str]:
        """No snapshots, and no rewrite of the file in the middle of a measurement."""
        return [
            "redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.directory),
            "--save", "", "--appendonly", "yes", "--appendfsync", "always",
            "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip

    def client(self, workload: Workload, action: str) -> str | None:
        """Redis has no batch of records: the raw large batches of Kafka have no counterpart."""
        return None if workload.batching is Batching.RAW else "redis_streams"
