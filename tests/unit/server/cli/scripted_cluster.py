"""A cluster that keeps no records but moves its replicas, leaders and members when it is asked to.

Real sockets and frames, and as much state as the commands can see: enough to test what they ask for, in
which order, and when they stop waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from drmq.model import ErrorCode, TopicPartition
from drmq.model.names import CLUSTER_METADATA
from drmq.wire import ApiKey
from drmq.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from drmq.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
)
from drmq.wire.messages.describe_cluster import DescribeClusterResponse, DescribeClusterResponseBroker
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
from drmq.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from drmq.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from support.fake_broker import Answer, FakeCluster, fake_cluster

POLLS_PER_MOVE = 2
"""How often one is asked about a move before it is through."""


@dataclass
class Place:
    """A partition: its replicas, the preferred leader first, who is in sync and who leads."""

    replicas: list[int]
    in_sync: list[int]
    leader: int
    epoch: int = 1
    target: list[int] | None = None
    polls_left: int = 0


@dataclass
class ScriptedCluster:
    """What is true, what was asked for, and the answers that follow."""

    fakes: FakeCluster
    places: dict[TopicPartition, Place] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    racks: dict[int, str] = field(default_factory=dict)
    voters: list[int] = field(default_factory=lambda: [1, 2, 3])
    log_ends: dict[int, int] = field(default_factory=dict)
    """How far a node's logs reach, where that is not as far as the leader's."""
    changes: list[str] = field(default_factory=list)
    """What was asked for, in order."""
    draining: int | None = None
    refuse_moves: bool = False
    elections_refused: int = 0

    def __post_init__(self) -> None:
        answers: dict[ApiKey, Answer] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
            ApiKey.DESCRIBE_QUORUM: self._describe_quorum,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._alter,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list,
            ApiKey.ELECT_LEADERS: self._elect,
            ApiKey.UNREGISTER_BROKER: self._unregister,
            ApiKey.ADD_RAFT_VOTER: self._add_voter,
            ApiKey.REMOVE_RAFT_VOTER: self._remove_voter,
        }
        for key, answer in answers.items():
            self.fakes.answer(key, answer)

    @property
    def bootstrap(self) -> str:
        return str(self.fakes[1].address)

    def add(self, topic: str, *replicas: list[int]) -> None:
        """A topic with these replicas, all in sync and led by the first."""
        for index, nodes in enumerate(replicas):
            self.places[TopicPartition(topic, index)] = Place(list(nodes), list(nodes), nodes[0])

    def _metadata(self, request: Any) -> Any:
        topics: dict[str, list[MetadataResponsePartition]] = {}
        for place, found in self.places.items():
            partition = MetadataResponsePartition(
                partition_index=place.partition,
                leader_id=found.leader,
                leader_epoch=found.epoch,
                replica_nodes=found.replicas + [node for node in found.target or [] if node not in found.replicas],
                isr_nodes=found.in_sync,
            )
            topics.setdefault(place.topic, []).append(partition)
        self.fakes.topics = [
            MetadataResponseTopic(name=name, topic_id=number.to_bytes(16, "big"), partitions=partitions)
            for number, (name, partitions) in enumerate(topics.items(), start=1)
        ]
        answer = self.fakes.metadata()
        answer.brokers = [broker for broker in answer.brokers if broker.node_id not in self.fenced]
        return answer

    def _describe_cluster(self, request: Any) -> DescribeClusterResponse:
        if self.draining is not None:
            self._drain_one()
        return DescribeClusterResponse(
            cluster_id="fake",
            controller_id=self.fakes.controller_id,
            brokers=[
                DescribeClusterResponseBroker(
                    node_id, fake.address.host, fake.address.port, self.racks.get(node_id), node_id in self.fenced
                )
                for node_id, fake in self.fakes.brokers.items()
            ],
        )

    def _drain_one(self) -> None:
        """One replica leaves the broker that is being drained; with the last one it goes."""
        node_id = self.draining
        assert node_id is not None
        for found in self.places.values():
            if node_id in found.replicas:
                taker = next(other for other in self.fakes.brokers if other not in found.replicas)
                found.replicas[found.replicas.index(node_id)] = taker
                return
        # It answers on: a command may have a connection to it.
        del self.fakes.brokers[node_id]
        self.draining = None

    def _describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(
            topics=[
                DescribeQuorumResponseTopic(
                    topic.topic_name,
                    [
                        self._quorum(TopicPartition(topic.topic_name, entry.partition_index))
                        for entry in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _quorum(self, place: TopicPartition) -> DescribeQuorumResponsePartition:
        if place.topic == CLUSTER_METADATA:
            leader, epoch, voters = self.fakes.controller_id, 9, self.voters
            observers = [node_id for node_id in self.fakes.brokers if node_id not in voters]
        else:
            found = self.places[place]
            leader, epoch, voters = found.leader, found.epoch, found.replicas
            observers = [node for node in found.target or [] if node not in found.replicas]

        def replica(node_id: int) -> DescribeQuorumResponseReplica:
            directory_id = bytes([node_id]) * 16
            return DescribeQuorumResponseReplica(node_id, directory_id, self.log_ends.get(node_id, 100), 1_000, 1_000)

        return DescribeQuorumResponsePartition(
            partition_index=place.partition,
            leader_id=leader,
            leader_epoch=epoch,
            high_watermark=100,
            current_voters=[replica(node_id) for node_id in voters],
            observers=[replica(node_id) for node_id in observers],
        )

    def _alter(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        topics = []
        for topic in request.topics:
            results = []
            for entry in topic.partitions:
                place = TopicPartition(topic.name, entry.partition_index)
                assert entry.replicas is not None
                assert not any(other.target for other in self.places.values()), "one move at a time"
                self.changes.append(f"move {place} to {entry.replicas}")
                code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if self.refuse_moves else 0
                results.append(AlterPartitionReassignmentsResponsePartition(entry.partition_index, code))
                if not code:
                    self._begin(self.places[place], entry.replicas)
            topics.append(AlterPartitionReassignmentsResponseTopic(topic.name, results))
        return AlterPartitionReassignmentsResponse(responses=topics)

    def _begin(self, found: Place, replicas: list[int]) -> None:
        if set(replicas) == set(found.replicas):
            found.replicas = replicas
        else:
            found.target, found.polls_left = replicas, POLLS_PER_MOVE

    def _list(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        topics = []
        for place, found in self.places.items():
            if found.target is None:
                continue
            if not found.polls_left:
                found.replicas, found.in_sync, found.target = found.target, list(found.target), None
                continue
            found.polls_left -= 1
            adding = [node for node in found.target if node not in found.replicas]
            removing = [node for node in found.replicas if node not in found.target]
            entry = ListPartitionReassignmentsResponsePartition(
                place.partition, found.replicas + adding, adding, removing
            )
            topics.append(ListPartitionReassignmentsResponseTopic(place.topic, [entry]))
        return ListPartitionReassignmentsResponse(topics=topics)

    def _elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        results = []
        for topic in request.topic_partitions or []:
            for index in topic.partitions:
                place = TopicPartition(topic.topic, index)
                found = self.places[place]
                self.changes.append(f"elect {place}")
                code = 0
                if self.elections_refused:
                    self.elections_refused -= 1
                    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
                elif found.leader == found.replicas[0]:
                    code = ErrorCode.ELECTION_NOT_NEEDED
                else:
                    found.leader, found.epoch = found.replicas[0], found.epoch + 1
                results.append(ElectLeadersResponseTopic(topic.topic, [ElectLeadersResponsePartition(index, code)]))
        return ElectLeadersResponse(replica_election_results=results)

    def _unregister(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        self.changes.append(f"unregister {request.broker_id}")
        self.draining = request.broker_id
        return UnregisterBrokerResponse()

    def _add_voter(self, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        assert request.voter_directory_id == bytes([request.voter_id]) * 16
        self.changes.append(f"add voter {request.voter_id}")
        self.voters.append(request.voter_id)
        return AddRaftVoterResponse()

    def _remove_voter(self, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        self.changes.append(f"remove voter {request.voter_id}")
        self.voters.remove(request.voter_id)
        return RemoveRaftVoterResponse()


@contextmanager
def scripted_cluster(count: int) -> Iterator[ScriptedCluster]:
    with fake_cluster(count) as fakes:
        yield ScriptedCluster(fakes)
