"""OffsetCommit and OffsetFetch.

Two kinds of clients commit. A *member* sends its generation: a consumer that missed a rebalance and lost its partitions
must not move their offsets, and its old generation reveals that. A client that *assigns itself* its partitions, or an
administrator, sends none (generation -1, no member id), and may commit only while the group has no members. Such a
commit does not need an existing group: it creates a "simple" group, which consists of its offsets only.

An offset belongs to a topic and not to its name: the offsets of a deleted topic are never returned, although they may
still be stored. Only a known deletion counts. An id that is merely unknown may belong to a topic so new that this node
does not know it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace

from drmq.groups.classic import Group, Rounds, member_error
from drmq.groups.messages import (
    FetchedOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionResult,
)
from drmq.groups.offsets import offset_bytes
from drmq.groups.options import GroupOptions
from drmq.groups.quota import GROUP_BYTES, Quota
from drmq.groups.records import OffsetCommitted, OffsetDeleted
from drmq.groups.replicated import ReplicatedState
from drmq.groups.state import GroupState
from drmq.groups.step import Turn
from drmq.model import ErrorCode, TopicId, TopicPartition
from drmq.model.names import is_group_id


class Commits:
    """Handles OffsetCommit and OffsetFetch."""

    def __init__(
        self,
        replicated: ReplicatedState,
        rounds: Rounds,
        options: GroupOptions,
        is_deleted: Callable[[TopicId], bool],
        quota: Quota,
    ) -> None:
        self._quota = quota
        self._is_deleted = is_deleted
        self._replicated = replicated
        self._rounds = rounds
        self._options = options

    def commit(self, ticket: int, request: OffsetCommitRequest, turn: Turn) -> None:
        group = self._rounds.groups.get(request.group_id)
        error = _commit_error(group, request)
        if group is not None and request.member_id in group.members and error is ErrorCode.NONE:
            self._rounds.renew_session(group, group.members[request.member_id], turn.now_ms)
        results: list[PartitionResult] = []
        # By partition: of several offsets for one partition only the last counts, so only that is stored.
        stored: dict[TopicPartition, OffsetCommitted] = {}
        for offset in request.offsets:
            partition_error = error
            if error is ErrorCode.NONE and self._metadata_too_large(offset):
                partition_error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if partition_error is ErrorCode.NONE:
                record = _commit_record(request, offset, turn.wall_ms)
                stored[record.topic_partition] = record
            results.append(PartitionResult(offset.topic, offset.partition, partition_error))
        if not self._has_room(request, stored.values(), turn.now_ms):
            stored = {}
            results = [
                replace(each, error=ErrorCode.INVALID_COMMIT_OFFSET_SIZE) if each.error is ErrorCode.NONE else each
                for each in results
            ]
        turn.records.extend(stored.values())
        turn.answer(ticket, OffsetCommitResponse(tuple(results)))

    def _has_room(self, request: OffsetCommitRequest, records: Iterable[OffsetCommitted], now_ms: int) -> bool:
        """Whether the node may store these offsets. Those that take no more space than before always fit."""
        group_id, growth, is_new = request.group_id, 0, False
        for record in records:
            before = self._replicated.offsets.get(group_id, record.topic_partition)
            if before is None:
                growth += offset_bytes(record)
                is_new = is_new or group_id not in self._replicated
            else:
                growth += max(0, len(record.metadata) - len(before.metadata))
        growth += GROUP_BYTES if is_new else 0
        return growth == 0 or self._quota.admits(request.client_host, int(is_new), growth, now_ms)

    def fetch(self, ticket: int, request: OffsetFetchRequest, turn: Turn) -> None:
        """Return committed offsets. A group that does not exist has none, which is no error: consumers start so."""
        if not request.group_id:
            turn.answer(ticket, OffsetFetchResponse(ErrorCode.INVALID_GROUP_ID))
            return
        offsets = self._replicated.offsets
        if request.partitions is None:
            found = offsets.of_group(request.group_id)
            fetched = [_fetched(record) for record in found if not self._is_stale(record)]
        else:
            fetched = [self._fetch_one(request.group_id, partition) for partition in request.partitions]
        turn.answer(ticket, OffsetFetchResponse(ErrorCode.NONE, tuple(fetched)))

    def forget_topics(self, topic_ids: Container[TopicId], turn: Turn) -> None:
        """Remove the offsets of deleted topics."""
        stale = self._replicated.offsets.of_topic_ids(topic_ids)
        turn.records.extend(OffsetDeleted(record.group_id, record.topic, record.partition) for record in stale)

    def _fetch_one(self, group_id: str, partition: TopicPartition) -> FetchedOffset:
        record = self._replicated.offsets.get(group_id, partition)
        if record is None or self._is_stale(record):
            return FetchedOffset(partition.topic, partition.partition)
        return _fetched(record)

    def _is_stale(self, record: OffsetCommitted) -> bool:
        return record.topic_id is not None and self._is_deleted(record.topic_id)

    def _metadata_too_large(self, offset: OffsetToCommit) -> bool:
        size = len((offset.metadata or "").encode("utf-8", "surrogatepass"))
        return size > self._options.offset_metadata_size_bytes_max


def _commit_error(group: Group | None, request: OffsetCommitRequest) -> ErrorCode:
    """The error if this client may not move the group's offsets now."""
    if not is_group_id(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        # A generation of a group that no longer exists: its member must join again.
        return ErrorCode.NONE if request.generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if request.generation < 0 and not request.member_id and not request.instance_id:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = member_error(group, request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # In PreparingRebalance the old owners still own their partitions, and commit before they join again. Afterwards the
    # generation is new, and no member owns anything until the assignment arrives.
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _commit_record(request: OffsetCommitRequest, offset: OffsetToCommit, wall_ms: int) -> OffsetCommitted:
    keep_ms = request.retention_ms
    return OffsetCommitted(
        request.group_id,
        offset.topic,
        offset.partition,
        offset.offset,
        offset.leader_epoch,
        offset.metadata or "",
        commit_ms=wall_ms,
        expire_ms=None if keep_ms is None or keep_ms < 0 else wall_ms + keep_ms,
        topic_id=offset.topic_id,
    )


def _fetched(found: OffsetCommitted) -> FetchedOffset:
    return FetchedOffset(found.topic, found.partition, found.offset, found.leader_epoch, found.metadata)
