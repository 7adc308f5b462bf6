"""Links that are cut, slow or lossy, and requests that arrive late: F5 to F10, F13."""

from __future__ import annotations

import time

from chaos import bulk
from chaos.run import Run
from support.link_rules import CLIENTS, LinkRule

PRODUCE = 0
HELD_MS = 7_000
"""Longer than any client here waits for an answer."""


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


def leader_of_all_isolated(run: Run) -> None:
    """One node leads everything, and loses the other nodes: clients that still reach it must find the new leaders."""
    for _ in range(2):
        node_id = run.cluster.controller()
        for place in run.load.places:
            run.lead(place, node_id)
        run.served()
        with run.gap():
            run.say(f"cut node {node_id} off from the other nodes")
            run.network.isolate(node_id)
            run.served()
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
    """The leader loses all connections, also those of clients."""
    place = run.place()
    leader = run.leader(place)
    with run.gap(place):
        run.say(f"cut node {leader} off from all nodes and clients")
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
    """No node reaches any other: nothing may be acknowledged."""
    run.say("cut every link between nodes")
    for node_id in run.cluster.ids:
        run.network.isolate(node_id)
    run.silent()
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
    """Five nodes, each of which reaches only its two neighbours: each node sees a majority, but a different one."""
    ids = run.cluster.ids
    run.say("each node reaches its two neighbours only")
    for position, node_id in enumerate(ids):
        for distance in (2, 3):
            run.network.cut_both(node_id, ids[(position + distance) % len(ids)])
    run.wait(4, 8)
    run.heal()
    run.whole()


def deaf_leader(run: Run) -> None:
    """The leader can send but receives nothing: it must step down, although its followers hear from it."""
    leader = run.leader()
    run.say(f"node {leader} receives from no other node")
    with run.gap():
        for other in run.others(leader):
            run.network.cut(other, leader)
        run.served()
    run.wait(0, 3)
    run.heal()
    run.whole()


def mute_leader(run: Run) -> None:
    """The leader can receive, but what it sends is lost."""
    leader = run.leader()
    run.say(f"no other node receives from node {leader}")
    with run.gap():
        for other in run.others(leader):
            run.network.cut(leader, other)
        run.served()
    run.wait(0, 3)
    run.heal()
    run.whole()


def deaf_follower(run: Run) -> None:
    """A follower that receives nothing must not depose a leader that all others hear from."""
    follower = run.follower()
    run.say(f"node {follower} receives from no other node")
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
    """A follower behind 100 kB/s: no node waits for it or keeps in memory what it lacks, and it catches up."""
    bulk.create(run)
    follower = run.chance.choice(run.others(run.cluster.leader_of(bulk.TOPIC)))
    run.say(f"100 kB/s to node {follower}")
    run.network.set_rule(run.network.links_of(follower), LinkRule(bytes_per_s=100_000))
    with run.gap():
        run.served()
        run.wait(4, 8)
        run.served()
    bulk.write(run, bulk.SLOW_FOLLOWER_BYTES_MAX)
    run.served()
    run.heal()
    run.whole()


def held_requests(run: Run) -> None:
    """Some Produce requests arrive seconds after their clients have given up on them and sent them again."""
    links = [(CLIENTS, node_id) for node_id in run.cluster.ids]
    before = run.network.counts()[1]
    run.say(f"one Produce request in fifty arrives {HELD_MS / 1_000:g} s late")
    run.network.set_rule(links, LinkRule(held_api=PRODUCE, held_part=0.02, held_ms=HELD_MS))
    until = time.monotonic() + 20
    while time.monotonic() < until:
        run.served()
    held = run.network.counts()[1] - before
    assert held >= 5, f"only {held} requests were held"
    run.say(f"{held} requests were held")
    run.heal()
    # The last of them arrives only now.
    time.sleep(HELD_MS / 1_000)
    run.whole()
