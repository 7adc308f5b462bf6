"""Questions about many groups at once: one request for each coordinator, not one for each group.

A group whose coordinator does not answer is left out: it must not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from drmq.client.cluster import Cluster
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, refusal
from drmq.client.groups import (
    BY_NAME_VERSION_MAX,
    Committed,
    Group,
    GroupSummary,
    committed_of,
    group_of,
    lease_group_of,
)
from drmq.model import TopicPartition
from drmq.wire.messages.describe_backlog import (
    DescribeBacklogRequest,
    DescribeBacklogRequestPartition,
    DescribeBacklogRequestTopic,
    DescribeBacklogResponse,
)
from drmq.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from drmq.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from drmq.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

T = TypeVar("T")

OFFSETS_PER_REQUEST = 5_000


class ManyGroups:
    """Calls about many groups. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, listed: Iterable[GroupSummary]) -> dict[str, Group]:
        """Groups of both types with their members. One that was deleted meanwhile is left out."""
        kinds = {each.group_id: each.is_lease for each in listed}

        def ask(coordinator: Connection, group_ids: Sequence[str], deadline: Deadline) -> dict[str, Group]:
            found: dict[str, Group] = {}
            classic = [group_id for group_id in group_ids if not kinds[group_id]]
            if classic:
                answer = coordinator.call(DescribeGroupsRequest(groups=classic), DescribeGroupsResponse, deadline)
                found |= {each.group_id: group_of(each) for each in answer.groups if not each.error_code}
            leases = [group_id for group_id in group_ids if kinds[group_id]]
            if leases:
                request = ShareGroupDescribeRequest(group_ids=leases)
                described = coordinator.call(request, ShareGroupDescribeResponse, deadline)
                found |= {each.group_id: lease_group_of(each) for each in described.groups if not each.error_code}
            return found

        return self._at_coordinators(list(kinds), ask)

    def offsets(self, group_ids: Iterable[str]) -> dict[str, dict[TopicPartition, Committed]]:
        """The committed offsets of each group, by partition."""

        def ask(
            coordinator: Connection, group_ids: Sequence[str], deadline: Deadline
        ) -> dict[str, dict[TopicPartition, Committed]]:
            request = OffsetFetchRequest(
                group_id=group_ids[0],
                topics=None,
                groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in group_ids],
            )
            answer = coordinator.call(request, OffsetFetchResponse, deadline, BY_NAME_VERSION_MAX)
            found: dict[str, dict[TopicPartition, Committed]] = {}
            for group in answer.groups:
                if not group.error_code:
                    offsets = found[group.group_id] = {}
                    for topic in group.topics:
                        offsets |= committed_of(topic.name, topic.partitions)
            return found

        return self._at_coordinators(list(group_ids), ask)

    def record_times(self, wanted: Iterable[tuple[TopicPartition, int]]) -> dict[tuple[TopicPartition, int], int]:
        """When the records at these offsets were written, in milliseconds; without those that are not known."""
        left = sorted(set(wanted))
        found: dict[tuple[TopicPartition, int], int] = {}
        while left:
            part, left = left[:OFFSETS_PER_REQUEST], left[OFFSETS_PER_REQUEST:]
            found |= self._cluster.retry(lambda deadline, part=part: self._ask_times(part, deadline))  # type: ignore[misc]
        return found

    def _ask_times(
        self, wanted: Sequence[tuple[TopicPartition, int]], deadline: Deadline
    ) -> dict[tuple[TopicPartition, int], int]:
        topics: dict[str, DescribeBacklogRequestTopic] = {}
        for place, offset in wanted:
            topic = topics.setdefault(place.topic, DescribeBacklogRequestTopic(place.topic, []))
            topic.partitions.append(DescribeBacklogRequestPartition(place.partition, offset))
        request = DescribeBacklogRequest(list(topics.values()))
        answer = self._cluster.ask_any(request, DescribeBacklogResponse, deadline)
        if answer.error_code:
            raise refusal(answer.error_code, "The times of records are not told", answer.error_message)
        return {
            (TopicPartition(found.name, each.partition_index), each.offset): each.oldest_ms
            for found in answer.topics
            for each in found.partitions
            if each.oldest_ms >= 0
        }

    def _at_coordinators(
        self,
        group_ids: Sequence[str],
        ask: Callable[[Connection, Sequence[str], Deadline], Mapping[str, T]],
    ) -> dict[str, T]:
        if not group_ids:
            return {}
        deadline = self._cluster.deadline()
        shares = self._cluster.retry(lambda attempt: self._cluster.coordinators(group_ids, attempt), deadline=deadline)
        found: dict[str, T] = {}
        for position, (coordinator, share) in enumerate(shares.items()):
            part = deadline.part(1 / (len(shares) - position))
            try:
                found |= ask(self._cluster.connect(coordinator, part), share, part)
            except ClientError:
                continue
        return found
