"""Writes a lot while something is slow, and measures how much nodes keep in memory: for F10 and K6.

The load of every scenario is small: a leader that kept all of it for a slow follower would hardly grow. Here more is
written than a node's buffers may hold, and the memory of all nodes is measured meanwhile, since a slow leader may be
replaced. The limits are those of the options, plus `MARGIN_BYTES` for other memory of a process: requests that are
being read, and arenas of the allocator that are not returned.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from chaos.run import Run
from drmq.broker import BrokerOptions
from drmq.broker.replication.recent_entries import RECENT_BYTES_MAX
from drmq.transport.peers import PeerOptions

TOPIC = "bulk"
RECORD_BYTES = 64 * 1024
QUEUED_MESSAGES_MAX = 200
LOOK_EVERY = 16
"""Records between two looks at the memory."""
WRITTEN_WITHIN_MS = 120_000
MARGIN_BYTES = 32 << 20

SLOW_FOLLOWER_BYTES_MAX = PeerOptions().buffered_bytes_max + RECENT_BYTES_MAX + MARGIN_BYTES
"""What a leader may grow by while a follower does not keep up: what waits in the one connection for batches to it, and
the newest batches, which all partitions keep together. Older ones are read from the disk when the follower asks."""

SLOW_DISK_BYTES_MAX = BrokerOptions().queued_bytes_max + RECENT_BYTES_MAX + MARGIN_BYTES
"""The same while its own disk does not keep up: what waits for the disk, at which it stops reading from producers."""


def create(run: Run) -> None:
    run.cluster.create_topic(TOPIC, 1, {"retention.ms": "-1"}, min(3, len(run.cluster.ids)))


def write(run: Run, growth_bytes_max: int) -> None:
    """Write half as much again as a node may keep, and see that none does."""
    leader = run.cluster.leader_of(TOPIC)
    before = rss_of_all(run)
    highest = dict(before)
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": run.cluster.bootstrap,
            "queue.buffering.max.messages": QUEUED_MESSAGES_MAX,
            "message.timeout.ms": WRITTEN_WITHIN_MS,
            "log_level": 0,
        }
    )
    value = run.chance.randbytes(RECORD_BYTES)
    count = growth_bytes_max * 3 // 2 // RECORD_BYTES
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, partition=0, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        if number % LOOK_EVERY == 0:
            _raise(highest, rss_of_all(run))
    left = producer.flush(WRITTEN_WITHIN_MS / 1_000)
    assert not left, f"{left} of {count} large records are not written"
    assert not failed, f"{len(failed)} of {count} large records failed: {failed[0]}"
    _raise(highest, rss_of_all(run))
    grown = {node_id: highest[node_id] - size for node_id, size in before.items()}
    each = ", ".join(f"node {node_id} by {size >> 20}" for node_id, size in grown.items())
    now = run.cluster.leader_of(TOPIC)
    who = f"node {leader} led" if now == leader else f"node {leader} led, and then node {now}"
    run.say(f"{count * RECORD_BYTES >> 20} MiB written, {who}; grown, in MiB: {each}")
    for node_id, size in grown.items():
        assert size <= growth_bytes_max, (
            f"node {node_id} has grown from {before[node_id] >> 20} to {highest[node_id] >> 20} MiB; "
            f"its buffers and a margin are {growth_bytes_max >> 20} MiB"
        )


def _raise(highest: dict[int, int], sizes: dict[int, int]) -> None:
    for node_id, size in sizes.items():
        highest[node_id] = max(highest[node_id], size)


def rss_of_all(run: Run) -> dict[int, int]:
    return {node_id: rss_bytes(run.cluster[node_id].pid) for node_id in run.cluster.ids}


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory: it has ended")
