"""A set of deadlines with fast access to the next one.

Most deadlines are postponed many times and rarely met: a heartbeat postpones a session, and heartbeats are by far the
most frequent event. So postponing a deadline changes only a dictionary; the heap keeps the old, earlier entry, and when
that entry comes to the top it is put back with the true time. Only an earlier deadline costs a heap operation.

Always true between calls: every key in `_deadlines` has a heap entry that is not later than its deadline, so no
deadline is ever found too late.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """A set of deadlines in milliseconds, one for each key. Ties come out in the order in which they were set."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._entry_count = 0

    def set(self, key: K, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        queued_ms = self._queued.get(key)
        if queued_ms is None or deadline_ms < queued_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        # The heap entry stays, which makes it cheap to set the key again (a member is parked and returns).
        self._deadlines.pop(key, None)

    def get(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            queued_ms, _, key = self._heap[0]
            if self._queued.get(key) == queued_ms and self._deadlines.get(key) == queued_ms:
                return queued_ms
            heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue  # An earlier entry of the same key has replaced it.
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is not None:
                self._push(key, deadline_ms)
        return None

    def take_due(self, now_ms: int) -> K | None:
        """Remove and return the key with the earliest deadline, if that is due."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._queued[key]
        del self._deadlines[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        self._entry_count += 1
        heapq.heappush(self._heap, (deadline_ms, self._entry_count, key))

    def __len__(self) -> int:
        return len(self._deadlines)
