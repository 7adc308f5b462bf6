"""Elections and moves: what is asked, and how the answers for many partitions are told apart."""

from typing import Any

import pytest

from drmq.client import Admin, Elections, Reassignment, Refused
from drmq.model import ErrorCode, TopicPartition
from drmq.wire import ApiKey
from drmq.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
)
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseReplica,
    DescribeQuorumResponseTopic,
)
from drmq.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)
from drmq.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponsePartition,
    ListPartitionReassignmentsResponseTopic,
)
from drmq.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from support.fake_broker import FakeCluster, fake_cluster

A0, A1, A2, B0 = (TopicPartition(*place) for place in [("a", 0), ("a", 1), ("a", 2), ("b", 0)])


def elected(codes: dict[TopicPartition, int], code: int = 0) -> ElectLeadersResponse:
    topics = [
        ElectLeadersResponseTopic(place.topic, [ElectLeadersResponsePartition(place.partition, result)])
        for place, result in codes.items()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=topics)


def altered(codes: dict[TopicPartition, int], said: str | None = None) -> AlterPartitionReassignmentsResponse:
    topics = [
        AlterPartitionReassignmentsResponseTopic(
            place.topic, [AlterPartitionReassignmentsResponsePartition(place.partition, code, said)]
        )
        for place, code in codes.items()
    ]
    return AlterPartitionReassignmentsResponse(responses=topics)


def remember(fakes: FakeCluster, key: ApiKey, *answers: Any) -> list[Any]:
    """Let the brokers give one answer after the other, and collect what they are asked."""
    asked: list[Any] = []
    waiting = list(answers)

    def answer(request: Any) -> Any:
        asked.append(request)
        return waiting.pop(0)

    fakes.answer(key, answer)
    return asked


# ---- elections -----------------------------------------------------------------------------------


def test_election_of_some_partitions() -> None:
    """Each result in its place: a new leader, one that led already, and a refusal that says why."""
    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.controller_id = 2
        codes: dict[TopicPartition, int] = {
            A0: 0,
            A1: ErrorCode.ELECTION_NOT_NEEDED,
            A2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            B0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        asked: list[ElectLeadersRequest] = remember(fakes, ApiKey.ELECT_LEADERS, elected(codes))
        found = admin.replicas.elect([B0, A2, A1, A0, A0])
        assert fakes.counts(ApiKey.ELECT_LEADERS) == [0, 1]
    assert asked[0].topic_partitions is not None
    assert [(topic.topic, topic.partitions) for topic in asked[0].topic_partitions] == [("a", [0, 1, 2]), ("b", [0])]
    assert asked[0].election_type == 0
    assert 0 < asked[0].timeout_ms <= 10_000
    assert (found.elected, found.not_needed) == ((A0,), (A1,))
    assert {place: error.code for place, error in found.refused.items()} == {
        A2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        B0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert "its first replica is unavailable or not in sync yet" in str(found.refused[A2])
    assert "does not exist" in str(found.refused[B0])


def test_election_of_all_partitions() -> None:
    """Null asks for all, and no partition at all needs no question."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        asked: list[ElectLeadersRequest] = remember(fakes, ApiKey.ELECT_LEADERS, elected({A0: 0}))
        assert admin.replicas.elect(()) == Elections()
        assert not asked
        assert admin.replicas.elect() == Elections((A0,))
        assert asked[0].topic_partitions is None


def test_unclean_election_is_never_asked_for_by_mistake() -> None:
    """It has its own type from v1; a broker that would take it for another kind of election is not asked."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        asked: list[ElectLeadersRequest] = remember(fakes, ApiKey.ELECT_LEADERS, elected({A0: 0}))
        assert admin.replicas.elect([A0], unclean=True).elected == (A0,)
        assert asked[0].election_type == 1
        fakes[1].versions[ApiKey.ELECT_LEADERS] = (0, 0)
        fakes[1].hang_up()
        with pytest.raises(Refused, match="does not support unclean elections") as caught:
            admin.replicas.elect([A0], unclean=True)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert len(asked) == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_election_after_the_controller_moved(version: int) -> None:
    """Up to v0 each partition tells `NOT_CONTROLLER`, from v1 the whole answer; both are asked again elsewhere."""
    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:
        for fake in fakes.brokers.values():
            fake.versions[ApiKey.ELECT_LEADERS] = (0, version)

        def step_down(request: Any) -> ElectLeadersResponse:
            fakes.controller_id = 2
            return elected({A0: ErrorCode.NOT_CONTROLLER if version == 0 else 0}, ErrorCode.NOT_CONTROLLER)

        fakes[1].answers[ApiKey.ELECT_LEADERS] = step_down
        fakes[2].answers[ApiKey.ELECT_LEADERS] = lambda request: elected({A0: 0})
        assert admin.replicas.elect([A0]) == Elections((A0,))
        assert fakes.counts(ApiKey.ELECT_LEADERS) == [1, 1]


# ---- moves ---------------------------------------------------------------------------------------


def test_moves_are_asked_for_and_refused_one_by_one() -> None:
    """What was accepted is not mentioned; every refusal names the partition, the brokers and the broker's words."""
    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:
        codes = {A0: 0, B0: int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)}
        answer = altered(codes, "broker 9 is not registered")
        asked: list[AlterPartitionReassignmentsRequest]
        asked = remember(fakes, ApiKey.ALTER_PARTITION_REASSIGNMENTS, answer)
        refused = admin.replicas.reassign({B0: [9, 1], A0: (2, 1), A1: [1]}, may_change_factor=False)
        assert fakes.counts(ApiKey.ALTER_PARTITION_REASSIGNMENTS) == [1, 0]
    topics = {topic.name: [(p.partition_index, p.replicas) for p in topic.partitions] for topic in asked[0].topics}
    assert topics == {"a": [(0, [2, 1]), (1, [1])], "b": [(0, [9, 1])]}
    assert asked[0].allow_replication_factor_change is False
    assert set(refused) == {A1, B0}
    assert "did not report a result for partition 1 of topic `a`" in str(refused[A1])
    assert str(refused[B0]) == (
        "Partition 0 of topic `b` cannot be moved to brokers 9, 1: broker 9 is not registered "
        "(INVALID_REPLICA_ASSIGNMENT). `drmq status` lists the brokers."
    )


def test_keeping_the_number_of_replicas_needs_a_broker_that_understands_it() -> None:
    """A v0 request has no room for the condition; sent all the same, it would do what was not wanted."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        fakes[1].versions[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = (0, 0)
        asked = remember(fakes, ApiKey.ALTER_PARTITION_REASSIGNMENTS, altered({A0: 0}))
        with pytest.raises(Refused, match="cannot guarantee the number of replicas during a move"):
            admin.replicas.reassign({A0: [1]}, may_change_factor=False)
        assert not asked
        assert admin.replicas.reassign({A0: [1]}) == {}


def test_cancelling_a_move() -> None:
    """Null replicas go out, and a partition that does not move is told so."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        answer = altered({A0: 0, A1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS})
        asked: list[AlterPartitionReassignmentsRequest]
        asked = remember(fakes, ApiKey.ALTER_PARTITION_REASSIGNMENTS, answer)
        refused = admin.replicas.cancel([A0, A1])
        assert [p.replicas for p in asked[0].topics[0].partitions] == [None, None]
        assert [str(error) for error in refused.values()] == [
            "Partition 1 of topic `a` is not being moved (NO_REASSIGNMENT_IN_PROGRESS)."
        ]
        assert admin.replicas.cancel([]) == {}
        assert len(asked) == 1


def test_a_lost_answer_is_asked_for_again_only_if_that_is_harmless() -> None:
    """Asked for twice, a move is one move. Cancelled twice, it would look as if it had never been there."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        asked = remember(fakes, ApiKey.ALTER_PARTITION_REASSIGNMENTS, None, altered({A0: 0}), None)
        assert admin.replicas.reassign({A0: [1]}) == {}
        assert len(asked) == 2
        with pytest.raises(Exception, match="closed the connection"):
            admin.replicas.cancel([A0])
        assert len(asked) == 3


def test_the_whole_call_is_refused() -> None:
    """The reason of the controller is passed on."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        answer = AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="no."
        )
        remember(fakes, ApiKey.ALTER_PARTITION_REASSIGNMENTS, answer)
        with pytest.raises(Refused, match=r"No partition can be moved now: no \(CLUSTER_AUTHORIZATION_FAILED\)\."):
            admin.replicas.reassign({A0: [1]})


def test_moves_under_way() -> None:
    """Of all partitions, or of some; the target is what stays and what comes."""
    moving = ListPartitionReassignmentsResponsePartition(1, [1, 2, 3, 4], [4], [1])
    answer = ListPartitionReassignmentsResponse(topics=[ListPartitionReassignmentsResponseTopic("a", [moving])])
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        asked: list[ListPartitionReassignmentsRequest]
        asked = remember(fakes, ApiKey.LIST_PARTITION_REASSIGNMENTS, answer, answer)
        assert admin.replicas.reassignments() == {A1: Reassignment((1, 2, 3, 4), (4,), (1,))}
        assert admin.replicas.reassignments([A1, A0, A1])[A1].target == (2, 3, 4)
        assert admin.replicas.reassignments([]) == {}
    assert asked[0].topics is None
    assert asked[1].topics is not None
    assert [(topic.name, topic.partition_indexes) for topic in asked[1].topics] == [("a", [0, 1])]
    assert len(asked) == 2


# ---- replica groups ------------------------------------------------------------------------------


def led(leaders: dict[TopicPartition, int]) -> list[MetadataResponseTopic]:
    """Metadata in which these brokers lead."""
    found: dict[str, list[MetadataResponsePartition]] = {}
    for place, leader in leaders.items():
        partition = MetadataResponsePartition(
            partition_index=place.partition, leader_id=leader, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        found.setdefault(place.topic, []).append(partition)
    return [MetadataResponseTopic(name=name, partitions=partitions) for name, partitions in found.items()]


def quorums_of(leader: int, codes: dict[TopicPartition, int] | None = None) -> Any:
    """An answer to DescribeQuorum about whatever is asked, by its leader."""

    def answer(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(
            topics=[
                DescribeQuorumResponseTopic(
                    topic.topic_name,
                    [
                        DescribeQuorumResponsePartition(
                            partition_index=entry.partition_index,
                            error_code=(codes or {}).get(TopicPartition(topic.topic_name, entry.partition_index), 0),
                            leader_id=leader,
                            leader_epoch=5,
                            high_watermark=10,
                            current_voters=[
                                DescribeQuorumResponseReplica(1, log_end_offset=10),
                                DescribeQuorumResponseReplica(2, log_end_offset=12),
                            ],
                        )
                        for entry in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def test_quorum_of_a_partition_is_asked_of_its_leader() -> None:
    """Only the leader knows how far the others are."""
    with fake_cluster(3) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.topics = led({A1: 2})
        fakes[2].answers[ApiKey.DESCRIBE_QUORUM] = quorums_of(2)
        found = admin.replicas.quorum(A1)
        assert (found.leader_id, found.leader_epoch, found.high_watermark) == (2, 5, 10)
        assert [(replica.node_id, replica.lag) for replica in found.voters] == [(1, 2), (2, 0)]
        assert fakes.counts(ApiKey.DESCRIBE_QUORUM) == [0, 1, 0]


def test_quorum_after_the_leader_of_a_partition_moved() -> None:
    """The one that led says so, and the next one is asked."""
    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.topics = led({A0: 1})

        def step_down(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
            fakes.topics = led({A0: 2})
            found: DescribeQuorumResponse = quorums_of(1, {A0: ErrorCode.NOT_LEADER_OR_FOLLOWER})(request)
            return found

        fakes[1].answers[ApiKey.DESCRIBE_QUORUM] = step_down
        fakes[2].answers[ApiKey.DESCRIBE_QUORUM] = quorums_of(2)
        assert admin.replicas.quorum(A0).leader_id == 2


def test_quorum_of_a_partition_that_is_not_there() -> None:
    """In the words of every other command."""
    with fake_cluster(1) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.topics = led({A0: 1})
        with pytest.raises(Refused, match="Partition 1 of topic `a` does not exist"):
            admin.replicas.quorum(A1)


def test_quorums_of_many_partitions() -> None:
    """One question for each leader; what has no leader, or is refused, is left out."""
    with fake_cluster(3) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.topics = led({A0: 1, A1: 2, A2: -1, B0: 2})
        fakes[1].answers[ApiKey.DESCRIBE_QUORUM] = quorums_of(1)
        fakes[2].answers[ApiKey.DESCRIBE_QUORUM] = quorums_of(2, {B0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
        found = admin.replicas.quorums([A0, A1, A2, B0])
        assert {place: quorum.leader_id for place, quorum in found.items()} == {A0: 1, A1: 2}
        assert fakes.counts(ApiKey.DESCRIBE_QUORUM) == [1, 1, 0]
        assert admin.replicas.quorums([]) == {}


def test_quorums_without_a_leader_that_died() -> None:
    """A broker that is gone hides its own groups, and no others."""
    with fake_cluster(2) as fakes, Admin(fakes.bootstrap) as admin:
        fakes.topics = led({A0: 1, A1: 2})
        fakes[1].answers[ApiKey.DESCRIBE_QUORUM] = quorums_of(1)
        fakes[2].close()
        assert list(admin.replicas.quorums([A0, A1])) == [A0]
