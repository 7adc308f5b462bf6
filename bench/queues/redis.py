"""Redis: a stream with a group. Everything is in the synced append-only file before it is answered."""

import time
from pathlib import Path
from typing import Any

from bench.payloads import make_payloads
from bench.process import BenchError, Watched
from bench.queues.systems import FILL_SECONDS, ONE_PARTITION, Contender, QueueSystem
from bench.systems.redis import RedisSystem

WINDOW_COUNT = 1000


class RedisQueue(QueueSystem):
    """One server. Redis has no synchronous replication, so there is no queue on three nodes."""

    program = "redis"
    variant = "fsync always"
    contenders = (Contender("peer", "redis-py", "lease_redis"),)
    sender = "lease_redis"

    def __init__(self, directory: Path, node_count: int) -> None:
        super().__init__(directory, node_count)
        self._system = RedisSystem(directory)

    def check(self) -> None:
        """Needs the server and the package."""
        self._system.check()

    def version(self) -> str:
        """As the server says."""
        return self._system.version()

    def start(self) -> None:
        """An empty server; the first message makes the stream."""
        self._system.start(ONE_PARTITION)

    def stop(self) -> None:
        """End the server."""
        self._system.stop()

    @property
    def servers(self) -> Watched:
        """The server."""
        return self._system.server

    @property
    def ports(self) -> tuple[int, ...]:
        """Of the server."""
        return (self._system.port,)

    def fill(self, record_size: int, count: int) -> int:
        """Pipelined XADDs."""
        client = self._client()
        payloads = make_payloads(record_size)
        sent, deadline = 0, time.perf_counter() + FILL_SECONDS
        for start in range(0, count, WINDOW_COUNT):
            if time.perf_counter() > deadline:
                break
            pipeline = client.pipeline(transaction=False)
            for index in range(start, min(start + WINDOW_COUNT, count)):
                pipeline.xadd(self.queue, {b"v": payloads[index % len(payloads)]})
            sent += len(pipeline.execute())
        client.close()
        return sent

    def open_group(self, group: str) -> None:
        """From the first entry."""
        client = self._client()
        client.xgroup_create(self.queue, group, id="0", mkstream=True)
        client.close()

    def records_max(self, record_size: int) -> int:
        """Four seconds at the highest rate that was seen."""
        return 200_000

    def _client(self) -> Any:
        import redis

        try:
            client: Any = redis.Redis(port=self._system.port, socket_timeout=60)
            client.ping()
        except redis.RedisError as failed:
            raise BenchError(f"cannot connect to Redis: {failed}") from failed
        return client
