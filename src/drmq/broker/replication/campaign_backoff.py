"""How a replica behaves whose disk has refused something, again and again: it takes part, and asks for little.

A disk that is full refuses the next batch too. A replica that went away after each refusal would take its vote and its
answers to heartbeats with it: with full disks on a majority the leader would hear too few, step down, and elections
would follow each other until not even the space that is kept back for votes is left. So it begins again at once, and
rests for a while, longer each time: it votes and answers heartbeats, but takes no batches, and does not try to lead.

Both are safe, since to the others it looks as if messages got lost. Who has space leads, and its readers are served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from drmq.raft import AppendRequest, EntryKind, Message, SnapshotChunk, TimeoutNow

REST_S_MAX = 2.0


class _CallLater(Protocol):
    def __call__(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None: ...


class CampaignBackoff:
    """The failures of a replica in a row, and whether it rests because of them."""

    __slots__ = ("_number", "failures", "is_on")

    def __init__(self) -> None:
        self.failures = 0
        """How often in a row it has begun again without a batch coming through."""
        self.is_on = False
        self._number = 0

    @property
    def length_s(self) -> float:
        """None after the first failure."""
        return 0.0 if self.failures <= 1 else min(REST_S_MAX, 0.05 * 2 ** min(self.failures, 10))

    def begin(self, call_later: _CallLater) -> None:
        """The replica begins again."""
        self._number += 1
        self.is_on = self.length_s > 0
        if self.is_on:
            call_later(self.length_s, self._end, self._number)

    def _end(self, number: int) -> None:
        # A failure in between has begun a rest of its own.
        if number == self._number:
            self.is_on = False

    def declines(self, message: Message) -> bool:
        """Whether a message is none for one who rests: it needs space, or would have it lead."""
        if not self.is_on:
            return False
        if isinstance(message, AppendRequest):
            return any(entry.kind is EntryKind.PAYLOAD for entry in message.entries)
        return isinstance(message, SnapshotChunk | TimeoutNow)
