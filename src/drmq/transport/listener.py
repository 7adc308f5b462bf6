"""The listening socket, and what its connections share: limits, the receive buffer, the sweep.

Once a second, the sweep checks every connection and closes those that exceed a time limit: an incomplete frame,
responses that are not read, inactivity. It also reports requests that have waited long for their answers. One timer for
all of them costs less than a timer each, and a precision of one second is sufficient.
"""

from __future__ import annotations

import asyncio
import logging

from drmq.transport.accepting import stop_accepting
from drmq.transport.buffers import BufferPool
from drmq.transport.connection import Connection, FrameHandler, Pause
from drmq.transport.limits import ListenerOptions

log = logging.getLogger("drmq.transport")

_SHARED_BUFFER_SIZE = 262_144
_SWEEP_INTERVAL_S = 1.0
_BACKLOG = 1_024


class Listener:
    """Accepts connections on one address and passes their frames to a handler."""

    def __init__(
        self, handler: FrameHandler, options: ListenerOptions, sweep_interval_s: float = _SWEEP_INTERVAL_S
    ) -> None:
        self._sweep_interval_s = self.clock_error_s = sweep_interval_s
        self.handler = handler
        self.options = options
        self.connections: dict[Connection, None] = {}
        """An ordered set, so that a simulated shutdown is deterministic."""
        self.shared_buffer = memoryview(bytearray(_SHARED_BUFFER_SIZE))
        self.buffers = BufferPool()
        self.partial_bytes = 0
        self.blocked_bytes = 0
        """Bytes of responses that wait to be sent. A large response counts from the moment in which it is ready."""
        self.now = 0.0
        """The time of the last sweep: the clock for all that need not be exact."""
        self.loop: asyncio.AbstractEventLoop
        self.accepted_count = self.refused_count = 0
        self.received_bytes = self.sent_bytes = 0
        self._waiting_for_memory: dict[Connection, None] = {}
        self._favoured: Connection | None = None
        """The connection that may grow although there is no memory left, so that at least one finishes."""
        self._holds_back = False
        self._is_closing = False
        self._writing: list[Connection] = []
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int, *, accepts: bool = True) -> tuple[str, int]:
        """Start to listen. Returns the bound address, with the port that the system chose for 0.

        Without `accepts`, the address is bound, but connections are refused until `start_accepting`.
        """
        loop = self.loop = asyncio.get_running_loop()
        self.now = loop.time()
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, backlog=_BACKLOG, start_serving=accepts
        )
        self._sweeper = loop.call_later(self._sweep_interval_s, self._sweep)
        bound = self._server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def start_accepting(self) -> None:
        if self._server is not None:
            await self._server.start_serving()

    async def stop_accepting(self) -> None:
        if self._server is not None:
            await stop_accepting(self._server)

    async def close(self, drain_timeout_s: float = 5.0) -> None:
        """Read no more requests, wait until those in flight are answered, then close the connections."""
        self._is_closing = True
        await self.stop_accepting()
        for connection in self.connections:
            connection.pause(Pause.SHUTDOWN)
        deadline = asyncio.get_running_loop().time() + drain_timeout_s
        # There is no event for "the socket has sent everything", hence the polling.
        while any(c.is_busy for c in self.connections) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        busy_count = sum(connection.is_busy for connection in self.connections)
        if busy_count and drain_timeout_s:
            log.warning(
                "connections closed without all their answers: %d; waited for %g s", busy_count, drain_timeout_s
            )
        for connection in list(self.connections):
            connection.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            await self._server.wait_closed()

    # ---- called by connections ------------------------------------------------------------------

    def on_connected(self, connection: Connection) -> None:
        if self._is_closing:
            # It was accepted just before the shutdown, and nothing else would close it.
            connection.close()
            return
        if len(self.connections) >= self.options.connections_max:
            connection.close(f"{len(self.connections)} connections are open, which is the limit")
            return
        self.connections[connection] = None
        self.accepted_count += 1

    def on_disconnected(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._waiting_for_memory.pop(connection, None)
        self.on_memory_freed(connection)
        self.handler.on_close(connection)

    def on_refused(self, connection: Connection, reason: str) -> None:
        self.refused_count += 1
        # One key for all: many bad clients must not cause many log lines.
        fields = {"repeat_key": "closed a connection", "client_id": connection.client_id}
        log.warning("closed %s: %s", connection.peer, reason, extra=fields)

    def write_soon(self, connection: Connection) -> None:
        """Let a connection write after the current events have been handled."""
        if not self._writing:
            self.loop.call_soon(self._write_all)
        self._writing.append(connection)

    def _write_all(self) -> None:
        writing, self._writing = self._writing, []
        for connection in writing:
            try:
                connection.write_out()
            except Exception:  # the others have no second chance to write
                log.exception("writing to %s failed on a bug", connection.peer)
                connection.close()

    def may_grow(self, connection: Connection, size: int) -> bool:
        """Whether a partially received frame of `size` bytes may get more memory now. If not, it waits.

        A connection below its fair share of the budget never waits: a few peers that send halves of large frames cannot
        block the small frames of all others. The sum stays below three budgets.
        """
        fair_share = self.options.partial_request_bytes_max // self.options.connections_max
        if size < fair_share or connection is self._favoured or not (self.is_out_of_memory or self._holds_back):
            return True
        self._waiting_for_memory[connection] = None
        return False

    @property
    def is_out_of_memory(self) -> bool:
        """Whether partially received requests, and received ones that are waiting, have used up their budget."""
        return self.partial_bytes >= self.options.partial_request_bytes_max

    def on_memory_freed(self, connection: Connection) -> None:
        if connection is self._favoured:
            self._favoured = None
        self._wake_waiting()

    def hold_back(self, on: bool) -> None:
        """While `on`, the handler is overloaded: partially received large requests wait."""
        self._holds_back = on
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        if self._waiting_for_memory and not (self.is_out_of_memory or self._holds_back):
            waiting, self._waiting_for_memory = self._waiting_for_memory, {}
            for each in waiting:
                each.resume(Pause.MEMORY)

    @property
    def is_congested(self) -> bool:
        """Whether clients hold so many bytes of responses that new responses must stay small."""
        return self.blocked_bytes > self.options.response_bytes_max // 2

    @property
    def is_flooded(self) -> bool:
        """Whether even small responses are too much: responses that may be empty must be empty."""
        return self.blocked_bytes >= self.options.response_bytes_max

    # ---- time -----------------------------------------------------------------------------------

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = now = loop.time()
        options = self.options
        receive_s = options.request_receive_timeout_ms / 1000
        send_s = options.response_send_timeout_ms / 1000
        idle_s = options.idle_timeout_ms / 1000
        # The clock is set once a second, so a request that seems to be a second old may have come just now.
        slow_before = now - options.slow_request_ms / 1000 - self.clock_error_s
        for connection in list(self.connections):
            connection.count_unread()
            if connection.is_asked:
                connection.look_for_slow(slow_before)
            if connection.frame_since and now - connection.frame_since > receive_s:
                connection.close(f"a request was not complete after {receive_s:.0f} s")
            elif connection.answers_blocked_since and now - connection.answers_blocked_since > send_s:
                connection.close(f"answers were not read for {send_s:.0f} s")
            elif now - connection.last_active > idle_s and not connection.is_asked:
                # Even with unread responses: a client that neither reads nor sends is gone.
                connection.close()
        if self._waiting_for_memory and self._favoured is None:
            # The connections that hold the memory may all wait for more of it, or never finish. The one that has waited
            # longest may complete its frame, and then frees its memory.
            self._favoured = next(iter(self._waiting_for_memory))
            del self._waiting_for_memory[self._favoured]
            self._favoured.resume(Pause.MEMORY)
        self._sweeper = loop.call_later(self._sweep_interval_s, self._sweep)
