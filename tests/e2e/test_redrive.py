"""Redrive on real processes: nodes are killed in the middle, and every dead letter is once in its origin."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from drmq.client import Admin, ClientError, NewTopic
from drmq.model.names import SHARE_GROUP_STATE
from support.cluster import ClusterProcesses
from support.command_line import Cli
from support.polling import PATIENCE_S, eventually

ORIGIN, DLQ, GROUP = "orders", "dlq.billing", "billing"
ORIGIN_PARTITIONS = 3
LETTER_COUNT = 1_500
KILLS = 3


def send_letters(bootstrap: str, count: int, size: int) -> list[bytes]:
    """Write dead letters as the broker does, each with a value of its own."""
    values = [b"%06d" % number for number in range(count)]
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 200_000})
    for number, value in enumerate(values):
        headers: dict[str, str | bytes | None] = {
            "__dlq.errors.topic": ORIGIN,
            "__dlq.errors.partition": str(number % ORIGIN_PARTITIONS),
            "__dlq.errors.offset": str(number),
            "__dlq.errors.group": GROUP,
            "__dlq.errors.delivery.count": "5",
            "__dlq.errors.message": "it failed as often as the group allows",
        }
        producer.produce(DLQ, value + bytes(size), partition=number % 2, headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    return values


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    """The first bytes of every value in a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(ORIGIN_PARTITIONS)])
    found: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < ORIGIN_PARTITIONS:
        assert time.monotonic() < deadline, f"{len(found)} records, and {ended} have ended"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, partition = message.error(), message.partition()
        if error is None:
            found.append((message.value() or b"")[:6])
        elif error.code() == KafkaError._PARTITION_EOF and partition is not None:
            ended.add(partition)
    consumer.close()
    return found


def prepare(cluster: ClusterProcesses) -> None:
    with cluster.admin() as admin:
        admin.topics.create(NewTopic(ORIGIN, ORIGIN_PARTITIONS, 3))
        admin.topics.create(NewTopic(DLQ, 2, 3, {"errors.deadletterqueue.group.enable": "true"}))


def redriven(admin: Admin) -> tuple[int, str] | None:
    """How many letters the redrive has moved, and its state; None if the cluster cannot say now."""
    try:
        redrive = admin.dead_letters.status(DLQ).redrive
    except ClientError:
        return None
    assert redrive is not None
    return redrive.redriven, redrive.state


@pytest.mark.timeout(600)
def test_every_letter_is_moved_once_although_the_driving_node_is_killed(tmp_path: Path) -> None:
    """The leader of the shard drives the redrive. It is killed in the middle, again and again."""
    env = {"DRMQ_SHARE_STATE_TOPIC_PARTITIONS": "1"}
    with ClusterProcesses(tmp_path, 3, env=env) as cluster:
        prepare(cluster)
        values = send_letters(cluster.bootstrap, LETTER_COUNT, 12_000)
        with cluster.admin() as admin:
            admin.dead_letters.redrive(DLQ)
        kills = 0
        seen = 0
        while True:
            with cluster.admin() as admin:
                found = eventually(lambda: redriven(admin), what="the status of the redrive")
                assert found is not None
                moved, state = found
                if state == "finished":
                    break
                assert state == "running"
                if kills < KILLS and moved > seen:
                    seen = moved + LETTER_COUNT // (2 * KILLS)
                    driver = cluster.leader_of(SHARE_GROUP_STATE)
                    cluster[driver].kill()
                    kills += 1
                    time.sleep(0.5)
                    cluster[driver].start()
        assert kills >= 2, "the redrive was over before it could be disturbed"
        cluster.wait_healthy()
        counts = Counter(read_all(cluster.bootstrap, ORIGIN))
        assert [value for value in values if counts[value] == 0] == [], "lost"
        assert {value: count for value, count in counts.items() if count > 1} == {}, "doubled"
        with cluster.admin() as admin:
            status = admin.dead_letters.status(DLQ)
            assert status.redrive is not None
            assert (status.waiting, status.redrive.redriven) == (0, LETTER_COUNT)


# ---- the command line ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def letters(cli: Cli) -> list[bytes]:
    """A dead-letter topic with six letters."""
    cli.ok("topic", "create", ORIGIN, "-p", str(ORIGIN_PARTITIONS))
    cli.ok("topic", "create", DLQ, "-p", "2", "-c", "errors.deadletterqueue.group.enable=true")
    return send_letters(cli.environment["DRMQ_BOOTSTRAP"], 6, 0)


def test_letters_are_listed_moved_and_purged(cli: Cli, letters: list[bytes]) -> None:
    [row] = cli.data("dlq", "ls")
    assert (row["topic"], row["groups"], row["waiting"]) == (DLQ, [GROUP], 6)
    assert row["last_reason"] == "it failed as often as the group allows"
    shown = cli.data("dlq", "show", GROUP, "--partition", "1")
    assert sorted(letter["value"] for letter in shown) == ["000001", "000004"]
    assert "No dead letter matches." in cli.ok("dlq", "show", DLQ, "--key", "missing")
    dry = cli.data("dlq", "redrive", DLQ, "--partition", "1", "--dry-run")
    assert dry == {"topic": DLQ, "matching": 2, "would_move": 2}
    ended = cli.data("dlq", "redrive", DLQ, "--partition", "1", "--yes")
    assert (ended["waiting"], ended["redrive"]["redriven"], ended["redrive"]["skipped"]) == (4, 2, 4)
    assert cli.data("dlq", "purge", DLQ, "--value-contains", "000000", "--dry-run")["matching"] == 1
    assert cli.data("dlq", "purge", DLQ, "--value-contains", "000000", "--yes")["purged"] == 1
    assert sorted(letter["value"] for letter in cli.data("dlq", "show", DLQ)) == ["000002", "000003", "000005"]
    assert sorted(read_all(cli.environment["DRMQ_BOOTSTRAP"], ORIGIN)) == [b"000001", b"000004"]


def test_interrupting_the_command_stops_the_redrive(cli: Cli, letters: list[bytes]) -> None:
    """Its topic takes nothing for now, so the redrive is under way until then."""
    cli.ok("topic", "alter", ORIGIN, "-c", "min.insync.replicas=2")
    before = len(read_all(cli.environment["DRMQ_BOOTSTRAP"], ORIGIN))
    command = [sys.executable, "-m", "drmq", "dlq", "redrive", DLQ, "--yes", "-b", cli.environment["DRMQ_BOOTSTRAP"]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: cli.data("dlq", "status", DLQ)["redrive"]["state"] == "running")
        assert "A redrive of" in cli.refused(1, "dlq", "redrive", DLQ, "--yes")
        process.send_signal(signal.SIGINT)
        cli.ok("topic", "alter", ORIGIN, "-c", "min.insync.replicas=1")
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "Stopped the redrive" in said
    state = eventually(lambda: cli.data("dlq", "status", DLQ), lambda found: found["redrive"]["state"] != "stopping")
    assert state["redrive"]["state"] == "stopped"
    assert len(read_all(cli.environment["DRMQ_BOOTSTRAP"], ORIGIN)) == before + state["redrive"]["redriven"]
    cli.ok("dlq", "purge", DLQ, "--yes")
    assert cli.data("dlq", "ls")[0]["waiting"] == 0
