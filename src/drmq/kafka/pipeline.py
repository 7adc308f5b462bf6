"""The path of every request to its handler: parse, authenticate, authorise, throttle, handle.

Every request goes through `Pipeline._admit_and_handle`, whether it comes from a client or another node has forwarded it
for a client. No handler is called from anywhere else. The three stages in between are those of the gate
(`broker/services/gate.py`). `permissions` has the permissions that a request needs, and `refusals` builds the answer to
a refused request.

APIs differ in how their requests are parsed and carried out (`Way`): Produce and Fetch have their own code, and all
others share that of messages. A message is carried out on this node, or forwarded to the controller or to the
coordinator of its group if only that node can carry it out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from drmq.broker.services.caller import ANONYMOUS, Caller, unknown_caller
from drmq.broker.services.gate import ADMITTED, Permission, refusal
from drmq.kafka import describe_quorum, fetch, offset_fetch, produce
from drmq.kafka.context import Context
from drmq.kafka.exchange import Exchange
from drmq.kafka.first_leaders import WAIT_S
from drmq.kafka.permissions import RULES
from drmq.kafka.refusals import merge, refuse, refuse_whole
from drmq.kafka.request_log import PATIENT, fields_of
from drmq.model import ApiError, ErrorCode
from drmq.model.counters import Histogram
from drmq.transport import Connection
from drmq.transport.connection import Buffer, Stopwatch
from drmq.wire import (
    APIS,
    ApiKey,
    ProtocolError,
    RequestHeader,
    read_request,
    read_request_header,
    read_response,
    write_request,
    write_response,
)
from drmq.wire.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from drmq.kafka.server import KafkaServer

log = logging.getLogger("drmq.kafka")

Handler = Callable[[Context, Any], Any]

LISTENER: Final = "KAFKA"
NAME_KEPT_MAX: Final = 255
"""Characters that are kept of a name that a client gives itself."""
_CONTROLLER_WAIT_S = 5.0
"""How long a request for the controller waits while there is none. Most elections take a second."""
_COORDINATOR_WAIT_S = 10.0
_OFTEN: Final = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.LEASE_FETCH)
_TIMED_ONE_IN = 16
"""One in so many of these requests is timed: to read the clock twice would cost each a hundredth. A power of two."""
_NOTHING: Final[frozenset[Permission]] = frozenset()
_FORWARDED: Final = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_FEATURES,
}
"""APIs that only the controller can carry out."""
_CREATING = {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS}


class Relayed(NamedTuple):
    """An answer that another node has encoded."""

    answer: memoryview


@dataclass(slots=True)
class Way:
    """How the requests of one API are parsed and carried out, and what is counted of those that clients sent."""

    api: str
    parse: Callable[[memoryview, RequestHeader], Any]
    needs: Callable[[Exchange], Iterable[Permission]]
    """The permissions that a request needs."""
    handle: Callable[[Exchange, frozenset[Permission]], Any]
    """Carries out a request, except for the refused parts. Returns None if a callback sends the answer."""
    refuse: Callable[[Exchange, ApiError], Any]
    """Answers a request that is refused as a whole."""
    is_patient: bool
    """Its requests may take as long as they like."""
    untimed_mask: int
    """A request is timed if its number has none of these bits."""
    requests: int = 0
    durations_us: Histogram = field(default_factory=Histogram)
    """From a request to its response."""


def _is_for_controller(api_key: int, request: Any) -> bool:
    """Whether a request is forwarded to the controller, whichever node receives it."""
    if api_key == ApiKey.DESCRIBE_QUORUM:
        return describe_quorum.is_about_metadata(request)
    return api_key in _FORWARDED


class Pipeline:
    """Takes the requests of one server from frames to handlers."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self._broker = server.broker
        self._services = server.broker.services
        self._callers: dict[Connection, Caller] = {}
        self._handlers: dict[int, Handler] = {}
        self.ways = {
            int(key): Way(
                api.key.name,
                _parse_message,
                self._message_needs,
                self._handle_message,
                _refuse_message,
                is_patient=key in PATIENT,
                untimed_mask=_TIMED_ONE_IN - 1 if key in _OFTEN else 0,
            )
            for key, api in APIS.items()
        }
        """By API."""
        for key, module in ((ApiKey.PRODUCE, produce), (ApiKey.FETCH, fetch)):
            way = self.ways[key]
            way.parse, way.needs, way.handle, way.refuse = module.parse, module.needs, module.handle, module.refuse_all

    # ---- the stages -----------------------------------------------------------------------------

    def take(self, connection: Connection, frame: memoryview) -> tuple[Exchange, Any]:
        """Carry out a client's request and return its answer, or an awaitable of it, or None if a callback sends it.

        Raises `ProtocolError` for a frame that is not a valid request.
        """
        header = read_request_header(frame)
        try:
            way = self.ways[header.api_key]
        except KeyError:
            raise ProtocolError(f"api key {header.api_key} is not supported") from None
        request = way.parse(frame, header)
        number = way.requests = way.requests + 1
        connection.stopwatch = None if number & way.untimed_mask else Stopwatch(way.durations_us, perf_counter_ns())
        connection.request = None if way.is_patient else header
        caller = self._callers.get(connection)
        if caller is None or caller.client_id != (header.client_id or ""):
            caller = self._set_caller(connection, header.client_id)
        exchange = Exchange(self._server, connection, header, frame, request, caller)
        return exchange, self._admit_and_handle(way, exchange, len(frame))

    async def serve_forwarded(self, caller: Caller | None, frame: memoryview) -> Sequence[Buffer]:
        """Carry out a request that a client sent to another node. Raises `ApiError`."""
        header = read_request_header(frame)
        request = read_request(frame, header) if header.api_key in APIS else None
        is_for_coordinator = header.api_key == ApiKey.OFFSET_FETCH
        if request is None or not (is_for_coordinator or _is_for_controller(header.api_key, request)):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"requests with api key {header.api_key} are not forwarded between nodes"
            )
        caller = caller or unknown_caller(header.client_id or "")
        exchange = Exchange(self._server, None, header, frame, request, caller)
        # The cost is 0, because the node that the client is connected to has counted it.
        response = await _result(self._admit_and_handle(self.ways[header.api_key], exchange, 0))
        if is_for_coordinator and offset_fetch.is_elsewhere(response):
            raise ApiError(ErrorCode.NOT_COORDINATOR, "another node coordinates this group")
        return (write_response(header.api_key, header.api_version, header.correlation_id, response),)

    def _admit_and_handle(self, way: Way, exchange: Exchange, cost_bytes: int) -> Any:
        """Authenticate, authorise, throttle and handle a request. Handlers are called from nowhere else."""
        try:
            admission = self._services.gate.admit(exchange.caller, way.api, cost_bytes, way.needs, exchange)
        except ApiError as refused:
            return way.refuse(exchange, refused)
        if admission is ADMITTED:
            return way.handle(exchange, _NOTHING)
        if admission.throttle_ms:
            exchange.throttle(admission.throttle_ms)
        return way.handle(exchange, admission.refused)

    def _set_caller(self, connection: Connection, client_id: str | None) -> Caller:
        """Create the caller of a connection that is new or has changed its client id."""
        # Kept as long as the connection, so not in any length. A longer id is compared with its start, and shortened
        # again, at each request.
        client_id = None if client_id is None else client_id[:NAME_KEPT_MAX]
        if client_id is not None:
            connection.client_id = client_id
        caller = Caller(ANONYMOUS, client_id or "", connection.peer.rpartition(":")[0], LISTENER)
        self._callers[connection] = caller
        return caller

    def on_close(self, connection: Connection) -> None:
        self._callers.pop(connection, None)

    # ---- messages -------------------------------------------------------------------------------

    def _message_needs(self, exchange: Exchange) -> Iterable[Permission]:
        return RULES[ApiKey(exchange.header.api_key)].needs(self._services.cluster, exchange.request)

    def _handle_message(self, exchange: Exchange, refused: frozenset[Permission]) -> Any:
        if not refused:
            return self._carry_out(exchange)
        header, view = exchange.header, self._services.cluster
        key, version = header.api_key, header.api_version
        rule = RULES[ApiKey(key)]
        lacking = rule.refused_whole(exchange.request, refused)
        if lacking is not None:
            return _refuse_message(exchange, refusal(exchange.caller, lacking))
        exchange.request, dropped = rule.split(view, exchange.request, refused)

        def code_of(entry: Any) -> ErrorCode:
            needed = rule.each(view, entry)
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED if needed is None else needed.refusal

        refusals = refuse(key, version, dropped, code_of)
        if exchange.request is None:
            return refusals
        # The request may be forwarded to a node of an older release, which has no gate, so the refused entries must
        # be removed from the frame as well.
        request = write_request(key, version, header.correlation_id, header.client_id, exchange.request)
        exchange.frame = memoryview(request)[4:]
        return self._merged(exchange, refusals)

    async def _merged(self, exchange: Exchange, refusals: Any) -> Any:
        response = await _result(self._carry_out(exchange))
        if isinstance(response, Relayed):
            header = exchange.header
            _, response = read_response(header.api_key, header.api_version, response.answer[4:])
        return merge(response, refusals)

    def _carry_out(self, exchange: Exchange) -> Any:
        """Carry out a request on this node, or have the node that is responsible for it do so."""
        api_key, is_forwarded = exchange.header.api_key, exchange.connection is None
        if not is_forwarded and _is_for_controller(api_key, exchange.request) and self._controller_is_elsewhere:
            return self._forward(exchange)
        if not is_forwarded and api_key == ApiKey.OFFSET_FETCH and not self._broker.is_alone:
            return self._fetch_offsets(exchange)
        return self._handle_here(exchange)

    def _handle_here(self, exchange: Exchange) -> Any:
        context = Context(
            self._broker,
            exchange.connection,
            _version(exchange.header),
            exchange.caller,
            exchange.api,
            exchange.park,
            exchange.room,
        )
        return self._handler(exchange.header.api_key)(context, exchange.request)

    def _handler(self, api_key: int) -> Handler:
        """The API's `handle`. Its module is imported when the API is first requested."""
        handler = self._handlers.get(api_key)
        if handler is None:
            module = import_module(f"drmq.kafka.{ApiKey(api_key).name.lower()}")
            handler = self._handlers[api_key] = module.handle
        return handler

    # ---- requests that another node must carry out ----------------------------------------------

    @property
    def _controller_is_elsewhere(self) -> bool:
        """Whether another node is the controller, or will be elected."""
        return not self._broker.is_controller and not self._broker.is_alone

    async def _forward(self, exchange: Exchange) -> object:
        """Have the controller answer, also if a new one has to be elected first.

        If no controller answers, the handler of this node does. It refuses the request in the form of its API.
        """
        router = self._services.router

        async def attempt() -> object:
            if self._broker.is_controller:
                return await _result(self._handle_here(exchange))
            answer = await router.forward(exchange.caller, exchange.frame)
            if exchange.header.api_key in _CREATING:
                # The controller knows the leaders. The client may ask this node for them.
                topics = self._services.cluster.catalog.topics
                made = [topics[each.name].topic_id for each in exchange.request.topics if each.name in topics]
                await self._broker.new_partitions.wait(made, WAIT_S)
            return Relayed(answer)

        try:
            return await router.retry(attempt, _CONTROLLER_WAIT_S)
        except ApiError as error:
            fields = fields_of(exchange.connection, exchange.header)
            log.info("%s could not be forwarded to the controller: %s", exchange.api, error.message, extra=fields)
            return await _result(self._handle_here(exchange))

    async def _fetch_offsets(self, exchange: Exchange) -> object:
        """Answer an OffsetFetch for the coordinator of its group, on whichever node that is.

        NOT_COORDINATOR would also be a correct answer. But librdkafka (its issue 5586) does not retry an OffsetFetch
        after that answer: its consumer would not continue until it is closed.
        """
        router = self._services.router
        group_ids = offset_fetch.group_ids(exchange.header.api_version, exchange.request)
        response: Any = None

        async def attempt() -> object:
            nonlocal response
            response = await _result(self._handle_here(exchange))
            if len(group_ids) != 1 or not offset_fetch.is_elsewhere(response):
                return response
            topic, index = self._services.groups.coordinator_of(group_ids[0])
            return Relayed(await router.ask_coordinator(exchange.caller, topic, index, exchange.frame))

        try:
            return await router.retry(attempt, _COORDINATOR_WAIT_S, may_repeat=True)
        except ApiError as error:
            log.debug("OFFSET_FETCH of group %s could not be forwarded: %s", group_ids[0], error.message)
            return response


def _parse_message(frame: memoryview, header: RequestHeader) -> Any:
    api = APIS[header.api_key]
    if api.serves(header.api_version):
        return read_request(frame, header)
    if header.api_key == ApiKey.API_VERSIONS:
        # The client is newer than this broker. The answer, in the oldest layout, has the versions that it may use.
        return ApiVersionsRequest()
    raise ProtocolError(
        f"{api.key.name} v{header.api_version} is not supported, only v{api.version_min} to v{api.version_max}"
    )


def _version(header: RequestHeader) -> int:
    """The version to pass to a handler; -1 (`NEWER_VERSION`) for a version of ApiVersions that is newer than ours."""
    return header.api_version if APIS[header.api_key].serves(header.api_version) else -1


def _refuse_message(exchange: Exchange, refused: ApiError) -> Any:
    header = exchange.header
    return refuse_whole(header.api_key, header.api_version, exchange.request, refused.code, refused.message)


async def _result(response: Any) -> Any:
    return await response if isinstance(response, Awaitable) or asyncio.isfuture(response) else response
