"""Reads the rest of a body before a request is refused.

A server that answers and closes a connection while the client still sends resets it, and then many clients do not see
the answer. So what is left of the body is read and thrown away first, up to a limit of bytes and of time. A client that
waits for the permission to send (`Expect: 100-continue`) has sent nothing, and gets the answer at once.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BYTES_MAX: Final = 64 * 1024 * 1024
SECONDS_MAX: Final = 10.0


class UnreadBodies:
    """Wraps the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_open = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        waits = "expect" in headers

        async def counted() -> Message:
            nonlocal is_open, waits
            waits = False
            message = await receive()
            is_open = is_open and bool(message.get("more_body"))
            return message

        async def after_the_body(message: Message) -> None:
            if message["type"] == "http.response.start" and not waits:
                left = BYTES_MAX
                try:
                    async with asyncio.timeout(SECONDS_MAX):
                        while is_open and left > 0:
                            left -= len((await counted()).get("body", b""))
                except TimeoutError:
                    pass
            await send(message)

        await self._app(scope, counted, after_the_body)
