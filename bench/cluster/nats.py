"""NATS JetStream: three servers in a cluster, every stream with three replicas in files.

Imported only where nats-py is installed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import nats
import nats.errors
from nats.js import JetStreamContext
from nats.js.api import StorageType

from bench.cluster.nodes import ClusterSystem, Node
from bench.process import BenchError
from bench.systems.nats import NatsSystem

REQUEST_SECONDS_MAX = 5.0
CREATE_SECONDS_MAX = 60.0
CREATE_PAUSE_SECONDS = 0.1

T = TypeVar("T")


class NatsCluster(ClusterSystem):
    """A stream per partition, syncing always or by the default interval of two minutes."""

    program = "nats"
    probes = (("nats-py", "probe_jetstream", False), ("nats-py, every 50 ms", "probe_jetstream", True))

    def __init__(self, directory: Path, node_count: int, *, fsyncs: bool) -> None:
        self.variant = "sync always" if fsyncs else "default"
        self.fsyncs_before_ack = fsyncs
        super().__init__(directory, node_count)
        self._single = NatsSystem(directory, fsyncs=fsyncs)

    def check(self) -> None:
        """Needs the two packages."""
        self._single.check()

    def version(self) -> str:
        """As the server says."""
        return self._single.version()

    def command(self, node: Node, partition_count: int) -> list[str]:
        """A configuration file: there are no flags for JetStream's settings."""
        sync = "  sync_interval: always\n" if self.fsyncs_before_ack else ""
        routes = ", ".join(f'"nats://127.0.0.1:{other.peer_port}"' for other in self.nodes if other is not node)
        config = node.directory / "nats.conf"
        config.write_text(
            f'server_name: "node-{node.number}"\nhost: "127.0.0.1"\nport: {node.port}\n'
            f'cluster {{\n  name: "bench"\n  listen: "127.0.0.1:{node.peer_port}"\n  routes: [{routes}]\n}}\n'
            f'jetstream {{\n  store_dir: "{node.directory / "jetstream"}"\n  max_file_store: 64GB\n{sync}}}\n'
        )
        return [self._single.program or "", "-c", str(config)]

    def is_formed(self) -> bool:
        """Whether JetStream answers on every server, which needs a leader of its metadata."""

        async def answers(stream: JetStreamContext) -> bool:
            await stream.account_info()
            return True

        return all(self._ask(node, answers) is True for node in self.nodes)

    def create_topic(self, partition_count: int) -> None:
        """One by one, as its interface has it; early ones may be refused for want of peers."""

        async def create(stream: JetStreamContext) -> int:
            deadline = asyncio.get_running_loop().time() + CREATE_SECONDS_MAX
            for partition in range(partition_count):
                name = f"{self.topic}-{partition}"
                while True:
                    try:
                        await stream.add_stream(
                            name=name, subjects=[name], storage=StorageType.FILE, num_replicas=self.replica_count
                        )  # fmt: skip
                        break
                    except (nats.errors.Error, OSError) as failed:
                        if asyncio.get_running_loop().time() > deadline:
                            raise BenchError(f"cannot create streams: {failed}") from failed
                        await asyncio.sleep(CREATE_PAUSE_SECONDS)
            return partition_count

        if self._ask(self.nodes[0], create, CREATE_SECONDS_MAX) != partition_count:
            raise BenchError(f"{self.label} did not create {partition_count} streams")

    def leaderless_count(self, partition_count: int) -> int:
        """Streams whose information names no leader."""

        async def count(stream: JetStreamContext) -> int:
            led, offset = 0, 0
            while offset < partition_count:
                page = await stream.streams_info(offset)
                led += sum(bool(info.cluster and info.cluster.leader) for info in page)
                offset += len(page)
                if not page:
                    break
            return partition_count - led

        answer = self._ask(self.nodes[0], count)
        return partition_count if answer is None else answer

    def leader(self) -> Node:
        """Of the first stream."""

        async def name(stream: JetStreamContext) -> str:
            info = await stream.stream_info(f"{self.topic}-0")
            return (info.cluster.leader if info.cluster else None) or ""

        for node in self.nodes:
            leader = self._ask(node, name)
            if leader:
                return self.nodes[int(leader.rpartition("-")[2]) - 1]
        raise BenchError(f"no node of {self.label} knows a leader")

    def is_in_sync(self) -> bool:
        """Whether all followers of the first stream are current."""

        async def current(stream: JetStreamContext) -> int:
            info = await stream.stream_info(f"{self.topic}-0")
            replicas = (info.cluster.replicas if info.cluster else None) or []
            return sum(bool(replica.current) and not replica.offline for replica in replicas)

        return self._ask(self.leader(), current) == self.replica_count - 1

    def record_count(self) -> int:
        """Messages in the first stream."""

        async def count(stream: JetStreamContext) -> int:
            return int((await stream.stream_info(f"{self.topic}-0")).state.messages)

        answer = self._ask(self.leader(), count)
        if answer is None:
            raise BenchError(f"{self.label} does not say how many messages it has")
        return answer

    def client(self, action: str) -> str:
        """nats-py."""
        return "paced_jetstream" if action == "pace" else "jetstream"

    def _ask(
        self, node: Node, question: Callable[[JetStreamContext], Awaitable[T]], seconds_max: float = 0.0
    ) -> T | None:
        """The answer of one server, or None if it has none yet."""

        async def ask() -> T:
            connection = await nats.connect(
                f"nats://127.0.0.1:{node.port}", allow_reconnect=False, connect_timeout=1, error_cb=_ignore
            )
            try:
                return await question(connection.jetstream(timeout=REQUEST_SECONDS_MAX))
            finally:
                await connection.close()

        try:
            return asyncio.run(asyncio.wait_for(ask(), REQUEST_SECONDS_MAX + seconds_max))
        except (nats.errors.Error, OSError, TimeoutError):
            return None


async def _ignore(_error: Exception) -> None:
    """A server that is not up yet is asked again."""
