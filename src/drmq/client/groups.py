"""Administration of consumer groups: their members and committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from drmq.client.cluster import Cluster
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, refusal
from drmq.client.topics import by_topic
from drmq.model import ErrorCode, TopicPartition
from drmq.wire.api_key import ApiKey
from drmq.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from drmq.wire.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
)
from drmq.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from drmq.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from drmq.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from drmq.wire.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseGroup,
)

BY_NAME_VERSION_MAX = 9
"""The last version of OffsetCommit and OffsetFetch with topic names, which are needed for topics that were deleted."""

_INT16, _INT32 = Struct(">h"), Struct(">i")


LEASE = "lease"
CLASSIC = "classic"
"""The types of groups. Kafka calls a lease group a share group."""

_SHARE = "share"


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group as listed. `kind` is its type."""

    group_id: str
    state: str
    protocol_type: str
    kind: str = CLASSIC

    @property
    def is_lease(self) -> bool:
        return self.kind == LEASE


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of a group and the partitions assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group with its members. `protocol` is the name of the assignor, empty while the group has no members.

    `kind` is its type. Members of a lease group may have the same partitions.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[Member, ...]
    kind: str = CLASSIC

    @property
    def is_lease(self) -> bool:
        return self.kind == LEASE

    @property
    def is_active(self) -> bool:
        """Whether the group has members; offsets cannot be changed from outside then."""
        return self.state not in ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a group in a partition: the next offset to read."""

    offset: int
    leader_epoch: int
    metadata: str


class Groups:
    """Calls about groups. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def all(self) -> Sequence[GroupSummary]:
        """All groups of all brokers, by name."""

        def ask(deadline: Deadline) -> Sequence[GroupSummary]:
            self._cluster.metadata(deadline, topics=[])
            # By id: a group that moves to another coordinator in the meantime is listed by both.
            found: dict[str, GroupSummary] = {}
            for node_id in self._cluster.brokers():
                answer = self._cluster.node(node_id, deadline).call(ListGroupsRequest(), ListGroupsResponse, deadline)
                if answer.error_code:
                    raise refusal(answer.error_code, f"Broker {node_id} does not list its groups")
                found |= {each.group_id: _summary(each) for each in answer.groups}
            return [found[group_id] for group_id in sorted(found)]

        return self._cluster.retry(ask)

    def describe(self, group_id: str) -> Group:
        """One group of either type. Raises `Refused` with GROUP_ID_NOT_FOUND if it does not exist."""

        def ask(deadline: Deadline) -> Group:
            coordinator = self._cluster.coordinator(group_id, deadline)
            request = DescribeGroupsRequest(groups=[group_id])
            for found in coordinator.call(request, DescribeGroupsResponse, deadline).groups:
                # Before version 6, a group that does not exist is described as dead.
                if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == "Dead":
                    break
                if found.error_code:
                    raise group_refusal(found.error_code, group_id, found.error_message)
                return group_of(found)
            return _describe_lease_group(coordinator, group_id, deadline)

        return self._cluster.retry(ask)

    def offsets(self, group_id: str) -> dict[TopicPartition, Committed]:
        """The committed offsets of the group, by partition."""

        def ask(deadline: Deadline) -> dict[TopicPartition, Committed]:
            coordinator = self._cluster.coordinator(group_id, deadline)
            # Both forms are filled; the negotiated version decides which one is sent.
            request = OffsetFetchRequest(
                group_id=group_id, topics=None, groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]
            )
            answer = coordinator.call(request, OffsetFetchResponse, deadline, BY_NAME_VERSION_MAX)
            found: dict[TopicPartition, Committed] = {}
            if answer.error_code:
                raise group_refusal(answer.error_code, group_id)
            for topic in answer.topics:
                found |= committed_of(topic.name, topic.partitions)
            for group in answer.groups:
                if group.error_code:
                    raise group_refusal(group.error_code, group_id)
                for group_topic in group.topics:
                    found |= committed_of(group_topic.name, group_topic.partitions)
            return dict(sorted(found.items()))

        return self._cluster.retry(ask)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None) -> None:
        """Set the group's offsets from outside. Brokers refuse this while the group has members.

        `timeout_s` overrides the timeout, for callers that do not want to wait long for it.
        """
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offsets[TopicPartition(topic, index)]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ]

        def ask(deadline: Deadline) -> None:
            coordinator = self._cluster.coordinator(group_id, deadline)
            request = OffsetCommitRequest(group_id=group_id, topics=topics)
            answer = coordinator.call(request, OffsetCommitResponse, deadline, BY_NAME_VERSION_MAX)
            for topic in answer.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        raise group_refusal(partition.error_code, group_id)

        self._cluster.retry(ask, deadline=None if timeout_s is None else Deadline(timeout_s))

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the group's committed offsets for these partitions."""
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in by_topic(partitions).items()
        ]

        def ask(deadline: Deadline) -> None:
            coordinator = self._cluster.coordinator(group_id, deadline)
            request = OffsetDeleteRequest(group_id=group_id, topics=topics)
            answer = coordinator.call(request, OffsetDeleteResponse, deadline)
            if answer.error_code:
                raise group_refusal(answer.error_code, group_id)
            for topic in answer.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        raise group_refusal(partition.error_code, group_id)

        self._cluster.retry(ask)

    def delete(self, group_id: str) -> None:
        """Delete a group without members, and its committed offsets."""

        def ask(deadline: Deadline) -> None:
            coordinator = self._cluster.coordinator(group_id, deadline)
            request = DeleteGroupsRequest(groups_names=[group_id])
            for result in coordinator.call(request, DeleteGroupsResponse, deadline).results:
                if result.error_code:
                    raise group_refusal(result.error_code, group_id)

        self._cluster.retry(ask, repeatable=False)


def group_refusal(number: int, group_id: str, said: str | None = None) -> ClientError:
    """The error for a group, with advice."""
    thing = f"Group `{group_id}`"
    if number == ErrorCode.GROUP_ID_NOT_FOUND:
        return refusal(number, f"{thing} does not exist", advice="`drmq group ls` lists all groups.")
    if number in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
        return refusal(
            ErrorCode.NON_EMPTY_GROUP if number == ErrorCode.UNKNOWN_MEMBER_ID else number,
            f"{thing} has active members",
            advice=f"Stop its consumers first; `drmq group describe {group_id}` shows them.",
        )
    if number == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return refusal(number, f"{thing} is reading this topic", advice="Stop its consumers first.")
    return refusal(number, f"{thing} cannot be used", said)


def group_of(found: DescribeGroupsResponseGroup) -> Group:
    members = [
        Member(m.member_id, m.group_instance_id, m.client_id, m.client_host, _assigned(m.member_assignment))
        for m in found.members
    ]
    members.sort(key=lambda member: (member.client_id, member.member_id))
    return Group(found.group_id, found.group_state, found.protocol_type, found.protocol_data, tuple(members))


def _summary(found: ListGroupsResponseGroup) -> GroupSummary:
    kind = LEASE if _SHARE in (found.group_type, found.protocol_type) else CLASSIC
    return GroupSummary(found.group_id, found.group_state, found.protocol_type, kind)


def _describe_lease_group(coordinator: Connection, group_id: str, deadline: Deadline) -> Group:
    """The lease group of this name. Raises `Refused` with GROUP_ID_NOT_FOUND if there is none."""
    if not coordinator.supports(ApiKey.SHARE_GROUP_DESCRIBE):
        raise group_refusal(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
    request = ShareGroupDescribeRequest(group_ids=[group_id])
    for found in coordinator.call(request, ShareGroupDescribeResponse, deadline).groups:
        if found.error_code:
            raise group_refusal(found.error_code, group_id, found.error_message)
        return lease_group_of(found)
    raise group_refusal(ErrorCode.GROUP_ID_NOT_FOUND, group_id)


def lease_group_of(found: ShareGroupDescribeResponseGroup) -> Group:
    """A lease group as its coordinator describes it."""
    members = [
        Member(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            tuple(
                sorted(
                    TopicPartition(topic.topic_name, partition)
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                )
            ),
        )
        for member in found.members
    ]
    members.sort(key=lambda member: (member.client_id, member.member_id))
    assignor = found.assignor_name if members else ""
    return Group(found.group_id, found.group_state, _SHARE, assignor, tuple(members), LEASE)


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a consumer's assignment: version, topics with their partitions, user data of the assignor.

    These bytes come from a client and the broker does not check them, so they may be anything.
    """
    found = []
    try:
        (topics,) = _INT32.unpack_from(assignment, 2)
        position = 6
        for _ in range(topics):
            (length,) = _INT16.unpack_from(assignment, position)
            position += 2
            topic = assignment[position : position + length].decode()
            position += length
            (count,) = _INT32.unpack_from(assignment, position)
            position += 4
            for _ in range(count):
                found.append(TopicPartition(topic, *_INT32.unpack_from(assignment, position)))
                position += 4
    except (StructError, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


def committed_of(topic: str, partitions: Iterable[OffsetFetchResponsePartition]) -> dict[TopicPartition, Committed]:
    """The committed offsets of a topic. An offset of -1 means that nothing is committed, and is left out."""
    found = {}
    for entry in partitions:
        if entry.error_code:
            raise refusal(entry.error_code, f"The offset of partition {entry.partition_index} of `{topic}` is unknown")
        if entry.committed_offset >= 0:
            place = TopicPartition(topic, entry.partition_index)
            found[place] = Committed(entry.committed_offset, entry.committed_leader_epoch, entry.metadata or "")
    return found
