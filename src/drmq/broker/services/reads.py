"""Reads from partitions on this node, at once or when there is something to read.

The hot path of consuming. The result for a partition is one read of its log: whole batches as they are stored. The read
is served from the page cache on the event loop, or by a thread if the data is not cached. A `Read` that finds less than
it wants is parked: it watches its partitions and continues when enough data has become visible, or when its time limit
expires. There is no polling, and no thread waits.

Rules that clients depend on:

- A read at an offset inside a batch returns the whole batch.
- The first batch is returned whole even if it exceeds every limit. Otherwise the consumer could never get past it.
- An offset between the high watermark and the end of the log is not out of range. There is just nothing to read yet.

A client that states its rack reads from a replica there (KIP-392): the leader names a replica in that rack that is in
sync, and the client continues with that replica. A follower returns what it knows to be committed. It may lag a little,
so an offset that it has not reached is not out of range on a follower. Offsets that it no longer has, or about which it
cannot be certain, are left to the leader. Just after its start a follower does not know yet what is committed, and
cannot answer for any offset: the read waits for that, or gets OFFSET_NOT_AVAILABLE, and the client retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from drmq.broker.partitions.partition import Partition
from drmq.broker.services.fair_queue import FairQueue
from drmq.broker.services.lookups import check_leader_epoch
from drmq.columnar.counting import count_records
from drmq.model import ApiError, ErrorCode, Offset, TopicId
from drmq.storage import LogCorrupt, OffsetOutOfRange, StorageError

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

Buffer = bytes | bytearray | memoryview

log = logging.getLogger("drmq.broker")

NO_REPLICA = -1
UNKNOWN = -1
"""A high watermark, log start offset or mark that is not known."""
MISDIRECTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Codes after which a client looks for another leader."""
_NO_ERROR, _NOT_AVAILABLE = ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE
"""Module constants, because looking up an enum member in its class takes a good part of a microsecond."""
_new = tuple.__new__
_DISK_READS_MAX = 4
_PARKED_PARTITIONS_MAX = 500_000
"""Partitions of all parked reads together. Beyond this limit, reads do not wait and return what is available."""


class NotCached(Exception):
    """The data is not in the page cache, so the read would have to wait for the disk."""


class Wanted(Protocol):
    """One partition of a read. A door may use its own class for this."""

    @property
    def topic(self) -> str | bytes:
        """Its name, or its id."""

    @property
    def partition(self) -> int: ...

    @property
    def current_leader_epoch(self) -> int:
        """The leader epoch that the client believes to be current; -1 if it does not know."""

    @property
    def fetch_offset(self) -> int: ...

    @property
    def max_bytes(self) -> int: ...


class WantedPartition(NamedTuple):
    """A plain implementation of `Wanted`."""

    topic: str | bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1


class ReadResult(NamedTuple):
    """The result for one partition."""

    error: ErrorCode
    high_watermark: int = UNKNOWN
    start_offset: int = UNKNOWN
    data: Buffer = b""
    """Whole batches."""
    nearer_replica: int = NO_REPLICA


class Reads:
    """The state that all reads of a node share."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.parked_partitions = 0
        """The number of partitions in all parked reads."""
        self.read_bytes = 0
        """The bytes of batches in all results since the start, and in `read_records` their records."""
        self.read_records = 0
        self.from_disk = FairQueue(_DISK_READS_MAX, _DISK_READS_MAX)
        """Reads on threads. No more are begun than threads can do, so that each knows what the others have returned:
        results that wait for the event loop would be in no count."""

    async def read(
        self, wanted: Sequence[Wanted], *, max_bytes: int | None = None, max_wait_ms: int = 0, min_bytes: int = 1
    ) -> list[ReadResult]:
        """Read and return the results; waits for `min_bytes`, up to `max_wait_ms`."""
        bytes_max = self.broker.options.fetch_bytes_max if max_bytes is None else max_bytes
        read = _AwaitedRead(self, wanted, max_wait_ms, min_bytes, bytes_max)
        read.start()
        try:
            return await read.results
        finally:
            read.drop()

    def count(self, results: Sequence[ReadResult], size: int) -> None:
        """These results, of `size` bytes, are passed to a reader."""
        if size:
            self.read_bytes += size
            self.read_records += sum([count_records(result.data) for result in results if result.data])

    def on_storage_error(self, partition: Partition, error: StorageError) -> None:
        """Report that a read found damage in a log. May be called on any thread."""
        log.error("%r: %s", partition, error, extra={"repeat_key": f"damage in {partition!r}"})
        self.broker.host.call_on_loop(partition.on_damage)


class Read:
    """One read from its start to its results. Implements `partition.ProgressWatcher`.

    A door subclasses it to limit the size of the results and to receive them.
    """

    __slots__ = (
        "_entries",
        "_is_misdirected",
        "_marks",
        "_max_wait_ms",
        "_min_bytes",
        "_missing_bytes",
        "_rack",
        "_reads",
        "_timer",
        "wanted",
    )

    def __init__(
        self, reads: Reads, wanted: Sequence[Wanted], max_wait_ms: int = 0, min_bytes: int = 1, rack: str = ""
    ) -> None:
        """`rack` is the client's rack; empty if the client does not state it."""
        self._reads = reads
        self.wanted = wanted
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._rack = rack
        self._entries: list[tuple[Wanted, Partition | ApiError]] = []
        self._marks: dict[Partition, int] = {}
        self._missing_bytes = 0
        self._is_misdirected = False
        """Whether another node leads one of the partitions."""
        self._timer: asyncio.TimerHandle | None = None

    # ---- implemented by a door ------------------------------------------------------------------

    def room(self) -> int:
        """How many bytes the reader can accept now. Called on any thread."""
        raise NotImplementedError

    @property
    def caller(self) -> str:
        """The address of the client. Reads from disk of different callers take turns."""
        return ""

    def on_results(self, results: list[ReadResult], is_misdirected: bool) -> None:
        """Receive the results, in the order of `wanted`, and whether another node leads one of the partitions."""
        raise NotImplementedError

    def on_bug(self, error: BaseException) -> None:
        """Receive an unexpected exception, instead of the results."""
        raise NotImplementedError

    def on_parked(self) -> None:
        """Called when the read starts to wait. `drop` ends it without a result."""

    def on_unparked(self) -> None:
        """Called when the read stops waiting."""

    # ---- starting -------------------------------------------------------------------------------

    def start(self) -> None:
        """Return results at once if there is enough data, an error, or no time to wait. Otherwise park."""
        table = self._reads.broker.partitions
        for entry in self.wanted:
            topic = entry.topic
            try:
                if isinstance(topic, str):
                    partition = table.by_name(topic, entry.partition)
                else:
                    partition = table.by_id(TopicId(topic), entry.partition)
                check_leader_epoch(partition, entry.current_leader_epoch)
                if not self._may_read(partition):
                    partition.check_serving()
            except ApiError as error:
                # Its trace refers to this object. A cycle would leave both, and the request, to the collector.
                self._entries.append((entry, error.with_traceback(None)))
            else:
                self._entries.append((entry, partition))
        try:
            results, size, urgent = self._read(cached_only=True)
        except NotCached:
            self._read_from_disk()
            return
        has_enough = urgent or size >= self._min_bytes or not self._entries
        if has_enough or self._max_wait_ms <= 0 or not self._may_park():
            self._reads.count(results, size)
            self.on_results(results, self._is_misdirected)
            return
        self._park(self._min_bytes - size)

    # ---- waiting --------------------------------------------------------------------------------

    def _may_park(self) -> bool:
        """Whether the limit on parked partitions leaves room for this read."""
        return self._reads.parked_partitions + len(self._entries) <= _PARKED_PARTITIONS_MAX

    def _park(self, missing_bytes: int) -> None:
        self._missing_bytes = missing_bytes
        for _, partition in self._entries:
            if isinstance(partition, Partition):
                is_known = partition.is_leader or partition.knows_high_watermark
                self._marks[partition] = partition.committed_bytes if is_known else UNKNOWN
                partition.watch(self)
        self._timer = asyncio.get_running_loop().call_later(self._max_wait_ms / 1000, self.finish)
        self._reads.parked_partitions += len(self._entries)
        self.on_parked()

    def on_progress(self, partition: Partition) -> None:
        """Called when more of a partition has become visible, or its state has changed."""
        mark = self._marks.get(partition)
        if mark is None:
            return
        if mark == UNKNOWN and partition.knows_high_watermark:
            # The bytes that have become visible are not in `committed_bytes`: they were in the log before this node
            # started.
            self.finish()
            return
        self._missing_bytes -= partition.committed_bytes - mark
        self._marks[partition] = partition.committed_bytes
        if self._missing_bytes <= 0 or partition.failure is not None or not self._may_read(partition):
            self.finish()

    def finish(self) -> None:
        """Stop waiting and return the results that are available."""
        self.drop()
        try:
            results, size, _ = self._read(cached_only=True)
            self._reads.count(results, size)
            self.on_results(results, self._is_misdirected)
        except NotCached:
            self._read_from_disk()
        except Exception as error:  # noqa: BLE001  # the caller is a timer, or serves other reads too
            self.on_bug(error)

    def drop(self) -> None:
        """Stop waiting."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        for partition in self._marks:
            partition.unwatch(self)
        self._marks.clear()
        self._reads.parked_partitions -= len(self._entries)
        self.on_unparked()

    # ---- reading --------------------------------------------------------------------------------

    def _read(self, *, cached_only: bool) -> tuple[list[ReadResult], int, bool]:
        """The results, their size, and whether one of them must be sent at once. May run on any thread.

        Errors and the name of a nearer replica must be sent at once.
        """
        left = self.room()
        results: list[ReadResult] = []
        total = 0
        urgent = False
        for entry, partition in self._entries:
            if isinstance(partition, ApiError):
                result = ReadResult(partition.code)
            else:
                result = self._read_one(entry, partition, left, cached_only)
            size = len(result.data)
            left -= size
            total += size
            code = result.error
            if code is _NOT_AVAILABLE:
                # It will be available soon, so the read waits.
                pass
            elif code is not _NO_ERROR:
                urgent = True
                self._is_misdirected = self._is_misdirected or code in MISDIRECTED
            elif result.nearer_replica != NO_REPLICA:
                urgent = True
            results.append(result)
        return results, total, urgent

    def _read_one(self, entry: Wanted, partition: Partition, left: int, cached_only: bool) -> ReadResult:
        visible = partition.high_watermark
        offset = Offset(entry.fetch_offset)
        if partition.is_closed:
            return _failed(_deleted_code(entry), partition)
        if not self._may_read(partition):
            code = ErrorCode.KAFKA_STORAGE_ERROR if partition.failure else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return _failed(code, partition)
        data: Buffer = b""
        nearer = NO_REPLICA
        try:
            if not partition.is_leader:
                if offset < partition.start_offset:
                    return _failed(ErrorCode.NOT_LEADER_OR_FOLLOWER, partition)
                if not partition.knows_high_watermark:
                    return ReadResult(_NOT_AVAILABLE)
            elif not partition.start_offset <= offset <= partition.next_offset:
                raise OffsetOutOfRange(offset, partition.start_offset, partition.next_offset)
            elif self._rack:
                nearer = self._nearer_replica(partition)
            if nearer == NO_REPLICA and left > 0 and offset < visible:
                found = partition.log.read(offset, min(left, entry.max_bytes), visible, cached_only)
                if found is None:
                    raise NotCached
                data = found
        except OffsetOutOfRange:
            # A follower may have just removed the offset, or not have it yet. Only the leader can say that an offset
            # is out of range.
            code = ErrorCode.OFFSET_OUT_OF_RANGE if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return _failed(code, partition)
        except LogCorrupt as error:
            self._reads.on_storage_error(partition, error)
            return _failed(ErrorCode.KAFKA_STORAGE_ERROR, partition)
        except StorageError:
            # The log was closed during the read, because its topic has just been deleted.
            return _failed(_deleted_code(entry), partition)
        return _new(ReadResult, (_NO_ERROR, visible, partition.start_offset, data, nearer))

    def _may_read(self, partition: Partition) -> bool:
        """Whether this replica may serve the read: as leader, or, for a client in its rack, as follower of a leader."""
        if partition.may_read:
            return True
        rack = self._reads.broker.cluster.rack
        return (
            rack is not None
            and self._rack == rack
            and partition.failure is None
            and partition.leader is not None
            and not partition.is_leader
        )

    def _nearer_replica(self, partition: Partition) -> int:
        """A replica in the client's rack that is in sync, if this node is in another rack; otherwise `NO_REPLICA`."""
        broker, rack = self._reads.broker, self._rack
        if rack == broker.cluster.rack:
            return NO_REPLICA
        near = broker.services.cluster.replica_in_rack(rack, partition.in_sync, partition.index)
        return NO_REPLICA if near is None else near

    def _read_from_disk(self) -> None:
        """Read on a thread, because the data is not in the page cache."""
        blocking = self._reads.broker.blocking
        reading = self._reads.from_disk.run(self.caller, lambda: blocking(lambda: self._read(cached_only=False)))
        asyncio.ensure_future(reading).add_done_callback(self._on_read)

    def _on_read(self, future: asyncio.Future[tuple[list[ReadResult], int, bool]]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            # Without an answer, the client would wait until its own timeout.
            self.on_bug(error)
            return
        results, size, _ = future.result()
        self._reads.count(results, size)
        self.on_results(results, self._is_misdirected)


class _AwaitedRead(Read):
    """A read whose results a coroutine waits for."""

    def __init__(
        self, reads: Reads, wanted: Sequence[Wanted], max_wait_ms: int, min_bytes: int, bytes_max: int
    ) -> None:
        super().__init__(reads, wanted, max_wait_ms, min_bytes)
        self.results: asyncio.Future[list[ReadResult]] = asyncio.get_running_loop().create_future()
        self._bytes_max = bytes_max

    def room(self) -> int:
        return self._bytes_max

    def on_results(self, results: list[ReadResult], is_misdirected: bool) -> None:
        if not self.results.done():
            self.results.set_result(results)

    def on_bug(self, error: BaseException) -> None:
        if not self.results.done():
            self.results.set_exception(error)


def _deleted_code(entry: Wanted) -> ErrorCode:
    """The error code for a topic that was deleted during the request."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(entry.topic, str) else ErrorCode.UNKNOWN_TOPIC_ID


def _failed(code: ErrorCode, partition: Partition) -> ReadResult:
    return ReadResult(code, partition.high_watermark, partition.start_offset)
