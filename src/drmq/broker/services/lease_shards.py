"""Reaching the shard that decides about a queue, on this node or another one.

A request is submitted with a callback, and can be withdrawn while it waits. A shard on another node is asked over the
peer network. There a request cannot be withdrawn: the caller gives back what it leased.

`ask` retries while the shard has no leader. A request whose answer was lost may have been carried out. It is repeated
only if that does no harm: settling is idempotent, because a shard remembers what each member settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from drmq.broker.cluster.membership import Buffer, Request
from drmq.broker.coordination.lease_groups import LeaseShardCoordinator
from drmq.catalog import SHARE_VERSION
from drmq.leases import Acquire, LeaseRequest, LeaseResponse, QueueKey
from drmq.leases.transfer import request_from_bytes, response_from_bytes, to_bytes
from drmq.model import ApiError, DrmqError, ErrorCode, GroupId, NodeId
from drmq.model.names import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

ASK_TIMEOUT_S = 5.0
"""How long to look for a shard that has no leader. Most elections take a second."""
_ANSWER_TIMEOUT_S = 30.0
_ABOUT_LEADERS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR})

Respond = Callable[["LeaseResponse | ApiError"], None]


class ShardLink(Protocol):
    """A shard, wherever it is."""

    def submit(self, request: LeaseRequest, respond: Respond) -> Callable[[], None]:
        """Send a request; `respond` is called once. What is returned withdraws the request."""


class LeaseShards:
    """Finds the shards of queues. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def check_enabled(self) -> None:
        """Raise `ApiError` while the cluster has nodes that do not know share groups."""
        if self._broker.metadata.committed_catalog.level(SHARE_VERSION) < 1:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "share groups are not enabled in this cluster: run `drmq cluster upgrade --finalize`",
            )

    async def find(self, key: QueueKey) -> ShardLink:
        """The shard of a queue. Raises `ApiError` if it has no leader."""
        broker, leases = self._broker, self._broker.leases
        if not leases.partition_count:
            await broker.services.topic_creation.create_internal(SHARE_GROUP_STATE)
        if not leases.partition_count:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_GROUP_STATE} is being created; try again")
        return self.shard(leases.index_of(key))

    def shard(self, index: int) -> ShardLink:
        """The shard on this partition of the internal topic. Raises `ApiError` if it has no leader."""
        broker, leases = self._broker, self._broker.leases
        topic = broker.metadata.committed_catalog.topics.get(SHARE_GROUP_STATE)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_GROUP_STATE} is being created; try again")
        shard = leases.shards.get(index)
        if shard is not None and shard.leads:
            return _LocalShard(shard)
        notice = broker.host.leaders.get(GroupId(topic.topic_id, index))
        if notice is None or notice.leader == broker.node_id or not broker.services.cluster.may_lead(notice):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_GROUP_STATE}-{index} has no leader; try again")
        return _RemoteShard(broker, notice.leader, index)

    async def ask(self, key: QueueKey, request: LeaseRequest, timeout_s: float = ASK_TIMEOUT_S) -> LeaseResponse:
        """Send a request to the shard of a queue and wait for the answer. Raises `ApiError`."""
        return await self._ask(lambda: self.find(key), request, timeout_s)

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
            withdraw = shard.submit(request, lambda answer: resolve(future, answer))
            try:
                return await future
            except asyncio.CancelledError:
                withdraw()
                raise

        may_repeat = not isinstance(request, Acquire)
        try:
            return await self._broker.services.router.retry(attempt, timeout_s, may_repeat=may_repeat)
        except ApiError as error:
            raise unavailable(error) from error

    async def serve(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        """Carry out a request of another node, which leads the data of the queue."""
        index = int.from_bytes(payload[:4], "big")
        try:
            request = request_from_bytes(bytes(payload[4:]))
        except ValueError as error:
            raise DrmqError(str(error)) from error
        shard = self._broker.leases.shards.get(index)
        if shard is None or not shard.leads:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"this node does not lead {SHARE_GROUP_STATE}-{index}")
        future: asyncio.Future[LeaseResponse] = asyncio.get_running_loop().create_future()
        withdraw = _LocalShard(shard).submit(request, lambda answer: resolve(future, answer))
        try:
            return (to_bytes(await future),)
        except asyncio.CancelledError:
            withdraw()
            raise


class _LocalShard:
    """A shard that this node leads."""

    def __init__(self, coordinator: LeaseShardCoordinator) -> None:
        self._coordinator = coordinator

    def submit(self, request: LeaseRequest, respond: Respond) -> Callable[[], None]:
        ticket = self._coordinator.submit(request, respond)
        return lambda: self._coordinator.withdraw(ticket)


class _RemoteShard:
    """A shard that another node leads."""

    def __init__(self, broker: Broker, leader: NodeId, index: int) -> None:
        self._broker = broker
        self._leader = leader
        self._index = index

    def submit(self, request: LeaseRequest, respond: Respond) -> Callable[[], None]:
        task = asyncio.ensure_future(self._ask(request))

        def done(finished: asyncio.Task[LeaseResponse]) -> None:
            if finished.cancelled():
                respond(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node stops"))
                return
            error = finished.exception()
            if error is None:
                respond(finished.result())
            elif isinstance(error, ApiError):
                respond(error)
            else:
                respond(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))

        task.add_done_callback(done)
        return lambda: None

    async def _ask(self, request: LeaseRequest) -> LeaseResponse:
        wait_s = request.wait_ms / 1000 if isinstance(request, Acquire) else 0.0
        answer = await self._broker.membership.ask(
            self._leader,
            Request.LEASE,
            (self._index.to_bytes(4, "big"), to_bytes(request)),
            wait_s + _ANSWER_TIMEOUT_S,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
        return response_from_bytes(answer)


def unavailable(error: ApiError) -> ApiError:
    """The error for a client: codes that say who leads would be taken as about the data, and not about the shard."""
    if error.code not in _ABOUT_LEADERS:
        return error
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the leases of this partition are not available: {error}")


def resolve(future: asyncio.Future[LeaseResponse], answer: LeaseResponse | ApiError) -> None:
    """Pass an answer to whatever waits for it."""
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
