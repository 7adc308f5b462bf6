"""The Kafka door: passes frames from connections to the pipeline, and sends the answers.

`pipeline` finds the module of a request's API, whose `handle` carries the request out. There are three ways to do so,
depending on what the API needs:

- *Produce and Fetch* parse their own frames and answer by callback (`produce`, `fetch`);
- a plain function returns the answer, a future or a `Pending`: its effect happens in the order of arrival, only the
  answer may be delayed;
- a coroutine delays the connection's later requests until it is done.

Whatever a client sends, it gets a protocol error or a closed connection, and the broker continues. An exception that no
handler expects is a bug: it is logged with its traceback and closes only the connection that caused it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from functools import partial

from drmq.broker import Broker
from drmq.broker.services.pending import Pending
from drmq.broker.services.reads import Read
from drmq.kafka.context import Parked
from drmq.kafka.exchange import Exchange
from drmq.kafka.fetch_sessions import FetchSessions
from drmq.kafka.pipeline import Pipeline, Relayed
from drmq.kafka.produce_traces import ProduceTraces
from drmq.kafka.request_log import RequestLog
from drmq.model.counters import Sample, sample_of
from drmq.transport import Answer, Connection, Listener, ListenerOptions, Pause
from drmq.wire import APIS, ApiKey, ProtocolError, RequestHeader, write_response_buffers

_PRODUCE = int(ApiKey.PRODUCE)
_ROOM_POLL_S = 0.002
_ABOUT_LEADERS = {ApiKey.METADATA, ApiKey.FIND_COORDINATOR}
_LOOKUPS = {ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH}
"""Requests of many parts that change nothing, and each of which may take seconds. They end with their connection."""
_ABANDONED_POLL_S = 1.0
_CUT_OFF = "this node cannot reach most other nodes, so its list of leaders may be outdated; ask another node"
_CUT_OFF_CLOSE_S = 0.05
"""Time to send the answer before the connection is closed."""


class KafkaServer:
    """Serves one broker to Kafka clients on one listener. Implements `transport.FrameHandler`."""

    def __init__(self, broker: Broker, options: ListenerOptions | None = None) -> None:
        self.broker = broker
        self.listener = Listener(self, options or ListenerOptions())
        self.fetch_sessions = FetchSessions(broker.options.fetch_sessions_max)
        self.request_log = RequestLog()
        self.traces: ProduceTraces | None = None
        """Set by a node that traces."""
        self._pipeline = Pipeline(self)
        broker.services.router.serve_forwarded = self._pipeline.serve_forwarded
        broker.services.counters.add(self._counters)
        self._parked: dict[Connection, dict[Parked, None]] = {}
        self._reads: dict[Connection, dict[Read, None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._lookups: dict[Connection, asyncio.Task[None]] = {}
        self._abandoned_poll: asyncio.TimerHandle | None = None
        self._waiting_for_room: list[Connection] = []

    async def open(self, host: str, port: int, *, accepts: bool = True) -> tuple[str, int]:
        """Bind an address and begin to listen. Returns the address that was bound."""
        return await self.listener.open(host, port, accepts=accepts)

    async def close(self) -> None:
        """Take no more requests, answer those in flight, close all connections."""
        await self.listener.stop_accepting()
        for read in [one for reads in self._reads.values() for one in reads]:
            read.finish()
        for connection in [connection for connection, waiting in self._parked.items() if waiting]:
            # Its answer depends on other members of the group, which this node no longer serves.
            connection.close()
        await self.listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _counters(self) -> Iterator[Sample]:
        listener, pipeline = self.listener, self._pipeline
        yield Sample("drmq_connections", len(listener.connections))
        yield Sample("drmq_connections_accepted_total", listener.accepted_count)
        yield Sample("drmq_connections_refused_total", listener.refused_count)
        yield Sample("drmq_received_bytes_total", listener.received_bytes)
        yield Sample("drmq_sent_bytes_total", listener.sent_bytes)
        yield Sample("drmq_unread_response_bytes", listener.blocked_bytes)
        yield Sample("drmq_partial_request_bytes", listener.partial_bytes)
        waiting = sum(map(len, self._parked.values())) + sum(map(len, self._reads.values()))
        yield Sample("drmq_waiting_requests", waiting)
        for way in pipeline.ways.values():
            labels = (("api", way.api),)
            yield Sample("drmq_requests_total", way.requests, labels)
            yield sample_of("drmq_request_duration_us", way.durations_us, labels)
        yield from (
            Sample("drmq_slow_requests_total", count, (("api", api),))
            for api, count in self.request_log.slow_counts.items()
        )

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
            header = connection.request
            self.on_bug(connection, error, header if isinstance(header, RequestHeader) else None)

    def _answer(self, connection: Connection, exchange: Exchange, response: object) -> None:
        """Send the answer now, or when the response is ready."""
        answer = connection.open_answer()
        if isinstance(response, Pending):
            exchange.release()
            if response.waits:
                self._parked.setdefault(connection, {})[response] = None
            response.then(partial(self._on_result, connection, exchange, answer, response))
        elif asyncio.isfuture(response):
            exchange.release()
            self._parked.setdefault(connection, {}).update(dict.fromkeys(exchange.parked or ()))
            response.add_done_callback(lambda done: self._on_done(connection, exchange, answer, done))
        elif asyncio.iscoroutine(response):
            connection.pause(Pause.HANDLER)
            task = asyncio.ensure_future(self._carry_out(connection, exchange, answer, response))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
            # A task that is cancelled before its first step has not begun the coroutine; Python warns of those.
            task.add_done_callback(lambda _: response.close())
            if exchange.header.api_key in _LOOKUPS:
                self._lookups[connection] = task
                self._poll_abandoned()
        else:
            self._send(connection, exchange, answer, response)

    async def _carry_out(
        self, connection: Connection, exchange: Exchange, answer: Answer, response: Awaitable[object]
    ) -> None:
        try:
            self._send(connection, exchange, answer, await response)
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, error, exchange.header)
        finally:
            self._lookups.pop(connection, None)
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
            self._send(connection, exchange, answer, done.result())
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, error, exchange.header)

    def _on_result(
        self,
        connection: Connection,
        exchange: Exchange,
        answer: Answer,
        pending: Pending[object],
        result: object,
        error: BaseException | None,
    ) -> None:
        if pending.waits:
            self._parked.get(connection, {}).pop(pending, None)
        if connection.closed:
            return
        try:
            if error is not None:
                raise error
            self._send(connection, exchange, answer, result)
        except Exception as bug:  # noqa: BLE001  # the outermost frame of a request
            self.on_bug(connection, bug, exchange.header)

    def _send(self, connection: Connection, exchange: Exchange, answer: Answer, response: object) -> None:
        header = exchange.header
        if header.api_key in _ABOUT_LEADERS and self.broker.services.cluster.is_cut_off():
            # The request is answered, because tools need this node's view. But some clients, librdkafka among them,
            # keep asking the node that they used last. They would not learn of a new leader while this node is cut off.
            asyncio.get_running_loop().call_later(_CUT_OFF_CLOSE_S, connection.close, _CUT_OFF)
        if isinstance(response, Relayed):
            answer.send((response.answer,))
            return
        version = header.api_version
        if header.api_key == ApiKey.API_VERSIONS and not APIS[ApiKey.API_VERSIONS].serves(version):
            version = 0
        if exchange.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = exchange.throttle_ms
        self.request_log.answered(connection, header, response)
        answer.send(write_response_buffers(header.api_key, version, header.correlation_id, response))

    def on_bug(self, connection: Connection, error: BaseException, header: RequestHeader | None = None) -> None:
        """Log an unexpected exception of a request with its traceback, and close the connection."""
        self.request_log.bug(connection, header, error)
        connection.close("its request failed because of a bug in this node")

    def on_slow(self, connection: Connection, request: object, seconds: float, is_answered: bool) -> None:
        assert isinstance(request, RequestHeader), request
        self.request_log.slow(connection, request, seconds, is_answered, self.listener.now)

    def _poll_abandoned(self) -> None:
        if self._abandoned_poll is None and self._lookups:
            self._abandoned_poll = asyncio.get_running_loop().call_later(_ABANDONED_POLL_S, self._end_abandoned)

    def _end_abandoned(self) -> None:
        """End the lookups whose clients have gone. Their connections are not read meanwhile, so nothing tells."""
        self._abandoned_poll = None
        for connection in self._lookups:
            if connection.is_abandoned:
                # Not only the lookup: more of them may have been received, and each would begin when this one ends.
                connection.close()
        self._poll_abandoned()

    # ---- waiting requests -----------------------------------------------------------------------

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
        lookup = self._lookups.pop(connection, None)
        if lookup is not None:
            lookup.cancel()

    def _wait_for_room(self, connection: Connection) -> None:
        """Stop reading from a producer while too many appended bytes wait for the disk or for followers."""
        connection.pause(Pause.DISK)
        if not self._waiting_for_room:
            # Connections that have not been paused yet can each add one more request before they are. While the
            # listener holds back, that is a small one, or one that has already been received whole.
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
