"""Replicas and leaders of partitions: elections, moves to other brokers, replica groups.

A move continues in the cluster once it is accepted: `reassign` returns as soon as the controller has accepted it, and
`reassignments` lists the moves in progress. Partitions of one call succeed and fail individually, so these calls return
the refused partitions with their reasons, and raise only if the call as a whole failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from drmq.client.brokers import Quorum, quorum_of
from drmq.client.cluster import Cluster
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, Refused, refusal
from drmq.client.topics import by_topic, leader_of, topic_refusal
from drmq.model import ErrorCode, TopicPartition
from drmq.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from drmq.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic, ElectLeadersResponse
from drmq.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
    ListPartitionReassignmentsResponse,
)

_PREFERRED, _UNCLEAN = 0, 1
_UNCLEAN_FROM = 1
_KEEP_FACTOR_FROM = 1


@dataclass(frozen=True, slots=True)
class Elections:
    """The results of elections: new leaders, partitions that needed no election, and failures with reasons."""

    elected: tuple[TopicPartition, ...] = ()
    not_needed: tuple[TopicPartition, ...] = ()
    refused: Mapping[TopicPartition, ClientError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move in progress. `replicas` contains both the old and the new replicas."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the move."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.removing)


class Replicas:
    """Calls about replicas. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def elect(self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False) -> Elections:
        """Elect the first replica of each partition as its leader; None for all partitions.

        With `unclean`, elect any live replica where no in-sync one is left. Records that it does not have are lost.
        """
        wanted = None if partitions is None else sorted(set(partitions))
        topics = None
        if wanted is not None:
            if not wanted:
                return Elections()
            topics = [ElectLeadersRequestTopic(topic, indexes) for topic, indexes in by_topic(wanted).items()]

        def ask(deadline: Deadline) -> Elections:
            controller = self._cluster.controller(deadline)
            if unclean and controller.version_of(ElectLeadersRequest) < _UNCLEAN_FROM:
                raise Refused(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"The broker at {controller.address} does not support unclean elections",
                )
            request = ElectLeadersRequest(_UNCLEAN if unclean else _PREFERRED, topics, deadline.left_ms())
            answer = controller.call(request, ElectLeadersResponse, deadline)
            if answer.error_code:
                raise refusal(answer.error_code, "No leader can be elected now")
            results = {
                TopicPartition(topic.topic, entry.partition_id): (entry.error_code, entry.error_message)
                for topic in answer.replica_election_results
                for entry in topic.partition_result
            }
            return _elections(results)

        return self._cluster.retry(ask)

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int]], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, ClientError]:
        """Begin to move partitions to these brokers, preferred leader first. Returns refused partitions with the
        reasons.

        With `may_change_factor` false, a change of the number of replicas is refused.
        """
        return self._alter({place: list(replicas) for place, replicas in targets.items()}, may_change_factor)

    def cancel(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ClientError]:
        """Cancel moves and return to the previous replicas. Returns refused partitions with the reasons."""
        return self._alter(dict.fromkeys(partitions), may_change_factor=True)

    def _alter(
        self, targets: Mapping[TopicPartition, list[int] | None], may_change_factor: bool
    ) -> dict[TopicPartition, ClientError]:
        if not targets:
            return {}
        topics = [
            AlterPartitionReassignmentsRequestTopic(
                name=topic,
                partitions=[
                    AlterPartitionReassignmentsRequestPartition(index, targets[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(sorted(targets)).items()
        ]

        def ask(deadline: Deadline) -> dict[TopicPartition, ClientError]:
            controller = self._cluster.controller(deadline)
            version = controller.version_of(AlterPartitionReassignmentsRequest)
            if not may_change_factor and version < _KEEP_FACTOR_FROM:
                # The broker would ignore the condition, and might change the number of replicas.
                raise Refused(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"The broker at {controller.address} cannot guarantee the number of replicas during a move",
                )
            request = AlterPartitionReassignmentsRequest(deadline.left_ms(), may_change_factor, topics)
            answer = controller.call(request, AlterPartitionReassignmentsResponse, deadline)
            if answer.error_code:
                raise refusal(answer.error_code, "No partition can be moved now", answer.error_message)
            results = {
                TopicPartition(topic.name, entry.partition_index): (entry.error_code, entry.error_message)
                for topic in answer.responses
                for entry in topic.partitions
            }
            return _refused(targets, results)

        # Repeating a move has no further effect. A repeated cancellation would find nothing to cancel.
        return self._cluster.retry(ask, repeatable=None not in targets.values())

    def reassignments(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Reassignment]:
        """The moves in progress, of these partitions or of all. Partitions that do not move are left out."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsRequestTopic(topic, indexes)
                for topic, indexes in by_topic(sorted(set(partitions))).items()
            ]
            if not topics:
                return {}

        def ask(deadline: Deadline) -> dict[TopicPartition, Reassignment]:
            request = ListPartitionReassignmentsRequest(deadline.left_ms(), topics)
            controller = self._cluster.controller(deadline)
            answer = controller.call(request, ListPartitionReassignmentsResponse, deadline)
            if answer.error_code:
                raise refusal(answer.error_code, "The moves of partitions cannot be listed", answer.error_message)
            found = {
                TopicPartition(topic.name, entry.partition_index): Reassignment(
                    tuple(entry.replicas), tuple(entry.adding_replicas), tuple(entry.removing_replicas)
                )
                for topic in answer.topics
                for entry in topic.partitions
            }
            return dict(sorted(found.items()))

        return self._cluster.retry(ask)

    def quorum(self, place: TopicPartition) -> Quorum:
        """The members of a partition's replica group and their progress, from its leader.

        Apache Kafka reports this only for the metadata.
        """

        def ask(deadline: Deadline) -> Quorum:
            leader = leader_of(place, self._cluster.metadata(deadline, topics=[place.topic]).topics)
            if isinstance(leader, ClientError):
                raise leader
            found = _ask_quorums(self._cluster.node(leader, deadline), [place], deadline)[place]
            if isinstance(found, ClientError):
                raise found
            return found

        return self._cluster.retry(ask)

    def quorums(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Quorum]:
        """The replica groups of many partitions, without those that have no leader or whose leader does not respond."""
        wanted = sorted(set(partitions))
        deadline = self._cluster.deadline()
        described = self._cluster.retry(
            lambda attempt: self._cluster.metadata(attempt, topics=sorted({place.topic for place in wanted})),
            deadline=deadline,
        ).topics
        shares: dict[int, list[TopicPartition]] = {}
        for place in wanted:
            leader = leader_of(place, described)
            if not isinstance(leader, ClientError):
                shares.setdefault(leader, []).append(place)
        found: dict[TopicPartition, Quorum] = {}
        for position, (leader, share) in enumerate(shares.items()):
            part = deadline.part(1 / (len(shares) - position))
            try:
                answers = _ask_quorums(self._cluster.node(leader, part), share, part)
            except ClientError:
                continue
            found |= {place: answer for place, answer in answers.items() if not isinstance(answer, ClientError)}
        return dict(sorted(found.items()))


def _ask_quorums(
    leader: Connection, places: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, Quorum | ClientError]:
    """What a leader reports about its partitions, or why it does not."""
    topics = [
        DescribeQuorumRequestTopic(topic, [DescribeQuorumRequestPartition(index) for index in indexes])
        for topic, indexes in by_topic(places).items()
    ]
    answer = leader.call(DescribeQuorumRequest(topics), DescribeQuorumResponse, deadline)
    if answer.error_code:
        raise refusal(answer.error_code, "Replica groups cannot be described", answer.error_message)
    found: dict[TopicPartition, Quorum | ClientError] = {
        place: ClientError(f"The broker at {leader.address} did not include {place} in its response")
        for place in places
    }
    for topic in answer.topics:
        for entry in topic.partitions:
            place = TopicPartition(topic.topic_name, entry.partition_index)
            found[place] = quorum_of(entry)
            if entry.error_code:
                doing = "be described"
                found[place] = topic_refusal(
                    entry.error_code, topic.topic_name, entry.error_message, partition=place.partition, doing=doing
                )
    return found


_Result = tuple[int, str | None]
"""An error code and the broker's message, for one partition."""


def _check_controller(code: int, said: str | None) -> None:
    """Raise if a partition's result concerns the whole call: the broker is not the controller, so it must be found."""
    if code == ErrorCode.NOT_CONTROLLER:
        raise refusal(code, "The broker is no longer the controller", said)


def _elections(results: Mapping[TopicPartition, _Result]) -> Elections:
    elected, not_needed = [], []
    refused: dict[TopicPartition, ClientError] = {}
    for place, (code, said) in sorted(results.items()):
        _check_controller(code, said)
        if not code:
            elected.append(place)
        elif code == ErrorCode.ELECTION_NOT_NEEDED:
            not_needed.append(place)
        else:
            refused[place] = _election_refusal(place, code, said)
    return Elections(tuple(elected), tuple(not_needed), refused)


def _election_refusal(place: TopicPartition, code: int, said: str | None) -> ClientError:
    what = f"Partition {place.partition} of topic `{place.topic}` keeps its leader"
    advice = f"`drmq topic describe {place.topic}` shows its replicas and which of them are in sync."
    if code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
        return refusal(code, what, said or "its first replica is unavailable or not in sync yet", advice)
    if code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
        what = f"Partition {place.partition} of topic `{place.topic}` gets no leader"
        return refusal(code, what, said or "no eligible replica is available", advice)
    return topic_refusal(code, place.topic, said, partition=place.partition, doing="get another leader")


def _refused(
    targets: Mapping[TopicPartition, list[int] | None], results: Mapping[TopicPartition, _Result]
) -> dict[TopicPartition, ClientError]:
    refused: dict[TopicPartition, ClientError] = {}
    for place in sorted(targets):
        if place not in results:
            refused[place] = ClientError(
                f"The broker did not report a result for partition {place.partition} of topic `{place.topic}`"
            )
            continue
        code, said = results[place]
        _check_controller(code, said)
        if code:
            refused[place] = _move_refusal(place, targets[place], code, said)
    return refused


def _move_refusal(place: TopicPartition, replicas: list[int] | None, code: int, said: str | None) -> ClientError:
    thing = f"Partition {place.partition} of topic `{place.topic}`"
    if code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
        return refusal(code, f"{thing} is not being moved")
    if code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and replicas is not None:
        what = f"{thing} cannot be moved to brokers {', '.join(map(str, replicas)) or '(none)'}"
        return refusal(code, what, said, "`drmq status` lists the brokers.")
    return topic_refusal(code, place.topic, said, partition=place.partition, doing="be moved")
