"""Lets coroutines wait for results that partitions report through callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from drmq.model import ApiError, ErrorCode


async def durable(when: Callable[[Callable[[ErrorCode], None]], None], what: str) -> None:
    """Wait until `when` calls its callback. Raises `ApiError` for an error; `what` names what was not stored."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: ErrorCode) -> None:
        if future.done():
            return
        if error is ErrorCode.NONE:
            future.set_result(None)
        else:
            future.set_exception(ApiError(error, f"{what} could not be stored"))

    when(done)
    await future
