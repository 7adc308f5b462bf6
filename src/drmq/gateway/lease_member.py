"""A member of a lease group, on behalf of all who poll the same topics of that group through this gateway.

The member exists so that the group knows that somebody works on it, and so that the leases end with its session if this
gateway dies. It takes from all partitions of its topics, whatever it is assigned: other gateways are members too, and
polls may reach only one of them.

A poll first takes what is there. If there is nothing, it waits. One request for each leader waits for all polls
together, and what it brings goes to the polls in their order. Requests are short, and never abandoned: what they bring
when nobody waits any more is given back at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from drmq.client import ClientError, DeadlineExceeded, Refused
from drmq.client.errors import refusal
from drmq.client.leases.batch import LeasedOffsets
from drmq.client.leases.brokers import REQUEST_TIMEOUT_S, Brokers, Purpose
from drmq.client.leases.buffer import MessageBuffer
from drmq.client.leases.leaders import Leaders
from drmq.client.leases.membership import Assignment, Membership
from drmq.client.leases.prefetch import Prefetch
from drmq.client.leases.source import NO_LEADER, Source, decode_records
from drmq.client.topics import topic_refusal
from drmq.gateway import ack_ids
from drmq.gateway.ack_ids import AckId
from drmq.gateway.settling import Settler, Wanted
from drmq.model import ErrorCode
from drmq.wire.messages.lease_fetch import (
    LeaseFetchRequest,
    LeaseFetchRequestPartition,
    LeaseFetchRequestTopic,
    LeaseFetchResponse,
    LeaseFetchResponsePartition,
)

log = logging.getLogger("drmq.gateway")

GIVE_BACK: Final = 5
SLICE_S: Final = 0.5
"""How long one request waits for records."""
BYTES_MAX: Final = 8 * 2**20
"""Of messages that one poll brings, or one request. A message that is larger comes alone."""
_OVERHEAD_BYTES: Final = 200
"""Of a message in an answer, beside its contents."""
_READY_S: Final = 15.0
"""How long a poll waits for the group and for leaders: longer than an election takes."""
_UNKNOWN_GRACE_S: Final = 1.0
"""How long a topic that a node does not know may be known to another one."""
_LEADERS_GRACE_S: Final = 1.0
"""How long the first poll waits until all partitions have leaders."""
_BACKOFF_S, _BACKOFF_S_MAX = 0.05, 1.0
_PARTITION_BACKOFF_S: Final = 0.2
_LEAVE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Leased:
    """A message that is leased to the caller until `lease_until_ms`."""

    ack_id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    attempt: int
    lease_until_ms: int
    lease_token: int

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name) + len(content or b"") for name, content in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + _OVERHEAD_BYTES


@dataclass(slots=True, eq=False)
class _Waiter:
    """A poll that waits."""

    count_max: int
    found: asyncio.Future[list[Leased]]


class LeaseMember:
    """One member of one group. Lives on the event loop, and is owned by `Leasing`."""

    def __init__(self, bootstrap: str, client_id: str, group: str, topics: frozenset[str], settler: Settler) -> None:
        self._group = group
        self._topics = topics
        self._settler = settler
        self._brokers = Brokers(bootstrap, client_id)
        self._membership = Membership(
            self._brokers,
            group,
            on_alive=self._on_alive,
            on_assigned=lambda assignment: None,
            on_failed=self._on_failed,
            is_complete=lambda: True,
        )
        self._leaders = Leaders(self._brokers, on_changed=self._on_leaders, on_failed=self._on_failed)
        self._buffer = MessageBuffer(Prefetch(0, 0.0), lambda: None)
        """Batches have one; this one stays empty."""
        self._waiters: deque[_Waiter] = deque()
        self._lanes: dict[int, asyncio.Task[None]] = {}
        """By leader: the task that takes for polls that wait, or the last one that did."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._main: list[asyncio.Task[None]] = []
        self._changed: asyncio.Event = asyncio.Event()
        self._failure: ClientError | None = None
        self._followed: Assignment = frozenset()
        """All partitions of the topics."""
        self._checked = False
        """Whether all topics were seen to exist."""
        self._is_closing = False
        self.user_count = 0
        """Polls that run."""
        self.used_s = time.monotonic()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._leaders.follow(self._topics)
        self._membership.subscribe(self._topics)
        self._main = [loop.create_task(self._membership.run()), loop.create_task(self._leaders.run())]

    @property
    def has_failed(self) -> bool:
        """Whether it ended on a bug."""
        return any(task.done() for task in self._main)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While a poll runs, the member does not leave."""
        self.user_count += 1
        try:
            yield
        finally:
            self.user_count -= 1
            self.used_s = time.monotonic()

    async def close(self, timeout_s: float) -> None:
        """Let requests end, give back what they bring, and leave the group."""
        self._is_closing = True
        for waiter in self._waiters:
            if not waiter.found.done():
                waiter.found.set_exception(shutting_down())
        self._waiters.clear()
        try:
            async with asyncio.timeout(timeout_s):
                while self._tasks:
                    await asyncio.gather(*self._tasks, return_exceptions=True)
        except TimeoutError:
            log.warning("group %s: requests are not answered; their leases run out", self._group)
        await self._membership.leave(_LEAVE_S)
        remaining = [*self._main, *self._tasks]
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)
        self._brokers.close()

    # ---- polls ----------------------------------------------------------------------------------

    async def poll(self, count_max: int, wait_s: float, bytes_max: int = BYTES_MAX) -> list[Leased]:
        """Up to so many messages, once there is one. Raises `ClientError`. If cancelled, it leaves no lease behind."""
        until_s = time.monotonic() + wait_s
        await self._be_ready()
        found = await self._or_give_back(self._run(self._take_now(count_max, bytes_max)))
        left_s = until_s - time.monotonic()
        if not found and left_s > 0:
            found = await self._wait(count_max, left_s)
        return self._within(found, bytes_max)

    def _within(self, messages: list[Leased], bytes_max: int) -> list[Leased]:
        """The first messages with no more than so many bytes. The others are given back.

        How many bytes a broker sends says little about it: batches are compressed.
        """
        size = 0
        for count, message in enumerate(messages):
            size += message.size_bytes
            if count and size > bytes_max:
                self._give_back(messages[count:])
                return messages[:count]
        return messages

    async def _be_ready(self) -> None:
        """Wait until the member has joined and all leaders were looked for. Raises `ClientError`."""
        began_s = time.monotonic()
        deadline_s = began_s + _READY_S
        if not self._checked:
            await self._check_topics()
        while not self._is_ready(time.monotonic() - began_s):
            failure = self._failure
            if isinstance(failure, Refused) and not failure.retriable:
                raise failure
            if failure is not None and not self._brokers.was_reached:
                raise failure
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise failure or DeadlineExceeded(
                    f"Group `{self._group}` cannot be polled: no node answers for it, or its topics have no leaders",
                    code=ErrorCode.REQUEST_TIMED_OUT,
                    retriable=True,
                    advice="GET /api/v1/cluster shows what is wrong.",
                )
            self._changed.clear()
            try:
                async with asyncio.timeout(min(left_s, 1.0)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _is_ready(self, elapsed_s: float) -> bool:
        if not (self._membership.has_joined and self._by_leader()):
            return False
        # The partitions of a new topic get their leaders one after the other.
        return elapsed_s > _LEADERS_GRACE_S or all(each.leader_id != NO_LEADER for each in self._leaders.sources)

    async def _check_topics(self) -> None:
        """Raise `ClientError` if a topic does not exist."""
        deadline_s = time.monotonic() + _UNKNOWN_GRACE_S
        while True:
            answer = await self._brokers.metadata(sorted(self._topics))
            errors = [topic_refusal(topic.error_code, topic.name or "") for topic in answer.topics if topic.error_code]
            if not errors:
                self._checked = True
                return
            if not errors[0].retriable and errors[0].code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise errors[0]
            if time.monotonic() > deadline_s:
                raise errors[0]
            await asyncio.sleep(0.1)

    async def _take_now(self, count_max: int, bytes_max: int) -> list[Leased]:
        """What is there, from one leader after the other."""
        found: list[Leased] = []
        failure: ClientError | None = None
        leaders = list(self._by_leader().items())
        random.shuffle(leaders)
        for node_id, sources in leaders:
            left_bytes = bytes_max - sum(each.size_bytes for each in found)
            if left_bytes <= 0:
                break
            try:
                found += await self._fetch(node_id, sources, count_max - len(found), left_bytes, 0.0, Purpose.SETTLING)
            except ClientError as error:
                failure = error
            if len(found) >= count_max:
                break
        if failure is not None and not found:
            if not failure.retriable:
                raise failure
            log.info("group %s: %s", self._group, failure)
        return found

    async def _wait(self, count_max: int, wait_s: float) -> list[Leased]:
        if self._is_closing:
            raise shutting_down()
        waiter = _Waiter(count_max, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._start_lanes()
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(waiter.found)
        except TimeoutError:
            return waiter.found.result() if waiter.found.done() else []
        except asyncio.CancelledError:
            if waiter.found.done() and not waiter.found.cancelled() and waiter.found.exception() is None:
                self._give_back(waiter.found.result())
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            waiter.found.cancel()

    async def _or_give_back(self, task: asyncio.Task[list[Leased]]) -> list[Leased]:
        """The result of a task that goes on if the caller is cancelled: then its result is given back."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._give_back_result)
            raise

    def _give_back_result(self, task: asyncio.Task[list[Leased]]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._give_back(task.result())

    def _give_back(self, messages: Sequence[Leased]) -> None:
        if messages:
            back = [Wanted(ack_ids.decode(self._group, each.ack_id), GIVE_BACK) for each in messages]
            self._run(self._settle(back))

    async def _settle(self, wanted: Sequence[Wanted]) -> None:
        try:
            await self._settler.settle(self._group, wanted)
        except ClientError as error:
            log.info("group %s: %d leases run out, because they cannot be settled: %s", self._group, len(wanted), error)

    def _run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- those who wait -------------------------------------------------------------------------

    def _start_lanes(self) -> None:
        if not self._waiters:
            return
        for node_id in self._leaders.leader_ids:
            lane = self._lanes.get(node_id)
            if lane is None or lane.done():
                self._lanes[node_id] = self._run(self._serve(node_id))

    async def _serve(self, node_id: int) -> None:
        """Take from one leader while anyone waits."""
        backoff_s = _BACKOFF_S
        while self._waiters and node_id in self._leaders.leader_ids:
            sources = self._by_leader().get(node_id)
            if not sources:
                # It has just refused all of them. Polls still wait for them.
                await asyncio.sleep(_PARTITION_BACKOFF_S)
                continue
            count = min(sum(waiter.count_max for waiter in self._waiters), 1_000)
            try:
                messages = await self._fetch(node_id, sources, count, BYTES_MAX, SLICE_S, Purpose.TAKING)
            except ClientError as error:
                log.info("group %s: %s", self._group, error)
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)
                continue
            backoff_s = _BACKOFF_S
            self._hand_out(messages)

    def _hand_out(self, messages: list[Leased]) -> None:
        while messages and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.found.done():
                waiter.found.set_result(messages[: waiter.count_max])
                messages = messages[waiter.count_max :]
        self._give_back(messages)

    # ---- requests -------------------------------------------------------------------------------

    def _by_leader(self) -> dict[int, list[Source]]:
        """The partitions to take from, by leader."""
        now_s = time.monotonic()
        found: dict[int, list[Source]] = {}
        for source in self._leaders.sources:
            if source.leader_id != NO_LEADER and source.topic in self._topics and source.retry_at_s <= now_s:
                found.setdefault(source.leader_id, []).append(source)
        return found

    async def _fetch(
        self, node_id: int, sources: Sequence[Source], count: int, bytes_max: int, wait_s: float, purpose: Purpose
    ) -> list[Leased]:
        """Lease records from a leader. Raises `ClientError`. Must not be cancelled: its answer has leases."""
        topics: dict[bytes, LeaseFetchRequestTopic] = {}
        for source in sources:
            topic = topics.setdefault(source.topic_id, LeaseFetchRequestTopic(source.topic_id, []))
            topic.partitions.append(LeaseFetchRequestPartition(source.partition))
        request = LeaseFetchRequest(
            self._group, self._membership.member_id, int(wait_s * 1000), bytes_max, count, list(topics.values())
        )
        try:
            link = await self._brokers.link_to(node_id, purpose)
            answer = await link.call(request, LeaseFetchResponse, wait_s + REQUEST_TIMEOUT_S)
        except ClientError:
            self._leaders.refresh()
            raise
        if answer.error_code:
            raise refusal(answer.error_code, f"Group `{self._group}` refuses a request", answer.error_message)
        now_ms = int(time.time() * 1000)
        found: list[Leased] = []
        asked = {(source.topic_id, source.partition): source for source in sources}
        for each in answer.topics:
            for part in each.partitions:
                known = asked[each.topic_id, part.partition_index]
                if part.error_code:
                    self._on_partition_error(known, part)
                elif part.deliveries:
                    new = Source(known.topic, each.topic_id, part.partition_index)
                    left = bytes_max - sum(message.size_bytes for message in found)
                    found += self._received(new, part, now_ms, left)
        return found

    def _on_partition_error(self, source: Source, part: LeaseFetchResponsePartition) -> None:
        self._leaders.refresh()
        hint = part.current_leader
        if hint.leader_id >= 0 and hint.leader_epoch > source.leader_epoch and self._brokers.knows(hint.leader_id):
            source.leader_id, source.leader_epoch = hint.leader_id, hint.leader_epoch
            self._start_lanes()
        else:
            source.retry_at_s = time.monotonic() + _PARTITION_BACKOFF_S

    def _received(self, source: Source, part: LeaseFetchResponsePartition, now_ms: int, bytes_max: int) -> list[Leased]:
        """The messages of an answer. `source` is a new one: it sorts out what has no record, or cannot be read.

        A few kilobytes may decompress to gigabytes. What comes after `bytes_max` is not decoded, and given back.
        """
        leased = [LeasedOffsets(each.first_offset, each.last_offset, each.attempt) for each in part.deliveries]
        pieces = decode_records(part.records, leased, bytes_max) if bytes_max > 0 else []
        for error in filter(None, (piece.error for piece in pieces)):
            log.error("group %s: %s has records that cannot be read: %s", self._group, source, error)
        spans = source.receive(pieces, leased, part.token, self._buffer, 0.0)
        member_id = self._membership.member_id
        # What is in the buffer state of `source` is not wanted; only its loose runs are.
        loose = [
            Wanted(AckId(member_id, source.topic_id, source.partition, offset, run.token), run.outcome, run.delay_ms)
            for run in source.take_runs()
            for offset in range(run.first_offset, run.last_offset + 1)
        ]
        if loose:
            self._run(self._settle(loose))
        found = []
        for span in spans:
            batch = span.batch
            for row in range(span.start_row, span.end_row):
                ack = AckId(member_id, source.topic_id, source.partition, batch.offsets[row], part.token)
                found.append(
                    Leased(
                        ack_ids.encode(self._group, ack),
                        source.topic,
                        source.partition,
                        ack.offset,
                        batch.timestamp_ms(row),
                        batch.key(row),
                        batch.value(row),
                        batch.headers(row),
                        span.attempt,
                        now_ms + part.lease_ms,
                        part.token,
                    )
                )
        return found

    # ---- what happens ---------------------------------------------------------------------------

    def _on_alive(self) -> None:
        self._failure = None
        self._changed.set()

    def _on_failed(self, error: ClientError) -> None:
        self._failure = error
        self._changed.set()

    def _on_leaders(self) -> None:
        self._failure = None if self._membership.has_joined else self._failure
        self._changed.set()
        self._start_lanes()
        # What has no leader is looked for again, as if this member was assigned to it.
        wanted = frozenset((source.topic_id, source.partition) for source in self._leaders.sources)
        if wanted != self._followed:
            self._followed = wanted
            self._leaders.assign(wanted)


def shutting_down() -> ClientError:
    """The answer to polls when the gateway stops."""
    return ClientError("The gateway is shutting down", retriable=True, advice="Ask another gateway.")
