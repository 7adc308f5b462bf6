"""HTTP connections that end when the client neither reads nor sends.

uvicorn keeps what a client has not read of its answer, without a limit of time, and waits for the rest of a request for
ever. A client that stands still, perhaps on purpose, would keep that memory, and one of the connections that a gateway
may have. So each connection is looked at every few seconds. If the gateway waits for the client, and no byte has moved
in either direction for a minute, the connection is aborted. To close it would wait for the client to read the answer.

A request that the gateway works on may take as long as it takes. Web sockets have a limit of their own (`live`).
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_Base: Any = AutoHTTPProtocol


class HttpConnection(_Base):  # type: ignore[misc] # its class depends on what is installed
    """uvicorn's connection, with a limit of silence."""

    SILENCE_S: ClassVar = 60.0
    LOOK_EVERY_S: ClassVar = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._watch()

    def _watch(self) -> None:
        self._received = 0
        self._seen = (0, 0)
        self._moved_s = self.loop.time()
        self._timer = self.loop.call_later(self.LOOK_EVERY_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def _look(self) -> None:
        if self.transport.get_protocol() is not self:
            return  # it has become a web socket
        seen = (self._received, self.transport.get_write_buffer_size())
        if seen != self._seen or (self._is_at_work() and not seen[1]):
            self._seen, self._moved_s = seen, self.loop.time()
        elif self.loop.time() - self._moved_s >= self.SILENCE_S:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self.LOOK_EVERY_S, self._look)

    def _is_at_work(self) -> bool:
        """Whether the request is here and its answer is not finished."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
