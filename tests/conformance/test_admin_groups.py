"""Groups as administrators see them: listed, described, deleted; alive, empty and unknown."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients import CLIENTS, Client, Member
from support.polling import PATIENCE_S, eventually


@pytest.fixture
def live(bootstrap: str, topic: str, name: str, members: list[Member]) -> str:
    """A group with one member, which owns one partition."""
    members.append(CLIENTS["confluent-kafka"](bootstrap).join(name, [topic]))
    eventually(members[0].assigned)
    return name


@pytest.fixture
def empty(bootstrap: str, topic: str, name: str) -> Iterator[str]:
    """A group that has committed an offset, and has no members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    yield name
    consumer.close()


def test_describe_live_group(client: Client, admin: AdminClient, topic: str, name: str, members: list[Member]) -> None:
    """A stable group shows its assignor and each member with its host and its partitions, whatever client it is."""
    members += [client.join(name, [topic], assignor="roundrobin") for _ in range(2)]
    owned = {(topic, 0)}
    eventually(lambda: set().union(*(member.assigned() for member in members)), lambda seen: seen == owned)

    def describe() -> Any:
        return admin.describe_consumer_groups([name])[name].result()

    described = eventually(describe, lambda found: found.state == ConsumerGroupState.STABLE and len(found.members) == 2)
    assert described.group_id == name
    assert described.partition_assignor == "roundrobin"
    assert not described.is_simple_consumer_group
    partitions = [
        (partition.topic, partition.partition)
        for member in described.members
        for partition in member.assignment.topic_partitions
    ]
    assert partitions == [(topic, 0)]
    assert all(member.host and member.member_id and member.client_id for member in described.members)


def test_describe_static_member(
    bootstrap: str, admin: AdminClient, topic: str, name: str, members: list[Member]
) -> None:
    """A static member shows its instance id."""
    members.append(CLIENTS["confluent-kafka"](bootstrap).join(name, [topic], instance_id="the-one"))
    eventually(members[0].assigned)
    described = admin.describe_consumer_groups([name])[name].result()
    assert [member.group_instance_id for member in described.members] == ["the-one"]


def test_describe_with_kafka_python(kafka_admin: Any, topic: str, live: str) -> None:
    """kafka-python decodes what the member subscribed to and what it was assigned."""
    described = kafka_admin.describe_groups([live])[live]
    assert described["error"] is None
    assert described["group_state"] == "Stable"
    assert described["protocol_type"] == "consumer"
    assert described["protocol_data"] == "range"
    (member,) = described["members"]
    assert member["member_metadata"]["topics"] == [topic]
    assert member["member_assignment"]["assigned_partitions"] == [{"topic": topic, "partitions": [0]}]


def test_describe_with_aiokafka(bootstrap: str, live: str) -> None:
    """The old versions of DescribeGroups and ListGroups answer as well."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            (answer,) = await admin.describe_consumer_groups([live])
            group = answer.groups[0]
            assert (group[0], group[1], group[2], group[3]) == (0, live, "Stable", "consumer")
            assert len(group[5]) == 1
            assert (live, "consumer") in [tuple(listed[:2]) for listed in await admin.list_consumer_groups()]
        finally:
            await admin.close()

    asyncio.run(run())


def test_describe_empty_group(admin: AdminClient, empty: str) -> None:
    """A group with offsets and without members is empty."""
    described = admin.describe_consumer_groups([empty])[empty].result()
    assert described.state == ConsumerGroupState.EMPTY
    assert described.members == []


def test_describe_unknown_group(admin: AdminClient, kafka_admin: Any, name: str) -> None:
    """A group that does not exist is dead; from version 6 on it is GROUP_ID_NOT_FOUND as well."""
    described = kafka_admin.describe_groups([name])[name]
    assert described["group_state"] == "Dead"
    assert "GroupIdNotFound" in described["error"]
    assert admin.describe_consumer_groups([name])[name].result().state == ConsumerGroupState.DEAD


def test_list_groups(admin: AdminClient, kafka_admin: Any, live: str) -> None:
    """A live group is listed with its type and state, and filters work."""
    listed = {group.group_id: group for group in admin.list_consumer_groups().result().valid}
    assert listed[live].state == ConsumerGroupState.STABLE
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result().valid
    assert live in {group.group_id for group in stable}
    empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result().valid
    assert live not in {group.group_id for group in empty}
    ours = {group["group_id"]: group for group in kafka_admin.list_groups(types_filter=["classic"])}
    assert (ours[live]["protocol_type"], ours[live]["group_state"]) == ("consumer", "Stable")
    assert ours[live]["group_type"] == "classic"


def test_list_empty_group(admin: AdminClient, empty: str) -> None:
    """An empty group is listed as such."""
    listed = {group.group_id: group for group in admin.list_consumer_groups().result().valid}
    assert listed[empty].state == ConsumerGroupState.EMPTY


def test_delete_empty_group(admin: AdminClient, empty: str) -> None:
    """A deleted group is gone, with its offsets."""
    admin.delete_consumer_groups([empty])[empty].result()
    listed = {group.group_id for group in admin.list_consumer_groups().result().valid}
    assert empty not in listed


def test_delete_live_group(admin: AdminClient, kafka_admin: Any, live: str) -> None:
    """A group with members stays."""
    with pytest.raises(KafkaException) as failed:
        admin.delete_consumer_groups([live], request_timeout=PATIENCE_S)[live].result()
    assert failed.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    assert kafka_admin.delete_groups([live]) == {live: "NonEmptyGroupError"}


def test_delete_unknown_group(admin: AdminClient, kafka_admin: Any, name: str) -> None:
    """What does not exist cannot be deleted."""
    with pytest.raises(KafkaException) as failed:
        admin.delete_consumer_groups([name])[name].result()
    assert failed.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    assert kafka_admin.delete_groups([name]) == {name: "GroupIdNotFoundError"}


def test_remove_a_static_member(kafka_admin: Any, bootstrap: str, admin: AdminClient, topic: str, name: str) -> None:
    """An administrator removes a static member that has gone, by its instance id."""
    from kafka.admin import MemberToRemove

    member = CLIENTS["confluent-kafka"](bootstrap).join(name, [topic], instance_id="gone")
    eventually(member.assigned)
    member.leave()  # a static member stops without leaving
    assert len(admin.describe_consumer_groups([name])[name].result().members) == 1
    kafka_admin.remove_group_members(name, [MemberToRemove(group_instance_id="gone")])
    described = admin.describe_consumer_groups([name])[name].result()
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
