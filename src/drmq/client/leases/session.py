"""A consumer of a lease group: the asyncio core that the blocking client, the asyncio client and workers share.

The session joins the group (`membership`), learns the leaders of its partitions, and has one `Lane` for each broker
that leads any. What arrives goes to the `buffer`, from which the application takes messages and settles them, from any
thread. All else belongs to the event loop of the session.

A lease is renewed when a third of its time is over. What the application has not taken by then is given back instead:
another consumer may be free.

Always true: a message is in the buffer or held by the application only while the client believes in its lease; what is
settled is repeated until a broker answers; when `close` has returned, nothing of the session runs any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from drmq.client.errors import ClientError, DeadlineExceeded, LostRun, Refused, refusal
from drmq.client.leases.batch import LeasedBatch, LeasedOffsets, Run
from drmq.client.leases.brokers import Brokers
from drmq.client.leases.buffer import MessageBuffer
from drmq.client.leases.group_start import Start, set_group_start
from drmq.client.leases.lane import Lane
from drmq.client.leases.leaders import Leaders
from drmq.client.leases.membership import Assignment, Membership
from drmq.client.leases.prefetch import Prefetch
from drmq.client.leases.source import Source, decode_records
from drmq.model import ErrorCode
from drmq.wire.messages.lease_fetch import LeaseFetchResponse, LeaseFetchResponsePartition

log = logging.getLogger("drmq.client")

M = TypeVar("M")

LINGER_S = 0.01
"""How long a settlement that nobody waits for may wait for others to go with."""
_LEASE_S = 30.0
"""The duration of a lease until a broker has named it."""
_RENEW_SHARE = 3
_TICKS_PER_LEASE = 12
_TICK_S_MAX = 1.0
_PARTITION_BACKOFF_S = 0.2
_LOST_KEPT_MAX = 1000
_LEAVE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The settings of one consumer."""

    bootstrap: str
    group: str
    client_id: str = "drmq"
    prefetch_max: int = 2_000
    """Messages that may be leased ahead of the application (and one for each broker)."""
    renew_for_s: float = 1_800.0
    """How long the lease of a message is renewed: one that the application has forgotten must be delivered again."""
    start: Start | None = None
    """Where the group begins in a partition that it has not worked on; None leaves the setting of the group alone."""


class LeaseSession:
    """One member of a lease group, with all that it holds. Created and closed on its event loop."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.group = options.group
        self.brokers = Brokers(options.bootstrap, options.client_id)
        self._loop = asyncio.get_running_loop()
        self.buffer = MessageBuffer(Prefetch(options.prefetch_max, self.now_s()), self._wake)
        self.buffer.failure = self._fatal
        self.lock = self.buffer.lock
        self._membership = Membership(
            self.brokers,
            options.group,
            on_assigned=self._on_assigned,
            on_alive=self._on_alive,
            on_failed=self._on_failed,
            is_complete=lambda: self._leaders.is_complete,
        )
        self._leaders = Leaders(self.brokers, on_changed=self._on_leaders, on_failed=self._on_failed)
        self._followed: frozenset[str] = frozenset()
        self._lanes: dict[int, Lane] = {}
        self._linger: asyncio.TimerHandle | None = None
        self._lost: list[LostRun] = []
        self._lease_s = _LEASE_S
        self._changed: list[asyncio.Future[None]] = []
        """Callers that look again when something has happened."""
        self._failure: ClientError | None = None
        self._main: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._has_set_start = False
        self.is_closing = False
        self.on_lost: Callable[[LostRun], None] | None = None
        """Called for what `flush` would report, if set."""

    def now_s(self) -> float:
        return time.monotonic()

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    # ---- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._main = self._loop.create_task(self._run(), name="drmq-consumer")

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._membership.run())
                self._tasks.create_task(self._leaders.run())
                self._tasks.create_task(self._renew())
        except* Exception as group:
            # A bug: the application must not wait for ever.
            log.exception("the consumer of group %s has failed", self.group)
            self._failure = ClientError(f"The consumer has failed: {group.exceptions[0]!r}")
            self.is_closing = True
            with self.lock:
                self.buffer.close()
        finally:
            self._notify()

    def follow(self, topics: Iterable[str]) -> None:
        """Work on these topics, and no others. What waits for the application of others is given back."""
        self._followed = frozenset(topics)
        self._leaders.follow(self._followed)
        self._membership.subscribe(self._followed)
        with self.lock:
            left = [source for source in self._leaders.sources if source.topic not in self._followed]
            given_back = [batch for source in left for batch in source.batches if batch.give_back()]
            for batch in given_back:
                self.buffer.drop(batch)
        if given_back:
            self._settle_now()

    async def subscribe(self, topics: Iterable[str], timeout_s: float) -> None:
        """The same, and waits until the group has a position in every partition of this member. Raises `ClientError`.

        What is sent to these partitions from then on is delivered, wherever the group begins.
        """
        deadline_s = self.now_s() + timeout_s
        if self.options.start is not None and not self._has_set_start:
            await set_group_start(self.brokers, self.group, self.options.start, timeout_s)
            self._has_set_start = True
        self.follow(topics)
        await self._wait_until(
            lambda: self._membership.has_joined and self._leaders.is_asked, deadline_s - self.now_s(), "subscribing"
        )

    async def close(self, timeout_s: float) -> None:
        """Give back what is held, tell the broker everything, leave the group. Raises `ClientError`.

        If the time does not suffice, leases that could not be given back run out.
        """
        if self._main is None:
            return
        deadline_s = self.now_s() + timeout_s
        self.is_closing = True
        with self.lock:
            self.buffer.close()
            self._give_back_all()
        main, self._main = self._main, None
        try:
            for lane in self._lanes.values():
                lane.may_take.set()
                lane.must_settle.set()
            if self.brokers.was_reached:
                # The last requests for records are waited for: what they bring is given back too.
                await self._wait_until(
                    lambda: not any(lane.asked_count for lane in self._lanes.values()) and not self._is_pending(),
                    deadline_s - self.now_s(),
                    "closing",
                )
                await self._membership.leave(max(0.0, min(_LEAVE_TIMEOUT_S, deadline_s - self.now_s())))
        finally:
            main.cancel()
            await asyncio.gather(main, return_exceptions=True)
            self.brokers.close()
            if self._linger is not None:
                self._linger.cancel()

    def _is_pending(self) -> bool:
        with self.lock:
            return any(source.is_pending for source in self._leaders.sources)

    def _give_back_all(self) -> None:
        for source in self._leaders.sources:
            for batch in source.batches:
                batch.give_back(held_too=True)

    # ---- the application ------------------------------------------------------------------------

    async def take_waiting(
        self, count_max: int, timeout_s: float, make: Callable[[LeasedBatch, int, int], M]
    ) -> list[M]:
        """Up to so many messages from the buffer, once there is one."""
        buffer = self.buffer
        found = buffer.take(count_max, make)
        if not found and timeout_s > 0:
            buffer.expect(count_max)
            try:
                async with asyncio.timeout(timeout_s):
                    while not buffer.count and not buffer.is_closed:
                        await self._wait_for_change()
            except TimeoutError:
                pass
            finally:
                buffer.expect(-count_max)
            found = buffer.take(count_max, make)
        if not found:
            buffer.check()
        return found

    # ---- flushing -------------------------------------------------------------------------------

    async def flush(self, timeout_s: float) -> None:
        """Wait until all settlements so far are answered. Raises `LeaseLost` for what nobody waited for."""
        with self.lock:
            batches = [batch for source in self._leaders.sources for batch in source.batches if batch.is_pending]
        self._settle_now()
        await self._wait_until(lambda: not any(batch.is_pending for batch in batches), timeout_s, "flushing")

    def take_lost(self) -> tuple[LostRun, ...]:
        """What was lost since the last call, without a caller that waited for it."""
        with self.lock:
            lost, self._lost = tuple(self._lost), []
        return lost

    async def _wait_until(self, condition: Callable[[], bool], timeout_s: float, doing: str) -> None:
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                while not condition():
                    failure = self._failure
                    if failure is not None and (_is_final(failure) or (self._main is not None and self._main.done())):
                        raise failure
                    await self._wait_for_change()
        except TimeoutError:
            if self._failure is not None:
                raise self._failure from None
            raise DeadlineExceeded(
                f"No response within {timeout_s:g} s while {doing}",
                code=ErrorCode.REQUEST_TIMED_OUT,
                retriable=True,
                advice="The cluster may be overloaded or in an election. Check `drmq status`, or use a longer timeout.",
            ) from None

    async def _wait_for_change(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._changed.append(waiter)
        await waiter

    def _notify(self) -> None:
        changed, self._changed = self._changed, []
        for waiter in changed:
            if not waiter.done():
                waiter.set_result(None)

    # ---- the event loop -------------------------------------------------------------------------

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._on_wake)

    def _on_wake(self) -> None:
        is_urgent = self.buffer.take_changes()
        for lane in self._lanes.values():
            lane.may_take.set()
        if is_urgent:
            self._settle_now()
        else:
            self.settle_soon()

    def settle_soon(self) -> None:
        if self._linger is None:
            self._linger = self._loop.call_later(LINGER_S, self._settle_now)

    def _settle_now(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        for lane in self._lanes.values():
            lane.must_settle.set()

    def _on_alive(self) -> None:
        self._failure = None
        self._notify()

    def _on_assigned(self, assignment: Assignment) -> None:
        self._leaders.assign(assignment)
        self._notify()

    def _fatal(self) -> ClientError | None:
        """Why no message can come, if that is so."""
        failure = self._failure
        if failure is None:
            return None
        has_crashed = self.is_closing and self._main is not None
        return failure if not self.brokers.was_reached or _is_final(failure) or has_crashed else None

    def _on_failed(self, error: ClientError) -> None:
        self._failure = error
        log.info("group %s: %s", self.group, error)
        self._notify()

    def _on_leaders(self) -> None:
        """The leaders of some partitions have changed."""
        assert self._tasks is not None
        for node_id in self._leaders.leader_ids - self._lanes.keys():
            lane = self._lanes[node_id] = Lane(self, node_id)
            self._tasks.create_task(lane.take_messages())
            self._tasks.create_task(lane.settle_messages())
        for lane in self._lanes.values():
            lane.may_take.set()
        self.settle_soon()
        self._notify()

    def sources_of(self, node_id: int) -> list[Source]:
        return [source for source in self._leaders.sources if source.leader_id == node_id]

    def room_for(self, lane: Lane, sources: Sequence[Source]) -> int:
        """How many messages a lane may ask for."""
        others = sum(each.asked_count for each in self._lanes.values() if each is not lane)
        buffer = self.buffer
        room = buffer.prefetch.room(buffer.count + others, buffer.waited_for)
        share = -(-room // max(1, len(self._leaders.leader_ids)))
        if not room and buffer.waited_for and not buffer.count:
            # All of it is asked of other brokers, which may have none.
            return 1
        return max(share, 0 if all(source.was_asked for source in sources) else 1)

    def note_asked(self, sources: Iterable[Source]) -> None:
        """The group has a position in these partitions now."""
        for source in sources:
            source.was_asked = source.was_asked or source.is_assigned
        self._notify()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(min(_TICK_S_MAX, self._lease_s / _TICKS_PER_LEASE))
            now_s = self.now_s()
            with self.lock:
                due = [b for source in self._leaders.sources for b in source.batches if b.renew_at_s <= now_s]
                gave_back = [self._renew_batch(batch, now_s) for batch in due]
                if any(gave_back):
                    self.buffer.prefetch.on_unused()
            if due:
                self._settle_now()

    def _renew_batch(self, batch: LeasedBatch, now_s: float) -> bool:
        """Renew what is held, and give back what is not. Returns whether anything is given back."""
        batch.renew_at_s = now_s + self._lease_s / _RENEW_SHARE
        batch.renews = now_s - batch.received_s < self.options.renew_for_s
        if not batch.give_back():
            return False
        self.buffer.drop(batch)
        return True

    # ---- answers --------------------------------------------------------------------------------

    def take_back(self, runs: dict[Source, list[Run]]) -> None:
        """A request with these was not answered."""
        with self.lock:
            for source, sent in runs.items():
                source.on_failed(sent)

    def on_no_answer(self, runs: dict[Source, list[Run]], error: ClientError) -> None:
        self.take_back(runs)
        self._leaders.refresh()
        self._on_failed(error)

    def on_answer(self, answer: LeaseFetchResponse, runs: dict[Source, list[Run]], asked: int) -> bool:
        """Apply an answer. Returns whether the request was carried out."""
        if answer.error_code:
            error = refusal(answer.error_code, f"Group `{self.group}` refuses a request", answer.error_message)
            if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self._membership.rejoin()
            self.on_no_answer(runs, error)
            return False
        if answer.lease_ms > 0:
            self._lease_s = answer.lease_ms / 1000
        received = 0
        is_done = True
        for topic in answer.topics:
            for part in topic.partitions:
                source = self._leaders.source(topic.topic_id, part.partition_index)
                if source is None:
                    continue
                sent = runs.pop(source, None)
                if sent:
                    is_done &= self._on_settled(source, part, sent)
                if part.error_code:
                    is_done = False
                    self._on_partition_error(source, part, part.error_code, part.error_message)
                elif part.deliveries:
                    received += self._receive(source, part)
        if asked and is_done:
            self._failure = None
            self.buffer.prefetch.on_received(received, asked)
        if runs:
            self.take_back(runs)
        self._notify()
        return is_done and not runs

    def _on_settled(self, source: Source, part: LeaseFetchResponsePartition, sent: Sequence[Run]) -> bool:
        if part.settle_error_code:
            error = refusal(part.settle_error_code, f"{source} does not settle", part.settle_error_message)
            if error.retriable or error.code is ErrorCode.UNKNOWN_TOPIC_ID:
                self._on_partition_error(source, part, part.settle_error_code, part.settle_error_message)
                with self.lock:
                    source.on_failed(sent)
                return False
            with self.lock:
                self._report(source.on_refused(sent, str(error)))
            return True
        refused = [(each.first_offset, each.last_offset, each.reason) for each in part.refusals]
        with self.lock:
            self._report(source.on_settled(sent, refused))
        return True

    def _report(self, lost: Iterable[LostRun]) -> None:
        for run in lost:
            if self.on_lost is not None:
                self.on_lost(run)
            elif len(self._lost) < _LOST_KEPT_MAX:
                self._lost.append(run)

    def _on_partition_error(
        self, source: Source, part: LeaseFetchResponsePartition, code: int, message: str | None
    ) -> None:
        error = refusal(code, f"{source} cannot be used", message)
        source.retry_at_s = self.now_s() + _PARTITION_BACKOFF_S
        hint = part.current_leader
        if hint.leader_id >= 0 and hint.leader_epoch > source.leader_epoch and self.brokers.knows(hint.leader_id):
            source.leader_id, source.leader_epoch = hint.leader_id, hint.leader_epoch
            source.retry_at_s = 0.0
            self._on_leaders()
        self._leaders.refresh()
        if not error.retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_ID:
            self._on_failed(error)

    def _receive(self, source: Source, part: LeaseFetchResponsePartition) -> int:
        """Put what was leased into the buffer. Returns how many messages that are."""
        leased = [LeasedOffsets(each.first_offset, each.last_offset, each.attempt) for each in part.deliveries]
        now_s = self.now_s()
        pieces = decode_records(part.records, leased)
        for error in filter(None, (piece.error for piece in pieces)):
            log.error("group %s: %s has records that cannot be read: %s", self.group, source, error)
        with self.lock:
            spans = source.receive(pieces, leased, part.token, self.buffer, now_s)
            for span in spans:
                span.batch.renew_at_s = now_s + part.lease_ms / 1000 / _RENEW_SHARE
            count = sum(span.end_row - span.start_row for span in spans)
            if self.is_closing:
                self._give_back_all()
            elif source.topic not in self._followed:
                for span in spans:
                    span.batch.give_back()
            else:
                self.buffer.put(spans)
        if self.is_closing or source.topic not in self._followed:
            self._settle_now()
        return count


def _is_final(failure: ClientError) -> bool:
    """Whether a broker has refused a request for a reason that will not pass."""
    return isinstance(failure, Refused) and not failure.retriable
