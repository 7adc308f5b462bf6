"""Share groups with confluent-kafka's `ShareConsumer`: members share the records, and settle each on its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, IllegalStateException, Producer, ShareConsumer

from conformance.conftest import MakeTopic
from support.polling import PATIENCE_S

MARK = b"mark"


class Members:
    """Share consumers of one group, polled in turn."""

    def __init__(self, bootstrap: str, group: str, stack: ExitStack) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._stack = stack
        self.consumers: list[Any] = []

    def add(self, topic: str, **config: str) -> Any:
        consumer = ShareConsumer({"bootstrap.servers": self._bootstrap, "group.id": self._group, **config})
        self._stack.callback(consumer.close)
        consumer.subscribe([topic])
        self.consumers.append(consumer)
        return consumer

    def poll(self) -> list[tuple[Any, Any]]:
        """What the members got, each with its consumer."""
        found = []
        for consumer in self.consumers:
            for message in consumer.poll(0.2):
                assert message.error() is None, message.error()
                found.append((consumer, message))
        return found


@pytest.fixture
def members(bootstrap: str, name: str) -> Iterator[Members]:
    with ExitStack() as stack:
        yield Members(bootstrap, name, stack)


def produce(bootstrap: str, topic: str, values: list[bytes], partition: int = -1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def begin(members: Members, bootstrap: str, topic: str, partitions: int) -> None:
    """Return once the group has begun in every partition: by default it begins at the end of the log."""
    seen: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < partitions:
        assert time.monotonic() < deadline, f"the group works on partitions {seen} only"
        for partition in range(partitions):
            produce(bootstrap, topic, [MARK], partition)
        for consumer, message in members.poll():
            seen.add(message.partition())
            accept(consumer, message)


def accept(consumer: Any, message: Any) -> None:
    """Accept a record; in implicit mode the next poll does so."""
    with suppress(IllegalStateException):
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)


def collect(members: Members, count: int) -> Counter[bytes]:
    """The values that the members get, until `count` different ones are there; marks do not count."""
    got: Counter[bytes] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} records came"
        for consumer, message in members.poll():
            accept(consumer, message)
            if message.value() != MARK:
                got[message.value()] += 1
    return got


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_members_share_the_records(members: Members, bootstrap: str, make_topic: MakeTopic, mode: str) -> None:
    """There are more members than partitions, and every record reaches one of them."""
    topic = make_topic(partitions=2)
    for _ in range(3):
        members.add(topic, **{"share.acknowledgement.mode": mode})
    begin(members, bootstrap, topic, 2)
    values = [f"{number}".encode() for number in range(300)]
    produce(bootstrap, topic, values)
    got = collect(members, len(values))
    assert got.keys() == set(values)
    assert set(got.values()) == {1}


def test_a_released_record_comes_again_and_a_rejected_one_does_not(
    members: Members, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=1)
    members.add(topic, **{"share.acknowledgement.mode": "explicit"})
    begin(members, bootstrap, topic, 1)
    values = [b"accept", b"release", b"reject"]
    produce(bootstrap, topic, values)
    times: Counter[bytes] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while times[b"release"] < 2 or len(times) < 3:
        assert time.monotonic() < deadline, times
        for consumer, message in members.poll():
            value = message.value()
            times[value] += value != MARK
            outcome = AcknowledgeType.ACCEPT
            if value == b"release" and times[value] == 1:
                outcome = AcknowledgeType.RELEASE
            elif value == b"reject":
                outcome = AcknowledgeType.REJECT
            consumer.acknowledge(message, outcome)
    # What comes last shows that nothing else was on its way.
    produce(bootstrap, topic, [b"last"])
    last = collect(members, 1)
    assert last == {b"last": 1}
    assert times[b"accept"] == times[b"reject"] == 1
    assert times[b"release"] == 2


def test_records_that_are_given_up_are_in_the_dead_letter_topic(
    members: Members, bootstrap: str, make_topic: MakeTopic, name: str
) -> None:
    """A rejected record, and one that failed as often as the group allows; their neighbours are not held up."""
    topic = make_topic(partitions=1)
    members.add(topic, **{"share.acknowledgement.mode": "explicit"})
    begin(members, bootstrap, topic, 1)
    produce(bootstrap, topic, [b"poison", b"fine", b"wrong"])
    times: Counter[bytes] = Counter()
    outcomes = {b"poison": AcknowledgeType.RELEASE, b"wrong": AcknowledgeType.REJECT}
    deadline = time.monotonic() + PATIENCE_S
    while times[b"poison"] < 5 or len(times) < 3:
        assert time.monotonic() < deadline, times
        for consumer, message in members.poll():
            times[message.value()] += message.value() != MARK
            consumer.acknowledge(message, outcomes.get(message.value(), AcknowledgeType.ACCEPT))
        members.consumers[0].commit_sync(PATIENCE_S)
    letters = read_all(bootstrap, f"dlq.{name}", 2)
    assert {value: (headers["delivery.count"], headers["message"]) for value, headers in letters.items()} == {
        b"poison": (b"5", b"it failed as often as the group allows"),
        b"wrong": (b"1", b"it was rejected"),
    }
    assert times == {b"poison": 5, b"fine": 1, b"wrong": 1}
    assert all(headers["topic"] == topic.encode() for headers in letters.values())


def read_all(bootstrap: str, topic: str, count: int) -> dict[bytes, dict[str, bytes]]:
    """The records of a topic, with the headers of dead letters."""
    found: dict[bytes, dict[str, bytes]] = {}
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"reads-{topic}",
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": "500",
    }
    consumer = Consumer(config)
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline, found
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                headers: Any = message.headers() or []
                found[message.value() or b""] = {key.removeprefix("__dlq.errors."): value for key, value in headers}
    finally:
        consumer.close()
    return found


def test_what_a_member_held_goes_to_others_when_it_closes(
    members: Members, bootstrap: str, make_topic: MakeTopic
) -> None:
    """Closing gives leases back: nobody waits until they run out."""
    topic = make_topic(partitions=1)
    first = members.add(topic, **{"share.acknowledgement.mode": "explicit"})
    begin(members, bootstrap, topic, 1)
    produce(bootstrap, topic, [b"held"])
    deadline = time.monotonic() + PATIENCE_S
    values: set[bytes] = set()
    while b"held" not in values:
        assert time.monotonic() < deadline
        polled = members.poll()
        values = {message.value() for _, message in polled}
        for consumer, message in polled:
            if message.value() != b"held":
                accept(consumer, message)
    members.consumers.clear()
    members.add(topic)
    first.close()
    assert collect(members, 1) == {b"held": 1}
