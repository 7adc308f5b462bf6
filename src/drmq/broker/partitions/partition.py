"""One partition as its clients see it: it assigns offsets, commits batches, and notifies waiting requests.

A partition is used on the event loop and does no file operations there. On the leader it checks a batch, stamps it with
an offset and the leader's term, and proposes it to its replica group (`Replica`), which writes it on this node and on
the followers. Meanwhile these offsets describe it:

    start_offset  <=  high_watermark  <=  log.end_offset  <=  next_offset
    oldest kept       committed, visible   written here       assigned

Readers see what is below the high watermark, whatever the producer requested: `acks` decides when a producer gets its
response, never what a consumer sees. Committed means durable on a majority; with one replica, that is this disk.

Only the leader accepts appends and answers requests about the end of the log, and the latter only once it has committed
an entry of its own term: before that it cannot know how far its predecessor had committed. When it stops being the
leader, all waiting requests are answered that their outcome is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from drmq.broker.notify import notify_all
from drmq.broker.partitions.partition_events import PartitionEvents
from drmq.broker.partitions.produced_batch import check_produced
from drmq.broker.partitions.producer_table import ProducerTable, WrittenBatch
from drmq.broker.replication.entry_log import decode_offset, encode_trim
from drmq.catalog import TimestampType, TopicConfig
from drmq.model import ApiError, ErrorCode, GroupId, LeaderEpoch, NodeId, Offset, TopicId, UnknownFormat, node_of
from drmq.model.names import check_not_internal, is_internal
from drmq.raft import (
    NO_INDEX,
    IndexRange,
    Leadership,
    LogIndex,
    MembersChange,
    NotLeader,
    Refusal,
    Role,
    SnapshotMeta,
    TransferInProgress,
)
from drmq.records import HEADER_SIZE, BatchHeader, read_header, stamp, stamp_append_time
from drmq.storage import Log
from drmq.telemetry.system_errors import in_words
from drmq.transport.peers import PeerOptions

if TYPE_CHECKING:
    from drmq.broker.replication.replica import Replica

Done = Callable[[ErrorCode], None]

OWN_BATCH_BYTES_MAX = PeerOptions().append_frame_bytes_max // 2
"""The largest batch of a state machine: it must fit into a frame between nodes, with room to spare. Raft refuses no
size if nothing else is uncommitted, and a batch that cannot be sent would block everything after it for ever."""
PRODUCED_BATCH_BYTES_MAX = PeerOptions().append_frame_bytes_max - 1_048_576
"""The largest batch of a producer, whatever the topic allows, for the same reason."""

_SENT_AGAIN = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT))
"""Errors after which a client sends the same batch again."""
_TURNED_AWAY_MS = 10_000
_TURNED_AWAY_MAX = 1_000


class Appended(NamedTuple):
    """The position of a batch, which was appended now or found as a repeat."""

    base_offset: Offset
    next_offset: Offset
    append_time_ms: int
    """-1 if the producer's timestamps are used."""


class ProgressWatcher(Protocol):
    """A request that waits for the high watermark to move, such as a parked fetch."""

    def on_progress(self, partition: Partition) -> None: ...


class PartitionState(Protocol):
    """The state derived from a partition's log, and how it is stored: see `derived_state`."""

    @property
    def is_current(self) -> bool:
        """False after a failed read until it is loaded again: meanwhile the state is undefined and must not be used."""

    def reload(self, end_offset: Offset) -> object:
        """On the writer thread: the derived state of a log that ends at `end_offset`."""

    def snapshot_bytes(self, meta: SnapshotMeta) -> bytes | None:
        """On a thread of the pool: the bytes to send of that snapshot; None if another has replaced it."""

    def decode_snapshot(self, meta: SnapshotMeta, data: bytes) -> object | None:
        """On a thread of the pool: the state in a received snapshot, for `on_reloaded`; None if it is damaged."""

    def save_snapshot(self, meta: SnapshotMeta, data: bytes) -> None: ...

    def finish_snapshot(self, meta: SnapshotMeta, data: bytes) -> None: ...

    def on_appended(self, partition: Partition, headers: Sequence[BatchHeader]) -> None:
        """Batches of another leader are in the log."""

    def on_reloaded(self, partition: Partition, reloaded: object) -> None:
        """The log was truncated or replaced: use this derived state."""

    def on_leadership(self, partition: Partition) -> None:
        """The partition has become or stopped being the leader, or has learned what is committed."""

    def on_committed(self, partition: Partition, committed: IndexRange) -> None:
        """The high watermark has moved. Calls `replica.on_applied` when everything is applied."""


class Partition:
    """One replica of one partition. Owned by the broker; all methods run on the event loop."""

    __slots__ = (
        "_ack_waiters",
        "_committed_index",
        "_events",
        "_in_flight",
        "_read_waiters",
        "_reads_on",
        "_trim_waiters",
        "_turned_away",
        "_uncommitted_bytes",
        "_watchers",
        "_write_waiters",
        "acked_offset",
        "committed_bytes",
        "config",
        "failure",
        "former_members",
        "group",
        "high_watermark",
        "in_sync",
        "index",
        "is_closed",
        "is_internal",
        "is_leader",
        "is_serving",
        "leader",
        "leader_epoch",
        "log",
        "members_in_sync",
        "next_offset",
        "notice_version",
        "producers",
        "replica",
        "state",
        "topic",
        "topic_id",
        "trimmed_to",
    )

    replica: Replica

    def __init__(
        self,
        topic: str,
        topic_id: TopicId,
        index: int,
        log: Log,
        config: TopicConfig,
        producers: ProducerTable,
        state: PartitionState,
        events: PartitionEvents,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.group = GroupId(topic_id, index)
        self.is_closed = False
        self.is_internal = is_internal(topic)
        self.log = log
        self.config = config
        self.producers = producers
        self.state = state
        self.leader: NodeId | None = None
        """The node of the leader, as far as this replica knows."""
        self.leader_epoch = LeaderEpoch(0)
        self.is_leader = False
        self.is_serving = False
        """Whether this replica is a leader that knows what is committed."""
        self.in_sync: tuple[NodeId, ...] = ()
        """On the leader: the nodes whose replicas are in sync."""
        self.members_in_sync: tuple[NodeId, ...] = ()
        """The member ids of these nodes."""
        self.former_members: frozenset[NodeId] = frozenset()
        """Members of the group that have other member ids in the catalog now: their data was lost, or moved away."""
        self.notice_version = 0
        self.next_offset = log.end_offset
        self.high_watermark = log.start_offset
        self.acked_offset = log.start_offset
        """How far acks=all is fulfilled: committed, and on as many replicas as the topic requires."""
        self.trimmed_to = Offset(0)
        self.committed_bytes = 0
        """Bytes that became visible since the start; parked fetches count with it."""
        self.failure: str | None = None
        """Why appends are refused, if they are."""
        self._events = events
        self._reads_on = False
        """Whether reads are served although the replica has failed."""
        self._in_flight: deque[tuple[Offset, int]] = deque()
        self._uncommitted_bytes = 0
        """On the leader: the sum of the sizes in `_in_flight`."""
        self._write_waiters: deque[tuple[Offset, Done]] = deque()
        self._ack_waiters: deque[tuple[Offset, Done]] = deque()
        self._trim_waiters: list[tuple[Offset, Done]] = []
        self._read_waiters: deque[tuple[LogIndex, Done]] = deque()
        """Reads that wait until everything is visible here that was committed when leadership was confirmed."""
        self._committed_index = NO_INDEX
        """The index up to which the log is visible here; none until the leader has sent it: it is not stored."""
        self._turned_away: dict[int, int] = {}
        """By producer: when a batch was refused that the producer will send again."""
        self._watchers: dict[ProgressWatcher, None] = {}

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index})"

    # ---- writing --------------------------------------------------------------------------------

    def append(
        self, batch: memoryview, now_ms: int, *, wants_written: bool = False, wants_all: bool = False, own: bool = False
    ) -> Appended:
        """Check a producer's batch, assign offsets and propose it.

        `wants_written` must be set if `when_written` will be called for it, `wants_all` if the producer requires
        `min.insync.replicas`, `own` if a node writes it, which may exceed `max.message.bytes`. The batch is changed in
        place and must not be used by the caller again. Raises `ApiError` with nothing changed.
        """
        try:
            return self._append(batch, now_ms, wants_written, wants_all, own)
        except ApiError as refused:
            if refused.code in _SENT_AGAIN and len(batch) >= HEADER_SIZE:
                self.turn_away(read_header(batch).producer_id, now_ms)
            raise

    def _append(self, batch: memoryview, now_ms: int, wants_written: bool, wants_all: bool, own: bool) -> Appended:
        self._check_leads()
        if self.is_internal:
            check_not_internal(self.topic)
        header = check_produced(batch)
        config = self.config
        if len(batch) > config.max_message_bytes and not own:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {len(batch)} bytes; {self.topic} takes {config.max_message_bytes} (max.message.bytes)",
            )
        if len(batch) > PRODUCED_BATCH_BYTES_MAX:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {len(batch)} bytes; nodes send each other {PRODUCED_BATCH_BYTES_MAX} at most",
            )
        if header.is_transactional:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "transactions are not offered")
        if wants_all and len(self.in_sync) < config.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has {len(self.in_sync)} replicas in sync, "
                f"and min.insync.replicas asks for {config.min_insync_replicas}",
            )
        if header.producer_id >= 0:
            repeat = self._find_repeat(header, now_ms)
            if repeat is not None:
                return Appended(repeat.base_offset, repeat.next_offset, -1)
        append_time_ms = -1
        if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time_ms = now_ms
            stamp_append_time(batch, now_ms)
            header = read_header(batch)
        elif (
            header.max_timestamp > now_ms + config.after_max_ms or header.base_timestamp < now_ms - config.before_max_ms
        ):
            config.check_times(header.base_timestamp, header.max_timestamp, now_ms)
        events = self._events
        events.produced_records += header.record_count
        events.produced_bytes += len(batch)
        return self._place(batch, header, now_ms, append_time_ms, wants_written)

    def _find_repeat(self, header: BatchHeader, now_ms: int) -> WrittenBatch | None:
        """The batch in the log that this one repeats. Raises `ApiError` if it neither repeats nor follows one.

        A client has several batches in flight. If one of them is refused because of a change of leader, the next may
        arrive a moment later, when this node is leader again, and would be out of order. If it were answered so,
        librdkafka would start a new epoch and send batches whose answer is outstanding again as new ones. So such a
        batch is refused with the same reason as the one before it, and both are sent again in order.
        """
        try:
            repeat = self.producers.find_repeat(header)
        except ApiError as error:
            refused_ms = self._turned_away.get(header.producer_id)
            is_gap = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if is_gap and refused_ms is not None and 0 <= now_ms - refused_ms < _TURNED_AWAY_MS:
                raise ApiError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"{self.topic}-{self.index}: a batch before this one was refused while the leader changed",
                ) from error
            raise
        if self._turned_away:
            self._turned_away.pop(header.producer_id, None)
        return repeat

    def turn_away(self, producer_id: int, now_ms: int) -> None:
        if producer_id < 0:
            return
        # The time is that of the first refusal: repeated refusals must not hide a real gap for ever.
        if now_ms - self._turned_away.get(producer_id, -_TURNED_AWAY_MS) >= _TURNED_AWAY_MS:
            if len(self._turned_away) >= _TURNED_AWAY_MAX:
                self._turned_away.clear()
            self._turned_away[producer_id] = now_ms

    def append_own(self, batch: bytearray) -> Appended:
        """Append a state machine's records. Raises `ApiError` with nothing changed."""
        self._check_leads()
        self.check_own_size(len(batch))
        return self._place(memoryview(batch), read_header(batch), 0, -1, False)

    def check_may_append(self, size_bytes: int) -> None:
        """Raise `ApiError` if `append_own` would refuse a batch of this size now."""
        self._check_leads()
        self.check_own_size(size_bytes)
        try:
            self.replica.check_proposal(size_bytes)
        except Refusal as refusal:
            raise self._refused(refusal) from refusal

    def check_own_size(self, size_bytes: int) -> None:
        """Raise `ApiError` if a batch of this size cannot be sent to the followers."""
        if size_bytes > OWN_BATCH_BYTES_MAX:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch for {self.topic}-{self.index} is too large: {size_bytes} bytes or more, "
                f"and nodes send each other {OWN_BATCH_BYTES_MAX} at most",
            )

    def _check_leads(self) -> None:
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._who_leads())

    def _who_leads(self) -> str:
        leader = "has no leader at the moment" if self.leader is None else f"is led by node {self.leader}"
        return f"{self.topic}-{self.index} {leader}"

    def _place(
        self, batch: memoryview, header: BatchHeader, now_ms: int, append_time_ms: int, wants_written: bool
    ) -> Appended:
        base_offset = self.next_offset
        stamp(batch, base_offset, self.leader_epoch)
        # The fastest way to create a named tuple: this runs for every batch.
        header = tuple.__new__(BatchHeader, (base_offset, header[1], self.leader_epoch, *header[3:]))
        try:
            self.replica.propose(header, batch, wants_written)
        except Refusal as refusal:
            raise self._refused(refusal) from refusal
        if header.producer_id >= 0:
            self.producers.apply(header, max(now_ms, self._events.believed_ms))
        next_offset = self.next_offset = header.next_offset
        size = len(batch)
        self._in_flight.append((next_offset, size))
        self._uncommitted_bytes += size
        self._events.uncommitted_bytes += size
        times = self._events.commit_times
        if times.partition is None:
            times.begin(self, next_offset)
        return Appended(base_offset, next_offset, append_time_ms)

    def _refused(self, refusal: Refusal) -> ApiError:
        if isinstance(refusal, NotLeader | TransferInProgress):
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._who_leads())
        # Too much is uncommitted because the followers are slow. The client tries again later.
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{self.topic}-{self.index}: {refusal}")

    def trim(self, offset: Offset, done: Done) -> None:
        """Remove the records below `offset` on all replicas. Raises `ApiError` with nothing changed."""
        self._check_leads()
        try:
            self.replica.propose_own(encode_trim(offset, typed=self._events.types_own_entries))
        except Refusal as refusal:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._who_leads()) from refusal
        self._trim_waiters.append((offset, done))

    def when_written(self, next_offset: Offset, done: Done) -> None:
        """Call `done` once everything below `next_offset` is in this log, durable or not."""
        if self.log.end_offset >= next_offset and not self._write_waiters:
            done(ErrorCode.NONE)
        else:
            self._wait(self._write_waiters, next_offset, done)

    def when_durable(self, next_offset: Offset, done: Done) -> None:
        """Call `done` once everything below `next_offset` is committed and on as many replicas as required."""
        if self.acked_offset >= next_offset:
            done(ErrorCode.NONE)
        else:
            self._wait(self._ack_waiters, next_offset, done)

    def _wait(self, waiters: deque[tuple[Offset, Done]], next_offset: Offset, done: Done) -> None:
        if self.failure is not None:
            # Its offsets may be void by now. A request must not wait for them: other batches will get them.
            done(ErrorCode.KAFKA_STORAGE_ERROR)
        elif not self.is_leader:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            waiters.append((next_offset, done))

    # ---- reports of the writer and the replica --------------------------------------------------

    def on_written(self, end_offset: Offset) -> None:
        _release(self._write_waiters, end_offset)

    def on_flushed(self, flushed_offset: Offset) -> None:
        if self._write_waiters:
            _release(self._write_waiters, flushed_offset)
        self.replica.on_flushed(flushed_offset)

    def on_failed(self, reason: str, end_offset: Offset) -> None:
        self.replica.on_failed(reason, end_offset)

    def on_leadership(self, leadership: Leadership) -> None:
        self._events.on_role_changing(self, leadership)
        was_leader, self.is_leader = self.is_leader, leadership.role is Role.LEADER
        if self.is_leader:
            self.failure = None
        self.leader_epoch = LeaderEpoch(leadership.term)
        self.leader = None if leadership.leader is None else node_of(leadership.leader)
        if self.is_leader and not was_leader:
            self.next_offset = self.replica.queued_offset
            # Only a leader knows on how many replicas a batch is; as a follower, this replica followed the high
            # watermark.
            self.acked_offset = Offset(0)
            self.update_acked()
            self.is_serving = False
            self.members_in_sync = (self.replica.member,)
            self.in_sync = (node_of(self.replica.member),)
        elif was_leader and not self.is_leader:
            self._stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._count_uncommitted()
        self._events.on_leadership_changed(self)
        self.state.on_leadership(self)

    def on_members_changed(self, change: MembersChange) -> None:
        self._events.on_members_changed(self, change)

    def _stop_leading(self, code: ErrorCode) -> None:
        """Fail all waiting requests. The next leader may or may not commit what was appended here."""
        self.is_leader = self.is_serving = False
        self.in_sync = self.members_in_sync = ()
        self._count_uncommitted()
        waiting = [done for _, done in (*self._write_waiters, *self._ack_waiters, *self._trim_waiters)]
        waiting += [done for _, done in self._read_waiters]
        for waiters in (self._write_waiters, self._ack_waiters, self._trim_waiters, self._read_waiters):
            waiters.clear()
        notify_all([*(partial(done, code) for done in waiting), self._wake])

    def _count_uncommitted(self) -> None:
        """Count the uncommitted bytes again, on the leader only, after anything but an append or a commit."""
        size = sum(size for _, size in self._in_flight) if self.is_leader else 0
        self._events.uncommitted_bytes += size - self._uncommitted_bytes
        self._uncommitted_bytes = size
        self._events.commit_times.forget(self)

    def on_appended(self, headers: Sequence[BatchHeader]) -> None:
        """Batches of another leader are in this log."""
        self.state.on_appended(self, headers)
        self._in_flight.extend((header.next_offset, header.size) for header in headers)
        self.next_offset = headers[-1].next_offset

    def on_committed(self, committed: IndexRange, next_offset: Offset) -> None:
        self._committed_index = LogIndex(committed.end - 1)
        if next_offset > self.high_watermark:
            in_flight = self._in_flight
            size = 0
            while in_flight and in_flight[0][0] <= next_offset:
                size += in_flight.popleft()[1]
            self.committed_bytes += size
            if self.is_leader:
                self._uncommitted_bytes -= size
                self._events.uncommitted_bytes -= size
                times = self._events.commit_times
                if times.partition is self and next_offset >= times.next_offset:
                    times.end()
            self.high_watermark = next_offset
            self.update_acked()
            self._wake()
        if self._read_waiters:
            self._answer_reads()
        self.state.on_committed(self, committed)
        if self.is_leader and not self.is_serving and self.state.is_current:
            node = self.replica.node
            if node is not None and node.knows_commit:
                self.is_serving = True
                self._reads_on = False
                self.state.on_leadership(self)
                self._events.on_leadership_changed(self)

    def update_acked(self) -> None:
        """Answer producers whose batches are now on enough replicas."""
        acked = self.high_watermark
        # A state machine's log has no producers: its callers need the majority and nothing more.
        if self.is_leader and self.config.min_insync_replicas > 1 and not self.is_internal:
            acked = min(acked, self.replica.offset_on(self.config.min_insync_replicas))
        if acked > self.acked_offset:
            self.acked_offset = acked
        if self._ack_waiters:
            _release(self._ack_waiters, self.acked_offset)

    def set_in_sync(self, members: tuple[NodeId, ...]) -> bool:
        """On the leader: set the members that are in sync. Returns True if that changed."""
        if members == self.members_in_sync:
            return False
        self.members_in_sync = members
        self.in_sync = tuple(map(node_of, members))
        if len(members) < self.config.min_insync_replicas and not self.is_internal:
            # Appended and perhaps committed, but not on as many replicas as required.
            while self._ack_waiters:
                self._ack_waiters.popleft()[1](ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def on_trim(self, offset: Offset) -> None:
        self.trimmed_to = max(self.trimmed_to, min(offset, self.next_offset))
        self._events.on_trim(self, offset)
        waiting, self._trim_waiters = self._trim_waiters, []
        for wanted, done in waiting:
            if wanted <= self.trimmed_to:
                done(ErrorCode.NONE)
            else:
                self._trim_waiters.append((wanted, done))

    def reload(self, end_offset: Offset) -> object:
        return self.state.reload(end_offset)

    def on_truncated(self, end_offset: Offset, reloaded: object) -> None:
        assert end_offset >= self.high_watermark, (self, end_offset, self.high_watermark)
        self._events.on_truncating(self, end_offset)
        self.next_offset = end_offset
        while self._in_flight and self._in_flight[-1][0] > end_offset:
            self._in_flight.pop()
        self._count_uncommitted()
        self.state.on_reloaded(self, reloaded)

    def on_damage(self) -> None:
        self._events.on_damaged(self)

    def on_state_unreadable(self, error: Exception) -> None:
        """The derived state cannot be read: temporarily or, if it is damaged or too new, permanently."""
        if isinstance(error, UnknownFormat):
            self._events.on_unknown_format(self, str(error))
            return
        if not isinstance(error, OSError):
            self.on_damage()
        self._events.on_state_unreadable(self, f"the state derived from its records cannot be read: {in_words(error)}")

    def on_replica_failed(self, reason: str, end_offset: Offset) -> None:
        """The disk refused a write: refuse appends until the replica has started again."""
        self.failure = reason
        # A single member has no other that could have been elected. What was committed stays committed.
        self._reads_on = self.may_read and self.replica.failed_alone
        notify_all(
            (
                partial(self._stop_leading, ErrorCode.KAFKA_STORAGE_ERROR),
                partial(self.state.on_leadership, self),
                partial(self._events.on_partition_failed, self, reason),
            )
        )

    def on_replica_restarted(self, reloaded: object) -> None:
        if not self.replica.failed_alone:
            self.failure = None
        # Otherwise there is no other leader meanwhile: until this replica leads again, the disk is still the reason.
        self.next_offset = self.log.end_offset
        self._in_flight.clear()
        self.state.on_reloaded(self, reloaded)

    def snapshot_bytes(self, meta: SnapshotMeta) -> bytes | None:
        return self.state.snapshot_bytes(meta)

    def decode_snapshot(self, meta: SnapshotMeta, data: bytes) -> object | None:
        return self.state.decode_snapshot(meta, data)

    def save_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        self.state.save_snapshot(meta, data)

    def finish_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        self.state.finish_snapshot(meta, data)

    def on_snapshot_installed(self, meta: SnapshotMeta, reloaded: object) -> None:
        self._committed_index = meta.index
        # Not the end of the log: the writer may have continued after the snapshot, and none of that is committed.
        self.next_offset = self.high_watermark = decode_offset(meta.data)
        self._in_flight.clear()
        self.state.on_reloaded(self, reloaded)
        self._wake()

    # ---- reading --------------------------------------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        return max(self.log.start_offset, self.trimmed_to)

    @property
    def may_read(self) -> bool:
        """Whether this replica can answer requests about committed records, if not about new ones."""
        return self.is_serving or self._reads_on

    @property
    def knows_high_watermark(self) -> bool:
        """Whether a follower has received the commit index from its leader since this process started."""
        return self._committed_index != NO_INDEX or self.high_watermark == self.next_offset

    def check_readable(self) -> None:
        """Raise `ApiError` unless reads can be served."""
        if not self._reads_on:
            self.check_serving()

    def check_serving(self) -> None:
        """Raise `ApiError` unless this is a leader that knows what is committed."""
        if not self.is_serving:
            code = ErrorCode.KAFKA_STORAGE_ERROR if self.failure else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise ApiError(code, self.failure or self._who_leads())

    def _answer_reads(self) -> None:
        answered = []
        while self._read_waiters and self._read_waiters[0][0] <= self._committed_index:
            answered.append(partial(self._read_waiters.popleft()[1], ErrorCode.NONE))
        notify_all(answered)

    def confirm_leadership(self, done: Done) -> None:
        """Call `done` once a majority has confirmed that this replica is the leader: its state is then up to date.

        A majority can commit without this disk, and a follower makes visible at once what its leader reports as
        committed. So `done` also waits until that much is visible here.
        """

        def confirmed(index: LogIndex | None) -> None:
            if index is None:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif index <= self._committed_index:
                done(ErrorCode.NONE)
            elif not self.is_leader:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                self._read_waiters.append((index, done))

        if not self.may_read:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if self._reads_on or self.replica.is_alone:
            done(ErrorCode.NONE)
            return
        try:
            self.replica.read_index(confirmed)
        except NotLeader:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except Refusal:
            done(ErrorCode.REQUEST_TIMED_OUT)

    def watch(self, watcher: ProgressWatcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: ProgressWatcher) -> None:
        self._watchers.pop(watcher, None)

    def _wake(self) -> None:
        if self._watchers:
            notify_all([partial(watcher.on_progress, self) for watcher in self._watchers])

    def close(self) -> None:
        """End all waiting, because the topic was deleted or the broker stops."""
        self.is_closed = True
        self._reads_on = False
        self.failure = f"{self.topic}-{self.index} is closed"
        self._stop_leading(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.replica.stop()


def _release(waiters: deque[tuple[Offset, Done]], reached: Offset) -> None:
    while waiters and waiters[0][0] <= reached:
        waiters.popleft()[1](ErrorCode.NONE)
