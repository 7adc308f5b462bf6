"""Answers to requests that were carried out, by the key that their clients gave them: a repeat gets the same answer.

A repeat that arrives while the first request runs waits for it. A request that failed is forgotten, so that it can be
repeated. The memory is that of one gateway, in one run of its process: a repeat must reach the same gateway.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from drmq.gateway.problems import ProblemError

KEPT_S: Final = 600.0
KEYS_MAX: Final = 100_000
ANSWERS_BYTES_MAX: Final = 32 * 2**20
"""If there are more keys or larger answers, the oldest are forgotten earlier."""
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(slots=True)
class _Entry:
    request: bytes
    """The digest of what was asked."""
    task: asyncio.Task[bytes] | None
    answer: bytes = b""
    until_s: float = 0.0


class Idempotency:
    """Lives on the event loop."""

    def __init__(self, *, keys_max: int = KEYS_MAX, answers_bytes_max: int = ANSWERS_BYTES_MAX) -> None:
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        """In the order in which they began."""
        self._keys_max = keys_max
        self._answers_bytes_max = answers_bytes_max
        self._answers_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def once(self, scope: str, key: str, request: bytes, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """The answer of `work`, which is called once for a key in a scope. Raises what it raises, and `ProblemError`.

        The work goes on if the caller is cancelled.
        """
        if not _KEY.fullmatch(key):
            raise ProblemError(400, "an Idempotency-Key has 1 to 255 printable ASCII characters without spaces")
        self._forget_old()
        digest = hashlib.sha256(request).digest()
        found = self._entries.get((scope, key))
        if found is not None and found.request != digest:
            raise ProblemError(
                422,
                f"the Idempotency-Key {key} was used for another request",
                code="IDEMPOTENCY_KEY_REUSED",
                advice="Choose a new key for each request, and use it again only to repeat that request.",
            )
        if found is None:
            found = self._entries[scope, key] = _Entry(digest, None)
            found.task = asyncio.get_running_loop().create_task(self._do(scope, key, found, work))
        return found.answer if found.task is None else await asyncio.shield(found.task)

    async def _do(self, scope: str, key: str, entry: _Entry, work: Callable[[], Awaitable[bytes]]) -> bytes:
        try:
            answer = await work()
        except BaseException:
            if self._entries.get((scope, key)) is entry:
                del self._entries[scope, key]
            raise
        entry.answer, entry.task = answer, None
        entry.until_s = time.monotonic() + KEPT_S
        if self._entries.get((scope, key)) is entry:
            self._answers_bytes += len(answer)
        return answer

    def _forget_old(self) -> None:
        now_s = time.monotonic()
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            is_full = len(self._entries) > self._keys_max or self._answers_bytes > self._answers_bytes_max
            if entry.task is not None or (now_s < entry.until_s and not is_full):
                # One that still runs is kept: its repeat would be carried out twice.
                return
            del self._entries[key]
            self._answers_bytes -= len(entry.answer)
