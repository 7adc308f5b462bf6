"""How long commits take, measured on one batch of the node at a time.

To time each batch would cost more than it tells. While one batch is being timed, the others cost a comparison.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drmq.model import Offset
from drmq.model.counters import Histogram

if TYPE_CHECKING:
    from drmq.broker.partitions.partition import Partition


class CommitTimes:
    """The batch that is being timed, and the times of those before. Used on the event loop."""

    __slots__ = ("_began_ns", "durations_us", "next_offset", "partition")

    def __init__(self) -> None:
        self.durations_us = Histogram()
        self.partition: Partition | None = None
        """The partition whose batch is being timed; None if there is none."""
        self.next_offset = Offset(0)
        """The offset after that batch."""
        self._began_ns = 0

    def begin(self, partition: Partition, next_offset: Offset) -> None:
        self.partition = partition
        self.next_offset = next_offset
        self._began_ns = time.perf_counter_ns()

    def end(self) -> None:
        """The batch is committed."""
        self.partition = None
        self.durations_us.add((time.perf_counter_ns() - self._began_ns) // 1_000)

    def forget(self, partition: Partition) -> None:
        """A partition is no longer led here: its batch may never be committed."""
        if self.partition is partition:
            self.partition = None
