"""Rates and percentiles from counters: what happened between two readings of the same nodes.

A counter only grows, from the start of a node's process. So a rate needs two readings of one run of a node; after a
restart there is none until the next reading. The sum of the nodes is that of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from drmq.model.counters import Sample, quantile

Labels = tuple[tuple[str, str], ...]
_UPTIME = "drmq_process_uptime_us"


class Reading:
    """The counters of one node at one time."""

    def __init__(self, samples: Iterable[Sample], at_s: float) -> None:
        self.at_s = at_s
        self._values: dict[tuple[str, Labels], int] = {}
        self._buckets: dict[tuple[str, Labels], tuple[int, ...]] = {}
        for each in samples:
            self._values[each.name, each.labels] = each.value
            if each.buckets:
                self._buckets[each.name, each.labels] = each.buckets

    def value(self, name: str, *labels: tuple[str, str]) -> int:
        """The value of a counter; 0 if the node does not have it."""
        return self._values.get((name, labels), 0)

    def total(self, name: str) -> int:
        """The sum of a counter over all its labels."""
        return sum(value for (each, _), value in self._values.items() if each == name)

    def buckets(self, name: str, *labels: tuple[str, str]) -> tuple[int, ...]:
        return self._buckets.get((name, labels), ())

    def follows(self, before: Reading) -> bool:
        """Whether both readings are of the same run of the node's process."""
        return before.value(_UPTIME) <= self.value(_UPTIME) and before.at_s < self.at_s


class Change:
    """What changed on all nodes that were read twice in one run."""

    def __init__(self, before: Mapping[int, Reading], now: Mapping[int, Reading]) -> None:
        self._pairs = {
            node_id: (before[node_id], reading)
            for node_id, reading in now.items()
            if node_id in before and reading.follows(before[node_id])
        }

    def rate(self, name: str, *labels: tuple[str, str]) -> float | None:
        """How much a counter grew in a second, in sum over the nodes; None if nothing is known."""
        rates = [self.rate_of(node_id, name, *labels) for node_id in self._pairs]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    def rate_of(self, node_id: int, name: str, *labels: tuple[str, str]) -> float | None:
        """The same for one node."""
        if node_id not in self._pairs:
            return None
        before, now = self._pairs[node_id]
        return (now.value(name, *labels) - before.value(name, *labels)) / (now.at_s - before.at_s)

    def quantile(self, share: float, name: str, *labels: tuple[str, str]) -> int | None:
        """The value of a histogram below which this share of the new values are; None if there is none."""
        total: list[int] = []
        for before, now in self._pairs.values():
            old = before.buckets(name, *labels)
            for bucket, count in enumerate(now.buckets(name, *labels)):
                total += [0] * (bucket + 1 - len(total))
                total[bucket] += count - (old[bucket] if bucket < len(old) else 0)
        return quantile(total, share) if any(total) else None
