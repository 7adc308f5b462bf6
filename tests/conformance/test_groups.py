"""Membership: partitions are shared out among the members, and every record reaches the group.

The drivers' members poll in the background. What is asserted is always the state that the group settles in: every
partition has exactly one owner, and together the members read everything that was written.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from conformance.conftest import MakeTopic, wait_for_leaders
from support.clients import CLIENTS, Client, KcatClient, Member, Record
from support.clients.kcat import KcatMember
from support.confluent_admin import NewPartitions
from support.member_process import MemberProcess
from support.polling import eventually

PARTITIONS = 6
CLIENT_ASSIGNORS = [(name, assignor) for name, client in CLIENTS.items() for assignor in client.assignors]


def settled(members: Sequence[Member], topics: Sequence[str], partitions: int = PARTITIONS) -> None:
    """Wait until every partition has one owner and every member owns something."""
    wanted = Counter((topic, partition) for topic in topics for partition in range(partitions))

    def owners() -> list[frozenset[tuple[str, int]]]:
        for member in members:
            failure = member.failure()
            if failure is not None:
                raise failure
        return [member.assigned() for member in members]

    def fair(owned: list[frozenset[tuple[str, int]]]) -> bool:
        return all(owned) and Counter(partition for one in owned for partition in one) == wanted

    eventually(owners, fair, what=f"{len(members)} members share {topics}")


def write(bootstrap: str, topic: str, label: str, partitions: int = PARTITIONS) -> set[bytes]:
    """Ten records for each partition, with values that name them."""
    records = [
        Record(f"{label}-{partition}-{number}".encode(), partition=partition)
        for partition in range(partitions)
        for number in range(10)
    ]
    CLIENTS["confluent-kafka"](bootstrap).produce(topic, records)
    return {record.value for record in records if record.value is not None}


def values(members: Sequence[Member]) -> set[bytes]:
    return {record.value for member in members for record in member.received() if record.value is not None}


def test_alone(client: Client, make_topic: MakeTopic, name: str, members: list[Member]) -> None:
    """A single member owns all partitions and reads all records, each once and in order."""
    topic = make_topic(partitions=3)
    expected = write(client.bootstrap, topic, "a", 3)
    members.append(client.join(name, [topic]))
    settled(members, [topic], 3)
    eventually(lambda: len(members[0].received()), lambda count: count >= len(expected))
    seen = members[0].received()
    for partition in range(3):
        assert [record.offset for record in seen if record.partition == partition] == list(range(10))


@pytest.mark.parametrize(("client", "assignor"), CLIENT_ASSIGNORS, indirect=["client"])
def test_members_come_and_go(
    client: Client, assignor: str, make_topic: MakeTopic, name: str, members: list[Member]
) -> None:
    """While members join and leave, each partition ends with one owner and no record is missed."""
    topic = make_topic(partitions=PARTITIONS)
    expected = write(client.bootstrap, topic, "one")
    members.append(client.join(name, [topic], assignor=assignor))
    settled(members, [topic])
    members.append(client.join(name, [topic], assignor=assignor))
    members.append(client.join(name, [topic], assignor=assignor))
    settled(members, [topic])
    expected |= write(client.bootstrap, topic, "three")
    eventually(lambda: expected - values(members), lambda missing: not missing)
    members[0].leave()
    settled(members[1:], [topic])
    expected |= write(client.bootstrap, topic, "two")
    eventually(lambda: expected - values(members), lambda missing: not missing)


def test_resume_where_the_last_member_stopped(client: Client, topic: str, name: str, members: list[Member]) -> None:
    """A consumer that comes back continues after what it has committed: nothing twice, nothing lost."""
    write(client.bootstrap, topic, "before", 1)
    first = client.join(name, [topic])
    eventually(lambda: len(first.received()), lambda count: count == 10)
    first.leave()
    write(client.bootstrap, topic, "after", 1)
    members.append(client.join(name, [topic]))
    eventually(lambda: len(members[0].received()), lambda count: count >= 10)
    assert [record.offset for record in members[0].received()] == list(range(10, 20))


def test_two_groups_each_read_everything(client: Client, topic: str, name: str, members: list[Member]) -> None:
    """Groups do not know of each other."""
    expected = write(client.bootstrap, topic, "both", 1)
    for group in ("a", "b"):
        members.append(client.join(f"{name}-{group}", [topic]))
    for member in members:
        eventually(lambda member=member: values([member]) == expected)  # type: ignore[misc]


def test_clients_share_a_group(bootstrap: str, make_topic: MakeTopic, name: str, members: list[Member]) -> None:
    """Different client libraries are members of one group, as long as they name a common assignor."""
    topic = make_topic(partitions=PARTITIONS)
    for library in CLIENTS.values():
        members.append(library(bootstrap).join(name, [topic], assignor="range"))
    settled(members, [topic])
    expected = write(bootstrap, topic, "mixed")
    eventually(lambda: expected - values(members), lambda missing: not missing)
    while len(members) > 1:
        members.pop(0).leave()
        settled(members, [topic])


def test_no_common_assignor_is_refused(bootstrap: str, make_topic: MakeTopic, name: str, members: list[Member]) -> None:
    """A member whose assignors the group does not know gets INCONSISTENT_GROUP_PROTOCOL and the group goes on."""
    topic = make_topic(partitions=2)
    members.append(CLIENTS["confluent-kafka"](bootstrap).join(name, [topic], assignor="range"))
    settled(members, [topic], 2)
    stranger = CLIENTS["kafka-python"](bootstrap).join(name, [topic], assignor="roundrobin")
    members.append(stranger)
    failure = eventually(stranger.failure)
    assert failure is not None
    assert failure.code == 23
    settled(members[:1], [topic], 2)


def test_several_topics(client: Client, make_topic: MakeTopic, name: str, members: list[Member]) -> None:
    """A group may subscribe to several topics."""
    topics = [make_topic(partitions=2, suffix=suffix) for suffix in ("-a", "-b")]
    members += [client.join(name, topics, assignor="roundrobin") for _ in range(2)]
    settled(members, topics, 2)


def test_more_members_than_partitions(client: Client, topic: str, name: str, members: list[Member]) -> None:
    """A member that gets nothing waits, and takes over when the owner leaves."""
    members += [client.join(name, [topic]) for _ in range(2)]
    owners = eventually(lambda: [member for member in members if member.assigned()], lambda owners: len(owners) == 1)
    spare = next(member for member in members if member is not owners[0])
    owners[0].leave()
    members.remove(owners[0])
    settled([spare], [topic], 1)


def test_pattern_picks_up_a_new_topic(client: Client, make_topic: MakeTopic, name: str, members: list[Member]) -> None:
    """A pattern subscription finds a topic that is created later."""
    first = make_topic(suffix="-one")
    members.append(client.join(name, [f"^{name}-.*"], metadata_age_ms_max=500))
    settled(members, [first], 1)
    second = make_topic(suffix="-two")
    settled(members, [first, second], 1)
    expected = write(client.bootstrap, first, "x", 1) | write(client.bootstrap, second, "y", 1)
    eventually(lambda: expected - values(members), lambda missing: not missing)


def test_new_partitions_are_picked_up(
    client: Client, admin: AdminClient, topic: str, name: str, members: list[Member]
) -> None:
    """When the topic grows, the group reads the new partitions from their beginning."""
    members.append(client.join(name, [topic], metadata_age_ms_max=500))
    settled(members, [topic], 1)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    settled(members, [topic], 3)
    expected = write(client.bootstrap, topic, "grown", 3)
    eventually(lambda: expected - values(members), lambda missing: not missing)


def test_static_member_returns_without_rebalance(
    client: Client, make_topic: MakeTopic, name: str, members: list[Member]
) -> None:
    """A static member that restarts in time gets its partitions back and nobody else notices."""
    topic = make_topic(partitions=4)
    staying, restarting = (client.join(name, [topic], instance_id=instance) for instance in ("a", "b"))
    members += [staying, restarting]
    settled(members, [topic], 4)
    owned, count = restarting.assigned(), staying.assignment_count()
    restarting.leave()
    members.remove(restarting)
    back = client.join(name, [topic], instance_id="b")
    members.append(back)
    eventually(back.assigned, lambda partitions: partitions == owned)
    expected = write(client.bootstrap, topic, "back", 4)
    eventually(lambda: expected - values(members), lambda missing: not missing)
    assert staying.assignment_count() == count


def test_second_instance_fences_the_first(client: Client, topic: str, name: str, members: list[Member]) -> None:
    """Of two members with one instance id the newer wins; the older is told FENCED_INSTANCE_ID."""
    older = client.join(name, [topic], instance_id="only")
    members.append(older)
    settled(members, [topic], 1)
    newer = client.join(name, [topic], instance_id="only")
    members.append(newer)
    failure = eventually(older.failure)
    assert failure is not None
    assert failure.code == 82, failure
    settled([newer], [topic], 1)


@pytest.fixture(scope="module")
def bereaved(bootstrap: str, admin: AdminClient) -> Iterator[dict[str, Member]]:
    """For each client a group whose first member was killed, and its second member; all at once to save time."""
    run = uuid4().hex[:8]
    topics = {client: f"bereaved-{client}-{run}" for client in CLIENTS}
    for created in admin.create_topics([NewTopic(topic, 4, 1) for topic in topics.values()]).values():
        created.result()
    for topic in topics.values():
        wait_for_leaders(bootstrap, topic, 4)
    doomed: dict[str, MemberProcess | KcatMember] = {}
    for client, topic in topics.items():
        if client == KcatClient.name:
            doomed[client] = KcatClient(bootstrap).join(topic, [topic])
        else:
            doomed[client] = MemberProcess(client, bootstrap, topic, topic)
    survivors: dict[str, Member] = {}
    try:
        for one in doomed.values():
            eventually(one.assigned, lambda owned: len(owned) == 4)
        survivors = {client: CLIENTS[client](bootstrap).join(topic, [topic]) for client, topic in topics.items()}
        for client, survivor in survivors.items():
            eventually(
                lambda survivor=survivor, client=client: (survivor.assigned(), doomed[client].assigned()),  # type: ignore[misc]
                lambda owned: len(owned[0]) == 2 and len(owned[1]) == 2,
            )
    finally:
        for one in doomed.values():
            one.kill()
    yield survivors
    for survivor in survivors.values():
        survivor.leave()


def test_killed_member_is_replaced(client: Client, bereaved: dict[str, Member]) -> None:
    """A member that dies without leaving loses its partitions once its session times out."""
    survivor = bereaved[client.name]
    eventually(survivor.assigned, lambda owned: len(owned) == 4)
