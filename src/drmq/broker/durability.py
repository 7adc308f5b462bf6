"""Futures for those who wait in coroutines for what partitions tell through callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from drmq.model import ApiError, ErrorCode


async def durable(when: Callable[[Callable[[ErrorCode], None]], None], what: str) -> None:
    """Wait until `when` calls back; an error becomes an `ApiError` that names `what` was not stored."""
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
