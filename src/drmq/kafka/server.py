"""The Kafka door: frames from connections to the pipeline, answers back.

`pipeline` takes a request to its API's module, whose `handle` carries it out. Three ways of being carried out, by what
the API needs:

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
from collections.abc import Awaitable

from drmq.broker import Broker
from drmq.broker.services.groups import ParkedRequest
from drmq.broker.services.reads import Read
from drmq.kafka.exchange import Exchange
from drmq.kafka.fetch_sessions import FetchSessions
from drmq.kafka.pipeline import Pipeline, Relayed
from drmq.transport import Answer, Connection, Listener, ListenerOptions, Pause
from drmq.wire import APIS, ApiKey, ProtocolError, write_response

log = logging.getLogger("drmq.kafka")

_PRODUCE = int(ApiKey.PRODUCE)
_ROOM_POLL_S = 0.002
_ABOUT_LEADERS = {ApiKey.METADATA, ApiKey.FIND_COORDINATOR}
_CUT_OFF = "this node is cut off from most others, which know better who leads"
_CUT_OFF_CLOSE_S = 0.05
"""Time for the answer to leave."""


class KafkaServer:
    """Serves one broker to Kafka clients on one listener. Implements `transport.FrameHandler`."""

    def __init__(self, broker: Broker, options: ListenerOptions | None = None) -> None:
        self.broker = broker
        self.listener = Listener(self, options or ListenerOptions())
        self.fetch_sessions = FetchSessions(broker.options.fetch_sessions_max)
        self._pipeline = Pipeline(self)
        broker.services.router.serve_forwarded = self._pipeline.serve_forwarded
        self._parked: dict[Connection, dict[ParkedRequest, None]] = {}
        self._reads: dict[Connection, dict[Read, None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waiting_for_room: list[Connection] = []

    async def open(self, host: str, port: int, *, accepts: bool = True) -> tuple[str, int]:
        """Take an address and begin to listen; the address that was bound."""
        return await self.listener.open(host, port, accepts=accepts)

    async def close(self) -> None:
        """Take no more requests, answer those in flight, close all connections."""
        await self.listener.stop_accepting()
        for read in [one for reads in self._reads.values() for one in reads]:
            read.finish()
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
            exchange, response = self._pipeline.take(connection, frame)
            if response is not None:
                self._answer(connection, exchange, response)
            elif exchange.header.api_key == _PRODUCE and self.broker.services.appends.is_flooded():
                self._wait_for_room(connection)
        except ProtocolError as error:
            connection.close(str(error))
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, error)

    def _answer(self, connection: Connection, exchange: Exchange, response: object) -> None:
        """See to the answer: now, or when the response is there."""
        answer = connection.open_answer()
        if asyncio.isfuture(response):
            self._parked.setdefault(connection, {}).update(dict.fromkeys(exchange.parked or ()))
            response.add_done_callback(lambda done: self._on_done(connection, exchange, answer, done))
        elif asyncio.iscoroutine(response):
            connection.pause(Pause.HANDLER)
            task = asyncio.ensure_future(self._carry_out(connection, exchange, answer, response))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        else:
            self._send(exchange, answer, response)
        if exchange.header.api_key in _ABOUT_LEADERS and self.broker.services.cluster.is_cut_off():
            # It is answered, for whoever wants to know how things look from here. But a client that goes on asking the
            # node that it has used last, as librdkafka does, would not hear of the new leader while the cut lasts.
            asyncio.get_running_loop().call_later(_CUT_OFF_CLOSE_S, connection.close, _CUT_OFF)

    async def _carry_out(
        self, connection: Connection, exchange: Exchange, answer: Answer, response: Awaitable[object]
    ) -> None:
        try:
            self._send(exchange, answer, await response)
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, error)
        finally:
            connection.resume(Pause.HANDLER)

    def _on_done(
        self, connection: Connection, exchange: Exchange, answer: Answer, done: asyncio.Future[object]
    ) -> None:
        waiting = self._parked.get(connection, {})
        for parked in exchange.parked or ():
            waiting.pop(parked, None)
        if done.cancelled() or connection.closed:
            return
        try:
            self._send(exchange, answer, done.result())
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, error)

    def _send(self, exchange: Exchange, answer: Answer, response: object) -> None:
        if isinstance(response, Relayed):
            answer.send((response.answer,))
            return
        header = exchange.header
        version = header.api_version
        if header.api_key == ApiKey.API_VERSIONS and not APIS[ApiKey.API_VERSIONS].serves(version):
            version = 0
        if exchange.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = exchange.throttle_ms
        answer.send((write_response(header.api_key, version, header.correlation_id, response),))

    def on_bug(self, connection: Connection, error: BaseException) -> None:
        """A request failed in a way that nobody foresaw: say all about it, and end its connection."""
        log.error("a request of %s (client %r) failed on a bug", connection.peer, connection.client_id, exc_info=error)
        connection.close("its request failed on a bug")

    # ---- what waits -----------------------------------------------------------------------------

    def park(self, connection: Connection, read: Read) -> None:
        self._reads.setdefault(connection, {})[read] = None

    def unpark(self, connection: Connection, read: Read) -> None:
        reads = self._reads.get(connection)
        if reads is not None:
            reads.pop(read, None)

    def on_close(self, connection: Connection) -> None:
        self._pipeline.on_close(connection)
        for read in self._reads.pop(connection, ()):
            read.drop()
        for parked in self._parked.pop(connection, ()):
            parked.cancel()

    def _wait_for_room(self, connection: Connection) -> None:
        """Too much waits for the disk or for followers: leave this producer's bytes in its socket until less does."""
        connection.pause(Pause.DISK)
        if not self._waiting_for_room:
            # Each of the others has at most one more request to add: small, or whole already.
            self.listener.hold_back(True)
            asyncio.get_running_loop().call_later(_ROOM_POLL_S, self._look_for_room)
        self._waiting_for_room.append(connection)

    def _look_for_room(self) -> None:
        if self.broker.services.appends.is_flooded(2):
            asyncio.get_running_loop().call_later(_ROOM_POLL_S, self._look_for_room)
            return
        self.listener.hold_back(False)
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for connection in waiting:
            connection.resume(Pause.DISK)
