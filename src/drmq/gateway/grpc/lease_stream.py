"""Taking work over one stream: a member of a lease group whose messages go to the client while it has credits.

The stream owns a `LeaseSession`, the same that DRMQ's Python consumers use: it joins the group, leases, renews, and
follows leaders. Three things happen at a time: requests are read, messages are delivered, and the answers of the
cluster to settlements are told to the client, many with one response.

Credits are the messages that the client is willing to hold. A delivery takes one, and the end of the delivery (settled,
or lost) returns it, so a client that never sends `add_credits` holds at most what it asked for at the start. The
session leases ahead at most as many as there are credits.

Always true: a delivery id is known from its delivery until the cluster has confirmed its outcome or its lease is lost;
when the stream ends, whatever is held is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from drmq.client import ClientError
from drmq.client.leases import LeasedBatch, LeaseSession, SessionOptions, Start
from drmq.client.leases.batch import ACCEPTED, GIVEN_BACK, HELD, REJECTED, RELEASED
from drmq.client.messages import DELAY_S_MAX
from drmq.gateway.grpc.checks import check_group, check_topics
from drmq.gateway.grpc.messages import leased_record
from drmq.gateway.grpc.methods import Call
from drmq.gateway.grpc.status import bad_request, item_error
from drmq.v1 import leases_pb2 as pb

log = logging.getLogger("drmq.gateway")

CREDITS_MAX: Final = 10_000
ANSWERS_MAX: Final = 10_000
"""Answers that wait for the client to read them. Beyond that its next request is not read."""
DELIVERIES_MAX: Final = 500
"""Messages in one response."""
RESPONSE_BYTES: Final = 1_048_576
"""A response gets no further message once it has so many bytes: clients accept 4 MiB by default."""
SUBSCRIBE_S_MAX: Final = 30.0
CLOSE_S_MAX: Final = 3.0
RENEW_FOR_S: Final = 1_800.0
_PREFETCH_MAX: Final = 2_000
_WAIT_S: Final = 3_600.0

_LETTERS = {
    pb.OUTCOME_ACK: ACCEPTED,
    pb.OUTCOME_NACK: RELEASED,
    pb.OUTCOME_GIVE_BACK: GIVEN_BACK,
    pb.OUTCOME_REJECT: REJECTED,
}
_STARTS: dict[int, Start] = {pb.GROUP_START_EARLIEST: "earliest", pb.GROUP_START_LATEST: "latest"}


class _Held(NamedTuple):
    """A delivery that has not ended."""

    batch: LeasedBatch
    row: int
    attempt: int


class _Answer:
    """Gets the answer of the cluster for one delivery, in place of a future: there may be many at a time."""

    __slots__ = ("_delivery_id", "_ends", "_stream")

    def __init__(self, stream: LeaseStream, delivery_id: int, ends: bool) -> None:
        self._stream = stream
        self._delivery_id = delivery_id
        self._ends = ends
        """Whether the delivery ends with it."""

    def done(self) -> bool:
        return False

    def set_result(self, result: object, /) -> None:
        self._stream.on_settled(self._delivery_id, self._ends)

    def set_exception(self, exception: BaseException, /) -> None:
        assert isinstance(exception, ClientError), exception
        self._stream.on_refused(self._delivery_id, exception)


class LeaseStream:
    """One stream and its member. Lives on the event loop."""

    def __init__(self, bootstrap: str, call: Call) -> None:
        self._bootstrap = bootstrap
        self._call = call
        self._session: LeaseSession | None = None
        self._credits = 0
        """Of the client, not counting what it holds already."""
        self._held: dict[int, _Held] = {}
        self._next_id = 1
        self._has_credits = asyncio.Event()
        self._answers = pb.Settled()
        self._has_answers = asyncio.Event()
        self._is_told = asyncio.Event()
        """Set when the client is told what it was not told before."""

    async def run(self, requests: AsyncIterator[pb.LeaseRequest]) -> None:
        """Serve the stream until the client ends it."""
        first = await anext(requests, None)
        if first is None:
            return
        if first.WhichOneof("request") != "subscribe":
            raise bad_request("the first request of the stream must be `subscribe`")
        await self._subscribe(first.subscribe)
        async with asyncio.TaskGroup() as tasks:
            sending = [tasks.create_task(self._deliver()), tasks.create_task(self._tell_answers())]
            async for request in requests:
                self._on_request(request)
                while self._answer_count > ANSWERS_MAX:
                    self._is_told.clear()
                    await self._is_told.wait()
            # The client has ended its side: it gets the answers that are still to come, and no further messages.
            sending[0].cancel()
            await self._session_of().flush(CLOSE_S_MAX)
            await asyncio.sleep(0)
            sending[1].cancel()
        await self._tell()

    async def close(self) -> None:
        """Give back what is held, and leave the group."""
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.close(CLOSE_S_MAX)
            except ClientError as error:
                log.info("closing a stream of group %s: %s", session.group, error)

    def _session_of(self) -> LeaseSession:
        assert self._session is not None
        return self._session

    # ---- requests -------------------------------------------------------------------------------

    async def _subscribe(self, wanted: pb.Subscribe) -> None:
        check_group(wanted.group)
        check_topics(wanted.topics)
        self._add_credits(wanted.credits, first=True)
        renew_for_s = RENEW_FOR_S
        if wanted.HasField("renew_for_ms"):
            renew_for_s = wanted.renew_for_ms / 1000
            if not 0 <= renew_for_s <= 24 * 3600:
                raise bad_request("renew_for_ms must be from 0 to one day")
        options = SessionOptions(
            self._bootstrap,
            wanted.group,
            wanted.client_id or "drmq-grpc",
            min(_PREFETCH_MAX, max(wanted.credits, 1)),
            renew_for_s,
            _STARTS.get(wanted.start),
        )
        self._session = LeaseSession(options)
        self._session.start()
        await self._session.subscribe(set(wanted.topics), SUBSCRIBE_S_MAX)
        await self._call.write(pb.LeaseResponse(subscribed=pb.Subscribed(member_id=self._session.member_id)))

    def _on_request(self, request: pb.LeaseRequest) -> None:
        kind = request.WhichOneof("request")
        if kind == "settle":
            self._settle(request.settle)
        elif kind == "add_credits":
            self._add_credits(request.add_credits.count)
        elif kind == "subscribe":
            raise bad_request("the stream has subscribed already", "Open another stream for other topics.")
        else:
            raise bad_request("the request is empty: it must subscribe, settle or add credits")

    def _add_credits(self, count: int, *, first: bool = False) -> None:
        total = self._credits + len(self._held) + count
        if total > CREDITS_MAX or (first and count < 0):
            raise bad_request(f"a stream may have from 0 to {CREDITS_MAX} credits, and these would be {total}")
        # Credits that are taken away may be used up by what is held: then the balance is negative for a while.
        self._credits += count
        self._on_credits()

    def _on_credits(self) -> None:
        if self._credits > 0:
            self._has_credits.set()

    def _settle(self, wanted: pb.Settle) -> None:
        extends = wanted.outcome == pb.OUTCOME_EXTEND
        letter = _LETTERS.get(wanted.outcome)
        if letter is None and not extends:
            raise bad_request(f"{wanted.outcome} is no outcome")
        delay_ms: int | None = None
        if wanted.HasField("delay_ms"):
            delay_ms = wanted.delay_ms
            if wanted.outcome != pb.OUTCOME_NACK:
                raise bad_request("only OUTCOME_NACK has a delay")
            if not 0 <= delay_ms <= DELAY_S_MAX * 1000:
                raise bad_request(f"delay_ms must be from 0 to {DELAY_S_MAX * 1000}")
        count = len(wanted.delivery_ids)
        if count > CREDITS_MAX:
            raise bad_request(f"a request settles up to {CREDITS_MAX} deliveries, and this one {count}")
        buffer = self._session_of().buffer
        for delivery_id in wanted.delivery_ids:
            held = self._held.get(delivery_id)
            if held is None:
                self._on_unknown(delivery_id)
                continue
            waiter = _Answer(self, delivery_id, not extends)
            try:
                if letter is None:
                    buffer.renew(held.batch, held.row, waiter)
                else:
                    buffer.settle_waiting(held.batch, held.row, letter, waiter, delay_ms)
            except ClientError as error:
                self.on_refused(delivery_id, error)

    def _on_unknown(self, delivery_id: int) -> None:
        if not 0 < delivery_id < self._next_id:
            raise bad_request(f"there was no delivery {delivery_id} in this stream")
        error = ClientError(f"Delivery {delivery_id} has ended already: it was settled, or its lease was lost")
        self._add_failure(delivery_id, error)

    # ---- answers of the cluster -----------------------------------------------------------------

    def on_settled(self, delivery_id: int, ends: bool) -> None:
        """The cluster has confirmed an outcome."""
        if ends:
            self._end(delivery_id)
        self._answers.delivery_ids.append(delivery_id)
        self._has_answers.set()

    def on_refused(self, delivery_id: int, error: ClientError) -> None:
        """An outcome was refused. If the lease is lost, the delivery has ended."""
        held = self._held.get(delivery_id)
        if held is not None and held.batch.states[held.row] != HELD:
            self._end(delivery_id)
        self._add_failure(delivery_id, error)

    @property
    def _answer_count(self) -> int:
        return len(self._answers.delivery_ids) + len(self._answers.failures)

    def _add_failure(self, delivery_id: int, error: ClientError) -> None:
        self._answers.failures.add(delivery_id=delivery_id, error=item_error(error))
        self._has_answers.set()

    def _end(self, delivery_id: int) -> None:
        if self._held.pop(delivery_id, None) is not None:
            self._credits += 1
            self._on_credits()

    async def _tell_answers(self) -> None:
        while True:
            await self._has_answers.wait()
            await self._tell()

    async def _tell(self) -> None:
        self._has_answers.clear()
        if self._answers.ByteSize():
            told, self._answers = self._answers, pb.Settled()
            self._is_told.set()
            await self._call.write(pb.LeaseResponse(settled=told))

    # ---- messages -------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        session = self._session_of()
        while True:
            self._has_credits.clear()
            if self._credits <= 0:
                await self._has_credits.wait()
                continue
            count = min(self._credits, DELIVERIES_MAX)
            found = await session.take_waiting(count, _WAIT_S, _Held)
            self._credits -= len(found)
            # First the answers that returned these credits: a client that counts never sees more than it allowed.
            await self._tell()
            response = pb.LeaseResponse()
            size = 0
            for held in found:
                delivery_id, self._next_id = self._next_id, self._next_id + 1
                self._held[delivery_id] = held
                delivery = response.deliveries.deliveries.add(
                    delivery_id=delivery_id,
                    topic=held.batch.topic,
                    attempt=held.attempt,
                    lease_token=held.batch.token,
                )
                size += leased_record(delivery.record, held.batch, held.row)
                if size >= RESPONSE_BYTES:
                    await self._call.write(response)
                    response, size = pb.LeaseResponse(), 0
            if size:
                await self._call.write(response)
