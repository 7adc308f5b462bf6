"""Reaching the shard that decides about a queue, on this node or another one.

A request is submitted with a callback, and can be withdrawn while it waits. A shard on another node is asked over the
peer network: what is submitted to it within one turn of the event loop is sent together, so that requests of many
members cost little more than one.

`ask` retries while the shard has no leader. A request whose answer was lost may have been carried out. It is repeated
only if that does no harm: settling is idempotent, because a shard remembers what each member settled.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from drmq.broker.cluster.membership import Buffer, OutcomeOpen, Request
from drmq.broker.services.router import RETRIED
from drmq.catalog import SHARE_VERSION
from drmq.leases import Acquire, LeaseRequest, LeaseResponse, QueueKey, Withdraw
from drmq.leases.transfer import (
    Problem,
    requests_from_bytes,
    requests_to_bytes,
    responses_from_bytes,
    responses_to_bytes,
)
from drmq.model import ApiError, DrmqError, ErrorCode, GroupId, NodeId
from drmq.model.names import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

ASK_TIMEOUT_S = 5.0
"""How long to look for a shard that has no leader. Most elections take a second."""
_ANSWER_TIMEOUT_S = 30.0
_ABOUT_LEADERS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR})
_REQUESTS_PER_FRAME_MAX = 1_000

Respond = Callable[["LeaseResponse | ApiError"], None]


class ShardLink(Protocol):
    """A shard, wherever it is. Implemented by `LeaseShardCoordinator`, and below."""

    def submit(self, request: LeaseRequest, respond: Respond) -> int:
        """Send a request; `respond` is called once. Returns a ticket for `withdraw`."""

    def withdraw(self, ticket: int) -> None:
        """The request need not wait any more. What is leased for it at the same moment still arrives."""


class LeaseShards:
    """Finds the shards of queues. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._remote: dict[tuple[NodeId, int], _RemoteShard] = {}
        """By node and shard."""
        self._numbers = itertools.count(int.from_bytes(broker.membership.boot_id[:6], "big"))
        """Of requests that wait in shards on other nodes. A node that restarts must not use the same ones soon."""
        self._is_enabled = False
        """Whether share groups are known to be enabled: they never stop being so."""

    def check_enabled(self) -> None:
        """Raise `ApiError` while the cluster has nodes that do not know share groups."""
        if self._is_enabled:
            return
        if self._broker.metadata.committed_catalog.level(SHARE_VERSION) < 1:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "share groups are not enabled in this cluster: run `drmq cluster upgrade --finalize`",
            )
        self._is_enabled = True

    @property
    def exist(self) -> bool:
        """Whether the internal topic exists."""
        return self._broker.leases.partition_count > 0

    async def create(self) -> None:
        """Create the internal topic. Raises `ApiError`."""
        await self._broker.services.topic_creation.create_internal(SHARE_GROUP_STATE)

    def of(self, key: QueueKey) -> ShardLink:
        """The shard of a queue. Raises `ApiError` if it has no leader."""
        leases = self._broker.leases
        if not leases.partition_count:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_GROUP_STATE} is being created; try again")
        return self.shard(leases.index_of(key))

    def shard(self, index: int) -> ShardLink:
        """The shard on this partition of the internal topic. Raises `ApiError` if it has no leader."""
        broker = self._broker
        shard = broker.leases.shards.get(index)
        if shard is not None and shard.leads:
            return shard
        topic = broker.metadata.committed_catalog.topics.get(SHARE_GROUP_STATE)
        notice = None if topic is None else broker.host.leaders.get(GroupId(topic.topic_id, index))
        if notice is None or notice.leader == broker.node_id or not broker.services.cluster.may_lead(notice):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_GROUP_STATE}-{index} has no leader; try again")
        found = self._remote.get((notice.leader, index))
        if found is None:
            found = self._remote[notice.leader, index] = _RemoteShard(broker, notice.leader, index, self._numbers)
        return found

    async def ask(self, key: QueueKey, request: LeaseRequest, timeout_s: float = ASK_TIMEOUT_S) -> LeaseResponse:
        """Send a request to the shard of a queue and wait for the answer. Raises `ApiError`."""

        async def find() -> ShardLink:
            if not self.exist:
                await self.create()
            return self.of(key)

        return await self._ask(find, request, timeout_s)

    async def ask_shard(self, index: int, request: LeaseRequest, timeout_s: float) -> LeaseResponse:
        """Send a request to one shard and wait for the answer. Raises `ApiError`."""

        async def find() -> ShardLink:
            return self.shard(index)

        return await self._ask(find, request, timeout_s)

    async def _ask(
        self, find: Callable[[], Awaitable[ShardLink]], request: LeaseRequest, timeout_s: float
    ) -> LeaseResponse:
        async def attempt() -> LeaseResponse:
            shard = await find()
            future: asyncio.Future[LeaseResponse] = asyncio.get_running_loop().create_future()
            ticket = shard.submit(request, lambda answer: resolve(future, answer))
            try:
                return await future
            except asyncio.CancelledError:
                shard.withdraw(ticket)
                raise

        may_repeat = not isinstance(request, Acquire)
        try:
            return await self._broker.services.router.retry(attempt, timeout_s, may_repeat=may_repeat)
        except ApiError as error:
            raise unavailable(error) from error

    async def serve(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        """Carry out requests of another node, which leads the data of the queues."""
        index = int.from_bytes(payload[:4], "big")
        try:
            requests = requests_from_bytes(bytes(payload[4:]))
        except ValueError as error:
            raise DrmqError(str(error)) from error
        shard = self._broker.leases.shards.get(index)
        if shard is None or not shard.leads:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"this node does not lead {SHARE_GROUP_STATE}-{index}")
        answers = _Answers(len(requests))
        tickets = [shard.submit(request, answers.taker(number)) for number, request in enumerate(requests)]
        try:
            return (responses_to_bytes(await answers.all),)
        except asyncio.CancelledError:
            for ticket in tickets:
                shard.withdraw(ticket)
            raise


class _Answers:
    """The answers to several requests, when the last one has arrived."""

    def __init__(self, count: int) -> None:
        self._found: list[LeaseResponse | Problem | None] = [None] * count
        self._missing = count
        self.all: asyncio.Future[Sequence[LeaseResponse | Problem]] = asyncio.get_running_loop().create_future()

    def taker(self, number: int) -> Respond:
        def take(answer: LeaseResponse | ApiError) -> None:
            self._found[number] = Problem(answer.code, answer.message) if isinstance(answer, ApiError) else answer
            self._missing -= 1
            if not self._missing and not self.all.done():
                self.all.set_result([each for each in self._found if each is not None])

        return take


class _RemoteShard:
    """A shard that another node leads."""

    def __init__(self, broker: Broker, leader: NodeId, index: int, numbers: Iterator[int]) -> None:
        self._broker = broker
        self._leader = leader
        self._index = index
        self._out: list[tuple[LeaseRequest, Respond]] = []
        """What was submitted in this turn of the event loop."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = numbers
        self._waiting: dict[int, Acquire] = {}
        """Requests that wait there, by their numbers."""

    def submit(self, request: LeaseRequest, respond: Respond) -> int:
        if isinstance(request, Acquire) and request.wait_ms:
            number = next(self._numbers)
            request = self._waiting[number] = request._replace(number=number)

            def answered(answer: LeaseResponse | ApiError) -> None:
                self._waiting.pop(number, None)
                respond(answer)

            # It may be answered much later than the others.
            self._send([(request, answered)])
            return number
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append((request, respond))
        return 0

    def withdraw(self, ticket: int) -> None:
        request = self._waiting.pop(ticket, None)
        if request is not None:
            self.submit(Withdraw(request.key, request.member, request.number), lambda _: None)

    def _flush(self) -> None:
        out, self._out = self._out, []
        for begin in range(0, len(out), _REQUESTS_PER_FRAME_MAX):
            self._send(out[begin : begin + _REQUESTS_PER_FRAME_MAX])

    def _send(self, out: list[tuple[LeaseRequest, Respond]]) -> None:
        task = asyncio.ensure_future(self._ask(out))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, out: list[tuple[LeaseRequest, Respond]]) -> None:
        requests = [request for request, _ in out]
        wait_s = max(request.wait_ms if isinstance(request, Acquire) else 0 for request in requests) / 1000
        answers: Sequence[LeaseResponse | ApiError]
        try:
            data = await self._broker.membership.ask(
                self._leader,
                Request.LEASE,
                (self._index.to_bytes(4, "big"), requests_to_bytes(requests)),
                wait_s + _ANSWER_TIMEOUT_S,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
            found = responses_from_bytes(data)
            if len(found) != len(out):
                raise ValueError(f"node {self._leader} has answered {len(found)} of {len(out)} requests about leases")
            answers = [ApiError(*each) if isinstance(each, Problem) else each for each in found]
        except ApiError as error:
            answers = [error] * len(out)
        except ValueError as error:
            answers = [ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))] * len(out)
        except asyncio.CancelledError:
            answers = [ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node stops")] * len(out)
        for (_, respond), answer in zip(out, answers, strict=True):
            respond(answer)


def is_temporary(error: ApiError) -> bool:
    """Whether a request that does no harm if it is repeated should be."""
    return isinstance(error, OutcomeOpen) or error.code in RETRIED


def unavailable(error: ApiError) -> ApiError:
    """The error for a client: codes that say who leads would be taken as about the data, and not about the shard."""
    if error.code not in _ABOUT_LEADERS:
        return error
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the leases of this partition are not available: {error}")


def resolve(future: asyncio.Future[LeaseResponse], answer: LeaseResponse | ApiError) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
