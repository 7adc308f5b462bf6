"""Brokers and the metadata's quorum, as far as the spoken version tells."""

from typing import Any

import pytest

from drmq.client import Admin, Broker, ClientError, Quorum, QuorumReplica, Refused
from drmq.model import ErrorCode
from drmq.model.address import Address
from drmq.wire import ApiKey
from drmq.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from drmq.wire.messages.describe_cluster import DescribeClusterResponse, DescribeClusterResponseBroker
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseReplica,
    DescribeQuorumResponseTopic,
)
from drmq.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from drmq.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from support.fake_broker import fake_cluster

DIRECTORY = bytes(range(16))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_brokers_with_rack_and_role(version: int) -> None:
    """In the order of their ids; who is fenced can be told from v2."""
    answer = DescribeClusterResponse(
        controller_id=1,
        brokers=[
            DescribeClusterResponseBroker(2, "two", 9093, "east", True),
            DescribeClusterResponseBroker(1, "one", 9092),
        ],
    )
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        fakes[1].versions[ApiKey.DESCRIBE_CLUSTER] = (0, version)
        fakes[1].answers[ApiKey.DESCRIBE_CLUSTER] = lambda request: answer
        assert admin.brokers.all() == [
            Broker(1, Address("one", 9092), None, is_fenced=False, is_controller=True),
            Broker(2, Address("two", 9093), "east", is_fenced=version >= 2, is_controller=False),
        ]


def test_fenced_brokers_are_asked_for() -> None:
    """The protocol leaves them out unless it is told not to."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:

        def describe(request: Any) -> DescribeClusterResponse:
            assert (request.include_fenced_brokers, request.endpoint_type) == (True, 1)
            return DescribeClusterResponse()

        fakes[1].answers[ApiKey.DESCRIBE_CLUSTER] = describe
        assert list(admin.brokers.all()) == []


def quorum_answer(**more: Any) -> DescribeQuorumResponse:
    partition = DescribeQuorumResponsePartition(
        leader_id=2,
        leader_epoch=7,
        high_watermark=100,
        current_voters=[
            DescribeQuorumResponseReplica(1, DIRECTORY, 90, 1_000, 900),
            DescribeQuorumResponseReplica(2, DIRECTORY, 110, -1, 1_100),
        ],
        observers=[DescribeQuorumResponseReplica(3, bytes(16), -1)],
        **more,
    )
    return DescribeQuorumResponse(topics=[DescribeQuorumResponseTopic("__cluster_metadata", [partition])])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_quorum(version: int) -> None:
    """The controller is asked for the metadata's partition; what it or its version does not tell is None."""
    asked: list[DescribeQuorumRequest] = []

    def describe(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        asked.append(request)
        return quorum_answer()

    with fake_cluster(3) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.controller_id = 2
        fakes[2].versions[ApiKey.DESCRIBE_QUORUM] = (0, version)
        fakes[2].answers[ApiKey.DESCRIBE_QUORUM] = describe
        found = admin.brokers.quorum()
    assert [(topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in asked[0].topics] == [
        ("__cluster_metadata", [0])
    ]
    directory = DIRECTORY if version >= 2 else None
    times = [(1_000, 900), (None, 1_100)] if version >= 1 else [(None, None)] * 2
    assert found == Quorum(
        leader_id=2,
        leader_epoch=7,
        high_watermark=100,
        voters=(
            QuorumReplica(1, directory, 90, 20, *times[0]),
            QuorumReplica(2, directory, 110, 0, *times[1]),
        ),
        observers=(QuorumReplica(3, None, None, None, None, None),),
    )


def test_quorum_after_the_leader_moved() -> None:
    """The one that was the controller says that it does not lead, and the next one is asked."""
    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:

        def step_down(request: Any) -> DescribeQuorumResponse:
            fakes.controller_id = 2
            return quorum_answer(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

        fakes[1].answers[ApiKey.DESCRIBE_QUORUM] = step_down
        fakes[2].answers[ApiKey.DESCRIBE_QUORUM] = lambda request: quorum_answer()
        assert admin.brokers.quorum().leader_id == 2
        assert fakes.counts(ApiKey.DESCRIBE_QUORUM) == [1, 1]


def test_quorum_that_is_not_described() -> None:
    """A refusal, or an answer about nothing, is an error that says so."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        fakes[1].answers[ApiKey.DESCRIBE_QUORUM] = lambda request: DescribeQuorumResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not for you"
        )
        with pytest.raises(Refused, match="cannot be described: not for you"):
            admin.brokers.quorum()
        fakes[1].answers[ApiKey.DESCRIBE_QUORUM] = lambda request: DescribeQuorumResponse()
        with pytest.raises(ClientError, match="did not include it in its response"):
            admin.brokers.quorum()


BROKER = Broker(3, Address("three", 9094), None, is_fenced=False, is_controller=False)


@pytest.mark.parametrize("code", [0, ErrorCode.DUPLICATE_VOTER])
def test_add_voter(code: int) -> None:
    """The controller is asked. Who votes already, perhaps since a first try, is no error."""
    asked: list[AddRaftVoterRequest] = []

    def answer(request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        asked.append(request)
        return AddRaftVoterResponse(error_code=code)

    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.controller_id = 2
        fakes[2].answers[ApiKey.ADD_RAFT_VOTER] = answer
        admin.brokers.add_voter(BROKER, DIRECTORY)
    assert (asked[0].voter_id, asked[0].voter_directory_id) == (3, DIRECTORY)
    assert [(listener.host, listener.port) for listener in asked[0].listeners] == [("three", 9094)]
    assert 0 < asked[0].timeout_ms <= 10_000


def test_remove_voter() -> None:
    """Who has no vote any more is no error, either."""
    asked: list[RemoveRaftVoterRequest] = []

    def answer(request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        asked.append(request)
        return RemoveRaftVoterResponse(error_code=ErrorCode.VOTER_NOT_FOUND)

    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        fakes[1].answers[ApiKey.REMOVE_RAFT_VOTER] = answer
        admin.brokers.remove_voter(3)
    assert (asked[0].voter_id, asked[0].voter_directory_id) == (3, bytes(16))


def test_voters_that_cannot_change() -> None:
    """The broker's words are in the error."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        refused: dict[str, Any] = {
            "error_code": ErrorCode.INVALID_REQUEST,
            "error_message": "another change is under way",
        }
        fakes[1].answers[ApiKey.ADD_RAFT_VOTER] = lambda request: AddRaftVoterResponse(**refused)
        fakes[1].answers[ApiKey.REMOVE_RAFT_VOTER] = lambda request: RemoveRaftVoterResponse(**refused)
        with pytest.raises(Refused, match=r"Broker 3 cannot become a voter .* another change is under way"):
            admin.brokers.add_voter(BROKER)
        with pytest.raises(Refused, match=r"The vote of broker 3 .* another change is under way"):
            admin.brokers.remove_voter(3)


def test_unregister() -> None:
    """Sent to the controller; a broker that is not there is an error with what to do."""
    asked: list[UnregisterBrokerRequest] = []

    def answer(request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        asked.append(request)
        return UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED if asked[1:] else 0)

    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.controller_id = 2
        fakes[2].answers[ApiKey.UNREGISTER_BROKER] = answer
        admin.brokers.unregister(3)
        with pytest.raises(
            Refused, match=r"There is no broker 3 \(BROKER_ID_NOT_REGISTERED\)\. `drmq cluster members`"
        ):
            admin.brokers.unregister(3)
    assert [request.broker_id for request in asked] == [3, 3]


def test_unregister_is_not_repeated() -> None:
    """An answer that is lost leaves open whether it is being done, and the error says that it is not known."""
    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.answer(ApiKey.UNREGISTER_BROKER, lambda request: None)
        with pytest.raises(ClientError):
            admin.brokers.unregister(3)
        assert sum(fakes.counts(ApiKey.UNREGISTER_BROKER)) == 1
