"""The bare limit, alone and with two followers."""

import platform
import sys

from bench.cluster.nodes import ClusterSystem, Node
from bench.process import BenchError, port_answers


class LimitCluster(ClusterSystem):
    """`bench.limit`, or `bench.replicated_limit` in front of two of them."""

    program = "limit"
    has_failover = False
    partitions_are_groups = False

    def check(self) -> None:
        """Needs nothing."""

    def version(self) -> str:
        """It is Python and the kernel that are measured."""
        return f"Python {platform.python_version()}"

    def launch_all(self, partition_count: int) -> None:
        """The followers first: the leader connects to them at once."""
        self.nodes.reverse()
        super().launch_all(partition_count)
        self.nodes.reverse()

    def launch(self, node: Node, partition_count: int = 1) -> None:
        """One after the other."""
        super().launch(node, partition_count)
        assert node.server is not None
        node.server.wait_ready(lambda: port_answers(node.port), 10.0)

    def command(self, node: Node, partition_count: int) -> list[str]:
        """A file each."""
        followers = [str(other.port) for other in self.nodes if other.number != 1]
        module = "bench.replicated_limit" if node.number == 1 and followers else "bench.limit"
        base = [sys.executable, "-m", module, str(node.port), str(node.directory / "log"), str(partition_count)]
        return [*base, *followers] if node.number == 1 else base

    def is_formed(self) -> bool:
        """`launch` has waited."""
        return True

    def create_topic(self, partition_count: int) -> None:
        """It takes anything."""

    def leaderless_count(self, partition_count: int) -> int:
        """The first process leads everything."""
        return 0

    def leader(self) -> Node:
        """The first process."""
        return self.nodes[0]

    def is_in_sync(self) -> bool:
        """There is nothing to catch up with."""
        return True

    def record_count(self) -> int:
        """It does not look into batches."""
        raise BenchError("the limit does not count records")

    def client(self, action: str) -> str | None:
        """The same senders as DRMQ's; reading a file is measured elsewhere."""
        return {"produce": "confluent", "pace": "paced"}.get(action)

    @property
    def client_ports(self) -> list[int]:
        """The leader only."""
        return [self.nodes[0].port]
