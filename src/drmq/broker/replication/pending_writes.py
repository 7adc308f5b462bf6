"""The writes of a replica that are on their way to its disk."""

from __future__ import annotations

from drmq.model import Offset
from drmq.raft import Message, SnapshotMeta
from drmq.records import BatchHeader


class PendingWrite:
    """A write on its way to the disk, and what follows when it is reported."""

    __slots__ = ("end_offset", "headers", "messages", "number", "snapshot", "truncated_to")

    def __init__(self, end_offset: Offset | None = None) -> None:
        self.end_offset = end_offset
        """For batches: how far a flush must reach. None for a job, which reports itself."""
        self.headers: list[BatchHeader] = []
        self.messages: list[Message] = []
        self.number = 0
        """Set on the last write of a `Ready`."""
        self.truncated_to: Offset | None = None
        self.snapshot: SnapshotMeta | None = None
