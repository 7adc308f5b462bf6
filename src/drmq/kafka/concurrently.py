"""Runs the parts of one request concurrently, so that they share their waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

R = TypeVar("R")

_AT_ONCE_MAX = 256
"""Parts that run at the same time. Without a limit, a request with 100,000 entries would start as many tasks."""


async def concurrently(parts: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """Run all parts and return their results in order. All parts have ended when this returns.

    `parts` should be a generator, so that coroutines are created only when their turn comes.
    """
    results: list[R] = []
    rest = iter(parts)
    while some := list(islice(rest, _AT_ONCE_MAX)):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in some]
        results += [task.result() for task in tasks]
    return results
