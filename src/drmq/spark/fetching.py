"""Raw record batches of a partition, from its leader, whoever that is at the moment.

A worker asks the leader for bytes and hands them on unread. When the leader says that it is not one
any more, or the connection breaks, the worker asks again who leads, and goes on where it was, until
`timeoutMs` have passed without a single byte of progress.

Requests name the topic by its id where the broker can (Fetch v13 and later): a topic that was deleted
and created again in the meantime is then an error, and not a partition full of somebody else's records.

The next request is sent before the records of the last one are worked on, so that the broker reads
while the worker decodes. All answers are received into the same memory, one after the other.
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
from drmq.spark.errors import DataLoss, FetchFailed, SparkSideError, TopicChanged, TopicRecreated, in_words
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
"""More at once is not faster, takes as much memory in every worker, and must stay well below what a client accepts
as an answer."""

_EMPTY_ANSWERS_MAX = 3
"""So many answers without a record, though the log goes on, and there is nothing left of the range."""

DOUBTS_S = (0.2, 0.5, 1.0)
"""Pauses between questions about a topic that is said to be gone. A broker that has just started, or was cut off, may
be behind the others and honestly wrong; what is skipped because of its word is lost to the query for good."""

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
"""Answers after which the leader is looked up again. A bad disk is among them: another replica may take over."""

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


@dataclass(frozen=True, slots=True)
class Fetched:
    """Record batches as the broker sent them, perhaps with a part of another at the end.

    The bytes are there until the next answer is asked for, whose bytes take their place. Records before `position`
    do not count, though their batch is here: they were read before, or deleted.
    `aborted` names transactions to leave out: producer id and first offset.
    """

    position: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...]


class _Ahead(NamedTuple):
    """A request whose answer is on its way while the last one is worked on."""

    node: Connection
    part: Range
    position: int
    sent: Sent


class Fetcher:
    """Reads partitions, one at a time. Owned by one thread; its connections last from task to task."""

    def __init__(
        self, bootstrap: str, *, client_id: str, timeout_s: float, read_committed: bool, fetch_bytes: int
    ) -> None:
        self._cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s)
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._read_committed = read_committed
        self._fetch_bytes = min(fetch_bytes, _FETCH_BYTES_MAX)
        self._leaders: dict[TopicPartition, Connection] = {}
        self._ahead: _Ahead | None = None
        # An answer is as long as was asked for and its header, or one batch that is longer.
        self._memory = ReceiveMemory(2 * self._fetch_bytes)

    def close(self) -> None:
        self._cluster.close()

    def read(self, part: Range, *, fail_on_data_loss: bool, fail_on_recreated: bool = True) -> Iterator[Fetched]:
        """The batches of a range, in order. The first and last may hold records outside of it.

        What is gone is left out unless it must fail: with `fail_on_recreated` = false only where another topic has
        taken the place of the one that the range is of.
        Raises `DataLoss`, `TopicChanged` or `FetchFailed`.
        """
        try:
            yield from self._read(part, fail_on_data_loss)
        except TopicRecreated:
            if fail_on_recreated:
                raise
        finally:
            self._forget_ahead()

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
                    # Brokers send at least one whole batch; one that does not is asked for more.
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
            self._send_ahead(part, position, fetch_bytes)
            aborted = answer.aborted_transactions or []
            yield Fetched(asked, records, tuple((entry.producer_id, entry.first_offset) for entry in aborted))

    def record_size(self, part: Range, offset: int) -> float:
        """Bytes on disk for a record at `offset`, by the batch that it is in; 0 where that cannot be told."""
        try:
            records = memoryview(self._fetch(part, offset, 1).records or b"")
        except (ClientError, SparkSideError):
            # Whoever reads the range will meet the same trouble, and tell.
            return 0.0
        for _, header in iter_batches(records):
            return header.size / (header.last_offset_delta + 1)
        return 0.0

    def wait(self, places: dict[TopicPartition, int], wait_s: float) -> None:
        """Return when one of these partitions grows beyond its offset, or after `wait_s`.

        Asks the leader of most of them. Trouble ends the wait early and is left to the next real question.
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
            # At the query's level: with another, the records of an open transaction would end each wait at once.
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

    # ---- one answer ----------------------------------------------------------------------------------

    def _fetch(self, part: Range, position: int, fetch_bytes: int) -> FetchResponsePartition:
        """The leader's answer; looks for the leader until there is one, or the time is over."""
        deadline = Deadline(self._timeout_s)
        backoff_s = _BACKOFF_S
        while True:
            node: Connection | None = None
            try:
                node = self._leader(part, deadline)
                if self._ahead is not None and self._ahead[:3] != (node, part, position):
                    self._forget_ahead()
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
                    raise FetchFailed(in_words(failure))
            except ClientError as error:
                failure = error
                if node is not None and isinstance(error, Unreachable | DeadlineExceeded):
                    self._cluster.suspect_view(node.address)
            self._forget_ahead()
            self._leaders.pop(TopicPartition(part.topic, part.partition), None)
            if deadline.left_s() <= backoff_s:
                why = in_words(failure)
                remedy = "" if "`timeoutMs`" in why else " `timeoutMs` waits longer."
                raise FetchFailed(
                    f"Partition {part.partition} of `{part.topic}` could not be read at offset {position} "
                    f"within {self._timeout_s:g} s: {why}{remedy}"
                )
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_S_MAX)

    def _ask(
        self, node: Connection, part: Range, position: int, fetch_bytes: int, deadline: Deadline
    ) -> FetchResponsePartition:
        ahead, self._ahead = self._ahead, None
        sent = self._send(node, part, position, fetch_bytes, deadline) if ahead is None else ahead.sent
        # A leader that is frozen or cut off must leave time for its successor.
        has_others = len(self._cluster.brokers()) > 1
        attempt = deadline.part(_ATTEMPT_SHARE) if has_others else deadline
        answer = node.receive(sent, FetchResponse, attempt, self._memory)
        if answer.error_code:
            raise Refused(error_code(answer.error_code), f"{node.address} refused a fetch")
        for topic in answer.responses:
            for partition in topic.partitions:
                return partition
        raise ClientError(f"{node.address} answered a fetch without its partition", retriable=True)

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

    def _send_ahead(self, part: Range, position: int, fetch_bytes: int) -> None:
        """Ask for what comes next. If that fails, the real question will find out why."""
        node = self._leaders.get(TopicPartition(part.topic, part.partition))
        if position < part.end and node is not None and node.is_open:
            try:
                sent = self._send(node, part, position, fetch_bytes, Deadline(self._timeout_s))
            except ClientError:
                return
            self._ahead = _Ahead(node, part, position, sent)

    def _forget_ahead(self) -> None:
        """Close the connection on which an answer will come that nobody waits for."""
        if self._ahead is not None:
            self._ahead.node.close()
            self._ahead = None

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
        """Where the partition begins now."""
        place = TopicPartition(part.topic, part.partition)
        return Topics(self._cluster).offsets({place: EARLIEST})[place].offset

    # ---- what an error means -------------------------------------------------------------------------

    def _check_topic(self, part: Range) -> None:
        """Raise `TopicChanged` if the brokers know for sure that the topic is another one now.

        That takes several answers, from more than one broker where there are more, and time of its own: with a short
        `timeoutMs` they are not to be believed sooner.
        """
        change = self._change_of(part)
        for pause_s in DOUBTS_S:
            if change is None:
                return
            time.sleep(pause_s)
            self._cluster.suspect_view()
            change = self._change_of(part)
        if change is not None:
            raise change

    def _change_of(self, part: Range) -> TopicChanged | None:
        """What has become of the topic, according to one broker; None if it is the one that is read."""
        for topic in self._cluster.metadata(self._cluster.deadline(), topics=[part.topic]).topics:
            code = error_code(topic.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return TopicChanged(
                    f"Topic `{part.topic}` was deleted while the query was reading it. "
                    "With `failOnDataLoss` = false the query goes on without it."
                )
            if code is ErrorCode.NONE and topic_id_text(TopicId(topic.topic_id)) != part.topic_id:
                return TopicRecreated(
                    f"Topic `{part.topic}` was deleted and created again while the query was reading it. A batch query "
                    "can run again. A stream with `onTopicRecreated` = earliest goes on without what was left of the "
                    "old topic, at the beginning of the new one; otherwise it needs a new checkpoint."
                )
        return None

    def _check_loss(self, part: Range, position: int, deadline: Deadline) -> None:
        """Raise `DataLoss` if the offset is before the beginning; beyond the end it may only be early."""
        first = self._first_offset(part)
        if position < first:
            raise DataLoss(
                f"Offsets {position} to {min(first, part.end) - 1} of partition {part.partition} of "
                f"`{part.topic}` were "
                "deleted before they were read: retention is shorter than the query is late. Raise `retention.ms` or "
                "`retention.bytes` of the topic; `failOnDataLoss` = false goes on with what is left."
            )
        deadline.check(f"waiting for offset {position} of {part.topic}-{part.partition}")

    def _is_behind(self, answer: FetchResponsePartition, part: Range) -> bool:
        """Whether the broker does not have the end of the range yet, as after a change of leader."""
        known = answer.last_stable_offset if self._read_committed else answer.high_watermark
        return 0 <= known < part.end

    def _stuck(self, part: Range, position: int, answer: FetchResponsePartition) -> FetchFailed:
        return FetchFailed(
            f"Partition {part.partition} of `{part.topic}` could not be read at offset {position} within "
            f"{self._timeout_s:g} s: its leader can be read to {answer.last_stable_offset} of "
            f"{answer.high_watermark} only, and the query was planned to {part.end}. `drmq status` shows whether "
            "replicas are missing; a topic whose log was cut needs a new checkpoint."
        )

    def _repeating(self, part: Range, position: int, reached: int) -> FetchFailed:
        return FetchFailed(
            f"Partition {part.partition} of `{part.topic}` could not be read at offset {position} within "
            f"{self._timeout_s:g} s: its leader answers with records that end at {reached}, before what was asked for. "
            "`drmq log verify` looks at the broker's files."
        )

    def _gap(self, part: Range, position: int) -> DataLoss:
        return DataLoss(
            f"Partition {part.partition} of `{part.topic}` has no records from offset {position} on, though the query "
            f"should read until {part.end}. `failOnDataLoss` = false goes on without them."
        )


def end_of_batches(records: memoryview) -> int | None:
    """The offset after the last whole batch; None if there is no whole batch."""
    reached = None
    for _, header in iter_batches(records):
        reached = header.base_offset + header.last_offset_delta + 1
    return reached


def topic_id_from_text(text: str) -> TopicId:
    """The sixteen bytes of an id that `topic_id_text` wrote."""
    return TopicId(urlsafe_b64decode(text + "=="))
