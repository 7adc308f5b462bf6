"""The traffic with one broker: a task that takes messages from the partitions that it leads, and one that settles.

A request for records may wait at the broker, so settlements have a connection and a task of their own. Each has one
request in flight at a time. What is settled meanwhile goes with the next one, so a fast application makes large
requests and a slow one gets fast answers. A request for records takes along what is to be settled at that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from drmq.client.errors import ClientError
from drmq.client.leases.batch import Run
from drmq.client.leases.brokers import REQUEST_TIMEOUT_S, Purpose
from drmq.client.leases.source import Source
from drmq.wire.messages.lease_fetch import (
    LeaseFetchRequest,
    LeaseFetchRequestPartition,
    LeaseFetchRequestTopic,
    LeaseFetchResponse,
    LeaseSettlement,
)

if TYPE_CHECKING:
    from drmq.client.leases.session import LeaseSession

WAIT_MS = 500
"""How long a request waits for records. A consumer that closes waits for its last request, so not for long."""
BYTES_MAX = 8 * 2**20
_BACKOFF_S, _BACKOFF_S_MAX = 0.05, 1.0


class Lane:
    """The traffic with one broker. Owned by the session, which runs both tasks."""

    def __init__(self, session: LeaseSession, node_id: int) -> None:
        self._session = session
        self.node_id = node_id
        self.may_take = asyncio.Event()
        """Set when there may be room for messages or a partition to take them from."""
        self.must_settle = asyncio.Event()
        """Set when something is to be settled now."""
        self.asked_count = 0
        """Messages that the request in flight asks for."""
        self._turn = 0

    # ---- taking ---------------------------------------------------------------------------------

    async def take_messages(self) -> None:
        """Take messages until the session closes."""
        session = self._session
        backoff_s = _BACKOFF_S
        while not session.is_closing:
            self.may_take.clear()
            sources, paused_s = self._ready_sources()
            count = session.room_for(self, sources)
            if not sources or not count:
                await _wait(self.may_take, paused_s)
                continue
            # A broker asks at most so many partitions as records are wanted, so new ones are asked by themselves.
            sources = [source for source in sources if not source.was_asked][:count] or sources
            self.asked_count = count
            for source in sources:
                source.request_count += 1
            try:
                is_done = await self._take(sources, count)
            finally:
                self.asked_count = 0
                for source in sources:
                    source.request_count -= 1
            if is_done:
                backoff_s = _BACKOFF_S
            else:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)

    def _ready_sources(self) -> tuple[list[Source], float | None]:
        """The partitions to take from, a different one first each time; and when the next one may be asked again."""
        now_s = self._session.now_s()
        mine = [source for source in self._session.sources_of(self.node_id) if source.is_assigned]
        ready = [source for source in mine if source.retry_at_s <= now_s]
        if ready:
            self._turn = (self._turn + 1) % len(ready)
            return ready[self._turn :] + ready[: self._turn], None
        return [], min((source.retry_at_s - now_s for source in mine), default=None)

    async def _take(self, sources: Sequence[Source], count: int) -> bool:
        runs = self._take_runs()
        # The first answer of a partition gives the group its position there, so it is not waited for.
        waits = not runs and all(source.was_asked for source in sources)
        request = self._request(runs, sources, WAIT_MS if waits else 0, count)
        is_done = await self._exchange(Purpose.TAKING, request, runs, count)
        if is_done:
            self._session.note_asked(sources)
        return is_done

    # ---- settling -------------------------------------------------------------------------------

    async def settle_messages(self) -> None:
        """Settle messages until cancelled."""
        backoff_s = _BACKOFF_S
        while True:
            await self.must_settle.wait()
            self.must_settle.clear()
            runs = self._take_runs()
            if not runs:
                continue
            if await self._exchange(Purpose.SETTLING, self._request(runs, (), 0, 0), runs, 0):
                backoff_s = _BACKOFF_S
            else:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)
            if any(source.is_pending for source in self._session.sources_of(self.node_id)):
                self._session.settle_soon()

    # ---- both -----------------------------------------------------------------------------------

    def _take_runs(self) -> dict[Source, list[Run]]:
        with self._session.lock:
            found = {source: source.take_runs() for source in self._session.sources_of(self.node_id)}
        return {source: runs for source, runs in found.items() if runs}

    def _request(
        self, runs: Mapping[Source, Sequence[Run]], taken: Sequence[Source], wait_ms: int, count: int
    ) -> LeaseFetchRequest:
        topics: dict[bytes, LeaseFetchRequestTopic] = {}
        for source in dict.fromkeys([*taken, *runs]):
            topic = topics.setdefault(source.topic_id, LeaseFetchRequestTopic(source.topic_id, []))
            settlements = [
                LeaseSettlement(run.first_offset, run.last_offset, run.outcome, run.delay_ms, run.token)
                for run in runs.get(source, ())
            ]
            topic.partitions.append(LeaseFetchRequestPartition(source.partition, int(source in taken), settlements))
        return LeaseFetchRequest(
            group_id=self._session.group,
            member_id=self._session.member_id,
            max_wait_ms=wait_ms,
            max_bytes=BYTES_MAX if count else 0,
            max_records=count,
            topics=list(topics.values()),
        )

    async def _exchange(
        self, purpose: Purpose, request: LeaseFetchRequest, runs: dict[Source, list[Run]], count: int
    ) -> bool:
        """Send a request and apply its answer. Returns whether there was one."""
        session = self._session
        try:
            link = await session.brokers.link_to(self.node_id, purpose)
            answer = await link.call(request, LeaseFetchResponse, request.max_wait_ms / 1000 + REQUEST_TIMEOUT_S)
        except ClientError as error:
            session.on_no_answer(runs, error)
            return False
        except BaseException:
            session.take_back(runs)
            raise
        return session.on_answer(answer, runs, count)


async def _wait(event: asyncio.Event, timeout_s: float | None) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
