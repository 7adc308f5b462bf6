"""The Kafka door: frames from connections to handlers, answers back.

One module per API holds its `handle`. Three ways of being carried out, by what the API needs:

- *Produce and Fetch* parse their own frames and answer by callback (`produce`, `fetch`);
- a plain function answers at once, or returns a future: its effect happens in the order of arrival,
  only the answer comes later;
- a coroutine holds up the connection's later requests until it is done.

Whatever a client sends, it gets the protocol's error or a closed connection, and the broker goes on.
An exception that no handler expected is a bug: it is logged with its traceback and costs the
connection that caused it, no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from drmq.broker import Broker, GroupShardCoordinator, Partition
from drmq.broker.cluster.membership import OutcomeOpen
from drmq.kafka import describe_quorum, fetch, offset_fetch, produce
from drmq.kafka.context import Context
from drmq.kafka.fetch_sessions import FetchSessions
from drmq.kafka.views import is_cut_off
from drmq.model import ApiError, ErrorCode
from drmq.storage import StorageError
from drmq.transport import Answer, Connection, Listener, ListenerOptions, Pause
from drmq.transport.connection import Buffer
from drmq.wire import APIS, ApiKey, ProtocolError, RequestHeader, read_request, read_request_header, write_response
from drmq.wire.messages.api_versions import ApiVersionsRequest

log = logging.getLogger("drmq.kafka")

Handler = Callable[[Context, Any], Any]

_ROOM_POLL_S = 0.002
_CONTROLLER_POLL_S = 0.05
_CONTROLLER_WAIT_S = 5.0
_COORDINATOR_WAIT_S = 10.0
"""How long a request for the controller waits for one to be elected. Most elections take a second."""
_PARKED_PARTITIONS_MAX = 500_000
"""Partitions that all parked fetches together may name; past it a fetch is answered with what there is."""


_FORWARDED = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
}
"""APIs that only the controller can carry out."""
_ABOUT_LEADERS = {ApiKey.METADATA, ApiKey.FIND_COORDINATOR}
_CUT_OFF = "this node is cut off from most others, which know better who leads"
_CUT_OFF_CLOSE_S = 0.05
"""Time for the answer to leave."""


def _is_for_controller(api_key: int, request: Any) -> bool:
    """Whether a request is passed on to the controller, wherever it arrives."""
    if api_key == ApiKey.DESCRIBE_QUORUM:
        return describe_quorum.is_about_metadata(request)
    return api_key in _FORWARDED


class Relayed(NamedTuple):
    """An answer that another node has written."""

    answer: memoryview


class KafkaServer:
    """Serves one broker to Kafka clients on one listener. Implements `transport.FrameHandler`."""

    def __init__(self, broker: Broker, options: ListenerOptions | None = None) -> None:
        self.broker = broker
        self.listener = Listener(self, options or ListenerOptions())
        self.fetch_sessions = FetchSessions(broker.options.fetch_sessions_max)
        broker.serve_forwarded = self.serve_forwarded
        self._handlers: dict[int, Handler] = {}
        self._parked: dict[Connection, dict[tuple[GroupShardCoordinator, int], None]] = {}
        self._fetches: dict[Connection, dict[fetch.ParkedFetch, None]] = {}
        self._parked_partitions = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waiting_for_room: list[Connection] = []

    async def open(self, host: str, port: int, *, accepts: bool = True) -> tuple[str, int]:
        """Take an address and begin to listen; the address that was bound."""
        return await self.listener.open(host, port, accepts=accepts)

    async def close(self) -> None:
        """Take no more requests, answer those in flight, close all connections."""
        await self.listener.stop_accepting()
        for parked in [one for fetches in self._fetches.values() for one in fetches]:
            parked.finish()
        for connection in [connection for connection, waiting in self._parked.items() if waiting]:
            # It waits for other members of its group, whom nobody hears any more.
            connection.close()
        await self.listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- frames ---------------------------------------------------------------------------------

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        try:
            header = read_request_header(frame)
            api_key = header.api_key
            if api_key == ApiKey.PRODUCE:
                produce.handle(self, connection, header, frame)
                if self._is_flooded(1):
                    self._wait_for_room(connection)
            elif api_key == ApiKey.FETCH and APIS[ApiKey.FETCH].serves(header.api_version):
                fetch.handle(self, connection, header, frame)
            else:
                self._dispatch(connection, header, frame)
        except ProtocolError as error:
            connection.close(str(error))
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, error)

    def _dispatch(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        api = APIS.get(header.api_key)
        if api is None:
            raise ProtocolError(f"api key {header.api_key} is not served")
        version = header.api_version
        request: Any
        if api.serves(version):
            request = read_request(frame, header)
        elif header.api_key == ApiKey.API_VERSIONS:
            # A client from the future: it is told, in the oldest layout, what it may ask.
            request, version = ApiVersionsRequest(), -1
        else:
            raise ProtocolError(
                f"{api.key.name} v{version} is not served, v{api.version_min} to v{api.version_max} are"
            )
        if header.client_id is not None:
            connection.client_id = header.client_id
        parked: list[tuple[GroupShardCoordinator, int]] = []
        context = Context(
            self.broker,
            connection,
            version,
            header.client_id or "",
            lambda shard, ticket: parked.append((shard, ticket)),
        )
        answer = connection.open_answer()
        if self._passes_on and _is_for_controller(header.api_key, request):
            response: Any = self._forward(context, header, frame, request)
        elif header.api_key == ApiKey.OFFSET_FETCH and not self.broker.is_alone:
            response = self._fetch_offsets(context, header, frame, request)
        else:
            response = self._handler(header.api_key)(context, request)
        if asyncio.isfuture(response):
            self._parked.setdefault(connection, {}).update(dict.fromkeys(parked))
            response.add_done_callback(lambda done: self._on_done(connection, header, answer, done, parked))
        elif asyncio.iscoroutine(response):
            connection.pause(Pause.HANDLER)
            task = asyncio.ensure_future(self._carry_out(connection, header, answer, response))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        else:
            self._send(header, answer, response)
        if header.api_key in _ABOUT_LEADERS and is_cut_off(self.broker):
            # It is answered, for whoever wants to know how things look from here. But a client that goes on asking the
            # node that it has used last, as librdkafka does, would not hear of the new leader while the cut lasts.
            asyncio.get_running_loop().call_later(_CUT_OFF_CLOSE_S, connection.close, _CUT_OFF)

    # ---- requests for the controller ------------------------------------------------------------

    @property
    def _passes_on(self) -> bool:
        """Whether another node is the controller, or will be."""
        return not self.broker.is_controller and not self.broker.is_alone

    async def _forward(self, context: Context, header: RequestHeader, frame: memoryview, request: Any) -> object:
        """Have the controller answer, which may be a new one soon. If none does, say so in the words of this API."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CONTROLLER_WAIT_S
        while not self.broker.is_controller:
            try:
                return Relayed(await self.broker.forward(frame))
            except ApiError as error:
                is_final = error.code is not ErrorCode.NOT_CONTROLLER or isinstance(error, OutcomeOpen)
                if is_final or loop.time() > deadline:
                    log.info("%s was not passed on to the controller: %s", ApiKey(header.api_key).name, error.message)
                    break
            await asyncio.sleep(_CONTROLLER_POLL_S)
        return await self._answered(context, header, request)

    async def serve_forwarded(self, frame: memoryview) -> Sequence[Buffer]:
        """Carry out a request that a client has sent to another node."""
        header = read_request_header(frame)
        request = read_request(frame, header) if header.api_key in APIS else None
        is_for_coordinator = header.api_key == ApiKey.OFFSET_FETCH
        if request is None or not (is_for_coordinator or _is_for_controller(header.api_key, request)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"api key {header.api_key} is not passed on")
        context = Context(self.broker, None, header.api_version, header.client_id or "")
        response = await self._answered(context, header, request)
        if is_for_coordinator and offset_fetch.is_elsewhere(response):
            raise ApiError(ErrorCode.NOT_COORDINATOR, "another node coordinates this group")
        return (write_response(header.api_key, header.api_version, header.correlation_id, response),)

    async def _answered(self, context: Context, header: RequestHeader, request: Any) -> Any:
        response = self._handler(header.api_key)(context, request)
        return await response if asyncio.iscoroutine(response) or asyncio.isfuture(response) else response

    # ---- requests for a coordinator -------------------------------------------------------------

    async def _fetch_offsets(self, context: Context, header: RequestHeader, frame: memoryview, request: Any) -> object:
        """Answer for the coordinator of a group, wherever that is.

        NOT_COORDINATOR would be right too. But librdkafka (its issue 5586) does not ask again after that answer to an
        OffsetFetch: its consumer would stand still until it is closed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _COORDINATOR_WAIT_S
        group_ids = offset_fetch.group_ids(context.version, request)
        while True:
            response = await self._answered(context, header, request)
            if len(group_ids) != 1 or not offset_fetch.is_elsewhere(response) or loop.time() > deadline:
                return response
            try:
                return Relayed(await self.broker.ask_coordinator(group_ids[0], frame))
            except ApiError as error:
                log.debug("OFFSET_FETCH of group %s was not passed on: %s", group_ids[0], error.message)
            await asyncio.sleep(_CONTROLLER_POLL_S)

    def _handler(self, api_key: int) -> Handler:
        """The API's `handle`; its module is imported when the API is first asked for."""
        handler = self._handlers.get(api_key)
        if handler is None:
            module = import_module(f"drmq.kafka.{ApiKey(api_key).name.lower()}")
            handler = self._handlers[api_key] = module.handle
        return handler

    async def _carry_out(
        self, connection: Connection, header: RequestHeader, answer: Answer, response: Awaitable[object]
    ) -> None:
        try:
            self._send(header, answer, await response)
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, error)
        finally:
            connection.resume(Pause.HANDLER)

    def _on_done(
        self,
        connection: Connection,
        header: RequestHeader,
        answer: Answer,
        done: asyncio.Future[object],
        parked: list[tuple[GroupShardCoordinator, int]],
    ) -> None:
        waiting = self._parked.get(connection, {})
        for ticket in parked:
            waiting.pop(ticket, None)
        if done.cancelled() or connection.closed:
            return
        try:
            self._send(header, answer, done.result())
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, error)

    def _send(self, header: RequestHeader, answer: Answer, response: object) -> None:
        if isinstance(response, Relayed):
            answer.send((response.answer,))
            return
        version = header.api_version
        if header.api_key == ApiKey.API_VERSIONS and not APIS[ApiKey.API_VERSIONS].serves(version):
            version = 0
        answer.send((write_response(header.api_key, version, header.correlation_id, response),))

    def on_bug(self, connection: Connection, error: BaseException) -> None:
        """A request failed in a way that nobody foresaw: say all about it, and end its connection."""
        log.error("a request of %s (client %r) failed on a bug", connection.peer, connection.client_id, exc_info=error)
        connection.close("its request failed on a bug")

    # ---- what waits -----------------------------------------------------------------------------

    def may_park(self, partition_count: int) -> bool:
        """Whether there is room for one more fetch that waits, of so many partitions."""
        return self._parked_partitions + partition_count <= _PARKED_PARTITIONS_MAX

    def park(self, connection: Connection, parked: fetch.ParkedFetch, partition_count: int) -> None:
        self._parked_partitions += partition_count
        self._fetches.setdefault(connection, {})[parked] = None

    def unpark(self, connection: Connection, parked: fetch.ParkedFetch, partition_count: int) -> None:
        self._parked_partitions -= partition_count
        fetches = self._fetches.get(connection)
        if fetches is not None:
            fetches.pop(parked, None)

    def on_close(self, connection: Connection) -> None:
        for parked in self._fetches.pop(connection, ()):
            parked.drop()
        for shard, ticket in self._parked.pop(connection, ()):
            shard.on_disconnect([ticket])

    def on_storage_error(self, partition: Partition, error: StorageError) -> None:
        """A read found damage. May be called on any thread."""
        log.error("%r: %s", partition, error, extra={"repeat_key": f"damage in {partition!r}"})
        self.broker.host.call_on_loop(partition.on_damage)

    def _is_flooded(self, share: int) -> bool:
        """Whether more than one part in `share` of what may wait does so: for the disk, or for followers."""
        broker, options = self.broker, self.broker.options
        return (
            broker.writer.queued_bytes > options.queued_bytes_max // share
            or broker.partitions.uncommitted_bytes > options.uncommitted_bytes_max // share
        )

    def _wait_for_room(self, connection: Connection) -> None:
        """Too much waits for the disk or for followers: leave this producer's bytes in its socket until less does."""
        connection.pause(Pause.DISK)
        if not self._waiting_for_room:
            # Each of the others has at most one more request to add: small, or whole already.
            self.listener.hold_back(True)
            asyncio.get_running_loop().call_later(_ROOM_POLL_S, self._look_for_room)
        self._waiting_for_room.append(connection)

    def _look_for_room(self) -> None:
        if self._is_flooded(2):
            asyncio.get_running_loop().call_later(_ROOM_POLL_S, self._look_for_room)
            return
        self.listener.hold_back(False)
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for connection in waiting:
            connection.resume(Pause.DISK)
