"""Answers to requests that were carried out, by the key that their clients gave them: a repeat gets the same answer.

A repeat that arrives while the first request runs waits for it. A request that failed can be repeated, and then does
only what it has not done before. The memory is that of one gateway, in one run of its process: a repeat must reach the
same gateway.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from drmq.gateway.problems import ProblemError

KEPT_S: Final = 600.0
KEYS_MAX: Final = 100_000
ANSWERS_BYTES_MAX: Final = 32 * 2**20
"""If there are more keys or larger answers, the oldest are forgotten earlier."""
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


_PART_BYTES: Final = 200
"""What is kept of one part of a request that failed, about."""

Id = tuple[str, str]
"""A scope and a key."""


@dataclass(slots=True)
class _Entry:
    request: bytes
    """The digest of what was asked."""
    task: asyncio.Task[bytes] | None = None
    """While it runs."""
    answer: bytes | None = None
    """None if it runs, or has failed."""
    done: dict[int, Any] = field(default_factory=dict)
    """The parts of it that were carried out, if others have failed."""
    size: int = 0
    until_s: float = 0.0


class Idempotency:
    """Lives on the event loop."""

    def __init__(self, *, keys_max: int = KEYS_MAX, answers_bytes_max: int = ANSWERS_BYTES_MAX) -> None:
        self._running: dict[Id, _Entry] = {}
        """Never forgotten: their repeats would be carried out twice."""
        self._kept: OrderedDict[Id, _Entry] = OrderedDict()
        """In the order in which they ended."""
        self._keys_max = keys_max
        self._answers_bytes_max = answers_bytes_max
        self._answers_bytes = 0

    def __len__(self) -> int:
        return len(self._running) + len(self._kept)

    async def once(
        self, scope: str, key: str, request: bytes, work: Callable[[dict[int, Any]], Awaitable[bytes]]
    ) -> bytes:
        """The answer of `work`, which is called once for a key in a scope. Raises what it raises, and `ProblemError`.

        The work notes in its argument which parts are done. If it fails, a repeat of the request gets these notes. It
        goes on if the caller is cancelled.
        """
        if not _KEY.fullmatch(key):
            raise ProblemError(400, "an Idempotency-Key has 1 to 255 printable ASCII characters without spaces")
        self._forget_old()
        digest = hashlib.sha256(request).digest()
        id_ = (scope, key)
        entry = self._running.get(id_) or self._kept.get(id_) or _Entry(digest)
        if entry.request != digest:
            raise ProblemError(
                422,
                f"the Idempotency-Key {key} was used for another request",
                code="IDEMPOTENCY_KEY_REUSED",
                advice="Choose a new key for each request, and use it again only to repeat that request.",
            )
        if entry.answer is not None:
            return entry.answer
        if entry.task is None:
            self._forget(id_)
            self._running[id_] = entry
            entry.task = asyncio.get_running_loop().create_task(self._do(id_, entry, work))
        return await asyncio.shield(entry.task)

    async def _do(self, id_: Id, entry: _Entry, work: Callable[[dict[int, Any]], Awaitable[bytes]]) -> bytes:
        try:
            entry.answer = await work(entry.done)
            entry.done = {}
            return entry.answer
        finally:
            del self._running[id_]
            entry.task = None
            if entry.answer is not None or entry.done:
                entry.size = len(entry.answer or b"") + _PART_BYTES * len(entry.done)
                entry.until_s = time.monotonic() + KEPT_S
                self._answers_bytes += entry.size
                self._kept[id_] = entry

    def _forget_old(self) -> None:
        now_s = time.monotonic()
        while self._kept:
            id_, entry = next(iter(self._kept.items()))
            is_full = len(self._kept) > self._keys_max or self._answers_bytes > self._answers_bytes_max
            if now_s < entry.until_s and not is_full:
                return
            self._forget(id_)

    def _forget(self, id_: Id) -> None:
        entry = self._kept.pop(id_, None)
        if entry is not None:
            self._answers_bytes -= entry.size
