"""The client of a request: its headers, and whether it still waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

T = TypeVar("T")


class CallerGone(Exception):  # it is an event, not an error
    """The client has closed its connection: nobody reads the answer."""


class Caller:
    """Given to endpoints that have a parameter `caller`. The body of the request must have been read."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @property
    def host(self) -> str | None:
        """The address that the client has, if it has one."""
        return None if self._request.client is None else self._request.client.host

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of some work. If the client goes away, the work is cancelled, and this raises `CallerGone`."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._wait_until_gone())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise CallerGone
            return task.result()
        finally:
            gone.cancel()
            task.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def is_gone(self) -> bool:
        return await self._request.is_disconnected()

    async def _wait_until_gone(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            continue
