"""The state of all replicas of a node, in one pass over them, for those who watch the node.

The pass takes some microseconds for each replica. It runs when somebody reads the counters, and never by itself. Where
it takes long, its result is used again for a while (`telemetry.sparingly`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING

from drmq.broker.partitions.partition import Partition
from drmq.model import node_of
from drmq.model.counters import Sample
from drmq.raft import NO_INDEX, Role

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

TOPICS_MAX = 200
"""Topics with a label of their own. A metric with a label for each of thousands of topics would burden its reader."""
OTHER_TOPICS = "(other)"
_STATES = {
    Role.LEADER: "leader",
    Role.FOLLOWER: "follower",
    Role.PRE_CANDIDATE: "candidate",
    Role.CANDIDATE: "candidate",
}


@dataclass(slots=True)
class Survey:
    """What was found."""

    roles: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    """Bytes of the logs, by topic."""
    under_replicated: int = 0
    lags: Counter[int] = field(default_factory=Counter)
    """By node: the offsets by which its replicas are behind, in sum."""

    def samples(self) -> Iterator[Sample]:
        for role in ("leader", "follower", "stopped"):
            yield Sample("drmq_partitions", self.roles[role], (("role", role),))
        for state in ("leader", "follower", "candidate", "stopped"):
            yield Sample("drmq_raft_state", self.states[state], (("state", state),))
        shown = nlargest(TOPICS_MAX, self.sizes.items(), key=lambda item: (item[1], item[0]))
        for topic, size in shown:
            yield Sample("drmq_log_size_bytes", size, (("topic", topic),))
        if len(shown) < len(self.sizes):
            other = self.sizes.total() - sum(size for _, size in shown)
            yield Sample("drmq_log_size_bytes", other, (("topic", OTHER_TOPICS),))
        yield Sample("drmq_under_replicated_partitions", self.under_replicated)
        for node_id, lag in self.lags.items():
            yield Sample("drmq_replication_lag_records", lag, (("node", str(node_id)),))


def survey(broker: Broker) -> Survey:
    """Look at all replicas of this node."""
    found = Survey()
    found.lags.update(dict.fromkeys(sorted(broker.network.peers), 0))
    stopped = broker.partitions.count_stopped()
    found.roles["stopped"] += stopped
    found.states["stopped"] += stopped
    for partition in broker.partitions:
        _look_at(partition, found)
    return found


def _look_at(partition: Partition, found: Survey) -> None:
    found.sizes[partition.topic] += partition.log.size_bytes
    found.roles["leader" if partition.is_leader else "follower"] += 1
    node = partition.replica.node
    if node is None:
        found.states["stopped"] += 1
        return
    found.states[_STATES[node.role]] += 1
    if not partition.is_leader:
        return
    if len(partition.in_sync) < len(node.configuration.voters):
        found.under_replicated += 1
    end = partition.next_offset
    entries = partition.replica.entries
    for member, match in node.matches():
        reached = 0 if match == NO_INDEX else max(0, entries.next_offset(match))
        if reached < end:
            found.lags[node_of(member)] += end - reached
