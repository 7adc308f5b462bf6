"""A cluster whose roles move and whose brokers die, freeze, restart and err, and a client that gets through."""

import time
from typing import Any

import pytest

from drmq.client import Admin, NewTopic, Refused
from drmq.client import topics as client_topics
from drmq.model import ErrorCode, TopicPartition
from drmq.wire import ApiKey
from drmq.wire.messages.create_topics import CreateTopicsResponse, CreateTopicsResponseTopic
from drmq.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResponseResult
from drmq.wire.messages.find_coordinator import FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from drmq.wire.messages.list_groups import ListGroupsResponse, ListGroupsResponseGroup
from drmq.wire.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from drmq.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from drmq.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from support.fake_broker import Answer, FakeCluster, fake_cluster

P0 = TopicPartition("t", 0)


def created(code: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreateTopicsResponseTopic(name="t", error_code=code, num_partitions=3)])


def topic(leader: int, replicas: list[int]) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(leader_id=leader, replica_nodes=replicas, isr_nodes=replicas)
    return MetadataResponseTopic(name="t", partitions=[partition])


def offset(code: int = 0, value: int = 42) -> ListOffsetsResponse:
    partition = ListOffsetsResponsePartition(error_code=code, offset=value)
    return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=[partition])])


def answer_offsets(fakes: FakeCluster) -> None:
    """The leader of `t` answers, the others say that they are not."""

    def answer_as(node_id: int) -> Answer:
        def answer(request: Any) -> ListOffsetsResponse:
            leads = fakes.topics[0].partitions[0].leader_id == node_id
            return offset(0 if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        return answer

    for node_id, fake in fakes.brokers.items():
        fake.answers[ApiKey.LIST_OFFSETS] = answer_as(node_id)


# ---- roles that move -----------------------------------------------------------------------------


def test_the_controller_moves() -> None:
    """Told `NOT_CONTROLLER`, even a creation is sent again, to the new controller, and once."""
    with fake_cluster(3) as fakes:

        def step_down(request: Any) -> CreateTopicsResponse:
            fakes.controller_id = 3
            return created(ErrorCode.NOT_CONTROLLER)

        fakes[1].answers[ApiKey.CREATE_TOPICS] = step_down
        fakes[3].answers[ApiKey.CREATE_TOPICS] = lambda request: created()
        with Admin(fakes.bootstrap) as admin:
            assert admin.topics.create(NewTopic("t")) == 3
        assert fakes.counts(ApiKey.CREATE_TOPICS) == [1, 0, 1]


def test_a_leader_moves() -> None:
    """Told `NOT_LEADER_OR_FOLLOWER`, the client asks who leads, and goes there."""
    with fake_cluster(3) as fakes:
        fakes.topics = [topic(1, [1, 2, 3])]
        answer_offsets(fakes)

        def step_down(request: Any) -> ListOffsetsResponse:
            fakes.topics = [topic(2, [1, 2, 3])]
            return offset(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        fakes[1].answers[ApiKey.LIST_OFFSETS] = step_down
        with Admin(fakes.bootstrap) as admin:
            assert admin.topics.offsets({P0: -1})[P0].offset == 42
        assert fakes.counts(ApiKey.LIST_OFFSETS) == [1, 1, 0]


def test_a_coordinator_moves() -> None:
    """Told `NOT_COORDINATOR`, the client looks for the group's coordinator anew."""
    with fake_cluster(3) as fakes:
        coordinator = 1

        def find(request: Any) -> FindCoordinatorResponse:
            address = fakes[coordinator].address
            found = FindCoordinatorResponseCoordinator("g", coordinator, address.host, address.port)
            return FindCoordinatorResponse(coordinators=[found])

        def step_down(request: Any) -> OffsetFetchResponse:
            nonlocal coordinator
            coordinator = 2
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(error_code=ErrorCode.NOT_COORDINATOR)])

        fakes.answer(ApiKey.FIND_COORDINATOR, find)
        fakes[1].answers[ApiKey.OFFSET_FETCH] = step_down
        fakes[2].answers[ApiKey.OFFSET_FETCH] = lambda request: OffsetFetchResponse(groups=[OffsetFetchResponseGroup()])
        with Admin(fakes.bootstrap) as admin:
            assert admin.groups.offsets("g") == {}
        assert fakes.counts(ApiKey.OFFSET_FETCH) == [1, 1, 0]


def test_an_election_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are other replicas, no leader is a state that passes, however short the grace of a single one."""
    monkeypatch.setattr(client_topics, "LEADER_GRACE_S", 0.0)
    with fake_cluster(3) as fakes:
        leaderless = [topic(-1, [1, 2, 3])] * 3
        answer_offsets(fakes)

        def elect(request: Any) -> Any:
            fakes.topics = [leaderless.pop()] if leaderless else [topic(2, [1, 2, 3])]
            return fakes.metadata()

        fakes.answer(ApiKey.METADATA, elect)
        with Admin(fakes.bootstrap) as admin:
            assert admin.topics.offsets({P0: -1})[P0].offset == 42
        assert not leaderless


def test_no_majority_is_told_with_the_brokers_to_look_for() -> None:
    """When nobody is elected in time, the answer names the replicas and not a timeout."""
    with fake_cluster(3) as fakes:
        fakes.topics = [topic(-1, [1, 2, 3])]
        with Admin(fakes.bootstrap, timeout_s=0.3) as admin, pytest.raises(Refused, match="brokers 1, 2, 3") as caught:
            admin.topics.offsets({P0: -1})
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_nobody_else_can_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition with one replica is not waited for longer than the grace."""
    monkeypatch.setattr(client_topics, "LEADER_GRACE_S", 0.0)
    with fake_cluster(3) as fakes:
        fakes.topics = [topic(-1, [2])]
        with (
            Admin(fakes.bootstrap, timeout_s=30) as admin,
            pytest.raises(Refused, match="has no leader: it is stopped"),
        ):
            admin.topics.offsets({P0: -1})


# ---- brokers that fail ---------------------------------------------------------------------------


def test_every_broker_is_a_way_in_once_it_is_known() -> None:
    """The only bootstrap server dies, and the client goes on with what it learned from it."""
    with fake_cluster(3) as fakes, Admin(str(fakes[1].address)) as admin:
        fakes.controller_id = 2
        assert admin.describe_cluster().cluster_id == "fake"
        fakes[1].close()
        assert admin.describe_cluster().controller_id == 2


def test_a_dead_leader_is_replaced_by_its_successor() -> None:
    """The broker that metadata names is gone; the client asks until metadata names another."""
    with fake_cluster(3) as fakes:
        fakes.topics = [topic(1, [1, 2, 3])]
        answer_offsets(fakes)
        fakes[1].close()
        asked = 0

        def metadata(request: Any) -> Any:
            nonlocal asked
            asked += 1
            fakes.topics = [topic(3 if asked > 3 else 1, [1, 2, 3])]
            return fakes.metadata()

        fakes.answer(ApiKey.METADATA, metadata)
        with Admin(fakes.bootstrap) as admin:
            assert admin.topics.offsets({P0: -1})[P0].offset == 42
        assert fakes.counts(ApiKey.LIST_OFFSETS) == [0, 0, 1]


def test_a_frozen_leader_leaves_time_for_its_successor() -> None:
    """It took the question and says nothing: a part of the time is lost, not the call."""
    with fake_cluster(3) as fakes:
        fakes.topics = [topic(1, [1, 2, 3])]
        answer_offsets(fakes)

        def freeze(request: Any) -> ListOffsetsResponse:
            fakes[1].freeze()
            fakes.topics = [topic(2, [1, 2, 3])]
            return offset()

        fakes[1].answers[ApiKey.LIST_OFFSETS] = freeze
        with Admin(fakes.bootstrap, timeout_s=4) as admin:
            assert admin.topics.offsets({P0: -1})[P0].offset == 42
        assert fakes.counts(ApiKey.LIST_OFFSETS) == [1, 1, 0]


def test_a_frozen_controller_leaves_time_for_its_successor() -> None:
    """It does not even greet, so it has no request: even a creation is sent to the next controller."""
    with fake_cluster(2) as fakes:
        fakes[1].freeze()
        named = [1]

        def metadata(request: Any) -> Any:
            fakes.controller_id = named.pop() if named else 2
            return fakes.metadata()

        fakes[2].answers[ApiKey.METADATA] = metadata
        fakes[2].answers[ApiKey.CREATE_TOPICS] = lambda request: created()
        with Admin(str(fakes[2].address), timeout_s=4) as admin:
            assert admin.topics.create(NewTopic("t")) == 3
        assert fakes.counts(ApiKey.CREATE_TOPICS) == [0, 1]


def test_a_broker_comes_back_at_another_address() -> None:
    """The address that is known is dead, so it is asked for again."""
    described = DescribeConfigsResponse(results=[DescribeConfigsResponseResult()])
    with fake_cluster(3) as fakes, Admin(str(fakes[1].address)) as admin:
        admin.describe_cluster()
        fakes[2].close()
        fakes.brokers[2] = fakes[3]
        fakes[3].answers[ApiKey.DESCRIBE_CONFIGS] = lambda request: described
        assert list(admin.configs.of_broker(2)) == []


def test_a_frozen_bootstrap_server_leaves_time_for_the_others() -> None:
    """Whichever is asked first: one that takes the connection and says nothing is passed over."""
    with fake_cluster(2) as fakes:
        fakes.controller_id = 2
        fakes[1].freeze()
        for _ in range(4):
            with Admin(fakes.bootstrap, timeout_s=2) as admin:
                assert admin.describe_cluster().controller_id == 2


def test_one_broker_may_take_all_the_time() -> None:
    """Where there is no other to ask, a slow answer is not cut short to ask the same broker again."""
    with fake_cluster(1) as fakes:
        fakes.topics = [topic(1, [1])]

        def slow(request: Any) -> ListOffsetsResponse:
            time.sleep(1.2)
            return offset()

        fakes[1].answers[ApiKey.LIST_OFFSETS] = slow
        with Admin(fakes.bootstrap, timeout_s=2) as admin:
            assert admin.topics.offsets({P0: -1})[P0].offset == 42
        assert fakes.counts(ApiKey.LIST_OFFSETS) == [1]


def test_a_broker_that_is_wrong_is_not_asked_for_ever() -> None:
    """One that is cut off still names itself the controller. The others know better, and are asked in turn."""
    with fake_cluster(3) as fakes:
        fakes.controller_id = 2

        def stale(request: Any) -> Any:
            answer = fakes.metadata()
            answer.controller_id = 1
            return answer

        fakes[1].answers[ApiKey.METADATA] = stale
        fakes[1].answers[ApiKey.CREATE_TOPICS] = lambda request: created(ErrorCode.NOT_CONTROLLER)
        fakes[2].answers[ApiKey.CREATE_TOPICS] = lambda request: created()
        with Admin(str(fakes[1].address)) as admin:
            assert admin.topics.create(NewTopic("t")) == 3
        assert fakes.counts(ApiKey.CREATE_TOPICS) == [1, 1, 0]


def test_a_restart_between_two_calls_is_no_failure() -> None:
    """A connection that the broker closed long ago is opened again before a creation is sent, not after."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        fakes[1].answers[ApiKey.CREATE_TOPICS] = lambda request: created()
        admin.topics.create(NewTopic("t"))
        fakes[1].hang_up()
        admin.topics.create(NewTopic("t"))
        assert fakes.counts(ApiKey.CREATE_TOPICS) == [2]


def test_a_question_on_the_way_to_a_creation_may_be_lost() -> None:
    """Who the controller is can be asked twice, so the creation behind it is not given up."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        lost = [None]
        fakes[1].answers[ApiKey.METADATA] = lambda request: lost.pop() if lost else fakes.metadata()
        fakes[1].answers[ApiKey.CREATE_TOPICS] = lambda request: created()
        assert admin.topics.create(NewTopic("t")) == 3
        assert fakes.counts(ApiKey.CREATE_TOPICS) == [1]


# ---- many brokers, one picture -------------------------------------------------------------------


def test_what_was_changed_is_asked_of_who_changed_it() -> None:
    """The controller knows of a new topic first; a question right behind its creation goes there."""
    with fake_cluster(3) as fakes:
        fakes.controller_id = 2

        def create(request: Any) -> CreateTopicsResponse:
            fakes[2].answers[ApiKey.METADATA] = lambda request: updated
            return created()

        fakes[2].answers[ApiKey.CREATE_TOPICS] = create
        updated = fakes.metadata()
        updated.topics = [topic(1, [1])]
        with Admin(str(fakes[1].address)) as admin:
            admin.topics.create(NewTopic("t"))
            assert admin.topics.describe("t").partitions[0].replicas == (1,)


def test_a_group_that_moves_is_listed_once() -> None:
    """Two brokers may both name it while it moves from one to the other."""
    with fake_cluster(2) as fakes:
        first, second = (
            ListGroupsResponse(groups=[ListGroupsResponseGroup(group_id=name) for name in groups])
            for groups in (["b", "moving"], ["moving", "a"])
        )
        fakes[1].answers[ApiKey.LIST_GROUPS] = lambda request: first
        fakes[2].answers[ApiKey.LIST_GROUPS] = lambda request: second
        with Admin(fakes.bootstrap) as admin:
            assert [group.group_id for group in admin.groups.all()] == ["a", "b", "moving"]
