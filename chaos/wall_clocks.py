"""Wrong clocks: F15. No decision depends on the time of day, so a wrong clock may have no effect."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from chaos.run import Run
from drmq.model import TopicPartition as Partition
from support.checked_clients import QUIET

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
EXPIRING = "kept-for-an-hour"
EXPIRING_RECORDS = 200
ATTEMPTS = 3
HELD_S = 3.0
"""Several rounds of retention, which runs every 300 ms here."""


def clock_of_one_node(run: Run) -> None:
    """The clock of a node jumps by an hour and by a day, ahead and back, and flickers: no election, nothing expires."""
    write_expiring(run)
    for node_id in (run.leader(), run.follower()):
        for shift_s in (HOUR_S + 60, -HOUR_S, DAY_S, -DAY_S):
            shifted(run, [node_id], shift_s)
        strobed(run, [node_id])
    nothing_expired(run)


def clocks_of_all_nodes(run: Run) -> None:
    """The clocks of all nodes jump together, and then each for itself."""
    write_expiring(run)
    for shift_s in (HOUR_S + 60, -HOUR_S, DAY_S, -DAY_S):
        shifted(run, run.cluster.ids, shift_s)
    run.say("every node has a different time")

    def act() -> None:
        for number, node_id in enumerate(run.cluster.ids):
            run.clocks[node_id].set((-1) ** number * (number + 1) * HOUR_S)
        run.served()
        time.sleep(HELD_S)
        set_right(run)

    without_election(run, act)
    strobed(run, run.cluster.ids)
    nothing_expired(run)


def started_with_a_wrong_clock(run: Run) -> None:
    """A node dies and starts in another year; then its clock is corrected."""
    write_expiring(run)
    for shift_s in (400 * DAY_S, -400 * DAY_S):
        node_id = run.leader()
        run.kill(node_id)
        run.say(f"the clock of node {node_id} is {shift_s / DAY_S:g} days off")
        run.clocks[node_id].set(shift_s)
        run.start(node_id)
        run.whole()
        time.sleep(HELD_S)
        run.served()
        set_right(run)
        run.served()
    nothing_expired(run)


def shifted(run: Run, node_ids: list[int], shift_s: float) -> None:
    """These clocks are wrong for a while, under load, and then right again."""
    run.say(f"clock of {', '.join(map(str, node_ids))}: {shift_s / HOUR_S:+.1f} h")

    def act() -> None:
        for node_id in node_ids:
            run.clocks[node_id].set(shift_s)
        run.served()
        time.sleep(HELD_S)
        set_right(run)
        run.served()

    without_election(run, act)


def strobed(run: Run, node_ids: list[int]) -> None:
    run.say(f"clock of {', '.join(map(str, node_ids))}: an hour ahead and back, ten times a second")

    def act() -> None:
        for number in range(60):
            for node_id in node_ids:
                run.clocks[node_id].set(HOUR_S if number % 2 == 0 else 0)
            time.sleep(0.1)
        set_right(run)
        run.served()

    without_election(run, act)


def set_right(run: Run) -> None:
    for clock in run.clocks.values():
        clock.set(0)


def without_election(run: Run, act: Callable[[], None]) -> None:
    """No election may happen meanwhile: no leader's term changes.

    On a busy machine a process may not run for longer than an election timeout. That is chance, and does not happen
    every time; an election that a clock has caused does.
    """
    for _ in range(ATTEMPTS):
        before = epochs(run)
        act()
        after = epochs(run)
        if after == before:
            return
        run.say(f"there was an election meanwhile: {before}, then {after}")
    raise AssertionError(f"{ATTEMPTS} times in a row a clock has led to an election")


def epochs(run: Run) -> list[int]:
    """The leaders' terms by partition."""
    places = [Partition(place.topic, place.partition) for place in run.load.places]
    with run.cluster.admin() as admin:
        found = admin.replicas.quorums(places)
    return [found[place].leader_epoch for place in places]


def write_expiring(run: Run) -> None:
    """Records of now, in a topic whose records expire after an hour."""
    cluster = run.cluster
    configs = {"retention.ms": str(int(HOUR_S * 1_000)), "segment.bytes": "10000"}
    cluster.create_topic(EXPIRING, 1, configs, len(cluster.ids))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "logger": QUIET})
    for number in range(EXPIRING_RECORDS):
        producer.produce(EXPIRING, b"%d" % number * 100)
        if number % 10 == 0:
            producer.flush(30)
    left = producer.flush(30)
    assert not left, f"{left} records were not acknowledged"


def nothing_expired(run: Run) -> None:
    """The records of `write_expiring` are minutes old, whatever the clocks said."""
    consumer = Consumer({"bootstrap.servers": run.cluster.bootstrap, "group.id": "unused", "logger": QUIET})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(EXPIRING, 0), timeout=30)
    finally:
        consumer.close()
    assert (low, high) == (0, EXPIRING_RECORDS), f"of records 0 to {EXPIRING_RECORDS} there are {low} to {high}"
