"""The end of accepting connections, without losing one that is at the door."""

from __future__ import annotations

import asyncio

_TURNS_TO_ACCEPT = 5


async def stop_accepting(server: asyncio.Server) -> None:
    """Let nobody in any more, and lose nobody who is at the door. May be called again.

    A connection that was accepted gets to its protocol in a few turns of the loop, which can close it then. Were the
    server closed in between, asyncio would forget it and leave it open (https://github.com/python/cpython/issues/109564).
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS_TO_ACCEPT):
        await asyncio.sleep(0)
    server.close()
