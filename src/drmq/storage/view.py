"""What the readers of a log see: a sequence of segments that is never changed, only replaced.

The writer thread publishes a new view when a segment is added or removed. A reader takes the view once and uses it to
the end, so it never sees a partial change. Only the last segment, the active one, may grow meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from drmq.model import Offset
from drmq.storage.epochs import EpochTable
from drmq.storage.log import LatestTime, StoredBatch
from drmq.storage.segment import Segment


class View:
    """The segments of a log, oldest first, and the lookups that involve all of them."""

    __slots__ = ("bases", "sealed_epochs", "segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self.bases = [segment.base_offset for segment in segments]
        self.sealed_epochs: EpochTable | None = None
        """The epochs of all but the active segment, computed at the first use."""

    def epochs(self) -> EpochTable:
        """Each leader epoch with its first offset."""
        if not self.segments:
            return EpochTable()
        sealed = self.sealed_epochs
        if sealed is None:
            sealed = EpochTable()
            for segment in self.segments[:-1]:
                segment.load()
                sealed = sealed.with_batches(segment.epochs)
            self.sealed_epochs = sealed
        return sealed.with_batches(self.segments[-1].epochs)

    def latest_time(self, up_to: Offset) -> LatestTime:
        """The largest timestamp below `up_to`, and its batch."""
        best = LatestTime(-1, Offset(-1))
        for segment in self.segments:
            if segment.base_offset >= up_to or segment.size_bytes == 0:
                break
            if segment is self.segments[-1] or segment.end_offset > up_to:
                found = segment.latest_time(up_to)
            else:
                segment.load_summary()
                found = LatestTime(segment.max_timestamp, segment.max_timestamp_offset)
            best = max(best, found, key=lambda each: each.timestamp)
        return best

    def batch_at_time(self, timestamp: int, start: Offset, up_to: Offset) -> StoredBatch | None:
        """The first batch at or after `start` and below `up_to` that is not older than `timestamp`."""
        for segment in self.segments:
            if segment.base_offset >= up_to:
                break
            segment.load_summary()
            header = segment.find_time(timestamp, up_to) if segment.max_timestamp >= timestamp else None
            if header is not None and header.next_offset <= start:
                # Deleted by `drop_prefix`, but its segment is not removed yet.
                later = (header for _, header in segment.headers(start, up_to))
                header = next((header for header in later if header.max_timestamp >= timestamp), None)
            if header is not None:
                return segment.batch(header)
        return None
