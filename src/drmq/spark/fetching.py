"""Fetches raw record batches of a partition from its current leader.

A worker requests bytes from the leader and passes them on undecoded. If the leader is no longer the leader, or the
connection breaks, the worker looks up the leader again and continues where it was, until `timeoutMs` have passed
without a single byte of progress.

Requests name the topic by its id if the broker supports that (Fetch v13 and later): a topic that was deleted and
created again in the meantime is then an error, not a partition full of records of another topic.

The next request is sent before the records of the last response are processed, so that the broker reads while the
worker decodes. All responses are received into the same memory, one after the other.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from drmq.client import EARLIEST, ClientError, Connection, Deadline, DeadlineExceeded, Refused, Unreachable
from drmq.client.cluster import Cluster
from drmq.client.connection import ReceiveMemory, Sent
from drmq.client.errors import error_code
from drmq.client.topics import Topics, leader_of, topic_refusal
from drmq.model import NO_TOPIC_ID, ErrorCode, TopicId, TopicPartition, topic_id_text
from drmq.records import iter_batches
from drmq.spark.errors import DataLoss, FetchFailed, SparkSideError, TopicChanged, TopicRecreated, user_text
from drmq.spark.offsets import Range
from drmq.wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)

_BY_NAME_VERSION_MAX = 12
_WAIT_MS = 500
_BACKOFF_S, _BACKOFF_S_MAX = 0.05, 1.0
_ATTEMPT_SHARE = 0.5
_FETCH_BYTES_MAX = 64 << 20
"""A larger request is not faster, takes as much memory in every worker, and must stay well below the maximum size of a
response that the client accepts."""

_EMPTY_ANSWERS_MAX = 3
"""After this many responses without a record, although the log continues, the rest of the range is considered empty."""

RECHECK_PAUSES_S = (0.2, 0.5, 1.0)
"""Pauses between requests about a topic that was reported as deleted. A broker that has just started, or was
partitioned, may be out of date; records that are skipped because of its answer are lost to the query permanently."""

MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Error codes after which the leader is looked up again. A failed disk is among them: another replica may take over."""

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


@dataclass(frozen=True, slots=True)
class Fetched:
    """Record batches as the broker sent them, possibly with a part of another batch at the end.

    The bytes are valid until the next response is requested, which reuses the memory. Records before `position` must be
    skipped although their batch is included: they were read before, or deleted. `aborted` lists transactions to skip:
    producer id and first offset.
    """

    position: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...]


class _Prefetch(NamedTuple):
    """A request whose response arrives while the previous one is processed."""

    node: Connection
    part: Range
    position: int
    sent: Sent


class Fetcher:
    """Reads partitions, one at a time. Owned by one thread; its connections are reused by later tasks."""

    def __init__(
        self, bootstrap: str, *, client_id: str, timeout_s: float, read_committed: bool, fetch_bytes: int
    ) -> None:
        self._cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s)
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._read_committed = read_committed
        self._fetch_bytes = min(fetch_bytes, _FETCH_BYTES_MAX)
        self._leaders: dict[TopicPartition, Connection] = {}
        self._prefetched: _Prefetch | None = None
        # A response is as long as requested plus its header, or one larger batch.
        self._memory = ReceiveMemory(2 * self._fetch_bytes)

    def close(self) -> None:
        self._cluster.close()

    def read(self, part: Range, *, fail_on_data_loss: bool, fail_on_recreated: bool = True) -> Iterator[Fetched]:
        """The batches of a range, in order. The first and the last may contain records outside of it.

        Missing records raise an error or are skipped, as the flags say. `fail_on_recreated` = false only allows
        skipping the rest of a topic that was replaced by another one with the same name. Raises `DataLoss`,
        `TopicChanged` or `FetchFailed`.
        """
        try:
            yield from self._read(part, fail_on_data_loss)
        except TopicRecreated:
            if fail_on_recreated:
                raise
        finally:
            self._drop_prefetch()

    def _read(self, part: Range, fail_on_data_loss: bool) -> Iterator[Fetched]:
        position, fetch_bytes, empty_answers = part.start, self._fetch_bytes, 0
        progress_deadline = Deadline(self._timeout_s)
        while position < part.end:
            try:
                answer = self._fetch(part, position, fetch_bytes)
            except DataLoss:
                if fail_on_data_loss:
                    raise
                position = max(position, self._first_offset(part))
                continue
            except TopicChanged:
                if fail_on_data_loss:
                    raise
                return
            records = memoryview(answer.records or b"")
            reached = end_of_batches(records)
            if reached is not None and reached <= position:
                if progress_deadline.left_s() <= 0:
                    raise self._repeating(part, position, reached)
                time.sleep(_BACKOFF_S)
                continue
            if reached is None:
                if len(records) > 0:
                    # Brokers send at least one whole batch. If one does not, request more bytes.
                    fetch_bytes = min(2 * fetch_bytes, _FETCH_BYTES_MAX)
                empty_answers += 1
                is_behind = self._is_behind(answer, part)
                if is_behind and progress_deadline.left_s() <= 0:
                    raise self._stuck(part, position, answer)
                if is_behind or empty_answers <= _EMPTY_ANSWERS_MAX:
                    continue
                if fail_on_data_loss:
                    raise self._gap(part, position)
                return
            progress_deadline = Deadline(self._timeout_s)
            empty_answers, asked = 0, position
            position = reached
            self._prefetch(part, position, fetch_bytes)
            aborted = answer.aborted_transactions or []
            yield Fetched(asked, records, tuple((entry.producer_id, entry.first_offset) for entry in aborted))

    def record_size(self, part: Range, offset: int) -> float:
        """The size on disk of a record at `offset`, estimated from its batch; 0 if unknown."""
        try:
            records = memoryview(self._fetch(part, offset, 1).records or b"")
        except (ClientError, SparkSideError):
            # The task that reads the range will get the same error, and report it.
            return 0.0
        for _, header in iter_batches(records):
            return header.size / (header.last_offset_delta + 1)
        return 0.0

    def wait(self, places: dict[TopicPartition, int], wait_s: float) -> None:
        """Return when one of these partitions grows beyond its offset, or after `wait_s`.

        Asks only the broker that leads most of them. An error is ignored here and left to the next real request.
        """
        if not places:
            time.sleep(wait_s)
            return
        deadline = Deadline(wait_s + self._timeout_s)
        try:
            described = self._cluster.metadata(deadline, topics=sorted({place.topic for place in places})).topics
            shares: dict[int, list[TopicPartition]] = {}
            for place in places:
                leader = leader_of(place, described)
                if isinstance(leader, int):
                    shares.setdefault(leader, []).append(place)
            if not shares:
                raise Unreachable("no partition has a leader")
            node_id = max(shares, key=lambda node: (len(shares[node]), -node))
            topics = [
                FetchRequestTopic(
                    topic=name,
                    partitions=[
                        FetchRequestPartition(place.partition, fetch_offset=places[place], partition_max_bytes=1)
                        for place in shares[node_id]
                        if place.topic == name
                    ],
                )
                for name in sorted({place.topic for place in shares[node_id]})
            ]
            # With the query's isolation level: otherwise the records of an open transaction would end each wait at
            # once.
            request = FetchRequest(
                max_wait_ms=int(wait_s * 1000),
                min_bytes=1,
                max_bytes=1,
                isolation_level=int(self._read_committed),
                topics=topics,
            )
            node = self._cluster.node(node_id, deadline)
            node.call(request, FetchResponse, deadline, _BY_NAME_VERSION_MAX)
        except ClientError:
            time.sleep(wait_s)

    # ---- one response ----------------------------------------------------------------------------------

    def _fetch(self, part: Range, position: int, fetch_bytes: int) -> FetchResponsePartition:
        """The leader's response. Looks up the leader until there is one, or until the deadline."""
        deadline = Deadline(self._timeout_s)
        backoff_s = _BACKOFF_S
        while True:
            node: Connection | None = None
            try:
                node = self._leader(part, deadline)
                if self._prefetched is not None and self._prefetched[:3] != (node, part, position):
                    self._drop_prefetch()
                    node = self._leader(part, deadline)
                answer = self._ask(node, part, position, fetch_bytes, deadline)
                code = error_code(answer.error_code)
                if code is ErrorCode.NONE:
                    return answer
                failure: ClientError = topic_refusal(code, part.topic, partition=part.partition, doing="be read")
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._check_loss(part, position, deadline)
                elif code in _GONE:
                    self._check_topic(part)
                elif code not in MOVED:
                    raise FetchFailed(user_text(failure))
            except ClientError as error:
                failure = error
                if node is not None and isinstance(error, Unreachable | DeadlineExceeded):
                    self._cluster.suspect_view(node.address)
            self._drop_prefetch()
            self._leaders.pop(TopicPartition(part.topic, part.partition), None)
            if deadline.left_s() <= backoff_s:
                why = user_text(failure)
                remedy = "" if isinstance(failure, DeadlineExceeded) else " A longer `timeoutMs` may help."
                raise FetchFailed(
                    f"Partition {part.partition} of `{part.topic}` could not be read at offset {position} "
                    f"within {self._timeout_s:g} s: {why}{remedy}"
                )
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_S_MAX)

    def _ask(
        self, node: Connection, part: Range, position: int, fetch_bytes: int, deadline: Deadline
    ) -> FetchResponsePartition:
        prefetched, self._prefetched = self._prefetched, None
        sent = self._send(node, part, position, fetch_bytes, deadline) if prefetched is None else prefetched.sent
        # A frozen or partitioned leader must leave time for its successor.
        has_others = len(self._cluster.brokers()) > 1
        attempt = deadline.part(_ATTEMPT_SHARE) if has_others else deadline
        answer = node.receive(sent, FetchResponse, attempt, self._memory)
        if answer.error_code:
            raise Refused(error_code(answer.error_code), f"{node.address} refused a fetch")
        for topic in answer.responses:
            for partition in topic.partitions:
                return partition
        raise ClientError(f"{node.address} omitted the partition in its response to a fetch", retriable=True)

    def _send(self, node: Connection, part: Range, position: int, fetch_bytes: int, deadline: Deadline) -> Sent:
        topic_id = topic_id_from_text(part.topic_id)
        by_id = topic_id != NO_TOPIC_ID and node.version_of(FetchRequest) > _BY_NAME_VERSION_MAX
        partition = FetchRequestPartition(part.partition, fetch_offset=position, partition_max_bytes=fetch_bytes)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=fetch_bytes,
            isolation_level=int(self._read_committed),
            topics=[FetchRequestTopic(topic=part.topic, topic_id=topic_id, partitions=[partition])],
        )
        return node.send(request, deadline, 32767 if by_id else _BY_NAME_VERSION_MAX)

    def _prefetch(self, part: Range, position: int, fetch_bytes: int) -> None:
        """Request the next records. If that fails, the regular request will report why."""
        node = self._leaders.get(TopicPartition(part.topic, part.partition))
        if position < part.end and node is not None and node.is_open:
            try:
                sent = self._send(node, part, position, fetch_bytes, Deadline(self._timeout_s))
            except ClientError:
                return
            self._prefetched = _Prefetch(node, part, position, sent)

    def _drop_prefetch(self) -> None:
        """Close the connection of a prefetch request whose response is no longer wanted."""
        if self._prefetched is not None:
            self._prefetched.node.close()
            self._prefetched = None

    def _leader(self, part: Range, deadline: Deadline) -> Connection:
        place = TopicPartition(part.topic, part.partition)
        known = self._leaders.get(place)
        if known is not None and known.is_open:
            return known
        found = leader_of(place, self._cluster.metadata(deadline, topics=[part.topic]).topics)
        if isinstance(found, ClientError):
            if found.code in _GONE:
                self._check_topic(part)
            raise found
        self._leaders[place] = self._cluster.node(found, deadline)
        return self._leaders[place]

    def _first_offset(self, part: Range) -> int:
        """The current start of the partition."""
        place = TopicPartition(part.topic, part.partition)
        return Topics(self._cluster).offsets({place: EARLIEST})[place].offset

    # ---- interpreting errors -------------------------------------------------------------------------

    def _check_topic(self, part: Range) -> None:
        """Raise `TopicChanged` if the brokers agree that the topic was deleted or replaced.

        This takes several responses, from more than one broker if possible, and its own time: a short `timeoutMs` is no
        reason to believe a single broker.
        """
        change = self._change_of(part)
        for pause_s in RECHECK_PAUSES_S:
            if change is None:
                return
            time.sleep(pause_s)
            self._cluster.suspect_view()
            change = self._change_of(part)
        if change is not None:
            raise change

    def _change_of(self, part: Range) -> TopicChanged | None:
        """What happened to the topic, according to one broker; None if it is still the one that is read."""
        for topic in self._cluster.metadata(self._cluster.deadline(), topics=[part.topic]).topics:
            code = error_code(topic.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return TopicChanged(
                    f"Topic `{part.topic}` was deleted while the query was reading it. "
                    "With `failOnDataLoss` = false the query continues without it."
                )
            if code is ErrorCode.NONE and topic_id_text(TopicId(topic.topic_id)) != part.topic_id:
                return TopicRecreated(
                    f"Topic `{part.topic}` was deleted and created again while the query was reading it. Run a batch "
                    "query again. For a stream, set `onTopicRecreated` to earliest to continue with the beginning of "
                    "the new topic, without the remaining records of the old one; otherwise start with a new "
                    "checkpoint."
                )
        return None

    def _check_loss(self, part: Range, position: int, deadline: Deadline) -> None:
        """Raise `DataLoss` if the offset is before the start. Beyond the end, it may only not be available yet."""
        first = self._first_offset(part)
        if position < first:
            raise DataLoss(
                f"Offsets {position} to {min(first, part.end) - 1} of partition {part.partition} of "
                f"`{part.topic}` were deleted before they were read: the query is further behind than the topic's "
                "retention. Raise `retention.ms` or `retention.bytes` of the topic, or set `failOnDataLoss` to false "
                "to continue with the remaining records."
            )
        deadline.check(f"waiting for offset {position} of {part.topic}-{part.partition}")

    def _is_behind(self, answer: FetchResponsePartition, part: Range) -> bool:
        """Whether the broker does not have the end of the range yet, as after a leader change."""
        known = answer.last_stable_offset if self._read_committed else answer.high_watermark
        return 0 <= known < part.end

    def _stuck(self, part: Range, position: int, answer: FetchResponsePartition) -> FetchFailed:
        return FetchFailed(
            f"Partition {part.partition} of `{part.topic}` could not be read at offset {position} within "
            f"{self._timeout_s:g} s: its leader serves records only up to {answer.last_stable_offset} of "
            f"{answer.high_watermark}, and the query was planned up to {part.end}. Check with `drmq status` whether "
            "replicas are missing. A topic whose log was truncated needs a new checkpoint."
        )

    def _repeating(self, part: Range, position: int, reached: int) -> FetchFailed:
        return FetchFailed(
            f"Partition {part.partition} of `{part.topic}` could not be read at offset {position} within "
            f"{self._timeout_s:g} s: its leader returns records that end at {reached}, before the requested offset. "
            "Check the broker's files with `drmq log verify`."
        )

    def _gap(self, part: Range, position: int) -> DataLoss:
        return DataLoss(
            f"Partition {part.partition} of `{part.topic}` has no records from offset {position} on, but the query "
            f"should read up to {part.end}. Set `failOnDataLoss` to false to continue without them."
        )


def end_of_batches(records: memoryview) -> int | None:
    """The offset after the last whole batch; None if there is no whole batch."""
    reached = None
    for _, header in iter_batches(records):
        reached = header.base_offset + header.last_offset_delta + 1
    return reached


def topic_id_from_text(text: str) -> TopicId:
    """The sixteen bytes of an id formatted by `topic_id_text`."""
    return TopicId(urlsafe_b64decode(text + "=="))
