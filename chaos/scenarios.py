"""The failures, each a function that lets something go wrong under load and puts it right again.

Names begin with the number of the scenario in the safety plan (F: processes and network, K: disks). A scenario ends
with every process running and every link open; whether all is well then is judged by `support.cluster_load`. Where a
majority is left while something is wrong, the scenario waits until every producer is served meanwhile: that is part of
what is tested.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from support.checked import Place
from support.cluster import ClusterProcesses
from support.cluster_load import SMALL, Load
from support.link_rules import CLIENTS, LinkRule
from support.networks import FaultyNetwork
from support.polling import eventually
from support.power import PowerDisk, cut_power

OFFSETS = "__consumer_offsets"
SERVED_WITHIN_S = 60.0
STRACE = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]


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
    expected: list[str] = field(default_factory=list)
    """Words of log lines that are alarms elsewhere and belong to what this scenario does."""
    gaps: list[float] = field(default_factory=list)
    """The longest time without an acknowledgement around each failure, in seconds."""

    # ---- who ------------------------------------------------------------------------------------

    def place(self) -> Place:
        return self.chance.choice(self.load.places)

    def leader(self, place: Place | None = None) -> int:
        return self.cluster.leader_of(*(place or Place(SMALL, 0)))

    def follower(self, place: Place | None = None) -> int:
        leader = self.leader(place)
        return self.chance.choice([node_id for node_id in self.cluster.running if node_id != leader])

    def others(self, node_id: int) -> list[int]:
        return [other for other in self.cluster.ids if other != node_id]

    # ---- what -----------------------------------------------------------------------------------

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

    @contextmanager
    def gap(self, place: Place | None = None) -> Iterator[None]:
        """Note the longest time without an acknowledgement while something is done."""
        started = time.monotonic()
        yield
        self.gaps.append(self.load.history.longest_gap(started, time.monotonic(), place))


def _nodes(node_ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, node_ids))


# ---- processes ----------------------------------------------------------------------------------


def leader_killed(run: Run) -> None:
    """The leader of a partition dies and comes back after a while, three times."""
    for _ in range(3):
        place = run.place()
        leader = run.leader(place)
        with run.gap(place):
            run.kill(leader)
            run.served()
        run.wait(0, 3)
        run.start(leader)
        run.whole()


def follower_killed(run: Run) -> None:
    """A node that only follows dies and comes back."""
    for _ in range(2):
        follower = run.follower()
        with run.gap(Place(SMALL, 0)):
            run.kill(follower)
            run.served()
        run.wait(0, 3)
        run.start(follower)
        run.whole()


def coordinator_killed(run: Run) -> None:
    """The node that looks after consumer groups dies."""
    for _ in range(2):
        node_id = run.cluster.leader_of(OFFSETS, run.chance.randrange(4))
        run.kill(node_id)
        run.served()
        run.start(node_id)
        run.whole()


def controller_killed(run: Run) -> None:
    """The node that keeps the metadata dies."""
    for _ in range(2):
        node_id = run.cluster.controller()
        run.kill(node_id)
        run.served()
        run.wait(0, 2)
        run.start(node_id)
        run.whole()


def all_killed(run: Run) -> None:
    """All nodes die at once and come back one by one."""
    for _ in range(2):
        run.say("kill -9 all")
        run.cluster.kill_all()
        order = run.cluster.ids
        run.chance.shuffle(order)
        for node_id in order:
            run.start(node_id)
            run.wait(0, 1)
        run.whole()


def majority_killed(run: Run) -> None:
    """More than half of the nodes die: nothing is acknowledged until one of them is back."""
    count = len(run.cluster.ids) // 2 + 1
    victims = run.chance.sample(run.cluster.ids, count)
    run.kill(*victims)
    run.wait(1, 3)
    run.start(victims[0])
    run.served()
    run.start(*victims[1:])
    run.whole()


def killed_while_starting(run: Run) -> None:
    """A node dies again and again while it starts."""
    node_id = run.follower()
    run.kill(node_id)
    for _ in range(4):
        run.start(node_id)
        run.wait(0.1, 1.5)
        run.kill(node_id)
    run.start(node_id)
    run.whole()


def rolling_restart(run: Run) -> None:
    """Every node is stopped in order and started again; no client may hear of an error."""
    for node_id in run.cluster.ids:
        run.say(f"stop {node_id} in order")
        with run.gap():
            assert run.cluster[node_id].terminate() == 0
        run.start(node_id)
        run.whole()
    assert not run.load.client_problems(), run.load.client_problems()


def restarted_all_the_time(run: Run) -> None:
    """Every two seconds one node is stopped or killed, and started at once."""
    for _ in range(8):
        node_id = run.chance.choice(run.cluster.ids)
        if run.chance.random() < 0.5:
            run.kill(node_id)
        else:
            run.say(f"stop {node_id} in order")
            run.cluster[node_id].terminate()
        run.start(node_id)
        run.cluster[node_id].wait_ready()
        time.sleep(2)
    run.whole()


def leader_paused(run: Run) -> None:
    """The leader stands still long enough to be replaced, and goes on as if nothing had been."""
    for _ in range(2):
        place = run.place()
        leader = run.leader(place)
        with run.gap(place):
            run.pause(leader)
            run.served()
        run.wait(0, 4)
        run.resume(leader)
        run.whole()


def leader_paused_briefly(run: Run) -> None:
    """Pauses around the election timeout: sometimes it is replaced, sometimes not."""
    for _ in range(5):
        leader = run.leader(run.place())
        run.pause(leader)
        run.wait(0.3, 2.5)
        run.resume(leader)
        run.wait(0.2, 1)
    run.whole()


def follower_paused(run: Run) -> None:
    """A node that only follows stands still, and catches up."""
    follower = run.follower()
    run.pause(follower)
    run.served()
    run.wait(2, 8)
    run.resume(follower)
    run.whole()


def swapped_majorities(run: Run) -> None:
    """Five nodes: two stand still, a third dies and comes back; then these two go on and the last two stand still.

    The majority before and the one after share only the node that died: what it has forgotten is lost.
    """
    one, two, three, four, five = run.chance.sample(run.cluster.ids, 5)
    run.pause(one, two)
    run.served()
    run.kill(three)
    run.start(three)
    run.resume(one, two)
    run.pause(four, five)
    run.wait(0, 1)
    run.served()
    run.resume(four, five)
    run.whole()


# ---- network ------------------------------------------------------------------------------------


def leader_isolated(run: Run) -> None:
    """The leader loses the other nodes; clients still reach it."""
    for _ in range(2):
        place = run.place()
        leader = run.leader(place)
        with run.gap(place):
            run.say(f"cut node {leader} off from the other nodes")
            run.network.isolate(leader)
            run.served()
        run.wait(0, 4)
        run.heal()
        run.whole()


def leader_isolated_briefly(run: Run) -> None:
    """As long as an election takes: the old leader comes back with records of its own to a new one."""
    for _ in range(8):
        leader = run.leader(run.place())
        run.say(f"cut node {leader} off from the other nodes, briefly")
        run.network.isolate(leader)
        run.wait(0.9, 2.2)
        run.heal()
        run.wait(0.3, 1)
    run.whole()


def leader_vanished(run: Run) -> None:
    """The leader loses everyone, clients too."""
    place = run.place()
    leader = run.leader(place)
    with run.gap(place):
        run.say(f"cut node {leader} off from everyone")
        run.network.isolate(leader, from_clients=True)
        run.served()
    run.wait(0, 4)
    run.heal()
    run.whole()


def follower_isolated(run: Run) -> None:
    """A follower loses the others, and must not disturb them when it is back."""
    follower = run.follower()
    run.say(f"cut node {follower} off from the other nodes")
    run.network.isolate(follower)
    run.served()
    run.wait(3, 8)
    with run.gap():
        run.heal()
        run.whole()


def all_apart(run: Run) -> None:
    """No node reaches any other: nobody may acknowledge anything."""
    run.say("cut every link between nodes")
    for node_id in run.cluster.ids:
        run.network.isolate(node_id)
    time.sleep(3)
    before = run.load.history.acked_count
    time.sleep(3)
    after = run.load.history.acked_count
    assert after == before, f"{after - before} acknowledgements without a majority"
    run.heal()
    run.whole()


def split_three_two(run: Run) -> None:
    """Five nodes, two of them with a leader on the smaller side."""
    leader = run.leader()
    other = run.chance.choice(run.others(leader))
    run.say(f"split {leader}, {other} from the rest")
    run.network.split([leader, other])
    run.served()
    run.wait(1, 4)
    run.heal()
    run.whole()


def ring(run: Run) -> None:
    """Five nodes, each of which reaches only its two neighbours: everyone sees a majority, and another one."""
    ids = run.cluster.ids
    run.say("each node reaches its two neighbours only")
    for position, node_id in enumerate(ids):
        for distance in (2, 3):
            run.network.cut_both(node_id, ids[(position + distance) % len(ids)])
    run.wait(4, 8)
    run.heal()
    run.whole()


def deaf_leader(run: Run) -> None:
    """The leader is heard and hears nothing: it must step down, although its followers hear it."""
    leader = run.leader()
    run.say(f"node {leader} hears no other node")
    with run.gap():
        for other in run.others(leader):
            run.network.cut(other, leader)
        run.served()
    run.wait(0, 3)
    run.heal()
    run.whole()


def mute_leader(run: Run) -> None:
    """The leader hears and is not heard."""
    leader = run.leader()
    run.say(f"no other node hears node {leader}")
    with run.gap():
        for other in run.others(leader):
            run.network.cut(leader, other)
        run.served()
    run.wait(0, 3)
    run.heal()
    run.whole()


def deaf_follower(run: Run) -> None:
    """A follower that hears nothing must not depose a leader that all others hear."""
    follower = run.follower()
    run.say(f"node {follower} hears no other node")
    with run.gap():
        for other in run.others(follower):
            run.network.cut(other, follower)
        run.served()
        run.wait(3, 6)
        run.served()
    run.heal()
    run.whole()


def clients_cut_off(run: Run) -> None:
    """The nodes are fine, but clients do not reach the leader any more."""
    leader = run.leader()
    run.say(f"clients do not reach node {leader}")
    run.network.cut_both(CLIENTS, leader)
    run.wait(3, 6)
    run.heal()
    run.whole()


def delayed(run: Run) -> None:
    """Every frame between nodes takes about 100 ms."""
    run.say("100 ms, give or take 50, on every link between nodes")
    run.network.set_rule(run.network.between_nodes(), LinkRule(delay_ms=100, jitter_ms=50))
    run.served()
    run.kill(leader := run.leader())
    run.served()
    run.start(leader)
    run.wait(1, 3)
    run.heal()
    run.whole()


def lossy(run: Run) -> None:
    """Frames get lost and doubled, more and more of them, between all nodes and to clients."""
    links = [*run.network.between_nodes()]
    links += [link for node_id in run.cluster.ids for link in ((CLIENTS, node_id), (node_id, CLIENTS))]
    for loss in (0.05, 0.2):
        run.say(f"{loss:.0%} of all frames get lost, as many arrive twice, and they overtake each other")
        run.network.set_rule(links, LinkRule(loss=loss, duplicate=loss, delay_ms=2, jitter_ms=2))
        run.served()
        run.wait(2, 4)
    run.heal()
    run.whole()


def flapping(run: Run) -> None:
    """Links to one node work for 200 ms and fail for 300 ms, again and again."""
    victim = run.leader() if run.chance.random() < 0.5 else run.follower()
    run.say(f"the links of node {victim} flap")
    until = time.monotonic() + run.chance.uniform(6, 12)
    while time.monotonic() < until:
        time.sleep(0.2)
        run.network.isolate(victim)
        time.sleep(0.3)
        run.network.heal()
    run.heal()
    run.whole()


def slow_link(run: Run) -> None:
    """A follower behind 100 kB/s: the others do not wait for it, and it catches up."""
    follower = run.follower()
    run.say(f"100 kB/s to node {follower}")
    run.network.set_rule(run.network.links_of(follower), LinkRule(bytes_per_s=100_000))
    with run.gap():
        run.served()
        run.wait(4, 8)
        run.served()
    run.heal()
    run.whole()


# ---- disks --------------------------------------------------------------------------------------


def power_cut_on_one(run: Run) -> None:
    """A node loses its power, and with it all that was not synced: a leader, then a follower."""
    for _ in range(3):
        place = run.place()
        node_id = run.leader(place) if run.chance.random() < 0.6 else run.follower(place)
        run.cut_power(node_id)
        run.served()
        run.start(node_id)
        run.whole()


def power_cut_on_all(run: Run) -> None:
    """The whole cluster loses its power at the same moment."""
    for _ in range(3):
        run.load.wait_loaded(run.chance.randrange(10, 100))
        run.cut_power(*run.cluster.ids)
        run.start(*run.cluster.ids)
        run.whole()


def swapped_majorities_and_power(run: Run) -> None:
    """As F12, and the third node loses its power: a majority of one with memory and two that stood still."""
    one, two, three, four, five = run.chance.sample(run.cluster.ids, 5)
    run.pause(one, two)
    run.served()
    run.cut_power(three)
    run.start(three)
    run.resume(one, two)
    run.pause(four, five)
    run.wait(0, 1)
    run.served()
    run.resume(four, five)
    run.whole()


def wiped(run: Run) -> None:
    """Every node in its turn comes back with an empty disk."""
    for node_id in run.cluster.ids:
        run.kill(node_id)
        run.say(f"wipe {node_id}")
        run.cluster[node_id].wipe()
        run.served()
        run.start(node_id)
        run.whole()


def slow_disk(run: Run) -> None:
    """Every sync on one node takes 200 ms longer: a follower, then a leader."""
    for node_id in (run.follower(), run.leader()):
        node = run.cluster[node_id]
        run.say(f"every sync on node {node_id} takes 200 ms more")
        node.terminate()
        node.wrapper = [*STRACE, "-e", "inject=fsync,fdatasync:delay_enter=200000"]
        node.start().wait_ready(60)
        run.served()
        run.wait(3, 6)
        run.served()
        run.say(f"node {node_id} is quick again")
        node.wrapper = []
        node.terminate(60)
        node.start()
        run.whole()


def failed_sync(run: Run) -> None:
    """A sync fails on one node: it must not acknowledge what it did not store, and is well after a restart."""
    run.expected += ["refuses appends", "is stopped", " CRITICAL "]
    node_id = run.leader()
    node = run.cluster[node_id]
    node.terminate()
    run.say(f"the hundredth sync of each thread on node {node_id} fails")
    node.wrapper = [*STRACE, "-e", "inject=fdatasync:error=EIO:when=100"]
    before = len(node.log_text())
    node.start().wait_ready(60)
    # A failure that never came would prove nothing.
    eventually(lambda: node.log_text()[before:], lambda text: "Input/output error" in text, what="a failed sync")
    run.served()
    run.wait(3, 6)
    run.served()
    node.wrapper = []
    if node.running:
        run.kill(node_id)
    run.start(node_id)
    run.whole()


class Scenario(NamedTuple):
    """A failure by name, what it needs of the machine, and how many nodes."""

    name: str
    act: Callable[[Run], None]
    needs: str = ""
    """A feature of the network, `strace`, or `power`."""
    nodes: int = 3

    @property
    def text(self) -> str:
        """What it does, in a sentence."""
        return (getattr(self.act, "func", self.act).__doc__ or "").partition("\n")[0]


SCENARIOS = [
    Scenario("F1-leader-killed", leader_killed),
    Scenario("F1-follower-killed", follower_killed),
    Scenario("F1-coordinator-killed", coordinator_killed),
    Scenario("F1-controller-killed", controller_killed),
    Scenario("F1-all-killed", all_killed),
    Scenario("F1-majority-killed", majority_killed),
    Scenario("F1-killed-while-starting", killed_while_starting),
    Scenario("F3-rolling-restart", rolling_restart),
    Scenario("F3-restarted-all-the-time", restarted_all_the_time),
    Scenario("F4-leader-paused", leader_paused),
    Scenario("F4-leader-paused-briefly", leader_paused_briefly),
    Scenario("F4-follower-paused", follower_paused),
    Scenario("F5-leader-isolated", leader_isolated, "cut"),
    Scenario("F5-leader-isolated-briefly", leader_isolated_briefly, "cut"),
    Scenario("F5-leader-vanished", leader_vanished, "cut"),
    Scenario("F5-follower-isolated", follower_isolated, "cut"),
    Scenario("F5-all-apart", all_apart, "cut"),
    Scenario("F5-split-three-two", split_three_two, "cut", 5),
    Scenario("F5-ring", ring, "cut", 5),
    Scenario("F6-deaf-leader", deaf_leader, "cut"),
    Scenario("F6-mute-leader", mute_leader, "cut"),
    Scenario("F6-deaf-follower", deaf_follower, "cut"),
    Scenario("F7-clients-cut-off", clients_cut_off, "cut"),
    Scenario("F8-delayed", delayed, "delay"),
    Scenario("F8-lossy", lossy, "loss"),
    Scenario("F9-flapping", flapping, "cut"),
    Scenario("F10-slow-link", slow_link, "rate"),
    Scenario("F12-swapped-majorities", swapped_majorities, "", 5),
    Scenario("F12-swapped-majorities-and-power", swapped_majorities_and_power, "power", 5),
    Scenario("K1-power-cut-on-one", power_cut_on_one, "power"),
    Scenario("K1-power-cut-on-all", power_cut_on_all, "power"),
    Scenario("K4-failed-sync", failed_sync, "strace"),
    Scenario("K6-slow-disk", slow_disk, "strace"),
    Scenario("K10-wiped", wiped),
]


def mixture(run: Run, until: float) -> None:
    """One scenario after the other on the same cluster, as the seed has it."""
    fitting = [
        scenario
        for scenario in SCENARIOS
        if scenario.nodes == 3 and (not scenario.needs or scenario.needs in run.network.features)
    ]
    while time.monotonic() < until:
        scenario = run.chance.choice(fitting)
        run.say(f"mixture: {scenario.name}")
        scenario.act(run)
