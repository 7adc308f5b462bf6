"""A cluster under load with the faults that a scenario can inject, and the definition of a scenario.

`Run` is passed to every scenario: leaders, followers, and the faults by name. A scenario ends with every process
running, every link open and every disk repaired; `support.cluster_load` then checks the cluster. If a majority is left
during a fault, the scenario waits until every producer is served meanwhile: that is part of the test.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from drmq.model import TopicPartition
from support.checked import Place
from support.clocks import ShiftedClock
from support.cluster import ClusterProcesses
from support.cluster_load import SMALL, Load
from support.lease_load import LeaseLoad
from support.networks import FaultyNetwork
from support.polling import eventually
from support.power import PowerDisk, cut_power
from support.small_disk import SmallDisk

SERVED_WITHIN_S = 60.0
MOVED_WITHIN_S = 60.0


@dataclass
class Run:
    """A cluster under load, and the choices of a seed."""

    cluster: ClusterProcesses
    network: FaultyNetwork
    load: Load
    chance: random.Random
    say: Callable[[str], None]
    disks: dict[int, PowerDisk] = field(default_factory=dict)
    """By node, where power can be cut."""
    small_disks: dict[int, SmallDisk] = field(default_factory=dict)
    """By node, where disks can be filled."""
    clocks: dict[int, ShiftedClock] = field(default_factory=dict)
    """By node, where clocks can be set."""
    expected: list[str] = field(default_factory=list)
    """Words of log lines that are alarms elsewhere but are expected in this scenario."""
    leases: LeaseLoad | None = None
    gaps: list[float] = field(default_factory=list)
    """The longest time without an acknowledgement around each failure, in seconds."""

    # ---- nodes -----------------------------------------------------------------------------------

    def place(self) -> Place:
        return self.chance.choice(self.load.places)

    def leader(self, place: Place | None = None) -> int:
        return self.cluster.leader_of(*(place or Place(SMALL, 0)))

    @property
    def is_alone(self) -> bool:
        """Whether there is only one node, so that no other can take over."""
        return len(self.cluster.ids) == 1

    def follower(self, place: Place | None = None) -> int:
        """A node that does not lead; the only one where there is no other."""
        leader = self.leader(place)
        if self.is_alone:
            return leader
        return self.chance.choice([node_id for node_id in self.cluster.running if node_id != leader])

    def others(self, node_id: int) -> list[int]:
        return [other for other in self.cluster.ids if other != node_id]

    # ---- faults ----------------------------------------------------------------------------------

    def kill(self, *node_ids: int) -> None:
        self.say(f"kill -9 {_nodes(node_ids)}")
        for node_id in node_ids:
            self.cluster[node_id].kill()

    def cut_power(self, *node_ids: int) -> None:
        self.say(f"power cut on {_nodes(node_ids)}")
        cut_power((self.cluster[node_id], self.disks[node_id]) for node_id in node_ids)

    def start(self, *node_ids: int) -> None:
        self.say(f"start {_nodes(node_ids)}")
        for node_id in node_ids:
            self.cluster[node_id].start()

    def pause(self, *node_ids: int) -> None:
        self.say(f"pause {_nodes(node_ids)}")
        for node_id in node_ids:
            self.cluster[node_id].pause()

    def resume(self, *node_ids: int) -> None:
        self.say(f"resume {_nodes(node_ids)}")
        for node_id in node_ids:
            self.cluster[node_id].resume()

    def heal(self) -> None:
        self.say("heal")
        self.network.heal()

    def wait(self, low_s: float, high_s: float) -> None:
        """Some time that the seed chooses."""
        time.sleep(self.chance.uniform(low_s, high_s))

    def served(self) -> None:
        """Every producer gets something acknowledged, although something is wrong."""
        self.load.wait_loaded(timeout_s=SERVED_WITHIN_S)

    def whole(self) -> None:
        """All is well again."""
        self.cluster.wait_serving()
        self.cluster.wait_healthy()
        self.load.wait_loaded()
        self.load.look_at_commits()

    def silent(self, settle_s: float = 3.0, watch_s: float = 3.0) -> None:
        """Nothing is acknowledged: there is no majority, or no node at all."""
        time.sleep(settle_s)
        before = self.load.history.acked_count
        time.sleep(watch_s)
        more = self.load.history.acked_count - before
        assert more == 0, f"{more} acknowledgements without a majority"

    # ---- where partitions are -------------------------------------------------------------------

    def move(self, place: Place, replicas: Sequence[int]) -> None:
        """Ask for a partition to be on these nodes; `moved` waits until it is."""
        self.say(f"move {place.topic}-{place.partition} to {_nodes(tuple(replicas))}")
        at = TopicPartition(place.topic, place.partition)
        with self.cluster.admin() as admin:
            refused = admin.replicas.reassign({at: list(replicas)})
        assert not refused, refused

    def moved(self) -> None:
        """Until nothing is being moved any more."""

        def under_way() -> object:
            with self.cluster.admin() as admin:
                return admin.replicas.reassignments()

        eventually(under_way, lambda moving: not moving, timeout_s=MOVED_WITHIN_S, interval_s=0.2, what="moves")

    def lead(self, place: Place, node_id: int) -> None:
        """Have a node lead a partition."""
        self.move(place, [node_id, *self.others(node_id)])
        self.moved()
        at = TopicPartition(place.topic, place.partition)

        def led() -> int:
            with self.cluster.admin() as admin:
                admin.replicas.elect([at])
            return self.leader(place)

        eventually(led, lambda leader: leader == node_id, interval_s=0.5, what=f"node {node_id} leads {place}")

    @contextmanager
    def gap(self, place: Place | None = None) -> Iterator[None]:
        """Note the longest time without an acknowledgement while something is done."""
        started = time.monotonic()
        yield
        self.gaps.append(self.load.history.longest_gap(started, time.monotonic(), place))


def _nodes(node_ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, node_ids))


class Scenario(NamedTuple):
    """A failure by name, what it needs of the machine, and how many nodes."""

    name: str
    act: Callable[[Run], None]
    needs: str = ""
    """Words: features of the network, `strace`, `power`, `small-disk`, `clock`."""
    nodes: int = 3
    """The fewest; more make sense unless `is_exact`. Where 1 is enough, a single node is tested as well."""
    spare_nodes: int = 0
    """How many may join."""
    is_exact: bool = False
    settings: tuple[str, ...] = ()
    """Flags that every node is started with."""
    leases: bool = False
    """Whether a lease group works beside the other clients."""
    known: str = ""
    """Why it fails, where that is known and not yet put right. It runs all the same, and must not pass unnoticed."""

    def fits(self, nodes: int) -> bool:
        """Whether the scenario fits a cluster of this size."""
        return nodes == self.nodes if self.is_exact else nodes >= self.nodes

    @property
    def text(self) -> str:
        """What it does, in a sentence."""
        return (getattr(self.act, "func", self.act).__doc__ or "").partition("\n")[0]
