"""The backoff of a replica after repeated disk failures: it takes part in its group but does not campaign.

A full disk refuses the next batch too. If a replica stopped after each failure, its group would lose its vote and its
answers to heartbeats. With full disks on a majority the leader would hear too few members and step down, and elections
would follow each other until even the space reserved for votes is used up. So the replica restarts at once and backs
off for a while, longer each time: it votes and answers heartbeats, but accepts no batches and does not try to become
leader.

Both are safe, because to the other replicas it looks as if messages were lost. A replica with free space becomes
leader, and consumers are served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from drmq.raft import AppendRequest, EntryKind, Message, SnapshotChunk, TimeoutNow

REST_S_MAX = 2.0


class _CallLater(Protocol):
    def __call__(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None: ...


class CampaignBackoff:
    """The consecutive failures of a replica, and whether it backs off because of them."""

    __slots__ = ("_number", "failures", "is_on")

    def __init__(self) -> None:
        self.failures = 0
        """How many times in a row it has restarted without storing a batch."""
        self.is_on = False
        self._number = 0

    @property
    def length_s(self) -> float:
        """The length of the backoff in seconds: zero after the first failure."""
        return 0.0 if self.failures <= 1 else min(REST_S_MAX, 0.05 * 2 ** min(self.failures, 10))

    def begin(self, call_later: _CallLater) -> None:
        """Start the backoff that follows the present number of failures."""
        self._number += 1
        self.is_on = self.length_s > 0
        if self.is_on:
            call_later(self.length_s, self._end, self._number)

    def _end(self, number: int) -> None:
        # A later failure has started its own backoff.
        if number == self._number:
            self.is_on = False

    def declines(self, message: Message) -> bool:
        """Whether to ignore a message during the backoff: it needs disk space, or asks the replica to campaign."""
        if not self.is_on:
            return False
        if isinstance(message, AppendRequest):
            return any(entry.kind is EntryKind.PAYLOAD for entry in message.entries)
        return isinstance(message, SnapshotChunk | TimeoutNow)
