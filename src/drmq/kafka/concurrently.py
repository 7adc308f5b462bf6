"""Doing the parts of one request side by side, so that they share their waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

R = TypeVar("R")


async def concurrently(parts: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """The results of all parts, in order. None of them outlives the call."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
    return [task.result() for task in tasks]
