"""A cluster of one node: F4, K4, K5, K7 and K9 where no other node can take over.

While the node has a fault, nothing is acknowledged. Damaged data is refused, named and left unchanged, since there is
no other copy. When the fault is over, nothing is missing. Failures that end by themselves are the same with any number
of nodes, and are not here.
"""

from __future__ import annotations

from chaos.damage import (
    RECORD_KINDS,
    damage_records,
    enough_batches,
    read_damaged,
    refuses_whatever_is_damaged,
)
from chaos.disks import ASIDE, LARGE_BYTES, READS, empty, fails_a_sync, fill, gets_a_sound_disk, is_read
from chaos.run import Run
from support.raw_client import RawClient, RequestFailed


def paused(run: Run) -> None:
    """The only node is paused: nothing is acknowledged until it is resumed, and nothing is lost."""
    (node_id,) = run.cluster.ids
    for _ in range(3):
        run.pause(node_id)
        run.silent(settle_s=0.5)
        run.wait(0, 4)
        run.resume(node_id)
        run.whole()


def failed_sync(run: Run) -> None:
    """A sync fails on the only node: it must not acknowledge what it did not store, and works again after a restart."""
    (node_id,) = run.cluster.ids
    fails_a_sync(run, node_id)
    run.wait(2, 4)
    gets_a_sound_disk(run, node_id)


def disk_full(run: Run) -> None:
    """The only disk is full, also at a start: nothing is acknowledged, readers are served, until there is space."""
    (node_id,) = run.cluster.ids
    node = run.cluster[node_id]
    run.cluster.create_topic(ASIDE, 1, {"retention.ms": "-1"})
    with RawClient(node.bootstrap) as client:
        client.produce(ASIDE, [b"before"])
    fill(run, node_id)
    for number in range(3):
        with RawClient(node.bootstrap, timeout_s=2.0) as client:
            try:
                client.produce(ASIDE, [bytes(LARGE_BYTES)])
            except (RequestFailed, OSError) as refused:
                run.say(f"attempt {number + 1} to write {LARGE_BYTES} bytes: {refused!r}")
            else:
                raise AssertionError("a large record was acknowledged, and there is no space for it")
    served = [is_read(run, ASIDE) for _ in range(READS)]
    assert all(served), f"{served.count(False)} of {READS} readings were refused for want of space to write"
    assert run.cluster.running, "a full disk has ended the node"
    run.kill(node_id)
    run.start(node_id)
    run.wait(3, 6)
    empty(run, node_id)
    if not node.running:
        run.say(f"node {node_id} has exited on the full disk")
        run.start(node_id)
    run.whole()


def records_damaged(run: Run) -> None:
    """A bit of a segment is flipped while the only node is down: it is refused, and all is there once it is right."""
    run.expected += ["is stopped"]
    (node_id,) = run.cluster.ids
    node = run.cluster[node_id]
    for number, kind in enumerate(RECORD_KINDS):
        place = run.place()
        enough_batches(run, place, node_id)
        if number % 2:
            run.kill(node_id)
        else:
            run.say(f"stop {node_id} cleanly")
            node.terminate()
        spot = damage_records(run, place, node_id, kind, is_sealed=number >= 2)
        said_before = len(node.log_text())
        run.start(node_id)
        node.wait_ready(60)
        said = node.log_text()[said_before:]
        if spot.is_sound:
            run.say("found at the start, and written again from the journal")
            run.whole()
            continue
        if "is stopped" in said:
            assert spot.path.name in said, f"the damage is not named: {said[-1_000:]}"
            run.say("found at the start; the partition is stopped")
        else:
            read_damaged(run, place, node_id, spot)
        run.kill(node_id)
        assert not spot.is_sound, f"{spot.text}: the only copy was changed"
        run.say("the bit is flipped back")
        spot.put_right()
        run.start(node_id)
        run.whole()


def promises_damaged(run: Run) -> None:
    """Votes, identity or metadata are flipped, truncated or empty: the only node does not start, and says why."""
    run.expected += [" CRITICAL "]
    (node_id,) = run.cluster.ids
    run.say(f"stop {node_id} cleanly")
    run.cluster[node_id].terminate()
    refuses_whatever_is_damaged(run, node_id)
    run.start(node_id)
    run.whole()
