"""Administration of lease groups (Kafka: share groups): what is leased, parked and given up, and where they begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drmq.client.cluster import Cluster
from drmq.client.connection import Deadline
from drmq.client.errors import Refused, refusal
from drmq.client.groups import group_refusal
from drmq.client.topics import by_topic, topic_refusal
from drmq.model import ErrorCode, TopicPartition
from drmq.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from drmq.wire.messages.describe_leases import DescribedQueue, DescribeLeasesRequest, DescribeLeasesResponse


@dataclass(frozen=True, slots=True)
class Lease:
    """A run of offsets that is leased to a member, both ends included. `left_ms` is how long the lease still lasts."""

    first_offset: int
    last_offset: int
    member_id: str
    attempt: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class LeaseQueue:
    """A partition as a lease group works on it. None stands for what is not known: its leader did not answer."""

    place: TopicPartition
    start_offset: int
    """The first offset that is not done."""
    end_offset: int
    """The first offset that was never leased."""
    high_watermark: int | None
    lag: int | None
    """Records that are not done."""
    oldest_ms: int | None
    """The time of the oldest record that is not done; None if there is none, or it is not known."""
    held: int
    returned: int
    parked: int
    dying: int
    """Records that were given up and whose dead letters are not written yet."""
    next_due_ms: int | None
    """When the next parked record is available again."""
    is_paused: bool
    """So many records are parked or given up that no new ones are leased."""
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The queues of a group by partition, and the topic of its dead letters; None if these are dropped.

    If `failures` is not empty, queues may be missing: these are the errors of what did not answer.
    """

    dead_letter_topic: str | None
    queues: tuple[LeaseQueue, ...]
    failures: tuple[Refused, ...] = ()


class LeaseGroups:
    """Calls about lease groups. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def state(self, group_id: str, topics: Sequence[str] | None = None, *, leases_max: int = 0) -> LeaseState:
        """The queues of a group, with up to `leases_max` runs of leased offsets; of these topics, or of all."""
        request = DescribeLeasesRequest(group_id, None if topics is None else list(topics), leases_max)

        def ask(deadline: Deadline) -> LeaseState:
            answer = self._cluster.ask_any(request, DescribeLeasesResponse, deadline)
            if answer.error_code:
                raise group_refusal(answer.error_code, group_id, answer.error_message)
            queues, failures = [], []
            for found in answer.queues:
                if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise topic_refusal(found.error_code, found.topic, found.error_message)
                if found.error_code:
                    what = f"Group `{group_id}` cannot be described completely"
                    failures.append(refusal(found.error_code, what, found.error_message))
                else:
                    queues.append(_queue(found))
            queues.sort(key=lambda queue: queue.place)
            return LeaseState(answer.dead_letter_topic, tuple(queues), tuple(failures))

        return self._cluster.retry(ask)

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let the group begin at these offsets: what is before is done, the rest is open. It must have no members."""
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic,
                [
                    AlterShareGroupOffsetsRequestPartition(index, offsets[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ]

        def ask(deadline: Deadline) -> None:
            coordinator = self._cluster.coordinator(group_id, deadline)
            request = AlterShareGroupOffsetsRequest(group_id, topics)
            answer = coordinator.call(request, AlterShareGroupOffsetsResponse, deadline)
            if answer.error_code:
                raise group_refusal(answer.error_code, group_id, answer.error_message)
            for topic in answer.responses:
                for partition in topic.partitions:
                    if partition.error_code:
                        what = f"Group `{group_id}` cannot be moved in {topic.topic_name}-{partition.partition_index}"
                        raise refusal(partition.error_code, what, partition.error_message)

        self._cluster.retry(ask)


def _queue(found: DescribedQueue) -> LeaseQueue:
    return LeaseQueue(
        place=TopicPartition(found.topic, found.partition_index),
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        high_watermark=_known(found.high_watermark),
        lag=_known(found.open_count),
        oldest_ms=_known(found.oldest_open_ms),
        held=found.held_count,
        returned=found.returned_count,
        parked=found.parked_count,
        dying=found.dying_count,
        next_due_ms=_known(found.next_due_ms),
        is_paused=found.is_paused,
        leases=tuple(
            Lease(lease.first_offset, lease.last_offset, lease.member_id, lease.attempt, lease.left_ms)
            for lease in found.leases
        ),
    )


def _known(number: int) -> int | None:
    """The number, or None for -1, by which the protocol says "unknown"."""
    return number if number >= 0 else None
