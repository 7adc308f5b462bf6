"""Topics: created, described, grown and deleted by the administration clients."""

import asyncio
import os
import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from conformance.conftest import NODES_VARIABLE, MakeTopic
from support.clients import CLIENTS, Record
from support.confluent_admin import NewPartitions
from support.polling import PATIENCE_S, Deadline, eventually


def failure_code(call: Callable[[], object]) -> int:
    """The Kafka code with which the call fails."""
    with pytest.raises(KafkaException) as failed:
        call()
    code: int = failed.value.args[0].code()
    return code


def create(admin: AdminClient, new: NewTopic, *, validate_only: bool = False) -> None:
    """Create one topic and wait until the metadata shows it, which Apache Kafka does a moment later."""
    admin.create_topics([new], validate_only=validate_only)[new.topic].result()
    if not validate_only:
        eventually(lambda: new.topic in admin.list_topics(timeout=PATIENCE_S).topics)


def test_create_and_describe(admin: AdminClient, name: str) -> None:
    """A created topic has its partitions, each with a leader, replicas and in-sync replicas, and an id."""
    create(admin, NewTopic(name, num_partitions=5, replication_factor=1))
    described = admin.describe_topics(TopicCollection([name]))[name].result()
    assert described.name == name
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3, 4]
    for partition in described.partitions:
        assert partition.leader is not None
        assert [node.id for node in partition.replicas] == [partition.leader.id]
        assert [node.id for node in partition.isr] == [partition.leader.id]
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"


def test_create_with_defaults(admin: AdminClient, kafka_admin: Any, name: str) -> None:
    """Partitions and replication factor of -1 mean the broker's defaults: one, and three where there are three."""
    replicas = min(3, len(admin.list_topics(timeout=PATIENCE_S).brokers))
    create(admin, NewTopic(name, num_partitions=-1, replication_factor=-1))
    kafka_admin.create_topics([f"{name}-b"], wait_for_metadata=True)
    for topic in (name, f"{name}-b"):
        described = admin.describe_topics(TopicCollection([topic]))[topic].result()
        assert [len(partition.replicas) for partition in described.partitions] == [replicas]


def test_create_answers_with_the_topic(kafka_admin: Any, name: str) -> None:
    """CreateTopics from version 5 on answers with the id, the counts and the settings of the new topic."""
    spec = {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "12345"}}
    (created,) = kafka_admin.create_topics({name: spec}, wait_for_metadata=True)["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (3, 1)
    assert uuid.UUID(created["topic_id"]).int != 0
    assert created["configs"]["retention.ms"]["value"] == "12345"
    (described,) = kafka_admin.describe_topics([name])
    assert described["topic_id"] == created["topic_id"]


def test_create_with_assignment(admin: AdminClient, kafka_admin: Any, name: str) -> None:
    """Replicas may be named; a broker that does not exist may not."""
    node = kafka_admin.describe_cluster()["brokers"][0]["broker_id"]
    create(admin, NewTopic(name, num_partitions=2, replica_assignment=[[node], [node]]))
    assert len(admin.describe_topics(TopicCollection([name]))[name].result().partitions) == 2
    wrong = NewTopic(f"{name}-b", num_partitions=1, replica_assignment=[[node + 4711]])
    assert failure_code(lambda: create(admin, wrong)) == KafkaError.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("bad", ["", ".", "..", "a b", "a/b", "ä", "a\\b", "x" * 250])
def test_invalid_names(kafka_admin: Any, bad: str) -> None:
    """Only letters, digits, dot, underscore and hyphen, at most 249 of them."""
    with pytest.raises(InvalidTopicError):
        kafka_admin.create_topics({bad: {"num_partitions": 1, "replication_factor": 1}})


def test_longest_name(kafka_admin: Any) -> None:
    """A name of 249 characters is allowed, and works."""
    longest = uuid.uuid4().hex + "x" * (249 - 32)
    spec = {"num_partitions": 1, "replication_factor": 1}
    kafka_admin.create_topics({longest: spec}, wait_for_metadata=True)
    assert longest in kafka_admin.list_topics()
    kafka_admin.delete_topics([longest])


def test_names_that_collide(admin: AdminClient, name: str) -> None:
    """Dot and underscore are the same in metric names, so names that differ only there are refused."""
    create(admin, NewTopic(f"{name}.x", 1, 1))
    assert failure_code(lambda: create(admin, NewTopic(f"{name}_x", 1, 1))) == KafkaError.TOPIC_EXCEPTION


def test_duplicates(admin: AdminClient, kafka_admin: Any, topic: str) -> None:
    """A topic that exists is not created again."""
    assert failure_code(lambda: create(admin, NewTopic(topic, 1, 1))) == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(TopicAlreadyExistsError):
        kafka_admin.create_topics([topic])


@pytest.mark.parametrize("partitions", [0, -2])
def test_invalid_partition_count(kafka_admin: Any, name: str, partitions: int) -> None:
    """A topic has at least one partition."""
    with pytest.raises(InvalidPartitionsError):
        kafka_admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}})
    assert name not in kafka_admin.list_topics()


@pytest.mark.parametrize("factor", [0, -2, None])
def test_invalid_replication_factor(admin: AdminClient, kafka_admin: Any, name: str, factor: int | None) -> None:
    """Nobody can keep one replica more than there are nodes (None), or none."""
    if factor is None:
        factor = len(admin.list_topics(timeout=PATIENCE_S).brokers) + 1
    with pytest.raises(InvalidReplicationFactorError):
        kafka_admin.create_topics({name: {"num_partitions": 1, "replication_factor": factor}})
    assert name not in kafka_admin.list_topics()


def test_invalid_settings(admin: AdminClient, name: str) -> None:
    """A topic is not created with a setting that does not exist or whose value makes no sense."""
    for config in ({"no.such.setting": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "shred"}):
        new = NewTopic(name, 1, 1, config=config)
        assert failure_code(lambda new=new: create(admin, new)) == KafkaError.INVALID_CONFIG  # type: ignore[misc]
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


def test_one_bad_topic_does_not_stop_the_others(admin: AdminClient, name: str) -> None:
    """Each topic of a request succeeds or fails by itself."""
    futures = admin.create_topics([NewTopic(f"{name}-good", 1, 1), NewTopic(f"{name} bad", 1, 1)])
    futures[f"{name}-good"].result()
    assert failure_code(futures[f"{name} bad"].result) == KafkaError.TOPIC_EXCEPTION
    eventually(lambda: f"{name}-good" in admin.list_topics(timeout=PATIENCE_S).topics)


def test_validate_only(admin: AdminClient, topic: str, name: str) -> None:
    """A dry run answers as the real one would, and creates nothing."""
    create(admin, NewTopic(f"{name}-dry", 1, 1), validate_only=True)
    assert f"{name}-dry" not in admin.list_topics(timeout=PATIENCE_S).topics
    again = NewTopic(topic, 1, 1)
    assert failure_code(lambda: create(admin, again, validate_only=True)) == KafkaError.TOPIC_ALREADY_EXISTS


def test_delete(admin: AdminClient, topic: str) -> None:
    """A deleted topic is gone from the list and cannot be deleted again."""
    admin.delete_topics([topic])[topic].result()
    eventually(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics)
    assert failure_code(admin.delete_topics([topic])[topic].result) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_delete_by_id(kafka_admin: Any, topic: str) -> None:
    """Topics are deleted by id as well; an unknown id is UNKNOWN_TOPIC_ID."""
    from kafka.errors import UnknownTopicIdError

    (described,) = kafka_admin.describe_topics([topic])
    kafka_admin.delete_topics([uuid.UUID(described["topic_id"])])
    eventually(lambda: topic not in kafka_admin.list_topics())
    with pytest.raises(UnknownTopicIdError):
        kafka_admin.delete_topics([uuid.UUID(described["topic_id"])])


def test_recreated_topic_is_new(admin: AdminClient, bootstrap: str, topic: str) -> None:
    """A topic that is created again has nothing of the old one: neither data nor id."""
    client = CLIENTS["confluent-kafka"](bootstrap)
    client.produce(topic, [Record(b"old")] * 5)
    before = admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id
    admin.delete_topics([topic])[topic].result()
    eventually(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics)
    create(admin, NewTopic(topic, 2, 1))
    after = admin.describe_topics(TopicCollection([topic]))[topic].result()
    assert str(after.topic_id) != str(before)
    assert len(after.partitions) == 2
    (delivery,) = client.produce(topic, [Record(b"new")])
    assert delivery.offset == 0
    for reader in CLIENTS.values():
        assert [seen.value for seen in reader(bootstrap).consume(topic, 1)] == [b"new"], reader.name


def test_describe_by_id(kafka_admin: Any, topic: str) -> None:
    """Metadata by topic id names the topic; an id that nobody has is UNKNOWN_TOPIC_ID."""
    (by_name,) = kafka_admin.describe_topics([topic])
    (by_id,) = kafka_admin.describe_topics([uuid.UUID(by_name["topic_id"])])
    assert by_id["name"] == topic
    (unknown,) = kafka_admin.describe_topics([uuid.uuid4()])
    assert unknown["error_code"] == 100


def test_describe_unknown_topic(admin: AdminClient, name: str) -> None:
    """What does not exist cannot be described, and asking does not create it."""
    code = failure_code(admin.describe_topics(TopicCollection([name]))[name].result)
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


def test_describe_topic_partitions(kafka_admin: Any, make_topic: MakeTopic, name: str) -> None:
    """DescribeTopicPartitions pages through the partitions with a cursor."""
    topic = make_topic(partitions=5)
    whole = kafka_admin.describe_topic_partitions([topic])
    (described,) = whole["topics"]
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1, 2, 3, 4]
    first = kafka_admin.describe_topic_partitions([topic], response_partition_limit=2)
    assert [partition["partition_index"] for partition in first["topics"][0]["partitions"]] == [0, 1]
    assert first["next_cursor"]["topic_name"] == topic
    assert first["next_cursor"]["partition_index"] == 2


def test_list_topics(admin: AdminClient, kafka_admin: Any, bootstrap: str, make_topic: MakeTopic) -> None:
    """Every client lists the topic with its partitions."""
    topic = make_topic(partitions=3)
    listed = admin.list_topics(timeout=PATIENCE_S).topics[topic]
    assert sorted(listed.partitions) == [0, 1, 2]
    assert topic in kafka_admin.list_topics()
    command = ["kcat", "-b", bootstrap, "-L", "-t", topic]
    shown = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True, text=True).stdout
    assert f'topic "{topic}" with 3 partitions' in shown
    assert "partition 2, leader 1" in shown


def test_create_partitions(admin: AdminClient, bootstrap: str, topic: str) -> None:
    """A topic grows; what was there stays."""
    client = CLIENTS["confluent-kafka"](bootstrap)
    client.produce(topic, [Record(b"kept")])
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    eventually(lambda: len(admin.list_topics(timeout=PATIENCE_S).topics[topic].partitions), lambda count: count == 3)
    client.produce(topic, [Record(b"new", partition=2)])
    seen = client.consume(topic, 2, partitions=range(3))
    assert sorted((record.partition, record.value) for record in seen) == [(0, b"kept"), (2, b"new")]


@pytest.mark.parametrize("count", [1, 2])
def test_partitions_do_not_shrink(admin: AdminClient, make_topic: MakeTopic, count: int) -> None:
    """Fewer partitions, or the same number, are refused."""
    topic = make_topic(partitions=2)
    code = failure_code(admin.create_partitions([NewPartitions(topic, count)])[topic].result)
    assert code == KafkaError.INVALID_PARTITIONS


def test_create_partitions_of_unknown_topic(kafka_admin: Any, name: str) -> None:
    """What does not exist does not grow."""
    with pytest.raises(UnknownTopicOrPartitionError):
        kafka_admin.create_partitions({name: 3})


def test_create_partitions_validate_only(kafka_admin: Any, topic: str) -> None:
    """A dry run changes nothing."""
    kafka_admin.create_partitions({topic: 3}, validate_only=True)
    (described,) = kafka_admin.describe_topics([topic])
    assert len(described["partitions"]) == 1


def test_describe_cluster(admin: AdminClient, kafka_admin: Any, bootstrap: str) -> None:
    """Every client sees the same cluster id, controller and node, and the node's address is where we are."""
    theirs = admin.describe_cluster().result()
    ours = kafka_admin.describe_cluster()
    assert theirs.cluster_id
    assert theirs.cluster_id == ours["cluster_id"]
    assert len(theirs.nodes) == int(os.environ.get(NODES_VARIABLE) or 1)
    assert theirs.controller.id == ours["controller_id"]
    assert theirs.controller.id in {node.id for node in theirs.nodes}
    assert int(bootstrap.rpartition(":")[2]) in {node.port for node in theirs.nodes}

    async def ask() -> dict[str, Any]:
        aio_admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await aio_admin.start()
        try:
            described: dict[str, Any] = await aio_admin.describe_cluster()
            return described
        finally:
            await aio_admin.close()

    assert asyncio.run(ask())["cluster_id"] == theirs.cluster_id


def test_aiokafka_administration(bootstrap: str, name: str) -> None:
    """aiokafka creates, grows, lists, describes and deletes topics with its old protocol versions."""

    async def soon(admin: AIOKafkaAdminClient, accept: Callable[[dict[str, int]], bool]) -> None:
        deadline = Deadline()
        topics: dict[str, int] = {}
        while not deadline.passed():
            topics = {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}
            if accept(topics):
                return
        raise AssertionError(f"{name} is not there: {topics}")

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            new = AioNewTopic(name, 2, 1, topic_configs={"retention.ms": "5000"})
            created = await admin.create_topics([new])
            assert [(error[0], error[1]) for error in created.topic_errors] == [(name, 0)]
            again = await admin.create_topics([new])
            assert [error[1] for error in again.topic_errors] == [36]
            await soon(admin, lambda topics: name in topics)
            grown = await admin.create_partitions({name: AioNewPartitions(3)})
            assert [error[1] for error in grown.topic_errors] == [0]
            await soon(admin, lambda topics: topics[name] == 3)
            deleted = await admin.delete_topics([name])
            assert [(error[0], error[1]) for error in deleted.topic_error_codes] == [(name, 0)]
        finally:
            await admin.close()

    asyncio.run(run())


def test_log_dirs(kafka_admin: Any, bootstrap: str, make_topic: MakeTopic) -> None:
    """The log directories list each partition with its size, which grows with what is written."""
    topic = make_topic(partitions=2)
    CLIENTS["confluent-kafka"](bootstrap).produce(topic, [Record(b"x" * 10_000, partition=1)])

    def sizes() -> dict[int, int]:
        return {
            partition["partition_index"]: partition["partition_size"]
            for answer in kafka_admin.describe_log_dirs([topic])
            for directory in answer["log_dirs"]
            for described in directory["topics"]
            if described["name"] == topic
            for partition in described["partitions"]
        }

    found = sizes()
    assert set(found) == {0, 1}
    assert found[0] == 0
    assert 10_000 <= found[1] < 11_000


def test_delete_records_with_kafka_python(kafka_admin: Any, bootstrap: str, topic: str) -> None:
    """kafka-python deletes records up to an offset, or all of them with -1."""
    from kafka import TopicPartition as KafkaTopicPartition

    CLIENTS["kafka-python"](bootstrap).produce(topic, [Record(b"v")] * 10)
    partition = KafkaTopicPartition(topic, 0)
    assert kafka_admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    assert [seen.offset for seen in CLIENTS["kafka-python"](bootstrap).consume(topic, 6)] == list(range(4, 10))
    assert kafka_admin.delete_records({partition: -1})[partition]["low_watermark"] == 10


def test_delete_records_of_unknown_topic(admin: AdminClient, name: str) -> None:
    """There is nothing to delete in a topic that does not exist."""
    partition = TopicPartition(name, 0, 1)
    code = failure_code(admin.delete_records([partition])[partition].result)
    assert code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT)
