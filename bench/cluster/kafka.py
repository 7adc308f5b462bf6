"""Apache Kafka, three nodes that are brokers and controllers in one, from its jars: optional.

The JVMs start slowly and get faster as they run, so the variants share them, they stay up, and they get some load
before the first measurement; every measurement gets a topic of its own.
"""

import contextlib
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from bench.cluster.kafka_nodes import KafkaProtocolCluster
from bench.cluster.nodes import Node
from bench.process import BenchError, fixed_ports
from bench.systems.kafka import CACHE, KafkaNode, KafkaSystem
from bench.systems.kafka_admin import delete_topic
from bench.workloads import MEGABYTE, Batching, Workload

HEAP = ("-Xms512m", "-Xmx512m")
WARM_UP = Workload("warm-up", 1024, Batching.LARGE, 16, 1_000 * MEGABYTE, seconds_max=10.0)


class KafkaNodes:
    """The JVMs that the variants share."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.topic_count = 0


class KafkaCluster(KafkaProtocolCluster):
    """Topics on the shared nodes, with or without fsync before the acknowledgement."""

    program = "kafka"

    def __init__(self, directory: Path, node_count: int, shared: KafkaNodes, *, fsyncs: bool) -> None:
        self.variant = "fsync each" if fsyncs else "default"
        self.fsyncs_before_ack = fsyncs
        super().__init__(directory, node_count)
        self.directory = directory / f"kafka-nodes-{node_count}"
        self._shared = shared
        self._single = KafkaSystem(directory, KafkaNode(directory), fsyncs=fsyncs)

    def check(self) -> None:
        """Needs Java, and the jars or Maven to fetch them."""
        self._single.check()

    def version(self) -> str:
        """The version of the jars."""
        return self._single.version()

    def topic_config(self) -> dict[str, str]:
        """Where the variants differ."""
        return {"flush.messages": "1"} if self.fsyncs_before_ack else {}

    def form(self, partition_count: int) -> None:
        """Start the shared nodes, unless they run; take a new topic."""
        if not self._shared.nodes:
            self._format()
            self.nodes = self._shared.nodes
            self.launch_all(partition_count)
            self._warm_up()
        self.nodes = self._shared.nodes
        self._take_topic()

    def _take_topic(self) -> None:
        self._shared.topic_count += 1
        self.topic = f"bench-{self._shared.topic_count:04d}"

    def _warm_up(self) -> None:
        """Let the JVMs compile what the measurements use; the others need no such thing."""
        self._take_topic()
        self.create_topic(WARM_UP.partition_count)
        self.wait_led(WARM_UP.partition_count)
        run = self.produce(WARM_UP)
        if run is not None:
            self.consume(WARM_UP, run.report.records + run.report.records_before)
        delete_topic(self.nodes[0].port, self.topic)

    def command(self, node: Node, partition_count: int) -> list[str]:
        """The JVM."""
        return ["java", *HEAP, "-cp", f"{CACHE / 'libs'}/*", "kafka.Kafka", str(self._properties(node))]

    def stop(self) -> None:
        """Delete the topic; the nodes stay."""
        running = [node for node in self.nodes if node.is_running]
        if running and self.topic:
            # It may not exist: whatever prevented that is the error to report.
            with contextlib.suppress(BenchError):
                delete_topic(running[0].port, self.topic)
        self.nodes, self.topic = [], ""

    def close(self) -> None:
        """End the shared nodes."""
        self.nodes, self._shared.nodes = self._shared.nodes, []
        super().stop()

    def _properties(self, node: Node) -> Path:
        return node.directory.with_suffix(".properties")

    def _format(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        numbers = range(1, self.node_count + 1)
        ports = fixed_ports(2 * len(numbers))
        nodes = [Node(n, ports.pop(), ports.pop(), self.directory / str(n)) for n in numbers]
        voters = ",".join(f"{node.number}@127.0.0.1:{node.peer_port}" for node in nodes)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        for node in nodes:
            self._properties(node).write_text(
                "process.roles=broker,controller\n"
                f"node.id={node.number}\n"
                f"listeners=PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.peer_port}\n"
                "controller.listener.names=CONTROLLER\n"
                f"controller.quorum.voters={voters}\n"
                f"log.dirs={node.directory / 'data'}\n"
                "auto.create.topics.enable=false\n"
                "file.delete.delay.ms=1000\n"
                f"offsets.topic.replication.factor={self.replica_count}\n"
                f"share.coordinator.state.topic.replication.factor={self.replica_count}\n"
                f"share.coordinator.state.topic.min.isr={min(2, self.replica_count)}\n"
            )
            formatted = subprocess.run(
                ["java", *HEAP, "-cp", f"{CACHE / 'libs'}/*", "kafka.tools.StorageTool", "format",
                 f"--cluster-id={cluster}", "--feature", "share.version=1", "-c", str(self._properties(node))],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if formatted.returncode:
                raise BenchError(f"Kafka cannot format its directory: {formatted.stderr.strip()[-300:]}")
        self._shared.nodes = nodes
