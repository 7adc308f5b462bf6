"""What a shard counts while it leads: records, since the start of the process."""

from __future__ import annotations

from collections.abc import Iterable

from drmq.leases.messages import Outcome


class LeaseCounts:
    """Plain integers. What is decided counts, also if the node stops leading before it is committed."""

    __slots__ = ("expired", "leased", "settled")

    def __init__(self) -> None:
        self.leased = 0
        self.settled = dict.fromkeys(Outcome, 0)
        """By outcome. A release that was the last delivery of its record is one, too."""
        self.expired = 0

    def add(self, other: LeaseCounts) -> None:
        self.leased += other.leased
        self.expired += other.expired
        for outcome, count in other.settled.items():
            self.settled[outcome] += count


def total(counts: Iterable[LeaseCounts]) -> LeaseCounts:
    """The sum of several."""
    found = LeaseCounts()
    for each in counts:
        found.add(each)
    return found
