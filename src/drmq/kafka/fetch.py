"""Fetch (1): stored bytes out, from an offset on, or later when there are some.

The hot path. A partition's answer is one read of the log, whole batches as they were stored; the
read comes from the page cache on the event loop, and from a thread when the cache does not have it.
A request that finds less than it wants parks: it watches its partitions and is woken when enough
has become visible, or when its time is up. Nothing polls and no thread waits.

Rules that clients notice: an offset inside a batch gets the whole batch; the first batch is sent
whole even if it exceeds every limit, or the consumer could never get past it; an offset between
the high watermark and the log's end is not out of range, there is just nothing to see yet.

A client that says its rack reads near it (KIP-392): the leader names a replica there that keeps up, and the client
goes on with that one. A follower shows what it knows to be committed. It may be a little behind, so an offset that it
has not reached is not out of range there; what it does not have any more, or cannot vouch for, is the leader's to
answer. Just after its start a follower has not heard yet what is committed, and says nothing about any offset: a client
waits for that, or is told OFFSET_NOT_AVAILABLE and tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drmq.broker import Partition
from drmq.kafka.epochs import check_leader_epoch
from drmq.kafka.leader_hints import MISDIRECTED, with_hints
from drmq.model import ApiError, ErrorCode, Offset, TopicId
from drmq.storage import LogCorrupt, OffsetOutOfRange, StorageError
from drmq.wire import RequestHeader
from drmq.wire.fetch import FetchData, FetchPartition, FetchResult, read_fetch, write_fetch_response
from drmq.wire.topics import NodeEndpoint

if TYPE_CHECKING:
    from drmq.kafka.fetch_sessions import FetchSession
    from drmq.kafka.server import KafkaServer
    from drmq.transport import Answer, Connection

_TOPIC_ID_FROM = 13
_HINTS_FROM = 16
_NO_REPLICA = -1
_READ_COMMITTED = 1
_UNKNOWN = -1
"""A high watermark, and a mark of a partition that has none to tell."""
_UNREAD_BYTES_MAX = 1_048_576
"""Earlier answers that the client has not read, at which it gets no more records."""


class NotCached(Exception):
    """A read would have to wait for the disk."""


def handle(server: KafkaServer, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
    """Serve a Fetch request now, or park it."""
    version = header.api_version
    data = read_fetch(frame, header.body_position, version)
    answer = connection.open_answer()
    now_ms = server.broker.clock.monotonic_ms()
    try:
        session, wanted = server.fetch_sessions.open(data, version >= _TOPIC_ID_FROM, now_ms)
    except ApiError as error:
        answer.send(write_fetch_response(version, header.correlation_id, (), error_code=error.code))
        return
    ParkedFetch(server, connection, header, answer, data, session, wanted).start()


class ParkedFetch:
    """One Fetch request from its arrival to its answer."""

    __slots__ = (
        "_answer",
        "_connection",
        "_data",
        "_entries",
        "_header",
        "_incremental",
        "_is_misdirected",
        "_marks",
        "_missing_bytes",
        "_server",
        "_session",
        "_timer",
        "_wanted",
    )

    def __init__(
        self,
        server: KafkaServer,
        connection: Connection,
        header: RequestHeader,
        answer: Answer,
        data: FetchData,
        session: FetchSession | None,
        wanted: list[FetchPartition],
    ) -> None:
        self._server = server
        self._connection = connection
        self._header = header
        self._answer: Answer | None = answer
        self._data = data
        self._session = session
        self._incremental = session is not None and data.session_epoch > 0
        self._wanted = wanted
        self._entries: list[tuple[FetchPartition, Partition | ApiError]] = []
        self._marks: dict[Partition, int] = {}
        self._missing_bytes = 0
        self._is_misdirected = False
        """Whether another node leads one of the partitions."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Answer at once if there is enough, an error, or no time to wait; else park."""
        by_id = self._header.api_version >= _TOPIC_ID_FROM
        table = self._server.broker.partitions
        for entry in self._wanted:
            try:
                if by_id:
                    partition = table.by_id(TopicId(entry.topic), entry.partition)  # type: ignore[arg-type]
                else:
                    partition = table.by_name(entry.topic, entry.partition)  # type: ignore[arg-type]
                check_leader_epoch(partition, entry.current_leader_epoch)
                if not self._may_read(partition):
                    partition.check_serving()
            except ApiError as error:
                self._entries.append((entry, error))
            else:
                self._entries.append((entry, partition))
        try:
            results, size, urgent = self._read(cached_only=True)
        except NotCached:
            self._read_from_disk()
            return
        wait_ms = self._data.max_wait_ms
        has_enough = urgent or size >= self._data.min_bytes or not self._entries
        if has_enough or wait_ms <= 0 or not self._server.may_park(len(self._entries)):
            self._reply(results)
            return
        self._park(size, wait_ms)

    # ---- waiting --------------------------------------------------------------------------------

    def _park(self, size: int, wait_ms: int) -> None:
        self._missing_bytes = self._data.min_bytes - size
        for _, partition in self._entries:
            if isinstance(partition, Partition):
                is_known = partition.is_leader or partition.knows_high_watermark
                self._marks[partition] = partition.committed_bytes if is_known else _UNKNOWN
                partition.watch(self)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.finish)
        self._server.park(self._connection, self, len(self._entries))

    def on_progress(self, partition: Partition) -> None:
        """More of a partition is visible, or it is gone."""
        mark = self._marks.get(partition)
        if mark is None:
            return
        if mark == _UNKNOWN and partition.knows_high_watermark:
            # How many bytes that made visible was not counted: they were in the log before this node began.
            self.finish()
            return
        self._missing_bytes -= partition.committed_bytes - mark
        self._marks[partition] = partition.committed_bytes
        if self._missing_bytes <= 0 or partition.failure is not None or not self._may_read(partition):
            self.finish()

    def finish(self) -> None:
        """Stop waiting and answer with what there is."""
        self.drop()
        try:
            results, _, _ = self._read(cached_only=True)
            self._reply(results)
        except NotCached:
            self._read_from_disk()
        except Exception as error:  # noqa: BLE001  # called by a timer, or among others who wait for the same disk
            self._server.on_bug(self._connection, error)

    def drop(self) -> None:
        """Stop waiting."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        for partition in self._marks:
            partition.unwatch(self)
        self._marks.clear()
        self._server.unpark(self._connection, self, len(self._entries))

    # ---- reading --------------------------------------------------------------------------------

    def _read(self, *, cached_only: bool) -> tuple[list[FetchResult], int, bool]:
        """Results, their size in bytes, and whether one of them sends the client elsewhere. May run on any thread."""
        left = min(self._data.max_bytes, self._server.broker.options.fetch_bytes_max)
        listener = self._server.listener
        if self._connection.unread_bytes > _UNREAD_BYTES_MAX or listener.is_flooded:
            left = 0
        elif listener.is_congested:
            left = 1
        results: list[FetchResult] = []
        total = 0
        urgent = False
        for entry, partition in self._entries:
            if isinstance(partition, ApiError):
                result, size = FetchResult(entry.topic, entry.partition, partition.code), 0
            else:
                result, size = self._read_one(entry, partition, left, cached_only)
            left -= size
            total += size
            if result.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
                # It is about to be: worth a wait.
                pass
            elif result.error_code != 0:
                urgent = True
                self._is_misdirected = self._is_misdirected or result.error_code in MISDIRECTED
            elif result.preferred_read_replica != _NO_REPLICA:
                urgent = True
            results.append(result)
        return results, total, urgent

    def _read_one(
        self, entry: FetchPartition, partition: Partition, left: int, cached_only: bool
    ) -> tuple[FetchResult, int]:
        visible = partition.high_watermark
        offset = Offset(entry.fetch_offset)
        aborted = () if self._data.isolation_level == _READ_COMMITTED else None
        if partition.is_closed:
            return _failed(entry, self._gone, partition), 0
        if not self._may_read(partition):
            code = ErrorCode.KAFKA_STORAGE_ERROR if partition.failure else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return _failed(entry, code, partition), 0
        try:
            data = b""
            nearer = _NO_REPLICA
            if not partition.is_leader:
                if offset < partition.start_offset:
                    return _failed(entry, ErrorCode.NOT_LEADER_OR_FOLLOWER, partition), 0
                if not partition.knows_high_watermark:
                    unknown = FetchResult(entry.topic, entry.partition, ErrorCode.OFFSET_NOT_AVAILABLE, _UNKNOWN)
                    return unknown, 0
            elif not partition.start_offset <= offset <= partition.next_offset:
                raise OffsetOutOfRange(offset, partition.start_offset, partition.next_offset)
            elif self._data.rack_id:
                nearer = self._nearer_replica(partition)
            if nearer == _NO_REPLICA and left > 0 and offset < visible:
                found = partition.log.read(offset, min(left, entry.max_bytes), visible, cached_only)
                if found is None:
                    raise NotCached
                data = found  # type: ignore[assignment]
        except OffsetOutOfRange:
            # A follower may have removed it meanwhile, or not have it yet: only the leader knows that it is not there.
            code = ErrorCode.OFFSET_OUT_OF_RANGE if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return _failed(entry, code, partition), 0
        except LogCorrupt as error:
            self._server.on_storage_error(partition, error)
            return _failed(entry, ErrorCode.KAFKA_STORAGE_ERROR, partition), 0
        except StorageError:
            # The log was closed under us: its topic has just been deleted.
            return _failed(entry, self._gone, partition), 0
        return (
            FetchResult(
                entry.topic,
                entry.partition,
                0,
                visible,
                visible,
                partition.start_offset,
                (data,) if data else (),
                aborted,
                nearer,
            ),
            len(data),
        )

    def _may_read(self, partition: Partition) -> bool:
        """Whether this replica may answer: the leader, or for a client of its rack a follower that hears its leader."""
        if partition.may_read:
            return True
        rack = self._server.broker.cluster.rack
        return (
            rack is not None
            and self._data.rack_id == rack
            and partition.failure is None
            and partition.leader is not None
            and not partition.is_leader
        )

    def _nearer_replica(self, partition: Partition) -> int:
        """A replica in the client's rack, where the leader is in another one and the replica keeps up."""
        broker, rack = self._server.broker, self._data.rack_id
        if rack == broker.cluster.rack:
            return _NO_REPLICA
        nearer = [
            node_id
            for node_id in partition.in_sync
            if (known := broker.metadata.committed_catalog.brokers.get(node_id)) is not None
            and known.rack == rack
            and not known.fenced
            and "broker" in known.roles
            and broker.network.is_up(node_id)
        ]
        return nearer[partition.index % len(nearer)] if nearer else _NO_REPLICA

    @property
    def _gone(self) -> ErrorCode:
        """What a client hears of a topic that was deleted under its request."""
        by_id = self._header.api_version >= _TOPIC_ID_FROM
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _read_from_disk(self) -> None:
        """The page cache does not have it: read on a thread, and answer from there."""
        future = asyncio.ensure_future(self._server.broker.blocking(lambda: self._read(cached_only=False)))
        future.add_done_callback(self._on_read)

    def _on_read(self, future: asyncio.Future[tuple[list[FetchResult], int, bool]]) -> None:
        if future.cancelled() or self._connection.closed:
            return
        error = future.exception()
        if error is not None:
            # No answer would leave the client waiting for its own time-out.
            self._server.on_bug(self._connection, error)
            return
        self._reply(future.result()[0])

    def _reply(self, results: list[FetchResult]) -> None:
        answer, self._answer = self._answer, None
        if answer is None or self._connection.closed:
            return
        session_id = 0
        if self._session is not None:
            session_id = self._session.session_id
            changed = self._session.changed(results)
            if self._incremental:
                results = changed
        version, correlation_id = self._header.api_version, self._header.correlation_id
        endpoints: Sequence[NodeEndpoint] = ()
        if self._is_misdirected and version >= _HINTS_FROM:
            results, endpoints = with_hints(self._server.broker, results)
        answer.send(
            write_fetch_response(version, correlation_id, results, session_id=session_id, node_endpoints=endpoints)
        )


def _failed(entry: FetchPartition, code: ErrorCode, partition: Partition) -> FetchResult:
    return FetchResult(entry.topic, entry.partition, code, partition.high_watermark, -1, partition.start_offset)
