"""Copies that are damaged or gone, on three real processes: the others make them anew, and nobody is asked.

What can be lost on one node is lost there on purpose: a flipped bit, the votes, everything of a partition. The node
tells, gets another copy under another name, and in the end all replicas are the same, byte by byte.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from drmq.client import ClientError
from drmq.model import TopicPartition as Place
from support.checked_clients import QUIET
from support.cluster import ClusterProcesses
from support.cluster_load import ENVIRONMENT
from support.polling import PATIENCE_S, eventually

TOPIC = "orders"
RECORDS = 300
VALUE = b"v" * 1000


def flip_in_the_middle(log: Path) -> None:
    """Of the oldest segment, which is sealed: nobody reads it at the start."""
    path = min(log.glob("*.log"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def flip_in_the_last(log: Path) -> None:
    path = max(log.glob("*.log"))
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.write_bytes(content)


def forget_votes(log: Path) -> None:
    (log / "ledger").unlink()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, 3, None, ENVIRONMENT) as running:
        running.create_topic(TOPIC, configs={"segment.bytes": "50000"})
        produce(running, 0, RECORDS)
        running.wait_caught_up()
        yield running


def produce(cluster: ClusterProcesses, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1, "logger": QUIET})
    failed: list[object] = []
    for number in range(first, first + count):
        producer.produce(TOPIC, number.to_bytes(4, "big") + VALUE, on_delivery=lambda e, _: failed.append(e))
    assert producer.flush(PATIENCE_S) == 0
    assert not any(failed), failed


def consumed(cluster: ClusterProcesses, count: int) -> list[int]:
    """The numbers of the first records, each once and in order, whatever has to be tried again."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "all", "logger": QUIET})
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])

        def read() -> int:
            for message in consumer.consume(count - len(found), 0.5):
                if message.error() is None:
                    value = message.value()
                    assert value is not None
                    found.append(int.from_bytes(value[:4], "big"))
            return len(found)

        eventually(read, lambda done: done >= count, what=f"{count} records")
    finally:
        consumer.close()
    return found


def wait_said(cluster: ClusterProcesses, node_id: int, text: str) -> None:
    eventually(cluster[node_id].log_path.read_text, lambda log: text in log, what=f"node {node_id}: {text}")


def directory_of(cluster: ClusterProcesses, node_id: int) -> Path:
    (found,) = (cluster[node_id].data_dir / "topics").glob(f"{TOPIC}.*")
    return found


def contents(cluster: ClusterProcesses, node_id: int) -> bytes:
    """All segments, one after the other."""
    return b"".join(path.read_bytes() for path in sorted((directory_of(cluster, node_id) / "0").glob("*.log")))


def check_all_the_same(cluster: ClusterProcesses) -> None:
    eventually(
        lambda: {contents(cluster, node_id) for node_id in (1, 2, 3)}, lambda found: len(found) == 1, what="equal files"
    )
    cluster.wait_healthy()
    cluster.stop()
    one, two, three = (contents(cluster, node_id) for node_id in (1, 2, 3))
    assert one == two == three
    assert len(one) > RECORDS * len(VALUE)


@pytest.mark.parametrize("damage", [flip_in_the_last, forget_votes, shutil.rmtree], ids=lambda damage: damage.__name__)
def test_damage_found_at_the_start_is_mended(cluster: ClusterProcesses, damage: Callable[[Path], None]) -> None:
    """The node starts, its partition is stopped for a moment, and comes back whole."""
    node_id = next(node for node in cluster.ids if node != cluster.leader_of(TOPIC))
    assert cluster[node_id].terminate() == 0
    produce(cluster, RECORDS, 10)
    damage(directory_of(cluster, node_id) / "0")
    cluster[node_id].start().wait_ready()
    eventually(
        lambda: "is rebuilt on this node from the other replicas" in cluster[node_id].log_path.read_text(),
        lambda said: said,
        what="the repair",
    )
    produce(cluster, RECORDS + 10, 10)
    assert consumed(cluster, RECORDS + 20) == list(range(RECORDS + 20))
    check_all_the_same(cluster)
    kept = list(directory_of(cluster, node_id).glob("0.lost"))
    assert len(kept) == (0 if damage is shutil.rmtree else 1)


def test_damage_found_by_a_reader_is_mended(cluster: ClusterProcesses) -> None:
    """A leader that cannot read what it holds lets another one lead, and its readers go on there."""
    with cluster.admin() as admin:
        leader = admin.topics.describe(TOPIC).partitions[0].replicas[0]  # the one that can be made to lead
    assert cluster[leader].terminate() == 0
    cluster[leader].start().wait_ready()
    cluster.wait_healthy()
    flip_in_the_middle(directory_of(cluster, leader) / "0")

    def is_found() -> bool:
        """Read from the damaged replica, which must lead for that; on a busy machine another one may be elected."""
        with suppress(ClientError), cluster.admin() as admin:
            admin.replicas.elect([Place(TOPIC, 0)])
        assert consumed(cluster, RECORDS) == list(range(RECORDS))
        return "restore this file from a backup or a replica" in cluster[leader].log_text()

    eventually(is_found, what="the damage in the log")
    # Not while it is made to lead again and again: what is set aside does not lead.
    eventually(lambda: list(directory_of(cluster, leader).glob("0.lost")), bool, what="a copy set aside")
    check_all_the_same(cluster)


def test_the_last_sound_copies_are_not_given_up(cluster: ClusterProcesses) -> None:
    """Two of three are damaged: nothing is thrown away, and nobody pretends."""
    leader = cluster.leader_of(TOPIC)
    others = [node for node in cluster.ids if node != leader]
    cluster.stop()
    for node_id in others:
        flip_in_the_last(directory_of(cluster, node_id) / "0")
    for node_id in cluster.ids:
        cluster[node_id].start()
    cluster.wait_serving()
    for node_id in others:
        wait_said(cluster, node_id, "cannot be rebuilt on this node yet")
        assert not list(directory_of(cluster, node_id).glob("0.lost"))
        assert (directory_of(cluster, node_id) / "0" / "ledger").exists()
