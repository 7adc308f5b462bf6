"""Stops accepting connections without leaking one that was just accepted."""

from __future__ import annotations

import asyncio

_TURNS_TO_ACCEPT = 5


async def stop_accepting(server: asyncio.Server) -> None:
    """Accept no more connections, without leaking one that is being accepted. May be called again.

    An accepted connection reaches its protocol within a few turns of the loop, and can be closed from then on. If the
    server were closed in between, asyncio would forget the connection and leave it open
    (https://github.com/python/cpython/issues/109564).
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS_TO_ACCEPT):
        await asyncio.sleep(0)
    server.close()
