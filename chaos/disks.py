"""Disks that lose their power, lie, are full, slow or empty: K1, K3, K4, K5, K6, K10, and F12 with a power cut."""

from __future__ import annotations

from contextlib import suppress

from chaos import bulk
from chaos.run import Run
from support.checked import Place
from support.polling import eventually
from support.raw_client import RawClient, RequestFailed

ASIDE = "aside"
"""A topic that no other client writes to: records in it are not part of the final checks."""
READ = "read-aside"
"""Another, whose leader keeps its space."""
READS = 40
LARGE_BYTES = 200_000
STRACE = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]


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


def lying_disk(run: Run) -> None:
    """The disk of one node says "synced" and stores nothing for a while; then the power goes. The others have it all.

    The node has lost what it has acknowledged, and maybe a vote. If the others were gone too, that would be lost: the
    guide says so. They are not, so nothing is lost, and the node takes part again.
    """
    for _ in range(2):
        place = run.place()
        node_id = run.leader(place) if run.chance.random() < 0.5 else run.follower(place)
        run.say(f"from now on the disk of {node_id} stores nothing")
        run.cluster[node_id].pause()
        run.disks[node_id].copy()
        run.cluster[node_id].resume()
        run.load.wait_loaded(run.chance.randrange(100, 400))
        run.say(f"power cut on {node_id}")
        run.cluster[node_id].kill()
        run.disks[node_id].cut()
        run.served()
        run.start(node_id)
        run.whole()


def swapped_majorities_and_power(run: Run) -> None:
    """As F12, and the third node loses its power: a majority of one with memory and two that were paused."""
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
    """Every sync on one node takes 200 ms longer, a follower's, then a leader's: memory stays within its bounds."""
    bulk.create(run)
    place = Place(bulk.TOPIC, 0)
    for leads in (True,) if run.is_alone else (False, True):
        node_id = run.leader(place) if leads else run.follower(place)
        node = run.cluster[node_id]
        run.say(f"every sync on node {node_id} takes 200 ms more")
        node.terminate()
        node.wrapper = [*STRACE, "-e", "inject=fsync,fdatasync:delay_enter=200000"]
        node.start().wait_ready(60)
        run.served()
        run.wait(3, 6)
        run.served()
        if leads and not run.is_alone:
            # Another one leads since the node was restarted.
            run.lead(place, node_id)
        bulk.write(run, bulk.SLOW_DISK_BYTES_MAX if leads else bulk.SLOW_FOLLOWER_BYTES_MAX)
        run.served()
        run.say(f"node {node_id} is fast again")
        node.wrapper = []
        node.terminate(60)
        node.start()
        run.whole()


def failed_sync(run: Run) -> None:
    """A sync fails on one node: it must not acknowledge what it did not store, and works again after a restart."""
    node_id = run.leader()
    fails_a_sync(run, node_id)
    run.served()
    run.wait(3, 6)
    run.served()
    gets_a_sound_disk(run, node_id)


def gets_a_sound_disk(run: Run, node_id: int) -> None:
    """Restart a node on a disk that no longer fails."""
    node = run.cluster[node_id]
    node.wrapper = []
    if node.running:
        run.kill(node_id)
    run.start(node_id)
    run.whole()


def fails_a_sync(run: Run, node_id: int) -> None:
    """Restart a node on a disk that fails after a while, and wait until it has."""
    run.expected += ["refuses appends", "is stopped", " CRITICAL "]
    node = run.cluster[node_id]
    node.terminate()
    run.say(f"the hundredth sync of each thread on node {node_id} fails")
    node.wrapper = [*STRACE, "-e", "inject=fdatasync:error=EIO:when=100"]
    before = len(node.log_text())
    node.start().wait_ready(60)
    # A failure that never came would prove nothing.
    eventually(lambda: node.log_text()[before:], lambda text: "Input/output error" in text, what="a failed sync")


def disk_full_on_follower(run: Run) -> None:
    """The disk of a follower is full: nothing waits for it, and it catches up when there is space."""
    node_id = run.follower()
    fill(run, node_id)
    with run.gap():
        run.served()
        run.wait(2, 4)
        run.served()
    empty(run, node_id)
    run.whole()


def disk_full_on_leader(run: Run) -> None:
    """The disk of a leader is full: its partitions are served nevertheless, and it works again when there is space."""
    place = run.place()
    node_id = run.leader(place)
    with run.gap(place):
        fill(run, node_id)
        run.served()
    run.wait(2, 4)
    run.served()
    empty(run, node_id)
    run.whole()


def disk_full_on_majority(run: Run) -> None:
    """The disks of most nodes are full: nothing is acknowledged, readers are served, until there is space."""
    cluster = run.cluster
    victims = run.chance.sample(cluster.ids, len(cluster.ids) // 2 + 1)
    spared = run.chance.choice([node_id for node_id in cluster.ids if node_id not in victims])
    for topic, leader in ((ASIDE, victims[0]), (READ, spared)):
        cluster.create_topic(topic, 1, {"retention.ms": "-1"}, len(cluster.ids))
        cluster.wait_healthy()
        run.lead(Place(topic, 0), leader)
        with RawClient(cluster[leader].bootstrap) as client:
            client.produce(topic, [b"before"])
    run.whole()
    term = _term(run, READ)
    fill(run, *victims)
    # What is small may still fit into the last page of a file, and is acknowledged for good. What is large cannot.
    for topic in (ASIDE, READ):
        for number in range(3):
            with RawClient(cluster[cluster.leader_of(topic)].bootstrap, timeout_s=2.0) as client:
                try:
                    client.produce(topic, [bytes(LARGE_BYTES)])
                except (RequestFailed, OSError) as refused:
                    run.say(f"attempt {number + 1} to write {LARGE_BYTES} bytes to {topic}: {refused!r}")
                else:
                    raise AssertionError("a large record was acknowledged, and there is no space for it on a majority")
    served = []
    for _ in range(READS):
        served.append(is_read(run, READ))
        run.wait(0.05, 0.2)
    run.say(f"{sum(served)} of {READS} readings from a leader that has space")
    # A leader with space has no reason to step down, and serves what is committed. A newly elected leader may not know
    # the last committed offset, and cannot learn it while no majority stores its first entry: until there is space it
    # refuses readers too, as every leader does at first. That is therefore reported and not checked.
    assert all(served) or _term(run, READ) > term, f"a leader with space refused {served.count(False)} readings"
    run.say(f"reading from the full disks {'works' if is_read(run, ASIDE) else 'does not work at the moment'}")
    run.load.look_at_commits()
    assert all(cluster[node_id].running for node_id in victims), "a full disk has ended a node"
    empty(run, *victims)
    run.whole()


def is_read(run: Run, topic: str) -> bool:
    """Whether the first record of a topic can be read, from whichever node."""
    for node_id in run.cluster.ids:
        with suppress(RequestFailed, OSError), RawClient(run.cluster[node_id].bootstrap, timeout_s=2.0) as client:
            if dict(client.fetch(topic, 0).records).get(0) == b"before":
                return True
    return False


def _term(run: Run, topic: str) -> int:
    """The highest term of the only partition of a topic that any node knows of."""
    terms = []
    for node_id in run.cluster.ids:
        with RawClient(run.cluster[node_id].bootstrap) as client:
            terms += [term for _, term in client.terms([topic])]
    return max(terms)


def started_on_a_full_disk(run: Run) -> None:
    """A node whose disk is full dies, starts on the full disk, and takes part again when there is space."""
    node_id = run.leader(run.place())
    fill(run, node_id)
    run.served()
    run.kill(node_id)
    run.start(node_id)
    run.served()
    run.wait(2, 4)
    empty(run, node_id)
    if not run.cluster[node_id].running:
        run.say(f"node {node_id} has exited on the full disk")
        run.start(node_id)
    run.whole()


def fill(run: Run, *node_ids: int) -> None:
    run.expected += ["refuses appends"]
    for node_id in node_ids:
        run.say(f"the disk of node {node_id} is full")
        run.small_disks[node_id].fill()


def empty(run: Run, *node_ids: int) -> None:
    for node_id in node_ids:
        run.say(f"there is space on the disk of node {node_id}")
        run.small_disks[node_id].empty()
