"""Doing the parts of one request side by side, so that they share their waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

R = TypeVar("R")

_AT_ONCE_MAX = 256
"""Parts under way at a time: one request can name a hundred thousand."""


async def concurrently(parts: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """The results of all parts, in order. None of them outlives the call; hand them in as they are made."""
    results: list[R] = []
    rest = iter(parts)
    while some := list(islice(rest, _AT_ONCE_MAX)):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in some]
        results += [task.result() for task in tasks]
    return results
