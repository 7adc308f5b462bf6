"""The HTTP server of a gateway: uvicorn, with an end that does not wait for requests which themselves wait.

When it is to end, uvicorn waits some seconds for requests that run, and only then tells the application. A poll that
waits for messages would use up all of this time. The node, which gives its gateway five seconds, would then kill it,
and lease streams would not give back what they hold. So what waits is ended first, while uvicorn closes its sockets.
"""

from __future__ import annotations

import asyncio
import socket

import uvicorn

from drmq.gateway.gateway import Gateway


class HttpServer(uvicorn.Server):
    """Serves one gateway."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.ensure_future(self._gateway.end_waiting())
        await super().shutdown(sockets)
        await ending
