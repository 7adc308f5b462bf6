"""Apache Kafka, one node in KRaft mode, from its jars: optional.

Maven fetches the jars once into bench/.cache, from wherever the machine's Maven settings say.
One JVM serves all variants and all repetitions: its start takes longer than a measurement, and
it needs a few to compile its hot paths. Variants differ in the topic's `flush.messages`.
"""

import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from bench.process import ROOT, Server, free_port, port_answers
from bench.systems.base import System, Unavailable
from bench.systems.kafka_admin import answers, create_topic, delete_topic
from bench.workloads import Workload

VERSION = "4.3.0"
SCALA = "2.13"
CACHE = ROOT / "bench" / ".cache" / f"kafka-{VERSION}"
DOWNLOAD_SECONDS_MAX = 600
JVM_START_SECONDS_MAX = 90.0
HEAP = ("-Xms1g", "-Xmx1g")

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_{SCALA}</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""


class KafkaNode:
    """The JVM that the variants share; started by the first that needs it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "kafka-node"
        self.port = 0
        self.server: Server | None = None
        self.topic_count = 0

    def start(self) -> None:
        """Format the directory and start the broker, unless it runs."""
        if self.server is not None:
            return
        self._directory.mkdir(parents=True)
        self.port, controller = free_port(), free_port()
        properties = self._directory / "server.properties"
        properties.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"log.dirs={self._directory / 'data'}\n"
            "offsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\n"
            "auto.create.topics.enable=false\n"
            "file.delete.delay.ms=1000\n"
        )
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        java = ["java", *HEAP, "-cp", f"{CACHE / 'libs'}/*"]
        format_log = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties)]
        formatted = subprocess.run([*java, *format_log], capture_output=True, text=True, check=False)
        if formatted.returncode:
            raise Unavailable(f"Kafka cannot format its directory: {formatted.stderr.strip()[-300:]}")
        self.server = Server([*java, "kafka.Kafka", str(properties)], self._directory.with_suffix(".log"))
        self.server.wait_ready(lambda: port_answers(self.port) and answers(self.port), JVM_START_SECONDS_MAX)

    def stop(self) -> None:
        """End the JVM and remove its data."""
        if self.server is not None:
            self.server.stop()
            self.server = None
        shutil.rmtree(self._directory, ignore_errors=True)


class KafkaSystem(System):
    """A topic on the shared node, with or without fsync before the acknowledgement."""

    name = "kafka"

    def __init__(self, directory: Path, node: KafkaNode, *, fsyncs: bool) -> None:
        self.variant = "fsync each" if fsyncs else "default"
        self.fsyncs_before_ack = fsyncs
        super().__init__(directory)
        self._node = node
        self._topic = ""

    @property
    def topic(self) -> str:
        """A new name for each measurement: deleting a topic takes Kafka a while."""
        return self._topic

    def check(self) -> None:
        """Needs Java and, the first time, Maven."""
        if shutil.which("java") is None:
            raise Unavailable("needs java 17 or newer on PATH, e.g. apt install default-jre-headless")
        if (CACHE / "complete").exists():
            return
        if shutil.which("mvn") is None:
            raise Unavailable("needs mvn on PATH to fetch the jars, e.g. apt install maven")
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "pom.xml").write_text(_POM)
        fetch = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            fetched = subprocess.run(
                [*fetch, f"-DoutputDirectory={CACHE / 'libs'}"],
                cwd=CACHE, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS_MAX, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as slow:
            raise Unavailable(f"mvn did not fetch the jars within {DOWNLOAD_SECONDS_MAX} s") from slow
        if fetched.returncode:
            raise Unavailable(f"mvn cannot fetch the jars: {fetched.stdout.strip()[-300:]}")
        (CACHE / "complete").touch()

    def version(self) -> str:
        """The version of the jars."""
        return VERSION

    def command(self, workload: Workload) -> list[str]:
        """The node has its own."""
        raise NotImplementedError("the shared node starts itself")

    def client(self, workload: Workload, action: str) -> str:
        """The same as for DRMQ."""
        return "raw" if action == "produce" and workload.batching.is_raw else "confluent"

    def start(self, workload: Workload) -> None:
        """Create a topic on the shared node."""
        self._node.start()
        self._node.topic_count += 1
        self._topic = f"bench-{self._node.topic_count:04d}"
        self._server, self.port = self._node.server, self._node.port
        config = {"flush.messages": "1"} if self.fsyncs_before_ack else {}
        create_topic(self.port, self._topic, workload.partition_count, config)

    def stop(self) -> None:
        """Delete the topic; the node stays."""
        if self._server is not None and self._topic:
            delete_topic(self.port, self._topic)
        self._server, self._topic = None, ""

    def close(self) -> None:
        """End the shared node."""
        self._server = None
        self._node.stop()
