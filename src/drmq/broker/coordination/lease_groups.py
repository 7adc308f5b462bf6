"""Lease groups on `__share_group_state`: which partition decides about a queue.

The decisions are all in `drmq.leases`; how they are carried out is in `coordinator`. A queue, one partition of a topic
as one group works on it, belongs to one partition of the internal topic, by a hash of its key, wherever the data is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random

from crc32c import crc32c

from drmq.broker.clock import Clock
from drmq.broker.coordination.coordinator import Coordinator, RecordCodec, Respond
from drmq.broker.coordination.settling import Settling
from drmq.broker.partitions.partition import Partition
from drmq.leases import (
    Acquire,
    Advance,
    Bury,
    DescribeLetters,
    DescribeQueues,
    LeaseOptions,
    LeaseRecord,
    LeaseRequest,
    LeaseResponse,
    LeaseShard,
    QueueKey,
    ReleaseMember,
    Settle,
    StartQueue,
    record_from_bytes,
    record_to_bytes,
)
from drmq.leases.queue import Queue
from drmq.model import TopicId

_HASHES_MAX = 10_000

CODEC: RecordCodec[LeaseRecord] = RecordCodec(record_to_bytes, record_from_bytes)


class LeaseShardCoordinator(Coordinator[LeaseShard, LeaseRequest, LeaseResponse, LeaseRecord]):
    """The queues of one partition of `__share_group_state`."""

    def __init__(
        self,
        new_shard: Callable[[], LeaseShard],
        clock: Clock,
        deleted_topic_ids: Callable[[], Collection[TopicId]],
        on_changed: Callable[[LeaseShardCoordinator], None],
        on_paused: Callable[[Queue], None],
    ) -> None:
        super().__init__(new_shard, CODEC, clock)
        self._deleted_topic_ids = deleted_topic_ids
        self._on_changed = on_changed
        self._on_paused = on_paused
        self._settling: dict[QueueKey, dict[str, Settling]] = {}
        """What members settle in this turn of the event loop: requests that the next one may be joined to."""

    rounds_max = 64  # A round serves one of the requests that wait for records of a queue.
    replays_objects = True

    def is_read(self, request: LeaseRequest) -> bool:
        return isinstance(request, DescribeQueues | DescribeLetters)

    def submit(self, request: LeaseRequest, respond: Respond) -> int:
        """Queue a request; the ticket under which it waits.

        What a member settles in a queue with several requests of one turn is decided and recorded at once, unless
        another request to that queue is in between: many clients settle one record with each request.
        """
        if not isinstance(request, Settle) or not self.leads:
            if isinstance(request, (StartQueue, Acquire, Advance, Settle, ReleaseMember, Bury)):
                self._settling.pop(request.key, None)
            else:
                self._settling.clear()  # it may be about any queue
            return super().submit(request, respond)
        settling = self._settling.get(request.key)
        if settling is None:
            settling = self._settling[request.key] = {}
        together = settling.get(request.member)
        if together is None or not together.add(request, respond):
            together = settling[request.member] = Settling(request, respond)
            together.ticket = super().submit(request, together.respond)
        return together.ticket

    def _enqueue_request(self, ticket: int, request: LeaseRequest) -> None:
        if isinstance(request, Settle):
            together = self._settling[request.key][request.member]
            self._enqueue(ticket, lambda shard, now_ms, wall_ms: together.decide(shard, now_ms, wall_ms), None)
        else:
            super()._enqueue_request(ticket, request)

    def _drain(self) -> None:
        self._settling.clear()
        super()._drain()

    def on_records_committed(self, records: Sequence[LeaseRecord], token: object) -> None:
        self._on_changed(self)
        for key in self.machine.take_pauses():
            if key in self.machine.queues:
                self._on_paused(self.machine.queues[key])

    def on_led(self) -> None:
        self._on_changed(self)
        # The previous leader may have stopped before it removed the queues of topics that were deleted.
        self.forget_topics(self._deleted_topic_ids())

    def forget_topics(self, topic_ids: Collection[TopicId]) -> None:
        """Remove the queues of deleted topics."""
        if topic_ids:
            self.run(lambda shard, now_ms, wall_ms: shard.forget_topics(topic_ids, now_ms, wall_ms))


class LeaseGroups:
    """The lease shards on this node, and which queue belongs to which. Implements `internal_topics.CoordinatorSet`."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.shards: dict[int, LeaseShardCoordinator] = {}
        """By partition of `__share_group_state`; those led elsewhere are here too, and follow."""
        self.partition_count = 0
        """Partitions of `__share_group_state`; 0 while there is none."""
        self.deleted_topic_ids: Callable[[], Collection[TopicId]] = lambda: ()
        self.options_of: Callable[[str], LeaseOptions] = lambda group: LeaseOptions()
        """The settings of a group; set by the broker."""
        self.admits: Callable[[str, int, int], bool] = lambda caller, size_bytes, now_ms: True
        """Whether a caller may add so much to the state of this node now; set by the broker."""
        self.on_freed: Callable[[str, int], None] = lambda caller, size_bytes: None
        """A queue that a caller began was removed; set by the broker."""
        self.on_changed: Callable[[LeaseShardCoordinator], None] = lambda shard: None
        """Called when a shard leads, and when it has changed; set by the broker."""
        self.on_paused: Callable[[Queue], None] = lambda queue: None
        """Called with a queue in which nothing new is leased from now on; set by the broker."""
        self._clock = clock
        self._random = random
        self._hashes: dict[QueueKey, int] = {}
        """Of queues that were asked for: they are needed for every request."""

    def new_coordinator(self) -> LeaseShardCoordinator:
        """A coordinator for a partition of `__share_group_state` that is about to be opened."""
        return LeaseShardCoordinator(
            lambda: LeaseShard(
                lambda group: self.options_of(group),
                self._random,
                lambda caller, size_bytes, now_ms: self.admits(caller, size_bytes, now_ms),
                lambda caller, size_bytes: self.on_freed(caller, size_bytes),
            ),
            self._clock,
            lambda: self.deleted_topic_ids(),
            lambda shard: self.on_changed(shard),
            lambda queue: self.on_paused(queue),
        )

    def add(self, partition: Partition, coordinator: object) -> None:
        assert isinstance(coordinator, LeaseShardCoordinator), coordinator
        self.shards[partition.index] = coordinator

    def remove(self, partition: Partition) -> None:
        self.shards.pop(partition.index, None)

    @property
    def size_bytes(self) -> int:
        """The memory of all queues on this node, led here or elsewhere."""
        return sum(shard.machine.size_bytes for shard in self.shards.values())

    def index_of(self, key: QueueKey) -> int:
        """The partition that a queue belongs to."""
        found = self._hashes.get(key)
        if found is None:
            data = key.group.encode() + key.topic_id + key.partition.to_bytes(4, "big")
            if len(self._hashes) >= _HASHES_MAX:
                self._hashes.clear()
            found = self._hashes[key] = crc32c(data) >> 16
        return found % max(1, self.partition_count)

    def forget_topics(self, topic_ids: Collection[TopicId]) -> None:
        """Topics were deleted."""
        for shard in self.shards.values():
            shard.forget_topics(topic_ids)
