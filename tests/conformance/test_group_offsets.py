"""Committed offsets: written by members and by others, read back with their metadata, changed by administrators."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import GroupSubscribedToTopicError, NoError, UnknownMemberIdError

from conformance.conftest import MakeTopic
from support.clients import CLIENTS, Member, Record
from support.polling import PATIENCE_S, eventually

NOTE = "checkpoint ☃ 17"

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def make_consumer(bootstrap: str, name: str) -> Iterator[MakeConsumer]:
    """Consumers of confluent-kafka that commit only when told, closed at the end."""
    made: list[Consumer] = []

    def make(group: str = name, **settings: object) -> Consumer:
        basics = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer({**basics, "auto.offset.reset": "earliest", **settings})
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def offsets_of(admin: AdminClient, group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Everything a group has committed, as an administrator sees it."""
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(asked, require_stable=True)[group].result()
    return {(one.topic, one.partition): (one.offset, one.metadata) for one in answer.topic_partitions}


def test_commit_without_membership(make_consumer: MakeConsumer, make_topic: MakeTopic, name: str) -> None:
    """A consumer with assigned partitions commits offsets with metadata, and another reads both back."""
    topic = make_topic(partitions=3)
    writer = make_consumer()
    writer.assign([TopicPartition(topic, 0)])
    written = [TopicPartition(topic, 0, 7, metadata=NOTE), TopicPartition(topic, 1, 0)]
    for one in writer.commit(offsets=written, asynchronous=False) or []:
        assert one.error is None
    asked = [TopicPartition(topic, partition) for partition in range(3)]
    found = make_consumer().committed(asked, timeout=PATIENCE_S)
    assert [one.offset for one in found] == [7, 0, OFFSET_INVALID]
    assert found[0].metadata == NOTE


def test_commit_asynchronously(bootstrap: str, make_topic: MakeTopic, make_consumer: MakeConsumer, name: str) -> None:
    """An asynchronous commit reports its result to the callback."""
    topic = make_topic()
    answered = threading.Event()
    results: list[tuple[object, int]] = []

    def on_commit(error: object, partitions: list[TopicPartition]) -> None:
        results.extend((error, partition.offset) for partition in partitions)
        answered.set()

    consumer = make_consumer(on_commit=on_commit)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=True)
    eventually(lambda: consumer.poll(0.05) or answered.is_set())
    assert results == [(None, 3)]
    assert consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)[0].offset == 3


def test_later_commits_win(make_consumer: MakeConsumer, topic: str) -> None:
    """The last commit counts, also when it goes back, and replaces the metadata."""
    consumer = make_consumer()
    for offset, note in ((5, "five"), (9, "nine"), (2, "")):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata=note)], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
    assert (found.offset, found.metadata or "") == (2, "")


def test_commit_of_a_member(bootstrap: str, make_consumer: MakeConsumer, topic: str) -> None:
    """A member commits what it has read, and the next consumer of the group continues there."""
    CLIENTS["confluent-kafka"](bootstrap).produce(topic, [Record(b"%d" % number) for number in range(5)])
    first = make_consumer()
    first.subscribe([topic])
    for _ in range(3):
        message = eventually(lambda: first.poll(0.1), lambda message: message is not None)
    assert message is not None
    first.commit(message=message, asynchronous=False)
    first.close()
    second = make_consumer()
    second.subscribe([topic])
    message = eventually(lambda: second.poll(0.1), lambda message: message is not None)
    assert message is not None
    assert message.offset() == 3


def test_kafka_python_commits(bootstrap: str, topic: str, name: str) -> None:
    """kafka-python commits and reads back offsets and metadata, synchronously and not."""
    partition = KafkaTopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False)
    try:
        consumer.assign([partition])
        assert consumer.committed(partition) is None
        consumer.commit({partition: OffsetAndMetadata(4, NOTE, -1)})
        assert consumer.committed(partition) == 4
        assert consumer.committed(partition, metadata=True).metadata == NOTE
        answers: list[object] = []
        consumer.commit_async({partition: OffsetAndMetadata(6, "", -1)}, lambda _, answer: answers.append(answer))
        eventually(lambda: (consumer.poll(timeout_ms=50), answers)[1])
        assert consumer.committed(partition) == 6
    finally:
        consumer.close()


def test_aiokafka_commits(bootstrap: str, topic: str, name: str) -> None:
    """aiokafka commits and reads back offsets, and its administration client sees the metadata."""

    async def run() -> None:
        partition = AioTopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([partition])
            assert await consumer.committed(partition) is None
            await consumer.commit({partition: (4, NOTE)})
            assert await consumer.committed(partition) == 4
        finally:
            await consumer.stop()
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(name)
            assert (offsets[partition].offset, offsets[partition].metadata) == (4, NOTE)
        finally:
            await admin.close()

    asyncio.run(run())


def test_kcat_commits(bootstrap: str, admin: AdminClient, topic: str, name: str) -> None:
    """kcat in a group commits as it reads, and at the end."""
    CLIENTS["kcat"](bootstrap).produce(topic, [Record(b"%d" % number) for number in range(5)])
    member = CLIENTS["kcat"](bootstrap).join(name, [topic])
    eventually(lambda: len(member.received()), lambda count: count == 5)
    member.leave()
    assert offsets_of(admin, name)[topic, 0][0] == 5


def test_alter_offsets_of_an_empty_group(
    admin: AdminClient, bootstrap: str, topic: str, name: str, members: list[Member]
) -> None:
    """An administrator moves a group without members, and the next member starts there."""
    CLIENTS["confluent-kafka"](bootstrap).produce(topic, [Record(b"%d" % number) for number in range(10)])
    change = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 6)])
    result = admin.alter_consumer_group_offsets([change])[name].result()
    assert [one.error for one in result.topic_partitions] == [None]
    assert offsets_of(admin, name)[topic, 0][0] == 6
    members.append(CLIENTS["confluent-kafka"](bootstrap).join(name, [topic]))
    eventually(lambda: len(members[0].received()), lambda count: count == 4)
    assert [record.offset for record in members[0].received()] == [6, 7, 8, 9]


def test_alter_offsets_of_a_live_group(
    admin: AdminClient, kafka_admin: Any, bootstrap: str, topic: str, name: str, members: list[Member]
) -> None:
    """While members are there, nobody else may commit for the group: UNKNOWN_MEMBER_ID."""
    members.append(CLIENTS["confluent-kafka"](bootstrap).join(name, [topic]))
    eventually(members[0].assigned)
    change = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 6)])
    (refused,) = admin.alter_consumer_group_offsets([change])[name].result().topic_partitions
    assert refused.error is not None
    assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    partition = KafkaTopicPartition(topic, 0)
    answer = kafka_admin.alter_group_offsets(name, {partition: OffsetAndMetadata(6, "", -1)})
    assert answer[partition] is UnknownMemberIdError


def test_reset_offsets_with_kafka_python(kafka_admin: Any, bootstrap: str, topic: str, name: str) -> None:
    """kafka-python's reset combines ListOffsets, OffsetFetch and OffsetCommit."""
    from kafka import OffsetSpec

    CLIENTS["kafka-python"](bootstrap).produce(topic, [Record(b"%d" % number) for number in range(10)])
    partition = KafkaTopicPartition(topic, 0)
    for target, offset in ((OffsetSpec.LATEST, 10), (OffsetSpec.EARLIEST, 0), (4, 4)):
        answer = kafka_admin.reset_group_offsets(name, {partition: target})
        assert answer[partition] == {"error": NoError, "offset": offset}
        assert kafka_admin.list_group_offsets({name: None})[name][partition].offset == offset


def test_offsets_of_several_groups(kafka_admin: Any, make_consumer: MakeConsumer, topic: str, name: str) -> None:
    """One request asks for the offsets of several groups; a group that does not exist has none."""
    for number, group in enumerate((f"{name}-a", f"{name}-b")):
        make_consumer(group).commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
    found = kafka_admin.list_group_offsets({f"{name}-a": None, f"{name}-b": None, f"{name}-none": None})
    partition = KafkaTopicPartition(topic, 0)
    assert {group: {tp: om.offset for tp, om in offsets.items()} for group, offsets in found.items()} == {
        f"{name}-a": {partition: 0},
        f"{name}-b": {partition: 1},
        f"{name}-none": {},
    }


def test_delete_offsets(
    kafka_admin: Any, admin: AdminClient, make_consumer: MakeConsumer, name: str, make_topic: MakeTopic
) -> None:
    """OffsetDelete removes what is named and leaves the rest."""
    topic = make_topic(partitions=2)
    written = [TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 2)]
    make_consumer().commit(offsets=written, asynchronous=False)
    partition = KafkaTopicPartition(topic, 0)
    assert kafka_admin.delete_group_offsets(name, [partition]) == {partition: NoError}
    left = offsets_of(admin, name)
    assert {partition: offset for partition, (offset, _) in left.items()} == {(topic, 1): 2}


def test_delete_offsets_of_a_subscribed_topic(
    kafka_admin: Any, bootstrap: str, make_topic: MakeTopic, name: str, members: list[Member], admin: AdminClient
) -> None:
    """While members subscribe to the topic its offsets stay: GROUP_SUBSCRIBED_TO_TOPIC."""
    topic = make_topic()
    CLIENTS["confluent-kafka"](bootstrap).produce(topic, [Record(b"v")])
    members.append(CLIENTS["confluent-kafka"](bootstrap).join(name, [topic]))
    eventually(lambda: (topic, 0) in offsets_of(admin, name))
    partition = KafkaTopicPartition(topic, 0)
    assert kafka_admin.delete_group_offsets(name, [partition]) == {partition: GroupSubscribedToTopicError}


def test_delete_offsets_of_an_unknown_group(kafka_admin: Any, topic: str, name: str) -> None:
    """A group that does not exist has no offsets to delete: GROUP_ID_NOT_FOUND."""
    from kafka.errors import GroupIdNotFoundError

    with pytest.raises(GroupIdNotFoundError):
        kafka_admin.delete_group_offsets(name, [KafkaTopicPartition(topic, 0)])


def test_long_metadata_is_refused(make_consumer: MakeConsumer, topic: str) -> None:
    """Metadata has a limit of 4096 bytes: OFFSET_METADATA_TOO_LARGE, and nothing is committed."""
    consumer = make_consumer()
    with pytest.raises(KafkaException) as failed:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1, metadata="x" * 5_000)], asynchronous=False)
    assert failed.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)[0].offset == OFFSET_INVALID


def test_offsets_of_a_deleted_topic_are_gone(
    admin: AdminClient, make_consumer: MakeConsumer, make_topic: MakeTopic, name: str
) -> None:
    """Deleting a topic deletes what groups had committed for it."""
    topic, other = make_topic(suffix="-a"), make_topic(suffix="-b")
    written = [TopicPartition(topic, 0, 1), TopicPartition(other, 0, 1)]
    make_consumer().commit(offsets=written, asynchronous=False)
    admin.delete_topics([topic])[topic].result()
    eventually(lambda: set(offsets_of(admin, name)), lambda left: left == {(other, 0)})
