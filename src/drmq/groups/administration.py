"""Requests that inspect and remove groups: ListGroups, DescribeGroups, DeleteGroups, OffsetDelete; and expiry.

A group exists if it is stored, is in memory, or has offsets. A *simple* group has only offsets: it has no type, is
always Empty, and is removed with its last offset.

Expiry (KIP-211). The offsets of a group with members are kept, however old they are: its consumers may simply have
nothing to do. A group without members keeps an offset for the retention time, counted from the moment it became empty
or from the commit, whichever is later; for a simple group it is counted from the commit. An empty group whose last
offset expired is removed as well.
"""

from __future__ import annotations

from collections.abc import Collection

from drmq.groups.classic import Group, Rounds
from drmq.groups.messages import (
    DeletedGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    PartitionResult,
)
from drmq.groups.options import GroupOptions
from drmq.groups.records import GroupDeleted, OffsetCommitted, OffsetDeleted
from drmq.groups.replicated import ReplicatedState
from drmq.groups.share import ShareGroups
from drmq.groups.state import GroupState
from drmq.groups.step import Turn
from drmq.groups.subscription import CONSUMER_PROTOCOL_TYPE
from drmq.model import ErrorCode


class Administration:
    """Handles the requests of tools rather than consumers, and removes unused groups and offsets."""

    def __init__(self, replicated: ReplicatedState, rounds: Rounds, share: ShareGroups, options: GroupOptions) -> None:
        self._replicated = replicated
        self._rounds = rounds
        self._share = share
        self._options = options

    def list_groups(self, ticket: int, request: ListGroupsRequest, turn: Turn) -> None:
        states = {state.lower() for state in request.states}
        types = {group_type.lower() for group_type in request.types}
        listed: list[ListedGroup] = []
        for group_id in self._group_ids():
            group = self._rounds.groups.get(group_id) or Group(group_id)
            entry = ListedGroup(group_id, group.protocol_type, group.state.value)
            if (not states or entry.state.lower() in states) and (not types or entry.group_type in types):
                listed.append(entry)
        for entry in self._share.listed():
            if (not states or entry.state.lower() in states) and (not types or entry.group_type in types):
                listed.append(entry)
        turn.answer(ticket, ListGroupsResponse(ErrorCode.NONE, tuple(listed)))

    def describe_groups(self, ticket: int, request: DescribeGroupsRequest, turn: Turn) -> None:
        turn.answer(ticket, DescribeGroupsResponse(tuple(self._describe(each) for each in request.group_ids)))

    def delete_groups(self, ticket: int, request: DeleteGroupsRequest, turn: Turn) -> None:
        results: dict[str, DeletedGroupResult] = {}
        for group_id in request.group_ids:
            if group_id not in results:
                results[group_id] = DeletedGroupResult(group_id, self._delete(group_id, turn))
        turn.answer(ticket, DeleteGroupsResponse(tuple(results.values())))

    def delete_offsets(self, ticket: int, request: OffsetDeleteRequest, turn: Turn) -> None:
        """Delete offsets, except those of topics that a member reads: it would commit them again."""
        group = self._rounds.groups.get(request.group_id)
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None and request.group_id not in self._replicated:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is not None and group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            error = ErrorCode.NON_EMPTY_GROUP  # The topics that such a group reads are unknown.
        if error is not ErrorCode.NONE:
            turn.answer(ticket, OffsetDeleteResponse(error))
            return
        results: list[PartitionResult] = []
        read = group.read_topics() if group is not None else frozenset()
        for topic, partition in request.partitions:
            partition_error = ErrorCode.NONE
            if read is None or topic in read:
                partition_error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            results.append(PartitionResult(topic, partition, partition_error))
        deletable = {(each.topic, each.partition) for each in results if each.error is ErrorCode.NONE}
        for record in self._replicated.offsets.of_group(request.group_id):
            if record.topic_partition in deletable:
                turn.records.append(_deletion(record))
        turn.answer(ticket, OffsetDeleteResponse(ErrorCode.NONE, tuple(results)))

    def forget_topics(self, topics: Collection[str], turn: Turn) -> None:
        """Remove all offsets of deleted topics, so that a new topic of the same name starts without them."""
        turn.records.extend(_deletion(record) for record in self._replicated.offsets.of_topics(topics))

    def expire(self, turn: Turn, count_max: int) -> None:
        """Delete expired offsets, and groups that have none left; about `count_max` records at most.

        A group leaves the soft state only in the turn that deletes its last record: a member that joined in between
        would get a generation that was used before.
        """
        for group_id in self._group_ids():
            room = count_max - len(turn.records)
            if room <= 0:
                return
            group = self._rounds.groups.get(group_id)
            if group is not None and (group.state is not GroupState.EMPTY or group.pending):
                continue
            offsets = self._replicated.offsets.of_group(group_id)
            empty_since_ms = 0 if group is None else group.state_since_ms
            expired = [each for each in offsets if self._is_expired(each, empty_since_ms, turn.wall_ms)]
            turn.records.extend(_deletion(record) for record in expired[:room])
            if len(expired) == len(offsets) and len(expired) <= room:
                self._remove_group(group_id, turn)

    def _is_expired(self, record: OffsetCommitted, empty_since_ms: int, wall_ms: int) -> bool:
        if record.expire_ms is not None:
            return record.expire_ms <= wall_ms
        # A group that a member ever joined is stored, also while it is empty.
        options, is_simple = self._options, record.group_id not in self._replicated.groups
        keep_ms = options.offsets_retention_ms
        if is_simple:
            keep_ms = min(keep_ms, options.simple_offsets_retention_ms)
        return max(record.commit_ms, empty_since_ms) + keep_ms <= wall_ms

    def _delete(self, group_id: str, turn: Turn) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group_id in self._replicated.share.groups:
            return self._share.delete(group_id, turn)
        group = self._rounds.groups.get(group_id)
        if group is None and group_id not in self._replicated:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group is not None and group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        turn.records.extend(_deletion(record) for record in self._replicated.offsets.of_group(group_id))
        self._remove_group(group_id, turn)
        return ErrorCode.NONE

    def _remove_group(self, group_id: str, turn: Turn) -> None:
        group = self._rounds.groups.get(group_id)
        if group is not None:
            self._rounds.forget(group)
        if group_id in self._replicated.groups:
            turn.records.append(GroupDeleted(group_id))

    def _describe(self, group_id: str) -> DescribedGroup:
        group = self._rounds.groups.get(group_id)
        if group is None and group_id not in self._replicated:
            return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, group_id, GroupState.DEAD.value)
        group = group or Group(group_id)
        # Between generations, the chosen protocol and the assignments are those of the previous generation.
        is_stable = group.state is GroupState.STABLE
        protocol_name = (group.protocol_name or "") if is_stable else ""
        members = tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                metadata=member.metadata_for(protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        )
        return DescribedGroup(ErrorCode.NONE, group_id, group.state.value, group.protocol_type, protocol_name, members)

    def _group_ids(self) -> list[str]:
        return sorted({*self._rounds.groups, *self._replicated.groups, *self._replicated.offsets.groups()})


def _deletion(record: OffsetCommitted) -> OffsetDeleted:
    return OffsetDeleted(record.group_id, record.topic, record.partition)
