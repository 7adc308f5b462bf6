"""DRMQ and Apache Kafka: share groups on one partition."""

import contextlib
import time
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from bench import kafka_metadata
from bench.clients.raw_leases import LeaseError, begin_group
from bench.cluster.drmq import DrmqCluster
from bench.cluster.kafka import KafkaCluster, KafkaNodes
from bench.cluster.kafka_nodes import KafkaProtocolCluster
from bench.cluster.nodes import wait_until
from bench.payloads import make_payloads
from bench.process import BenchError, Watched
from bench.queues.systems import FILL_SECONDS, Contender, QueueSystem
from bench.queues.workers import run_workers

FLUSH_SECONDS_MAX = 120.0
SHARDS_TOPIC = "__share_group_state"
SHARDS_SECONDS_MAX = 60.0
FILL_BATCH_COUNT = 100
"""Records in a batch: what a busy producer makes, and a fifth of what a share consumer asks for at a time."""
WARM_UP_COUNT = 400_000
WARM_UP_SECONDS_MAX = 8.0

IMPLICIT = Contender("implicit", "ShareConsumer, implicit", "lease_share", "implicit")
EXPLICIT = Contender("explicit", "ShareConsumer, explicit", "lease_share", "explicit")
OWN = Contender("own", "own client", "lease_drmq")
PARK = Contender("park", "own client", "lease_drmq", "park", has_latency=False)
RUNS = Contender("raw-runs", "raw, a run of 100", "lease_raw", "100 run", has_latency=False)
MANY = Contender("raw-many", "raw, 100 in a request", "lease_raw", "100", has_latency=False)
ONE = Contender("raw-one", "raw, 1 in a request", "lease_raw", "1", has_latency=False)


class KafkaProtocolQueue(QueueSystem):
    """A topic of one partition with share groups."""

    sender = "lease_share"
    cluster: KafkaProtocolCluster

    def check(self) -> None:
        """As for the cluster."""
        self.cluster.check()

    def version(self) -> str:
        """As the cluster says."""
        return self.cluster.version()

    def start(self) -> None:
        """A new topic, led and copied."""
        self.cluster.start(1)

    def stop(self) -> None:
        """As the cluster does."""
        self.cluster.stop()

    def close(self) -> None:
        """End all nodes."""
        self.cluster.close()

    @property
    def servers(self) -> Watched:
        """All nodes."""
        return self.cluster

    @property
    def ports(self) -> tuple[int, ...]:
        """Of all nodes."""
        return tuple(self.cluster.client_ports)

    @property
    def queue(self) -> str:
        """The topic."""
        return self.cluster.topic

    @property
    def _bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def records_max(self, record_size: int) -> int:
        """Enough for two seconds at the highest rate that was seen."""
        return 600_000 if record_size >= 1000 else 1_000_000

    def fill(self, record_size: int, count: int) -> int:
        """With confluent-kafka, in batches of `FILL_BATCH_COUNT`."""
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                errors.append(error)

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "linger.ms": 20,
                "batch.num.messages": FILL_BATCH_COUNT,
                "delivery.report.only.error": True,
                "on_delivery": on_delivery,
            }
        )
        payloads = make_payloads(record_size)
        sent, deadline = 0, time.perf_counter() + FILL_SECONDS
        while sent < count and time.perf_counter() < deadline:
            while True:
                try:
                    producer.produce(self.queue, payloads[sent % len(payloads)], partition=0)
                    sent += 1
                    break
                except BufferError:
                    producer.poll(0.01)
        left = producer.flush(FLUSH_SECONDS_MAX)
        if errors or left:
            raise BenchError(f"{left} messages were not accepted: {errors[:1]}")
        return sent

    def open_group(self, group: str) -> None:
        """Its members are to begin with the oldest message; by default they begin with the next one."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        setting = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[setting])
        try:
            admin.incremental_alter_configs([resource], request_timeout=30.0)[resource].result(60.0)
        except KafkaException as failed:
            raise BenchError(f"cannot set where a group begins: {failed}") from failed


class DrmqQueue(KafkaProtocolQueue):
    """On its defaults: messages, leases and acknowledgements are on disk on most nodes before they are answered."""

    program = "drmq"
    contenders = (IMPLICIT, EXPLICIT, OWN, RUNS, MANY, ONE)

    def __init__(self, directory: Path, node_count: int) -> None:
        super().__init__(directory, node_count)
        self.cluster = DrmqCluster(directory, node_count)

    def start(self) -> None:
        """Also have the internal topic created, which the first lease needs: the raw client does not wait for it."""
        super().start()
        try:
            begin_group(f"127.0.0.1:{self.cluster.leader().port}", self.queue, "first")
        except (LeaseError, OSError) as failed:
            raise BenchError(f"a group cannot begin: {failed}") from failed
        wait_until(self._has_shards, SHARDS_SECONDS_MAX, f"leaders for all of {SHARDS_TOPIC}")

    def _has_shards(self) -> bool:
        with contextlib.suppress(OSError):
            views = [kafka_metadata.ask(port, SHARDS_TOPIC) for port in self.ports]
            leaders = [state.leader for view in views for state in view.partitions.values()]
            return bool(leaders) and min(leaders) > 0
        return False


class KafkaQueue(KafkaProtocolQueue):
    """On its defaults. The nodes keep running, and get some load before the first measurement."""

    program = "kafka"
    contenders = (IMPLICIT, EXPLICIT)
    fsyncs_before_ack = False

    def __init__(self, directory: Path, node_count: int) -> None:
        super().__init__(directory, node_count)
        self.cluster = KafkaCluster(directory, node_count, KafkaNodes(), fsyncs=False)
        self._is_warm = False

    def start(self) -> None:
        """A new topic; the first time, also new nodes."""
        super().start()
        if not self._is_warm:
            self._is_warm = True
            count = self.fill(1024, WARM_UP_COUNT)
            for contender in self.contenders:
                group = f"warm-up-{contender.mode}"
                self.open_group(group)
                task = self.task(contender, group, 1024)
                run_workers(contender.module, task, 2, self.servers, count, WARM_UP_SECONDS_MAX)
            self.stop()
            super().start()
