"""Consumer groups on `__consumer_offsets`: which partition coordinates a group, and what the broker does unasked.

The decisions are all in `drmq.groups`; how they are carried out is in `coordinator`. A group belongs to one partition
of the topic, by a hash of its id, and is coordinated where that partition is led. Every replica replays the records,
so that another can take over at once; soft state (which members are connected, whose heartbeat is due) is lost with
the leader, and members get their full session timeout from the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random

from crc32c import crc32c

from drmq.broker.clock import Clock
from drmq.broker.coordination.coordinator import Coordinator, RecordCodec
from drmq.broker.partitions.partition import Partition
from drmq.groups import (
    DescribeGroupsRequest,
    DescribeShareGroupsRequest,
    GroupOptions,
    GroupRecord,
    GroupRequest,
    GroupResponse,
    GroupShard,
    ListGroupsRequest,
    OffsetCommitted,
    OffsetFetchRequest,
    Quota,
    ShareGroupMetadata,
    ShareTiming,
    Step,
    Usage,
    record_from_bytes,
    record_to_bytes,
)
from drmq.groups.share import PartitionsOf, TimingOf
from drmq.model import ApiError, ErrorCode, TopicId

log = logging.getLogger("drmq.broker")

_DELETIONS_PER_BATCH = 5_000
"""Deletions in one batch. The key of each has the group's id in it: with the longest ids they are half of what a batch
may be."""

_REFUSALS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

_READS = (OffsetFetchRequest, DescribeGroupsRequest, ListGroupsRequest, DescribeShareGroupsRequest)

Respond = Callable[[GroupResponse | ErrorCode], None]
"""Takes the answer, or the code of a failure to make it durable."""

CODEC: RecordCodec[GroupRecord] = RecordCodec(record_to_bytes, record_from_bytes)


class AbsentShard:
    """Stands in for a shard that is on other nodes, or nowhere yet: refuses every request with that reason."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    def submit(self, request: GroupRequest, respond: Respond) -> int:
        respond(self._code)
        return -1


class GroupShardCoordinator(Coordinator[GroupShard, GroupRequest, GroupResponse, GroupRecord]):
    """The groups of one partition of `__consumer_offsets`."""

    def __init__(
        self,
        new_shard: Callable[[], GroupShard],
        clock: Clock,
        deleted_topics: Callable[[], Collection[str]],
        deleted_topic_ids: Callable[[], Collection[TopicId]],
        on_deleting: Callable[[GroupShardCoordinator], None],
        on_member_lost: Callable[[str, str], None],
    ) -> None:
        super().__init__(new_shard, CODEC, clock)
        self._deleted_topics = deleted_topics
        self._deleted_topic_ids = deleted_topic_ids
        self._on_deleting = on_deleting
        self._on_member_lost = on_member_lost

    def is_read(self, request: GroupRequest) -> bool:
        return isinstance(request, _READS)

    def answer_too_large(self, step: Step) -> ErrorCode | None:
        # Commits are in no soft state. Sent again the request would be as large, so the client learns the reason.
        is_commit = all(isinstance(record, OffsetCommitted) for record in step.records)
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_commit else None

    def on_led(self) -> None:
        # The previous leader may have stopped before it deleted the offsets of topics that were deleted.
        self.forget_topics(self._deleted_topics(), self._deleted_topic_ids())
        self._on_deleting(self)

    def on_records_committed(self, records: Sequence[GroupRecord], token: object) -> None:
        if any(isinstance(record, ShareGroupMetadata) and record.is_deleting for record in records):
            self._on_deleting(self)
        for group_id, member_id in self.machine.take_lost_members():
            self._on_member_lost(group_id, member_id)

    def submit(self, request: GroupRequest, respond: Respond) -> int:
        """Queue a request; the ticket under which its answer will come. `respond` gets the answer or an error code."""

        def translate(answer: GroupResponse | ApiError) -> None:
            if isinstance(answer, ApiError):
                respond(_REFUSALS.get(answer.code, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                respond(answer)

        return super().submit(request, translate)

    def forget_topics(self, names: Collection[str], topic_ids: Collection[TopicId]) -> None:
        """Delete the offsets of deleted topics, some at a time: the rest when these are committed."""
        if not names and not topic_ids:
            return
        has_more = False

        def work(shard: GroupShard, now_ms: int, wall_ms: int) -> Step:
            nonlocal has_more
            records = shard.forget_topics(names, topic_ids).records
            has_more = len(records) > _DELETIONS_PER_BATCH
            return Step(records[:_DELETIONS_PER_BATCH])

        def done(error: ApiError | None) -> None:
            if error is None and has_more:
                self.forget_topics(names, topic_ids)

        self.run(work, done)

    def expire_offsets(self, now_ms: int) -> None:
        """Delete offsets that were committed too long ago, some at a time."""
        has_more = False

        def work(shard: GroupShard, monotonic_ms: int, wall_ms: int) -> Step:
            nonlocal has_more
            step = shard.expire_offsets(now_ms, _DELETIONS_PER_BATCH)
            has_more = len(step.records) >= _DELETIONS_PER_BATCH
            return step

        def done(error: ApiError | None) -> None:
            if error is None and has_more:
                self.expire_offsets(now_ms)

        self.run(work, done)


def _log_refusal(reason: str) -> None:
    # The answers of most of these APIs have room for a code only.
    log.warning(
        "a join, an assignment, a commit or a queue of a share group is refused: %s",
        reason,
        extra={"repeat_key": "groups are limited"},
    )


Shard = GroupShardCoordinator | AbsentShard

_ELSEWHERE = AbsentShard(ErrorCode.NOT_COORDINATOR)
_NOWHERE = AbsentShard(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class ConsumerGroups:
    """The group shards on this node, and which group belongs to which. Implements `internal_topics.CoordinatorSet`."""

    def __init__(self, options: GroupOptions, clock: Clock, random: Random) -> None:
        self.options = options
        self.shards: dict[int, GroupShardCoordinator] = {}
        """By partition of `__consumer_offsets`; those led elsewhere are here too, and follow."""
        self.partition_count = 0
        """Partitions of `__consumer_offsets`; 0 while there is none."""
        self.deleted_topics: Callable[[], Collection[str]] = lambda: ()
        """Names of topics that were deleted and not created again."""
        self.deleted_topic_ids: Callable[[], Collection[TopicId]] = lambda: ()
        """Ids of deleted topics, whatever topics have their names now."""
        self.partitions_of: PartitionsOf = lambda topic: None
        """The id and the number of partitions of a topic; set by the broker."""
        self.timing_of: TimingOf = lambda group_id: ShareTiming()
        """Settings of a share group; set by the broker."""
        self.on_deleting: Callable[[GroupShardCoordinator], None] = lambda shard: None
        """Called when a shard leads, and when it has marked a share group as deleted; set by the broker."""
        self.on_member_lost: Callable[[str, str], None] = lambda group_id, member_id: None
        """Called with a member of a share group whose session has expired; set by the broker."""
        self.queue_bytes: Callable[[], int] = lambda: 0
        """The memory of the queues of share groups on this node; set by the broker."""
        self._clock = clock
        self._random = random
        self._quota = Quota(options, self._usage, self._recount, _log_refusal, self._held)

    def _usage(self) -> Usage:
        """The state of all groups on this node and their queues, led here or elsewhere: each takes memory."""
        usages = [shard.machine.usage for shard in self.shards.values()]
        size_bytes = sum(usage.size_bytes for usage in usages) + self.queue_bytes()
        return Usage(sum(usage.groups for usage in usages), size_bytes)

    def _held(self, caller: str) -> int:
        return sum(shard.machine.held_by(caller) for shard in self.shards.values())

    def admits_queue(self, caller: str, size_bytes: int, now_ms: int) -> bool:
        """Whether a caller may begin a queue of a share group, which counts as state of groups."""
        return self._quota.admits(caller, 0, size_bytes, now_ms)

    def on_queue_removed(self, caller: str, size_bytes: int) -> None:
        self._quota.give_back(caller, size_bytes)

    def _recount(self) -> None:
        for shard in self.shards.values():
            shard.machine.recount()

    def new_coordinator(self) -> GroupShardCoordinator:
        """A coordinator for a partition of `__consumer_offsets` that is about to be opened."""
        return GroupShardCoordinator(
            lambda: GroupShard(
                self.options,
                self._new_member_id,
                self._is_deleted,
                self._quota,
                lambda topic: self.partitions_of(topic),
                lambda group_id: self.timing_of(group_id),
            ),
            self._clock,
            lambda: self.deleted_topics(),
            lambda: self.deleted_topic_ids(),
            lambda shard: self.on_deleting(shard),
            lambda group_id, member_id: self.on_member_lost(group_id, member_id),
        )

    def add(self, partition: Partition, coordinator: object) -> None:
        assert isinstance(coordinator, GroupShardCoordinator), coordinator
        self.shards[partition.index] = coordinator

    def remove(self, partition: Partition) -> None:
        self.shards.pop(partition.index, None)

    def index_of(self, group_id: str) -> int:
        """The partition that a group belongs to."""
        # The upper half of the checksum: names that differ in a digit at their end share its lowest bits.
        return (crc32c(group_id.encode()) >> 16) % max(1, self.partition_count)

    def shard_of(self, group_id: str) -> Shard:
        """Where requests about a group go."""
        shard = self.shards.get(self.index_of(group_id)) if self.partition_count else None
        return shard or (_ELSEWHERE if self.partition_count else _NOWHERE)

    def forget_topics(self, names: Iterable[str], topic_ids: Iterable[TopicId] = ()) -> None:
        """Topics were deleted. `names` are for offsets that do not say to which topic of the name they belong."""
        gone_names, gone_ids = set(names), set(topic_ids)
        for shard in self.shards.values():
            shard.forget_topics(gone_names, gone_ids)

    def expire_offsets(self, now_ms: int) -> None:
        """Delete what was committed too long ago, by a time that can be trusted."""
        for shard in self.shards.values():
            shard.expire_offsets(now_ms)

    def _is_deleted(self, topic_id: TopicId) -> bool:
        return topic_id in self.deleted_topic_ids()

    def _new_member_id(self, client_id: str) -> str:
        return f"{client_id}-{self._random.randbytes(16).hex()}"
