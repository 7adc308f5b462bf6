"""A small HTTP responder in the node: `/metrics`, `/healthz` and `/readyz`, and nothing else.

It answers even when every other HTTP service of the node is down, so it is part of the broker process, has no
dependency, and does as little as possible: one request per connection, a limit on the size of the request, on the time
that it takes to arrive, and on the number of connections. It reads only the request line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from drmq.model.metrics_text import CONTENT_TYPE, render

if TYPE_CHECKING:
    from drmq.broker import Broker

REQUEST_BYTES_MAX: Final = 8_192
REQUEST_TIMEOUT_S: Final = 10.0
CONNECTIONS_MAX: Final = 32
_TEXT = "text/plain; charset=utf-8"
_HEAD_END = b"\r\n\r\n"
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    503: "Service Unavailable",
}


class Response(NamedTuple):
    """What is sent."""

    status: int
    body: str
    content_type: str = _TEXT


STARTING: Final = "the node is starting"
STOPPING: Final = "the node is shutting down"
_NO_CONTROLLER = "the node knows no controller: most nodes of the cluster are down or cannot be reached"


class StatusPort:
    """The responder. Lives on the event loop of the node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.obstacle: str | None = STARTING
        """Why the node does not serve clients; None while it does. Set by the node."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes: dict[str, Callable[[], Response]] = {
            "/metrics": self._metrics,
            "/healthz": lambda: Response(200, "ok\n"),
            "/readyz": self._ready,
        }

    async def open(self, host: str, port: int) -> int:
        """Listen. Returns the port."""
        self._server = await asyncio.start_server(self._on_connection, host, port, limit=REQUEST_BYTES_MAX)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await self._read(reader)
                writer.write(_encode(response))
                await writer.drain()
        except (TimeoutError, OSError):
            pass  # the client is slow or gone
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _read(self, reader: asyncio.StreamReader) -> Response:
        try:
            head = await reader.readuntil(_HEAD_END)
        except asyncio.LimitOverrunError:
            return Response(413, f"a request may have {REQUEST_BYTES_MAX} bytes\n")
        except asyncio.IncompleteReadError:
            return Response(400, "this is not a whole HTTP request\n")
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return Response(400, "this is not an HTTP/1 request\n")
        method, target = parts[0], parts[1].decode("latin-1").split("?", 1)[0]
        route = self._routes.get(target)
        if route is None:
            return Response(404, f"there are only {', '.join(self._routes)} at this port\n")
        if method != b"GET":
            return Response(405, "only GET is possible here\n")
        return route()

    def _metrics(self) -> Response:
        if self.obstacle == STARTING:
            return Response(503, STARTING + "\n")
        self._broker.services.counters.refresh()
        return Response(200, render(self._broker.services.counters.read()), CONTENT_TYPE)

    def _ready(self) -> Response:
        reason = self.obstacle
        if reason is None and self._broker.metadata.controller is None:
            reason = _NO_CONTROLLER
        return Response(200, "ready\n") if reason is None else Response(503, reason + "\n")


def _encode(response: Response) -> bytes:
    body = response.body.encode()
    head = (
        f"HTTP/1.1 {response.status} {_PHRASES[response.status]}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body
