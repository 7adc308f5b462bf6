"""What DRMQ and Apache Kafka have in common: a cluster that is asked by Kafka's protocol."""

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench import kafka_metadata
from bench.cluster.nodes import ClusterSystem, Node
from bench.kafka_metadata import Metadata
from bench.process import BenchError
from bench.systems.kafka_admin import answers, create_topic

COUNT_SECONDS_MAX = 10.0


class KafkaProtocolCluster(ClusterSystem):
    """Leaders, replicas and record counts, from Metadata and ListOffsets."""

    probes = (("confluent-kafka", "probe_confluent", False), ("raw, every 50 ms", "probe_raw", True))

    def topic_config(self) -> dict[str, str]:
        """Settings of the topic; none, unless a variant says so."""
        return {}

    def is_formed(self) -> bool:
        """Whether every node counts all nodes as alive."""
        views = [self._ask(node) for node in self.nodes]
        if not all(view is not None and len(view.ports) == self.node_count for view in views):
            return False
        return answers(self.nodes[0].port)

    def create_topic(self, partition_count: int) -> None:
        """With one replica per node."""
        create_topic(
            self.nodes[0].port, self.topic, partition_count, self.topic_config(), replica_count=self.replica_count
        )  # fmt: skip

    def leaderless_count(self, partition_count: int) -> int:
        """By Metadata of every node."""
        most = 0
        for node in self.nodes:
            view = self._ask(node)
            led = sum(state.leader > 0 for state in view.partitions.values()) if view is not None else 0
            most = max(most, partition_count - led)
        return most

    def leader(self) -> Node:
        """As the first node that answers says."""
        for node in self.nodes:
            view = self._ask(node)
            if view is not None and 0 in view.partitions and view.partitions[0].leader > 0:
                return self.nodes[view.partitions[0].leader - 1]
        raise BenchError(f"no node of {self.label} knows a leader")

    def is_in_sync(self) -> bool:
        """Whether all replicas of every partition are in sync, as every node sees it."""
        views = [self._ask(node) for node in self.nodes]
        return all(
            view is not None
            and len(view.partitions) > 0
            and all(len(state.in_sync) == self.replica_count for state in view.partitions.values())
            for view in views
        )

    def is_controller(self, node: Node) -> bool:
        """Whether `node` counts itself as the controller: it then dies in both roles."""
        view = self._ask(node)
        return view is not None and view.controller == node.number

    def answers(self, node: Node) -> bool:
        """Whether `node` answers, and counts all nodes as alive."""
        view = self._ask(node)
        return view is not None and len(view.ports) == self.node_count

    def is_listed(self, node: Node) -> bool:
        """Whether any other node counts `node` as in sync."""
        views = [self._ask(other) for other in self.nodes if other is not node]
        return any(
            node.number in state.in_sync for view in views if view is not None for state in view.partitions.values()
        )

    def record_count(self) -> int:
        """The high watermark."""
        servers = ",".join(f"127.0.0.1:{port}" for port in self.client_ports)
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "log_level": 0})
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=COUNT_SECONDS_MAX)
            return int(high)
        except KafkaException as failed:
            raise BenchError(f"cannot ask for the high watermark: {failed}") from failed
        finally:
            consumer.close()

    def client(self, action: str) -> str:
        """confluent-kafka for everything."""
        return {"produce": "confluent", "consume": "confluent", "pace": "paced"}[action]

    def _ask(self, node: Node) -> Metadata | None:
        if not node.is_running:
            return None
        try:
            return kafka_metadata.ask(node.port, self.topic)
        except OSError:
            return None
