"""The brokers of a cluster, including fenced ones, and the quorum of its metadata with its voters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drmq.client.cluster import Cluster
from drmq.client.connection import Deadline
from drmq.client.errors import ClientError, refusal
from drmq.model import ErrorCode
from drmq.model.address import Address
from drmq.model.names import CLUSTER_METADATA
from drmq.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterRequestListener, AddRaftVoterResponse
from drmq.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseReplica,
)
from drmq.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from drmq.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

_QUORUM_PARTITION = 0
_LISTENER_NAME = "KAFKA"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker. A fenced broker belongs to the cluster, but leads nothing and is not shown to clients."""

    node_id: int
    address: Address
    rack: str | None
    is_fenced: bool
    is_controller: bool


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node's replica of the metadata, or of a partition. None stands for what the leader does not know.

    `directory_id` identifies the data directory: a node with a new directory is a new replica. `lag` is the number of
    offsets that it is behind the leader. Times are in milliseconds of the leader's clock; the leader itself does not
    fetch.
    """

    node_id: int
    directory_id: bytes | None
    log_end_offset: int | None
    lag: int | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class Quorum:
    """The voters on the cluster's metadata or of a partition, the replicas without a vote, and their progress."""

    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class Brokers:
    """Calls about brokers. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def all(self) -> Sequence[Broker]:
        """All brokers by id, including fenced ones if the cluster reports them (DescribeCluster v2)."""

        def ask(deadline: Deadline) -> Sequence[Broker]:
            request = DescribeClusterRequest(include_fenced_brokers=True)
            answer = self._cluster.ask_any(request, DescribeClusterResponse, deadline)
            if answer.error_code:
                raise refusal(answer.error_code, "The cluster cannot be described", answer.error_message)
            found = [
                Broker(
                    broker.broker_id,
                    Address(broker.host, broker.port),
                    broker.rack,
                    broker.is_fenced,
                    broker.broker_id == answer.controller_id,
                )
                for broker in answer.brokers
            ]
            return sorted(found, key=lambda broker: broker.node_id)

        return self._cluster.retry(ask)

    def quorum(self) -> Quorum:
        """The quorum of the cluster's metadata."""

        def ask(deadline: Deadline) -> Quorum:
            topic = DescribeQuorumRequestTopic(CLUSTER_METADATA, [DescribeQuorumRequestPartition(_QUORUM_PARTITION)])
            controller = self._cluster.controller(deadline)
            answer = controller.call(DescribeQuorumRequest([topic]), DescribeQuorumResponse, deadline)
            what = "The quorum of the metadata cannot be described"
            if answer.error_code:
                raise refusal(answer.error_code, what, answer.error_message)
            for found in answer.topics:
                for partition in found.partitions:
                    if partition.error_code:
                        raise refusal(partition.error_code, what, partition.error_message)
                    return quorum_of(partition)
            raise ClientError(f"{what}: the broker at {controller.address} did not include it in its response")

        return self._cluster.retry(ask)

    def add_voter(self, broker: Broker, directory_id: bytes | None = None) -> None:
        """Let a broker that follows the metadata vote on it. `directory_id` is that of its data directory, if known."""
        request = AddRaftVoterRequest(
            cluster_id=None,
            voter_id=broker.node_id,
            voter_directory_id=directory_id or bytes(16),
            listeners=[AddRaftVoterRequestListener(_LISTENER_NAME, broker.address.host, broker.address.port)],
        )

        def ask(deadline: Deadline) -> None:
            request.timeout_ms = deadline.left_ms()
            answer = self._cluster.controller(deadline).call(request, AddRaftVoterResponse, deadline)
            # It is a voter already, perhaps because of a first attempt whose response was lost.
            if answer.error_code and answer.error_code != ErrorCode.DUPLICATE_VOTER:
                what = f"Broker {broker.node_id} cannot become a voter on the metadata"
                raise refusal(answer.error_code, what, answer.error_message)

        self._cluster.retry(ask)

    def remove_voter(self, node_id: int, directory_id: bytes | None = None) -> None:
        """Remove a broker's vote on the metadata; it keeps following the metadata."""
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node_id, voter_directory_id=directory_id or bytes(16)
        )

        def ask(deadline: Deadline) -> None:
            answer = self._cluster.controller(deadline).call(request, RemoveRaftVoterResponse, deadline)
            if answer.error_code and answer.error_code != ErrorCode.VOTER_NOT_FOUND:
                what = f"The vote of broker {node_id} on the metadata cannot be removed"
                raise refusal(answer.error_code, what, answer.error_message)

        self._cluster.retry(ask)

    def unregister(self, node_id: int) -> None:
        """Begin to remove a broker from the cluster. It disappears from `all` when its partitions have moved away."""

        def ask(deadline: Deadline) -> None:
            request = UnregisterBrokerRequest(broker_id=node_id)
            answer = self._cluster.controller(deadline).call(request, UnregisterBrokerResponse, deadline)
            if answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
                advice = "`drmq cluster members` lists the brokers."
                raise refusal(answer.error_code, f"There is no broker {node_id}", answer.error_message, advice)
            if answer.error_code:
                raise refusal(answer.error_code, f"Broker {node_id} cannot be removed", answer.error_message)

        # Not repeatable: the second attempt may find the broker already removed, and would report a wrong error.
        self._cluster.retry(ask, repeatable=False)


def quorum_of(found: DescribeQuorumResponsePartition) -> Quorum:
    """The response about one partition, with None instead of -1."""
    all_replicas = [*found.current_voters, *found.observers]
    ends = [replica.log_end_offset for replica in all_replicas if replica.replica_id == found.leader_id]
    end = ends[0] if ends else None
    return Quorum(
        leader_id=_known(found.leader_id),
        leader_epoch=found.leader_epoch,
        high_watermark=found.high_watermark,
        voters=tuple(_replica(replica, end) for replica in found.current_voters),
        observers=tuple(_replica(replica, end) for replica in found.observers),
    )


def _replica(found: DescribeQuorumResponseReplica, leader_end: int | None) -> QuorumReplica:
    own_end = _known(found.log_end_offset)
    return QuorumReplica(
        node_id=found.replica_id,
        directory_id=found.replica_directory_id if any(found.replica_directory_id) else None,
        log_end_offset=own_end,
        lag=None if own_end is None or leader_end is None else max(0, leader_end - own_end),
        last_fetch_ms=_known(found.last_fetch_timestamp),
        last_caught_up_ms=_known(found.last_caught_up_timestamp),
    )


def _known(number: int) -> int | None:
    """The number, or None for -1, by which the protocol says "unknown"."""
    return number if number >= 0 else None
