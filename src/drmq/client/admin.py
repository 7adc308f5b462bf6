"""The administration client: one object with every request that the command line sends to a cluster.

    with Admin("localhost:9092") as admin:
        admin.topics.create(NewTopic("orders", partitions=3))
        admin.groups.offsets("billing")

Producing and consuming are not here: real Kafka clients do that well.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from drmq.client.brokers import Brokers
from drmq.client.cluster import TIMEOUT_S, Cluster
from drmq.client.configs import Configs
from drmq.client.connection import Deadline
from drmq.client.counters import NodeCounters
from drmq.client.dead_letters import DeadLetters
from drmq.client.errors import DeadlineExceeded, Unreachable, refusal
from drmq.client.events import Events
from drmq.client.features import Features
from drmq.client.groups import Groups
from drmq.client.lease_groups import LeaseGroups
from drmq.client.many_groups import ManyGroups
from drmq.client.probes import Probes
from drmq.client.producers import Producers
from drmq.client.records import RecordReader
from drmq.client.replicas import Replicas
from drmq.client.topics import Topics
from drmq.model import TopicPartition
from drmq.model.address import Address
from drmq.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

DISK_LEFT_BYTES_MIN = 100_000_000
"""A disk with less free space than this is nearly full, whatever its size."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The id of a cluster, its controller, and its brokers by id."""

    cluster_id: str
    controller_id: int | None
    brokers: dict[int, Address]


@dataclass(frozen=True, slots=True)
class LogDir:
    """A data directory of a broker: the sizes of its partitions, and the size of its disk (-1 if not reported)."""

    broker_id: int
    path: str
    sizes: dict[TopicPartition, int]
    total_bytes: int
    usable_bytes: int

    @property
    def is_nearly_full(self) -> bool:
        """Whether less than 1 % or 100 MB of the disk is left."""
        if self.total_bytes < 0 or self.usable_bytes < 0:
            return False
        return self.usable_bytes * 100 < self.total_bytes or self.usable_bytes < DISK_LEFT_BYTES_MIN


class Admin:
    """Calls to one cluster. Owned by one thread; a context manager that closes its connections."""

    def __init__(self, bootstrap: str, *, client_id: str = "drmq-cli", timeout_s: float = TIMEOUT_S) -> None:
        self._cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s)
        self.topics = Topics(self._cluster)
        self.configs = Configs(self._cluster)
        self.groups = Groups(self._cluster)
        self.many_groups = ManyGroups(self._cluster)
        self.lease_groups = LeaseGroups(self._cluster)
        self.dead_letters = DeadLetters(self._cluster)
        self.brokers = Brokers(self._cluster)
        self.features = Features(self._cluster)
        self.replicas = Replicas(self._cluster)
        self.counters = NodeCounters(self._cluster)
        self.events = Events(self._cluster)
        self.producers = Producers(self._cluster)
        self.records = RecordReader(self._cluster)
        self.probes = Probes(self._cluster)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def take_changed_at(self) -> Address | None:
        """The broker that received a change since the last call, if any did. It is the first to show it."""
        return self._cluster.take_changed_at()

    def ask_first(self, address: Address) -> None:
        """Ask this broker first from now on: another client has changed something there."""
        self._cluster.ask_first(address)

    def describe_cluster(self) -> ClusterInfo:
        """The brokers that serve. `brokers.all` also includes fenced brokers."""

        def ask(deadline: Deadline) -> ClusterInfo:
            answer = self._cluster.metadata(deadline, topics=[])
            controller = answer.controller_id if answer.controller_id >= 0 else None
            brokers = dict(sorted(self._cluster.brokers().items()))
            return ClusterInfo(answer.cluster_id or "", controller, brokers)

        return self._cluster.retry(ask)

    def log_dirs(self) -> list[LogDir]:
        """The data directories of every broker. If there are several brokers, those that do not answer are left out."""

        def ask(deadline: Deadline) -> list[LogDir]:
            self._cluster.metadata(deadline, topics=[])
            brokers = sorted(self._cluster.brokers())
            found = []
            for position, node_id in enumerate(brokers):
                try:
                    found += self._log_dirs_of(node_id, deadline.part(1 / (len(brokers) - position)))
                except (Unreachable, DeadlineExceeded):
                    # A broker that is shutting down or frozen must not hide the results of the others.
                    if len(brokers) == 1:
                        raise
            return found

        return self._cluster.retry(ask)

    def _log_dirs_of(self, node_id: int, deadline: Deadline) -> list[LogDir]:
        node = self._cluster.node(node_id, deadline)
        answer = node.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, deadline)
        what = f"Broker {node_id} does not report its data directories"
        if answer.error_code:
            raise refusal(answer.error_code, what)
        found = []
        for result in answer.results:
            if result.error_code:
                raise refusal(result.error_code, f"{what} ({result.log_dir})")
            sizes = {
                TopicPartition(topic.name, partition.partition_index): partition.partition_size
                for topic in result.topics
                for partition in topic.partitions
            }
            found.append(LogDir(node_id, result.log_dir, sizes, result.total_bytes, result.usable_bytes))
        return found
