"""The registry of internal topics: every replicated state machine of the broker, and where it lives.

An internal topic holds the records of a state machine. Each of its partitions carries one instance, driven by a
`Coordinator`. Everything else in the broker treats internal topics alike, through this registry: which state a
partition has when it is opened, how the topic is created, whether clients may read it, which logs get snapshots.

To add a machine, write

1. a pure package with the machine (`StateMachine`) and the codec of its records (`RecordCodec`);
2. a `CoordinatorSet`: the coordinators on this node by partition, and which key belongs to which partition;
3. one `InternalTopic` in `Broker`, where the registry is built.

Names that begin with `__` are reserved for internal topics (`model.names`): clients can neither create nor delete nor
produce to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from drmq.broker.coordination.coordinator import Coordinator
from drmq.broker.partitions.partition import Partition
from drmq.catalog import Catalog, Topic
from drmq.model import TopicId
from drmq.model.names import is_internal

AnyCoordinator = Coordinator[Any, Any, Any, Any]

SEGMENT_BYTES = 16 * 1024 * 1024
"""Small segments: after a snapshot the log before it is deleted, a segment at a time."""


class CoordinatorSet(Protocol):
    """The coordinators of one internal topic on this node."""

    partition_count: int
    """Partitions of the topic in the whole cluster; 0 while it does not exist."""

    def new_coordinator(self) -> AnyCoordinator:
        """A coordinator for a partition that is about to be opened."""

    def add(self, partition: Partition, coordinator: AnyCoordinator) -> None:
        """Serve a partition, as soon as it leads."""

    def remove(self, partition: Partition) -> None:
        """The partition is not on this node any more."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """One internal topic: what lives on it, and how it is created."""

    name: str
    coordinators: CoordinatorSet
    partition_count: Callable[[], int]
    """How many partitions it is created with."""
    replication_factor: int = -1
    """-1: as many as topics get by default."""
    configs: Mapping[str, str] = field(
        default_factory=lambda: {"retention.ms": "-1", "segment.bytes": str(SEGMENT_BYTES)}
    )
    """Settings of the topic. The log is bounded by snapshots, never by retention."""
    is_readable: bool = True
    """Whether clients may fetch its records. False where they may hold secrets."""
    is_in_catalog: bool = True
    """False for the metadata log, from which the catalog is built."""


class InternalTopics:
    """The registry. One per broker."""

    def __init__(self, *topics: InternalTopic) -> None:
        self._topics: dict[str, InternalTopic] = {}
        self._running: dict[tuple[TopicId, int], AnyCoordinator] = {}
        for topic in topics:
            self.add(topic)

    def add(self, topic: InternalTopic) -> None:
        """Register a topic, before any partition is opened."""
        assert is_internal(topic.name), topic.name
        self._topics[topic.name] = topic

    def __iter__(self) -> Iterator[InternalTopic]:
        return iter(self._topics.values())

    def get(self, name: str) -> InternalTopic | None:
        return self._topics.get(name)

    def machine_of(self, topic: Topic, index: int) -> AnyCoordinator | None:
        """The state machine of a partition that is about to be opened; None for a partition of messages."""
        known = self._topics.get(topic.name)
        return None if known is None else known.coordinators.new_coordinator()

    def is_readable(self, topic: str) -> bool:
        """Whether clients may read the records of a topic."""
        known = self._topics.get(topic)
        return known is None or known.is_readable

    def on_opened(self, partition: Partition) -> None:
        """A partition exists, and is about to take part in its replica group."""
        known = self._topics.get(partition.topic)
        if known is not None:
            coordinator = partition.state.machine  # type: ignore[attr-defined]  # as `machine_of` made it
            coordinator.attach(partition)
            self._running[(partition.topic_id, partition.index)] = coordinator
            known.coordinators.add(partition, coordinator)

    def on_removed(self, partition: Partition) -> None:
        """A partition is not on this node any more. Requests that wait there must be sent elsewhere."""
        known = self._topics.get(partition.topic)
        if known is not None:
            coordinator = self._running.pop((partition.topic_id, partition.index), None)
            known.coordinators.remove(partition)
            if coordinator is not None:
                coordinator.on_follow()

    def follow(self, catalog: Catalog) -> None:
        """Note how many partitions each topic has."""
        for topic in self._topics.values():
            if topic.is_in_catalog:
                created = catalog.topics.get(topic.name)
                topic.coordinators.partition_count = 0 if created is None else created.partition_count

    def running(self) -> list[AnyCoordinator]:
        """The coordinators of all partitions on this node, those that follow included."""
        return list(self._running.values())

    def stop(self) -> None:
        for coordinator in self.running():
            coordinator.stop()
