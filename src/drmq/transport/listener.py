"""The listening socket, and what its connections share: limits, the receive buffer, the sweep.

Once a second the sweep looks at every connection and closes those that break a time limit: a
frame that does not get complete, answers that nobody reads, silence. One timer for all of them
costs less than a timer each, and a second of imprecision hurts nobody.
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
    """Accepts connections on one address and hands their frames to a handler."""

    def __init__(
        self, handler: FrameHandler, options: ListenerOptions, sweep_interval_s: float = _SWEEP_INTERVAL_S
    ) -> None:
        self._sweep_interval_s = sweep_interval_s
        self.handler = handler
        self.options = options
        self.connections: dict[Connection, None] = {}
        """In their order, so that a simulated end is the same each time."""
        self.shared_buffer = memoryview(bytearray(_SHARED_BUFFER_SIZE))
        self.buffers = BufferPool()
        self.partial_bytes = 0
        self.blocked_bytes = 0
        """Bytes of answers that slow readers have not taken; what each holds is counted when it is much."""
        self.now = 0.0
        self.loop: asyncio.AbstractEventLoop
        self.refused_count = 0
        self._waiting_for_memory: dict[Connection, None] = {}
        self._favoured: Connection | None = None
        """The one that may grow though there is no memory left, so that somebody finishes."""
        self._holds_back = False
        self._is_closing = False
        self._writing: list[Connection] = []
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int, *, accepts: bool = True) -> tuple[str, int]:
        """Start to listen; the address that was bound, with the port the system chose for 0.

        Without `accepts` the address is taken, but connections are refused until `start_accepting`.
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
        """Take no more requests, let those in flight be answered, then close what is left."""
        self._is_closing = True
        await self.stop_accepting()
        for connection in self.connections:
            connection.pause(Pause.SHUTDOWN)
        deadline = asyncio.get_running_loop().time() + drain_timeout_s
        # "The socket has sent it all" has no event to wait for, hence the short naps.
        while any(c.is_busy for c in self.connections) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            await self._server.wait_closed()

    # ---- called by connections ------------------------------------------------------------------

    def on_connected(self, connection: Connection) -> None:
        if self._is_closing:
            # It was accepted a moment before the end. Nobody would ever close it.
            connection.close()
            return
        if len(self.connections) >= self.options.connections_max:
            connection.close(f"{len(self.connections)} connections are open, which is the limit")
            return
        self.connections[connection] = None

    def on_disconnected(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._waiting_for_memory.pop(connection, None)
        self.on_memory_freed(connection)
        self.handler.on_close(connection)

    def on_refused(self, connection: Connection, reason: str) -> None:
        self.refused_count += 1
        # One key for all: a flood of bad clients must not become a flood of lines.
        log.warning("closed %s: %s", connection.peer, reason, extra={"repeat_key": "closed a connection"})

    def write_soon(self, connection: Connection) -> None:
        """Let a connection write once whatever is happening now has happened."""
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
        """Whether a half-received frame of `size` bytes may get more memory now; if not, it waits its turn.

        Whoever has less than its fair share of the budget never waits: a few peers that send halves of
        large frames cannot keep the small ones of all others out. The sum stays below three budgets.
        """
        fair_share = self.options.partial_request_bytes_max // self.options.connections_max
        if size < fair_share or connection is self._favoured or not (self.is_out_of_memory or self._holds_back):
            return True
        self._waiting_for_memory[connection] = None
        return False

    @property
    def is_out_of_memory(self) -> bool:
        """Whether half-received requests, and received ones that wait for their turn, take all they may."""
        return self.partial_bytes >= self.options.partial_request_bytes_max

    def on_memory_freed(self, connection: Connection) -> None:
        if connection is self._favoured:
            self._favoured = None
        self._wake_waiting()

    def hold_back(self, on: bool) -> None:
        """While `on`, the handler has more in hand than it can carry: half-received large requests wait."""
        self._holds_back = on
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        if self._waiting_for_memory and not (self.is_out_of_memory or self._holds_back):
            waiting, self._waiting_for_memory = self._waiting_for_memory, {}
            for each in waiting:
                each.resume(Pause.MEMORY)

    @property
    def is_congested(self) -> bool:
        """Whether slow readers hold so many bytes of answers that new answers must stay small."""
        return self.blocked_bytes > self.options.response_bytes_max

    @property
    def is_flooded(self) -> bool:
        """Whether not even small answers will do: those that can be empty must be."""
        return self.blocked_bytes > 2 * self.options.response_bytes_max

    # ---- time -----------------------------------------------------------------------------------

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = now = loop.time()
        options = self.options
        receive_s = options.request_receive_timeout_ms / 1000
        send_s = options.response_send_timeout_ms / 1000
        idle_s = options.idle_timeout_ms / 1000
        for connection in list(self.connections):
            connection.count_unread()
            if connection.frame_since and now - connection.frame_since > receive_s:
                connection.close(f"a request was not complete after {receive_s:.0f} s")
            elif connection.answers_blocked_since and now - connection.answers_blocked_since > send_s:
                connection.close(f"answers were not read for {send_s:.0f} s")
            elif now - connection.last_active > idle_s and not connection.is_asked:
                # Also if there are unread answers: one who neither reads nor asks is gone.
                connection.close()
        if self._waiting_for_memory and self._favoured is None:
            # Those who hold the memory may all wait for more of it, or never finish: the one that has waited
            # longest goes on to the end of its frame, and frees its own.
            self._favoured = next(iter(self._waiting_for_memory))
            del self._waiting_for_memory[self._favoured]
            self._favoured.resume(Pause.MEMORY)
        self._sweeper = loop.call_later(self._sweep_interval_s, self._sweep)
