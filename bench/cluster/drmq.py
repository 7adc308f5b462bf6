"""DRMQ as a cluster of processes, or as the one process it is compared with."""

from pathlib import Path

from bench.cluster.kafka_nodes import KafkaProtocolCluster
from bench.cluster.nodes import Node
from bench.systems.drmq import DrmqSystem


class DrmqCluster(KafkaProtocolCluster):
    """`drmq server` on its defaults, with the other nodes as peers."""

    program = "drmq"

    def __init__(self, directory: Path, node_count: int, program: Path | None = None, variant: str = "") -> None:
        """`program` is the command; by default that of the virtual environment that runs the benchmark."""
        self.variant = variant
        super().__init__(directory, node_count)
        self._single = DrmqSystem(directory, program)
        self.has_failover = self.hands_over = node_count > 1

    def check(self) -> None:
        """The command must exist."""
        self._single.check()

    def version(self) -> str:
        """The installed version."""
        return self._single.version()

    def command(self, node: Node, partition_count: int) -> list[str]:
        """Defaults for everything but addresses and places.

        Topics that a client merely asks about must not appear: Metadata is how we wait for them.
        """
        command = [
            str(self._single.program), "server", "--node-id", str(node.number), "--port", str(node.port),
            "--data-dir", str(node.directory), "--auto-create-topics", "false",
        ]  # fmt: skip
        others = [
            f"{other.number}:127.0.0.1:{other.port}:{other.peer_port}" for other in self.nodes if other is not node
        ]
        return [*command, "--peer-port", str(node.peer_port), "--peers", ",".join(others)] if others else command
