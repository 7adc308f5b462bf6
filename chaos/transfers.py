"""Snapshots that are cut on their way to a node with an empty disk: F11.

What a node gets that starts from nothing is, beside the records, the state at the log's start: who produced what last.
Enough producers make that large enough to be cut in the middle, and the nodes send it in small parts: one that comes in
a single part is never there by half. The network counts the bytes of snapshots, so a cut is made where it is meant to
be, and a transfer that never was is noticed. A receiver that dies says after its restart what it has kept.
"""

from __future__ import annotations

import re

from chaos.run import Run
from support.link_rules import LinkRule
from support.polling import eventually
from support.raw_client import RawClient, RequestFailed

TRIMMED = "trimmed"
PRODUCERS = 1_500
MORE_PRODUCERS = 200
SNAPSHOT_BYTES_MIN = 30_000
"""A smaller one would be in a single packet, and cannot be cut."""
PART_BYTES = 4_096
"""So small that a tenth of the snapshot is more than one part."""
SMALL_PARTS = ("--snapshot-part-bytes", str(PART_BYTES))
CUTS = (0.1, 0.5, 0.9)
KEPT = re.compile(rf"/{TRIMMED}\.[0-9a-f]+/0: (\d+) bytes of a snapshot from node \d+ were kept over the restart")


def snapshot_cut(run: Run) -> None:
    """A snapshot stops at a tenth, a half and nine tenths; then its receiver, or its sender, dies."""
    write_and_trim(run, PRODUCERS)
    receiver = run.follower()
    size = whole_transfer(run, receiver)
    run.say(f"a snapshot of {size} bytes")
    first = run.chance.randrange(2)
    for number, part in enumerate(CUTS):
        sender = run.cluster.leader_of(TRIMMED)
        receiver = run.chance.choice(run.others(sender))
        stop_transfer(run, receiver, int(size * part))
        victim = sender if (number + first) % 2 else receiver
        kept_before = kept_bytes(run, receiver)
        run.kill(victim)
        run.wait(0, 2)
        run.heal()
        run.start(victim)
        run.whole()
        is_copied(run)
        if victim == receiver:
            goes_on(run, receiver, kept_bytes(run, receiver)[len(kept_before) :], int(size * part))


def kept_bytes(run: Run, node_id: int) -> list[int]:
    """For each start at which a node had a part of the snapshot: how many bytes."""
    return [int(found) for found in KEPT.findall(run.cluster[node_id].log_text())]


def goes_on(run: Run, receiver: int, kept: list[int], sent_bytes: int) -> None:
    """The receiver that died has kept what it had received, in whole parts; the last of them may not have come."""
    least = sent_bytes // PART_BYTES * PART_BYTES - 2 * PART_BYTES
    assert kept, f"node {receiver} had nothing of the snapshot after its restart, of which {sent_bytes} bytes were sent"
    run.say(f"node {receiver} went on after {kept[0]} bytes")
    assert kept[0] >= max(PART_BYTES, least), f"node {receiver} kept {kept[0]} of {sent_bytes} bytes"


def second_snapshot(run: Run) -> None:
    """While a snapshot is on its way the log is cut again: a newer snapshot takes its place."""
    write_and_trim(run, PRODUCERS)
    receiver = run.follower()
    size = whole_transfer(run, receiver)
    receiver = run.chance.choice(run.others(run.cluster.leader_of(TRIMMED)))
    stop_transfer(run, receiver, size // 2)
    write_and_trim(run, MORE_PRODUCERS, is_new=False)
    run.heal()
    run.whole()
    is_copied(run)


def whole_transfer(run: Run, receiver: int) -> int:
    """A node loses its disk and gets everything; how many bytes of snapshots that took."""
    before = run.network.counts()[0]
    wipe(run, receiver)
    run.start(receiver)
    run.whole()
    is_copied(run)
    size = run.network.counts()[0] - before
    assert size >= SNAPSHOT_BYTES_MIN, f"only {size} bytes of snapshots were sent"
    return size


def stop_transfer(run: Run, receiver: int, bytes_max: int) -> None:
    """A node loses its disk, and the snapshot that is sent to it stops after `bytes_max` bytes."""
    wipe(run, receiver)
    limit = run.network.counts()[0] + bytes_max
    run.say(f"the snapshot for node {receiver} stops after {bytes_max} bytes")
    to_receiver = [link for link in run.network.links_of(receiver) if link[1] == receiver]
    run.network.set_rule(to_receiver, LinkRule(snapshot_bytes_max=limit))
    run.start(receiver)
    eventually(lambda: run.network.counts()[0], lambda passed: passed >= limit, what="a snapshot on its way")
    run.served()


def wipe(run: Run, node_id: int) -> None:
    run.kill(node_id)
    run.say(f"wipe {node_id}")
    run.cluster[node_id].wipe()


def write_and_trim(run: Run, producers: int, *, is_new: bool = True) -> None:
    """One batch from each of many producers, and then all but the last gone."""
    cluster = run.cluster
    if is_new:
        cluster.create_topic(TRIMMED, 1, {"retention.ms": "-1"}, len(cluster.ids))
    offset = 0
    client = RawClient(cluster[cluster.leader_of(TRIMMED)].bootstrap)
    for _ in range(producers):
        producer: tuple[int, int] | None = None
        while True:
            try:
                producer = producer or client.init_producer_id()
                offset = client.produce(
                    TRIMMED, [b"x"], producer_id=producer[0], producer_epoch=producer[1], base_sequence=0
                )
                break
            except (RequestFailed, OSError) as error:
                # On a busy machine a leader may be replaced. The producer is known, so this writes nothing twice.
                run.say(f"a producer tries again: {error}")
                client.close()
                client = RawClient(cluster[cluster.leader_of(TRIMMED)].bootstrap)
    client.close()

    def trimmed() -> int:
        with RawClient(cluster[cluster.leader_of(TRIMMED)].bootstrap) as client:
            try:
                return client.delete_records(TRIMMED, offset)
            except RequestFailed:
                return -1

    eventually(trimmed, lambda start: start == offset, interval_s=0.5, what="the log begins with the last record")
    run.say(f"{producers} producers have written, and all but the last of their records are gone")


def is_copied(run: Run) -> None:
    """What is left of the partition can be read, whichever node leads it."""

    def kept() -> list[bytes]:
        with RawClient(run.cluster[run.cluster.leader_of(TRIMMED)].bootstrap) as client:
            try:
                return list(client.fetch_all(TRIMMED).values())
            except RequestFailed:
                return []

    assert eventually(kept, interval_s=0.5, what="records") == [b"x"]
