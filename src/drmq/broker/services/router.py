"""The router: reaches the leader of any partition, the coordinator of any group, and the controller, from any node.

It finds the node from the announcements of leaders, and acts on this node or sends a request to the other node over the
peer network. Leaders may change in between, so there is one retry policy (`Router.retry`):

- a request that was refused because the node does not lead, and has changed nothing, is retried after a short pause,
  until the deadline;
- a request that was sent and not answered (`OutcomeOpen`) may have been carried out. It is retried only if carrying it
  out twice has the same effect as once: reads, and appends of idempotent producers;
- any other refusal is final.

A request for a client carries its `Caller`, and passes the gate of the node that carries it out. Nodes of the first
peer protocol version understand neither callers nor routed appends and reads; `carries_caller` tells which form to send
to a node. Both forms are accepted from other nodes.

Produce and Fetch, which only the leader answers, do not use the router: see `appends` and `reads`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct, error
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from drmq.broker.cluster.membership import Buffer, OutcomeOpen, Request
from drmq.broker.partitions.partition import Appended
from drmq.broker.services.appends import ACKS_ALL, Appends
from drmq.broker.services.caller import Caller, unknown_caller, unwrap, wrap
from drmq.broker.services.cluster_view import check_partition
from drmq.broker.services.gate import Gate, Operation, on_topic, refusal, single
from drmq.broker.services.reads import ReadResult, Reads, WantedPartition
from drmq.catalog import Topic
from drmq.model import ApiError, DrmqError, ErrorCode, GroupId, NodeId, Offset, TopicId
from drmq.records import HEADER_SIZE, read_header
from drmq.transport.peers import NO_LEADER, PeerOptions

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

log = logging.getLogger("drmq.broker")

T = TypeVar("T")

CALLERS_FROM: Final = 2
"""The first version of the peer protocol in which requests for clients carry their caller."""
REQUEST_TIMEOUT_S: Final = 30.0
"""How long to wait for another node if the caller gives no timeout."""
RETRY_PAUSE_S: Final = 0.05
"""The pause between two attempts. Most elections take a second."""
RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes of temporary refusals. A request that was refused with one of these has not been carried out."""

_READ_BYTES_MAX: Final = PeerOptions().request_frame_bytes_max // 2
"""How much is read from another node at a time: what a frame between nodes takes, with room for a large batch."""

_LEFT_S_MIN: Final = 0.001
"""For an attempt that begins just before the deadline."""

_APPEND = Struct(">16sii")
_APPENDED = Struct(">hq")
_READ = Struct(">16siqi")
_RESULT = Struct(">qq")
_PLACE = Struct(">16si")

ClientHandler = Callable[[Caller | None, memoryview], Awaitable[Sequence[Buffer]]]
"""Carries out a request that another node sends for a client; the caller is None from a node of the first version."""


class _Place(NamedTuple):
    """A partition of a topic in the catalog."""

    topic: Topic
    group: GroupId

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.group.partition}"


class Router:
    """Reaches leaders, coordinators and the controller. Used on the event loop."""

    def __init__(self, broker: Broker, gate: Callable[[], Gate], appends: Appends, reads: Reads) -> None:
        self._broker = broker
        self._gate = gate
        self._appends = appends
        self._reads = reads
        self.serve_forwarded: ClientHandler
        """Carries out a client's original request that another node has forwarded. Set by the Kafka door."""

    # ---- the retry policy -----------------------------------------------------------------------

    async def retry(self, attempt: Callable[[], Awaitable[T]], timeout_s: float, *, may_repeat: bool = False) -> T:
        """Call `attempt` until it succeeds or fails for good; no call starts after `timeout_s`. Raises `ApiError`.

        `may_repeat` means that carrying it out twice does no harm.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                return await attempt()
            except ApiError as refused:
                is_open = isinstance(refused, OutcomeOpen)
                if not (may_repeat if is_open else refused.code in RETRIED):
                    raise
                await asyncio.sleep(min(RETRY_PAUSE_S, max(0.0, deadline - loop.time())))
                if loop.time() >= deadline:
                    # The reason of the last attempt says more than that the time is up.
                    raise

    # ---- partitions -----------------------------------------------------------------------------

    async def append(
        self, caller: Caller, topic: str, index: int, batch: Buffer, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Offset:
        """Append a batch to a partition, on whichever node its leader is; returns its base offset once it is committed.

        Raises `ApiError`. It is an `OutcomeOpen` if the batch may be in the log, now or later.
        """
        place = self._place(topic, index)
        deadline = asyncio.get_running_loop().time() + timeout_s
        data = bytes(batch)
        is_idempotent = len(data) >= HEADER_SIZE and read_header(data).producer_id >= 0

        async def attempt() -> Offset:
            left_s = _left_s(deadline)
            leader = self._leader_of(place)
            if leader == self._broker.node_id:
                return await self._append(caller, place, bytearray(data), left_s)
            head = _APPEND.pack(*place.group, round(left_s * 1000))
            answer = await self._ask(leader, Request.APPEND, caller, head + data, left_s)
            code, offset = _APPENDED.unpack(answer)
            if code != ErrorCode.NONE:
                raise _open_append(place, ErrorCode(code))
            return Offset(offset)

        return await self.retry(attempt, timeout_s, may_repeat=is_idempotent)

    async def read(
        self,
        caller: Caller,
        topic: str,
        index: int,
        offset: Offset,
        max_bytes: int,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> ReadResult:
        """Read whole batches, starting with the one that contains `offset`, from the leader. Raises `ApiError`."""
        place = self._place(topic, index)
        deadline = asyncio.get_running_loop().time() + timeout_s

        async def attempt() -> ReadResult:
            left_s = _left_s(deadline)
            leader = self._leader_of(place)
            if leader == self._broker.node_id:
                return await self._read(caller, place, offset, max_bytes)
            body = _READ.pack(*place.group, offset, min(max_bytes, _READ_BYTES_MAX))
            answer = memoryview(await self._ask(leader, Request.READ, caller, body, left_s))
            high_watermark, start_offset = _RESULT.unpack_from(answer)
            return ReadResult(ErrorCode.NONE, high_watermark, start_offset, answer[_RESULT.size :])

        return await self.retry(attempt, timeout_s, may_repeat=True)

    async def bounds(
        self, caller: Caller, topic: str, index: int, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> tuple[Offset, Offset]:
        """The log start offset and the high watermark of a partition, from the leader. Raises `ApiError`."""
        place = self._place(topic, index)
        deadline = asyncio.get_running_loop().time() + timeout_s

        async def attempt() -> tuple[Offset, Offset]:
            leader = self._leader_of(place)
            if leader == self._broker.node_id:
                return self._bounds(caller, place)
            answer = await self._ask(leader, Request.BOUNDS, caller, _PLACE.pack(*place.group), _left_s(deadline))
            start_offset, high_watermark = _RESULT.unpack(answer)
            return Offset(start_offset), Offset(high_watermark)

        return await self.retry(attempt, timeout_s, may_repeat=True)

    def _place(self, topic: str, index: int) -> _Place:
        known = self._broker.metadata.committed_catalog.topic(topic)
        check_partition(known, index)
        return _Place(known, GroupId(known.topic_id, index))

    def _leader_of(self, place: _Place) -> NodeId:
        notice = self._broker.host.leaders.get(place.group)
        if notice is None or not self._broker.services.cluster.may_lead(notice):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place} has no leader at the moment; try again")
        return notice.leader

    async def _ask(self, node_id: NodeId, kind: Request, caller: Caller, body: bytes, timeout_s: float) -> bytes:
        if not self.carries_caller(node_id):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"node {node_id} runs an older version, which accepts no {kind.name} from other nodes; upgrade it",
            )
        try:
            return await self._broker.membership.ask(
                node_id, kind, wrap(caller, body), timeout_s, ErrorCode.LEADER_NOT_AVAILABLE
            )
        except OutcomeOpen as unanswered:
            raise OutcomeOpen(ErrorCode.REQUEST_TIMED_OUT, unanswered.message) from unanswered

    # ---- at the leader --------------------------------------------------------------------------

    async def _append(self, caller: Caller, place: _Place, batch: bytearray, timeout_s: float) -> Offset:
        """Append on this node. Raises `ApiError`, which is an `OutcomeOpen` once the batch is in the log."""
        self._admit(caller, Request.APPEND, Operation.WRITE, place, len(batch))
        topic_id, index = place.group
        appends, view = self._appends, memoryview(batch)
        partition = appends.find(topic_id, index)
        safe: asyncio.Future[tuple[ErrorCode, Offset]] = asyncio.get_running_loop().create_future()

        def placed(outcome: Appended | ApiError) -> None:
            if isinstance(outcome, ApiError):
                if not safe.done():
                    safe.set_exception(outcome)
                return
            offset = outcome.base_offset
            appends.when_safe(
                partition, outcome, ACKS_ALL, lambda code: None if safe.done() else safe.set_result((code, offset))
            )

        if appends.must_recompress(partition, view):
            appends.recompress(partition, view, ACKS_ALL, caller.address, placed, is_own=caller.is_node)
        else:
            placed(appends.append(partition, view, ACKS_ALL, is_own=caller.is_node))
        try:
            code, offset = await asyncio.wait_for(safe, timeout_s)
        except TimeoutError:
            raise _open_append(place, ErrorCode.REQUEST_TIMED_OUT) from None
        if code is not ErrorCode.NONE:
            raise _open_append(place, code)
        return offset

    async def _read(self, caller: Caller, place: _Place, offset: Offset, max_bytes: int) -> ReadResult:
        self._admit(caller, Request.READ, Operation.READ, place, 0)
        wanted = WantedPartition(place.group.topic_id, place.group.partition, offset, max_bytes)
        [result] = await self._reads.read([wanted], max_bytes=max_bytes)
        if result.error is not ErrorCode.NONE:
            raise ApiError(result.error, f"{place} was not read from offset {offset}: {result.error.name}")
        return result

    def _bounds(self, caller: Caller, place: _Place) -> tuple[Offset, Offset]:
        self._admit(caller, Request.BOUNDS, Operation.DESCRIBE, place, 0)
        partition = self._broker.partitions.by_id(*place.group)
        partition.check_serving()
        return partition.start_offset, partition.high_watermark

    def _admit(self, caller: Caller, kind: Request, operation: Operation, place: _Place, cost_bytes: int) -> None:
        needed = on_topic(operation, place.topic.name)
        admission = self._gate().admit(caller, kind.name, cost_bytes, single, needed)
        if needed in admission.refused:
            raise refusal(caller, needed)

    async def serve_append(self, caller: Caller | None, payload: memoryview) -> Sequence[Buffer]:
        """Append a batch for a client of another node."""
        topic_id, index, timeout_ms = _unpack(_APPEND, payload)
        batch = bytearray(payload[_APPEND.size :])
        try:
            place = self._place_by_id(TopicId(topic_id), index)
            offset = await self._append(caller or unknown_caller(), place, batch, timeout_ms / 1000)
        except OutcomeOpen as failed:
            # The code is part of the answer, because a refusal would mean that nothing has changed.
            return (_APPENDED.pack(failed.code, -1),)
        return (_APPENDED.pack(ErrorCode.NONE, offset),)

    async def serve_read(self, caller: Caller | None, payload: memoryview) -> Sequence[Buffer]:
        """Read for a client of another node."""
        topic_id, index, offset, max_bytes = _unpack(_READ, payload)
        place = self._place_by_id(TopicId(topic_id), index)
        result = await self._read(caller or unknown_caller(), place, Offset(offset), max_bytes)
        return (_RESULT.pack(result.high_watermark, result.start_offset), result.data)

    async def serve_bounds(self, caller: Caller | None, payload: memoryview) -> Sequence[Buffer]:
        """The bounds of a log, for a client of another node."""
        topic_id, index = _unpack(_PLACE, payload)
        place = self._place_by_id(TopicId(topic_id), index)
        return (_RESULT.pack(*self._bounds(caller or unknown_caller(), place)),)

    def _place_by_id(self, topic_id: TopicId, index: int) -> _Place:
        known = self._broker.metadata.committed_catalog.topic_by_id(topic_id)
        check_partition(known, index)
        return _Place(known, GroupId(topic_id, index))

    # ---- coordinators ---------------------------------------------------------------------------

    async def ask_coordinator(self, caller: Caller, topic: str, index: int, frame: Buffer) -> memoryview:
        """Send a client's request to the coordinator on a partition of an internal topic, on another node.

        Returns its answer. Raises `ApiError`.
        """
        broker = self._broker
        known = broker.metadata.committed_catalog.topics.get(topic)
        notice = None if known is None else broker.host.leaders.get(GroupId(known.topic_id, index))
        if notice is None or notice.leader in (broker.node_id, NO_LEADER):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no other node is the coordinator on {topic}-{index}")
        answer = await broker.membership.ask(
            notice.leader,
            Request.COORDINATE,
            self._for_client(notice.leader, caller, frame),
            REQUEST_TIMEOUT_S,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
        return memoryview(answer)

    async def _serve_coordinate(self, caller: Caller | None, frame: memoryview) -> Sequence[Buffer]:
        return await self.serve_forwarded(caller, frame)

    # ---- the controller -------------------------------------------------------------------------

    async def forward(self, caller: Caller, frame: Buffer) -> memoryview:
        """Have the controller carry out a client's request, and return its answer.

        Waits until this node has applied the metadata log up to the controller's, so that it knows the result.
        """
        answer = await self.ask_controller(Request.FORWARD, caller, frame)
        await self.caught_up(Offset(int.from_bytes(answer[:8], "big")))
        return memoryview(answer)[8:]

    async def ask_controller(self, kind: Request, caller: Caller, request: Buffer) -> bytes:
        """Send a request for a client to the controller, on another node. Raises `ApiError`."""
        controller = self._broker.metadata.controller
        payload = (request,) if controller is None else self._for_client(controller, caller, request)
        return await self._broker.membership.ask_controller(kind, payload, REQUEST_TIMEOUT_S)

    async def _serve_forward(self, caller: Caller | None, frame: memoryview) -> Sequence[Buffer]:
        metadata = self._broker.metadata
        metadata.check_controller()
        answer = await self.serve_forwarded(caller, frame)
        return (metadata.next_offset.to_bytes(8, "big"), *answer)

    async def caught_up(self, offset: Offset) -> None:
        """Wait until this node has applied the metadata log up to `offset`, for two seconds at most."""
        for _ in range(500):
            if self._broker.metadata.applied_offset >= offset:
                return
            await asyncio.sleep(0.004)

    # ---- requests for clients, between nodes ----------------------------------------------------

    def carries_caller(self, node_id: NodeId) -> bool:
        """Whether a node understands requests that carry their caller."""
        return self._broker.network.protocol_version(node_id) >= CALLERS_FROM

    def _for_client(self, node_id: NodeId, caller: Caller, request: Buffer) -> tuple[Buffer, ...]:
        return wrap(caller, request) if self.carries_caller(node_id) else (request,)

    def client_requests(self) -> dict[Request, ClientHandler]:
        """The handlers of requests that other nodes send for their clients. Each request passes this node's gate."""
        return {
            Request.FORWARD: self._serve_forward,
            Request.COORDINATE: self._serve_coordinate,
            Request.APPEND: self.serve_append,
            Request.READ: self.serve_read,
            Request.BOUNDS: self.serve_bounds,
        }


def serving(handler: ClientHandler) -> Callable[[NodeId, memoryview], Awaitable[Sequence[Buffer]]]:
    """Wrap the handler of a request that another node sends for a client: decode the caller first."""

    def serve(peer: NodeId, payload: memoryview) -> Awaitable[Sequence[Buffer]]:
        return handler(*unwrap(payload))

    return serve


def _left_s(deadline: float) -> float:
    return max(_LEFT_S_MIN, deadline - asyncio.get_running_loop().time())


def _open_append(place: _Place, code: ErrorCode) -> OutcomeOpen:
    return OutcomeOpen(code, f"a batch was appended to {place}, but it is not known to be committed: {code.name}")


def _unpack(layout: Struct, payload: memoryview) -> tuple[Any, ...]:
    try:
        return layout.unpack_from(payload)
    except error as problem:
        raise DrmqError(f"a request of {len(payload)} bytes from another node is malformed: {problem}") from problem
