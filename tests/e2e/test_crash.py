"""SIGKILL under load, again and again: what was acknowledged is there, once, where it was said to be.

A broker serves several producers and consumers. At a random point it is killed, started again on the same directory
and port, and so on; sometimes it is killed once more while it is starting. At the end everything is read and compared
with what the clients have noted (`support.checked`).

What this cannot show: a killed process loses nothing that it handed to the kernel, so an acknowledgement before its
fsync goes unnoticed here. The tests on `FakeFiles` (tests/unit/storage, tests/unit/broker) cut the power instead.

`DRMQ_SOAK_MINUTES` makes the run longer and its seed random; `DRMQ_SEED` repeats one.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections import Counter
from pathlib import Path

import pytest

from support.checked import History, Look, Place, report, violations
from support.checked_clients import (
    CheckedClient,
    GroupMember,
    IdempotentProducer,
    LeaderAckProducer,
    RetryingProducer,
    TailReader,
    read_everything,
)
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient, RequestFailed

SOAK_MINUTES = float(os.environ.get("DRMQ_SOAK_MINUTES", "0"))
SEED = int(os.environ.get("DRMQ_SEED", "0")) or (secrets.randbelow(10**9) + 1 if SOAK_MINUTES else 1)
RUN_S = SOAK_MINUTES * 60 or 20.0
KILLS_MIN = 4
ACKS_BEFORE_KILL_MIN = 300
ACKS_EACH_MIN = 20
"""Fewer acknowledgements between a start and its kill, in all and of each producer, would show nothing."""

SMALL, LARGE = "crash-small-segments", "crash"
PLACES = [Place(SMALL, 0), Place(SMALL, 1), Place(SMALL, 2), Place(LARGE, 0)]
GROUP = "crash-group"
UNKNOWN_TOPIC = 3
# Maintenance runs all the time, so that kills fall into snapshots of the producers' tables too.
ENVIRONMENT = {"DRMQ_RETENTION_CHECK_INTERVAL_MS": "200"}


def start_clients(bootstrap: str, history: History) -> list[CheckedClient]:
    clients: list[CheckedClient] = [
        IdempotentProducer("idempotent-1", bootstrap, history, PLACES, SEED),
        IdempotentProducer("idempotent-2", bootstrap, history, PLACES, SEED, compression="lz4", size_max=3_000),
        LeaderAckProducer("acks-1", bootstrap, history, Place(SMALL, 0), SEED),
        RetryingProducer("retrying-1", bootstrap, history, Place(SMALL, 1), SEED),
        RetryingProducer("retrying-2", bootstrap, history, Place(LARGE, 0), SEED),
        TailReader("tail", bootstrap, history, PLACES),
        GroupMember("member-1", bootstrap, history, [SMALL, LARGE], GROUP),
        GroupMember("member-2", bootstrap, history, [SMALL, LARGE], GROUP),
    ]
    for client in clients:
        client.start()
    return clients


def look_at_commits(bootstrap: str, history: History) -> None:
    """Note what the broker says that the group has committed."""
    with RawClient(bootstrap) as client:
        for place in PLACES:
            floor = history.committed_floor(GROUP, place)
            seen = client.committed(GROUP, place.topic, partition=place.partition)
            history.on_look(Look(GROUP, place, seen, floor))


def kill_under_load(broker: BrokerProcess, history: History, producers: list[str], chance: random.Random) -> None:
    """Wait until every producer got something acknowledged, and for a random bit more; then SIGKILL and start again."""
    before = Counter(history.acked_by)

    def is_loaded() -> bool:
        return all(history.acked_by[name] - before[name] >= ACKS_EACH_MIN for name in producers)

    eventually(is_loaded, what=f"load from {producers}: {history.acked_by - before}", interval_s=0.002)
    wanted = max(history.acked_count, before.total() + ACKS_BEFORE_KILL_MIN) + chance.randrange(500)
    eventually(lambda: history.acked_count, lambda count: count >= wanted, what="enough load", interval_s=0.002)
    broker.kill()
    while chance.random() < 0.3:
        broker.start()
        time.sleep(chance.uniform(0.05, 0.6))  # how far the start has come when it is killed is the point
        broker.kill()
    broker.start().wait_ready()


def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    """R1 to R8, and committed offsets that never go back, over many crashes."""
    print(f"seed {SEED}; to repeat: DRMQ_SEED={SEED}")
    chance = random.Random(SEED)
    history = History()
    kills = 0
    with BrokerProcess(tmp_path / "data", env=ENVIRONMENT) as broker:
        with RawClient(broker.bootstrap) as client:
            # Some of the records say that they are very old.
            client.create_topic(SMALL, 3, {"segment.bytes": "200000", "retention.ms": "3000000000000"})
            client.create_topic(LARGE, 1, {"retention.ms": "3000000000000"})
        clients = start_clients(broker.bootstrap, history)
        producers = [client.name for client in clients if not isinstance(client, (TailReader, GroupMember))]
        end = time.monotonic() + RUN_S
        while kills < KILLS_MIN or time.monotonic() < end:
            kill_under_load(broker, history, producers, chance)
            look_at_commits(broker.bootstrap, history)
            kills += 1
        commits = sum(client.commit_count for client in clients if isinstance(client, GroupMember))
        for client_thread in clients:
            client_thread.ask_to_stop()
        for client_thread in clients:
            client_thread.stop()
        look_at_commits(broker.bootstrap, history)
        read_everything(broker.bootstrap, history, PLACES)
        log = broker.log_text()
    print(
        f"{kills} kills, {len(history.sends)} sends, {history.acked_count} acknowledged, {len(history.reads)} reads, "
        f"{commits} commits"
    )
    found = violations(history)
    assert not found, f"seed {SEED}: {report(found)}"
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3_000]
    assert "refuses appends" not in log
    assert "is stopped" not in log
    # Without these the run has shown nothing.
    assert commits >= kills, f"the groups hardly worked: {commits} commits"
    assert len(history.reads) > ACKS_BEFORE_KILL_MIN * kills


def test_a_batch_under_way_at_the_kill_is_written_once(tmp_path: Path) -> None:
    """Killed between the append and the answer: the retry hears the offset of the first attempt, time and again."""
    chance = random.Random(SEED)
    values = [b"a", b"b", b"c"]
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("once", 1)
            producer_id, epoch = client.init_producer_id()
        offsets: list[int] = []
        for round_number in range(6):
            with RawClient(broker.bootstrap) as client:
                for back in range(min(4, len(offsets)), 0, -1):
                    number = round_number - back
                    again = client.produce(
                        "once",
                        values,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=number * len(values),
                    )
                    assert again == offsets[number], (number, back)
                sequence = round_number * len(values)
                offsets.append(
                    client.produce(
                        "once", values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
                    )
                )
            if chance.random() < 0.3:
                broker.restart()
            else:
                broker.restart(crash=True)
        with RawClient(broker.bootstrap) as client:
            assert offsets == [number * len(values) for number in range(6)]
            assert list(client.fetch_all("once").values()) == values * 6


def test_group_offsets_survive(tmp_path: Path) -> None:
    """A commit that was confirmed is there after each of many crashes, for many groups."""
    committed: dict[str, int] = {}
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("committed", 1)
            client.produce("committed", [b"x"] * 100)
        for round_number in range(4):
            with RawClient(broker.bootstrap) as client:
                for number in range(20):
                    group = f"group-{number}"
                    if (number + round_number) % 3:
                        client.commit(group, "committed", round_number * 10 + number)
                        committed[group] = round_number * 10 + number
            broker.restart(crash=True)
            with RawClient(broker.bootstrap) as client:
                assert {group: client.committed(group, "committed") for group in committed} == committed
        assert len(committed) == 20


def test_producer_ids_are_never_given_out_again(tmp_path: Path) -> None:
    """Two producers with one id would be taken for each other, and one's records for the other's retries."""
    given: list[int] = []
    with BrokerProcess(tmp_path / "data") as broker:
        for crash in (True, False, True):
            with RawClient(broker.bootstrap) as client:
                given += [client.init_producer_id()[0] for _ in range(5)]
            broker.restart(crash=crash)
        with RawClient(broker.bootstrap) as client:
            given.append(client.init_producer_id()[0])
    assert len(set(given)) == len(given), given


def test_topics_and_deletions_survive(tmp_path: Path) -> None:
    """What was created is there after a crash, what was deleted stays away, and so do deleted records."""
    with BrokerProcess(tmp_path / "data") as broker:
        for round_number in range(3):
            with RawClient(broker.bootstrap) as client:
                client.create_topic(f"kept-{round_number}", 2, {"segment.bytes": "1024"})
                client.create_topic(f"gone-{round_number}", 1)
                client.produce(f"gone-{round_number}", [b"gone"])
                for number in range(20):
                    client.produce(f"kept-{round_number}", [b"%d" % number * 50], partition=1)
                assert client.delete_records(f"kept-{round_number}", 7, partition=1) == 7
                client.delete_topic(f"gone-{round_number}")
            broker.restart(crash=True)
            with RawClient(broker.bootstrap) as client:
                for earlier in range(round_number + 1):
                    found = client.fetch_all(f"kept-{earlier}", partition=1)
                    assert found == {number: b"%d" % number * 50 for number in range(7, 20)}
                    with pytest.raises(RequestFailed) as refused:
                        client.fetch(f"gone-{earlier}", 0)
                    assert refused.value.code == UNKNOWN_TOPIC
        assert not list((tmp_path / "data" / "topics").glob("gone-*")), "a deleted topic still takes space"
        eventually(lambda: not list((tmp_path / "data").rglob("*.deleted")), timeout_s=PATIENCE_S)
