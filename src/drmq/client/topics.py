"""Administration of topics, their settings and their offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from drmq.client.cluster import Cluster
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, error_code, refusal
from drmq.model import ErrorCode, TopicId, TopicPartition
from drmq.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from drmq.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from drmq.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from drmq.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic, DeleteTopicsResponse
from drmq.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from drmq.wire.messages.metadata import MetadataResponseTopic

T = TypeVar("T")

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Special values that `offsets` accepts instead of a time: the end, the start, the offset of the newest record."""

_BROKER_DEFAULT = -1

STOPPED_ADVICE = (
    "`drmq status` lists the available brokers. If its broker is among them, the node's log contains the reason why "
    "the partition was stopped, and `drmq log verify` on the node's data directory finds damage."
)
STORAGE_ADVICE = (
    "The node's log contains the reason. `drmq log verify` on the node's data directory finds damage, "
    "`drmq status` reports a full disk."
)

LEADER_GRACE_S = 2.0
"""How long to wait for the leader of a partition with a single replica before reporting that it has none.

With more replicas, one of them will be elected, and the call waits for that until its deadline.
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """Placement of a partition. `leader` is None if it has none; `offline` replicas are on brokers that are down."""

    index: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions in order. `error` is why the broker cannot describe it; it has no partitions then."""

    name: str
    topic_id: TopicId
    is_internal: bool
    partitions: tuple[Partition, ...]
    error: ErrorCode | None = None


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """A result of ListOffsets: the offset, and the timestamp of its record (-1 if there is none)."""

    offset: int
    timestamp: int


class Bounds(NamedTuple):
    """The first offset of a partition, and the offset of the next record."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; -1 stands for the broker's default."""

    name: str
    partitions: int = _BROKER_DEFAULT
    replication_factor: int = _BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


class Topics:
    """Calls about topics. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def all(self) -> Sequence[Topic]:
        """All topics, including internal ones, by name."""

        def ask(deadline: Deadline) -> Sequence[Topic]:
            answer = self._cluster.metadata(deadline, topics=None)
            return sorted((_topic(found) for found in answer.topics), key=lambda topic: topic.name)

        return self._cluster.retry(ask)

    def describe(self, name: str) -> Topic:
        """One topic. Raises `Refused` with UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""

        def ask(deadline: Deadline) -> Topic:
            for found in self._cluster.metadata(deadline, topics=[name]).topics:
                if found.error_code:
                    raise topic_refusal(found.error_code, name)
                return _topic(found)
            raise topic_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)

        return self._cluster.retry(ask)

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> int:
        """Create a topic, or only check that it could be created. Returns the number of its partitions."""
        wanted = CreateTopicsRequestTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=[CreateTopicsRequestConfig(name=name, value=value) for name, value in topic.configs.items()],
        )

        def ask(deadline: Deadline) -> int:
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=deadline.left_ms(), validate_only=validate_only)
            answer = self._cluster.controller(deadline).call(request, CreateTopicsResponse, deadline)
            for result in answer.topics:
                if result.error_code:
                    raise topic_refusal(result.error_code, topic.name, result.error_message, doing="be created")
                return result.num_partitions
            raise ClientError(f"The broker did not report whether it created topic `{topic.name}`")

        return self._cluster.retry(ask, repeatable=validate_only)

    def delete(self, name: str) -> None:
        """Delete a topic and all its records."""

        def ask(deadline: Deadline) -> None:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicsRequestTopic(name=name)], topic_names=[name], timeout_ms=deadline.left_ms()
            )
            answer = self._cluster.controller(deadline).call(request, DeleteTopicsResponse, deadline)
            for result in answer.responses:
                if result.error_code:
                    raise topic_refusal(result.error_code, name, result.error_message, doing="be deleted")

        self._cluster.retry(ask, repeatable=False)

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Raise the number of partitions to `total`, or only check that this is possible."""

        def ask(deadline: Deadline) -> None:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsRequestTopic(name=name, count=total)],
                timeout_ms=deadline.left_ms(),
                validate_only=validate_only,
            )
            answer = self._cluster.controller(deadline).call(request, CreatePartitionsResponse, deadline)
            for result in answer.results:
                if result.error_code:
                    raise topic_refusal(result.error_code, name, result.error_message, doing="get more partitions")

        self._cluster.retry(ask, repeatable=validate_only)

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        """For each partition the first offset at or after a time in ms, or that of `LATEST`, `EARLIEST`,
        `MAX_TIMESTAMP`.

        For a time after the last record, the offset is -1. With `read_committed`, the end is the start of the first
        open transaction.
        """

        def ask(
            leader: Connection, part: Sequence[TopicPartition], deadline: Deadline
        ) -> dict[TopicPartition, OffsetAt]:
            topics = [
                ListOffsetsRequestTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequestPartition(partition_index=p, timestamp=wanted[TopicPartition(topic, p)])
                        for p in indexes
                    ],
                )
                for topic, indexes in by_topic(part).items()
            ]
            request = ListOffsetsRequest(
                isolation_level=int(read_committed), topics=topics, timeout_ms=deadline.left_ms()
            )
            found = {}
            for answer in leader.call(request, ListOffsetsResponse, deadline).topics:
                for entry in answer.partitions:
                    if entry.error_code:
                        raise topic_refusal(entry.error_code, answer.name, partition=entry.partition_index)
                    place = TopicPartition(answer.name, entry.partition_index)
                    found[place] = OffsetAt(entry.offset, entry.timestamp)
            return found

        return self._at_leaders(list(wanted), ask)

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The current start and end of each partition."""
        places = list(partitions)
        # The start first: retention may raise it between the two requests, which makes a range slightly too long. In
        # the other order, a range could end before it begins.
        starts = self.offsets(dict.fromkeys(places, EARLIEST))
        ends = self.offsets(dict.fromkeys(places, LATEST))
        return {place: Bounds(starts[place].offset, ends[place].offset) for place in places}

    def trim(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset (-1: all). Returns the first remaining offset of each partition."""

        def ask(leader: Connection, part: Sequence[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
            topics = [
                DeleteRecordsRequestTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsRequestPartition(partition_index=p, offset=before[TopicPartition(topic, p)])
                        for p in indexes
                    ],
                )
                for topic, indexes in by_topic(part).items()
            ]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=deadline.left_ms())
            found = {}
            for answer in leader.call(request, DeleteRecordsResponse, deadline).topics:
                for entry in answer.partitions:
                    if entry.error_code:
                        raise topic_refusal(
                            entry.error_code, answer.name, partition=entry.partition_index, doing="be trimmed"
                        )
                    found[TopicPartition(answer.name, entry.partition_index)] = entry.low_watermark
            return found

        return self._at_leaders(list(before), ask)

    def _at_leaders(
        self,
        partitions: Sequence[TopicPartition],
        ask: Callable[[Connection, Sequence[TopicPartition], Deadline], dict[TopicPartition, T]],
    ) -> dict[TopicPartition, T]:
        """Ask each leader about its partitions, and combine the results."""

        def ask_all(deadline: Deadline) -> dict[TopicPartition, T]:
            found: dict[TopicPartition, T] = {}
            for leader, share in self._leaders(partitions, deadline).items():
                found |= ask(self._cluster.node(leader, deadline), share, deadline)
            return found

        return self._cluster.retry(ask_all) if partitions else {}

    def _leaders(self, partitions: Iterable[TopicPartition], deadline: Deadline) -> dict[int, list[TopicPartition]]:
        wanted = list(partitions)
        described = self._cluster.metadata(deadline, topics=sorted({place.topic for place in wanted})).topics
        shares: dict[int, list[TopicPartition]] = defaultdict(list)
        for place in wanted:
            leader = leader_of(place, described)
            if isinstance(leader, ClientError):
                raise leader
            shares[leader].append(place)
        return shares


def leader_of(place: TopicPartition, described: Iterable[MetadataResponseTopic]) -> int | ClientError:
    """The leader of a partition according to a Metadata response, or the reason why there is none."""
    for topic in described:
        if topic.name != place.topic:
            continue
        if topic.error_code:
            error = topic_refusal(topic.error_code, place.topic)
            error.grace_s = LEADER_GRACE_S
            return error
        for partition in topic.partitions:
            if partition.partition_index == place.partition:
                return partition.leader_id if partition.leader_id >= 0 else _leaderless(place, partition.replica_nodes)
    return topic_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, place.topic, partition=place.partition)


def _leaderless(place: TopicPartition, replicas: Sequence[int]) -> ClientError:
    if len(replicas) < 2:
        error = topic_refusal(ErrorCode.LEADER_NOT_AVAILABLE, place.topic, partition=place.partition)
        error.grace_s = LEADER_GRACE_S
        return error
    return refusal(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"Partition {place.partition} of topic `{place.topic}` has no leader: too few of its replicas "
        f"(on brokers {', '.join(map(str, replicas))}) are available to elect one",
        advice="`drmq status` lists the available brokers. A leader is elected when most replicas are available.",
    )


def topic_refusal(
    number: int,
    topic: str,
    said: str | None = None,
    *,
    partition: int | None = None,
    doing: str = "be used",
    advice: str = "",
) -> ClientError:
    """The error for a topic or one of its partitions, with `advice` or a default one."""
    thing = f"Topic `{topic}`" if partition is None else f"Partition {partition} of topic `{topic}`"
    if number == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        advice = "`drmq topic ls` lists all topics."
        if partition is not None:
            advice = f"`drmq topic describe {topic}` lists its partitions."
        return refusal(number, f"{thing} does not exist", advice=advice)
    if number == ErrorCode.TOPIC_ALREADY_EXISTS:
        return refusal(number, f"{thing} already exists", advice=f"`drmq topic describe {topic}` shows it.")
    if number == ErrorCode.LEADER_NOT_AVAILABLE and partition is None:
        return refusal(
            number, f"{thing} has no partitions yet", said, "It is being created, or its node is in trouble."
        )
    if number == ErrorCode.LEADER_NOT_AVAILABLE:
        return refusal(number, f"{thing} has no leader: it is stopped, or its broker is down", said, STOPPED_ADVICE)
    if number == ErrorCode.KAFKA_STORAGE_ERROR:
        what = f"{thing} cannot {doing}" if said else f"{thing} cannot {doing}: its broker cannot access its files"
        return refusal(number, what, said, advice or STORAGE_ADVICE)
    if number == ErrorCode.OFFSET_OUT_OF_RANGE:
        return refusal(number, f"{thing} does not have this offset", advice=f"`drmq offsets {topic}` shows its range.")
    if number == ErrorCode.INVALID_TOPIC_EXCEPTION:
        if topic.startswith("__"):
            return refusal(number, f"{thing} cannot {doing}", said, "Only the broker itself writes internal topics.")
        advice = "A name has 1 to 249 letters, digits, dots, underscores and dashes, and is not `.` or `..`."
        return refusal(number, f"{thing} cannot {doing}", said, advice)
    return refusal(number, f"{thing} cannot {doing}", said)


def _topic(found: MetadataResponseTopic) -> Topic:
    partitions = [
        Partition(
            index=partition.partition_index,
            leader=partition.leader_id if partition.leader_id >= 0 else None,
            leader_epoch=partition.leader_epoch,
            replicas=tuple(partition.replica_nodes),
            in_sync=tuple(partition.isr_nodes),
            offline=tuple(partition.offline_replicas),
        )
        for partition in sorted(found.partitions, key=lambda partition: partition.partition_index)
    ]
    error = error_code(found.error_code) if found.error_code else None
    return Topic(found.name or "", TopicId(found.topic_id), found.is_internal, tuple(partitions), error)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions grouped by topic, as requests need them."""
    found: dict[str, list[int]] = defaultdict(list)
    for place in partitions:
        found[place.topic].append(place.partition)
    return found
