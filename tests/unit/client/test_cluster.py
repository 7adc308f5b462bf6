"""Finding the right broker, and when a call is tried again."""

from typing import Any

import pytest

from drmq.client import Admin, ClientError, NewTopic, Refused, Unreachable
from drmq.model import ErrorCode, TopicPartition
from drmq.wire import ApiKey
from drmq.wire.messages.create_topics import CreateTopicsResponse, CreateTopicsResponseTopic
from drmq.wire.messages.find_coordinator import FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from drmq.wire.messages.list_groups import ListGroupsResponse
from drmq.wire.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from drmq.wire.messages.metadata import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from drmq.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from support.fake_broker import broker


def script(*answers: Any) -> Any:
    """One answer after the other, the last for ever."""
    waiting = list(answers)
    return lambda request: waiting.pop(0) if len(waiting) > 1 else waiting[0]


def created(code: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreateTopicsResponseTopic(name="t", error_code=code, num_partitions=3)])


def test_retriable_answer_is_asked_again() -> None:
    """A broker that is just loading is asked until it is ready."""
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with (
        broker({ApiKey.LIST_GROUPS: script(loading, loading, ListGroupsResponse())}) as fake,
        Admin(str(fake.address)) as admin,
    ):
        assert list(admin.groups.all()) == []
        assert [key for key, _ in fake.seen].count(ApiKey.LIST_GROUPS) == 3


def test_retrying_ends_at_the_deadline_with_the_real_reason() -> None:
    """What is reported is the broker's answer, not that time is over."""
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with (
        broker({ApiKey.LIST_GROUPS: script(loading)}) as fake,
        Admin(str(fake.address), timeout_s=0.3) as admin,
        pytest.raises(Refused) as caught,
    ):
        admin.groups.all()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert caught.value.retriable


def test_final_answer_is_not_asked_again() -> None:
    """A refusal that will not change is reported at once, with advice."""
    with (
        broker({ApiKey.CREATE_TOPICS: script(created(ErrorCode.TOPIC_ALREADY_EXISTS))}) as fake,
        Admin(str(fake.address)) as admin,
    ):
        with pytest.raises(Refused, match=r"already exists \(TOPIC_ALREADY_EXISTS\)\. `drmq topic describe t`"):
            admin.topics.create(NewTopic("t"))
        assert [key for key, _ in fake.seen].count(ApiKey.CREATE_TOPICS) == 1


def test_creation_is_repeated_only_if_it_surely_did_nothing() -> None:
    """`NOT_CONTROLLER` did nothing. A lost connection may have created the topic, so its outcome is unknown."""
    with (
        broker({ApiKey.CREATE_TOPICS: script(created(ErrorCode.NOT_CONTROLLER), created())}) as fake,
        Admin(str(fake.address)) as admin,
    ):
        assert admin.topics.create(NewTopic("t")) == 3
    with broker({ApiKey.CREATE_TOPICS: script(None, created())}) as fake, Admin(str(fake.address)) as admin:
        with pytest.raises(Unreachable) as caught:
            admin.topics.create(NewTopic("t"))
        assert caught.value.sent
        assert [key for key, _ in fake.seen].count(ApiKey.CREATE_TOPICS) == 1


def test_question_survives_a_lost_connection() -> None:
    """A broker that was there and hangs up is connected to again."""
    with (
        broker({ApiKey.LIST_GROUPS: script(None, None, ListGroupsResponse())}) as fake,
        Admin(str(fake.address)) as admin,
    ):
        assert list(admin.groups.all()) == []


def test_second_bootstrap_server_is_tried() -> None:
    """One dead server in the list does not matter."""
    with broker() as fake, Admin(f"127.0.0.1:1,{fake.address}") as admin:
        assert admin.describe_cluster().cluster_id == "fake"


def test_unknown_error_code_is_reported_with_its_number() -> None:
    """A newer broker may have codes that this client has not."""
    with (
        broker({ApiKey.CREATE_TOPICS: script(created(4711))}) as fake,
        Admin(str(fake.address)) as admin,
        pytest.raises(Refused, match="4711") as caught,
    ):
        admin.topics.create(NewTopic("t"))
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("bootstrap", ["", ",", "host:x", "a b"])
def test_impossible_bootstrap(bootstrap: str) -> None:
    """Refused before anything is tried."""
    with pytest.raises(ClientError, match="Bootstrap servers"):
        Admin(bootstrap)


def test_each_leader_is_asked_about_its_own_partitions() -> None:
    """Two leaders, two questions, one answer."""

    def offsets(request: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponseTopic(
                    name=topic.name,
                    partitions=[
                        ListOffsetsResponsePartition(partition_index=p.partition_index, offset=100 + p.partition_index)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    with broker({ApiKey.LIST_OFFSETS: offsets}) as second, broker({ApiKey.LIST_OFFSETS: offsets}) as first:
        topic = MetadataResponseTopic(
            name="t",
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=1 + index % 2) for index in range(3)
            ],
        )

        def metadata(request: Any) -> Any:
            answer = first.metadata(topics=[topic])
            answer.brokers.append(MetadataResponseBroker(node_id=2, host=second.address.host, port=second.address.port))
            return answer

        first.answers[ApiKey.METADATA] = metadata
        with Admin(str(first.address)) as admin:
            found = admin.topics.offsets({TopicPartition("t", index): -1 for index in range(3)})
    assert {place.partition: entry.offset for place, entry in found.items()} == {0: 100, 1: 101, 2: 102}
    assert [key for key, _ in first.seen].count(ApiKey.LIST_OFFSETS) == 1
    assert [key for key, _ in second.seen].count(ApiKey.LIST_OFFSETS) == 1


@pytest.mark.parametrize("version", [2, 4])
def test_group_goes_to_its_coordinator(version: int) -> None:
    """Both forms of FindCoordinator's answer are understood."""
    with broker({ApiKey.OFFSET_FETCH: script(OffsetFetchResponse(groups=[OffsetFetchResponseGroup()]))}) as second:

        def found(request: Any) -> FindCoordinatorResponse:
            return FindCoordinatorResponse(
                node_id=2,
                host=second.address.host,
                port=second.address.port,
                coordinators=[
                    FindCoordinatorResponseCoordinator(
                        key="g", node_id=2, host=second.address.host, port=second.address.port
                    )
                ],
            )

        with broker({ApiKey.FIND_COORDINATOR: found}) as first:
            first.versions[ApiKey.FIND_COORDINATOR] = (0, version)
            with Admin(str(first.address)) as admin:
                assert admin.groups.offsets("g") == {}
        assert ApiKey.OFFSET_FETCH in [key for key, _ in second.seen]
