"""DescribeQuorum (55): the replica group of the metadata log, or of any partition, as its leader sees it.

Kafka supports this for `__cluster_metadata` only; in DRMQ every partition has such a group. Only the leader knows the
progress of the other replicas, so other nodes answer NOT_LEADER_OR_FOLLOWER with the leader's id. A request about the
metadata alone is forwarded to the controller, which leads the metadata log.

A voter or observer is one incarnation of a node's data directory. During a membership change, the members of both the
old and the new set are reported as voters. A follower's log end offset is what it has confirmed to be durable. Times
are by the leader's clock, with the precision of a heartbeat interval.
"""

from __future__ import annotations

from drmq.broker import Broker, Partition
from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.kafka.voters import NO_DIRECTORY_ID, directory_bytes
from drmq.model import ApiError, GroupId, NodeId, node_of
from drmq.model.names import CLUSTER_METADATA
from drmq.raft import NO_INDEX, PeerProgress
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponseListener,
    DescribeQuorumResponseNode,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseReplica,
    DescribeQuorumResponseTopic,
)

_UNKNOWN = -1
LISTENER_NAME = "KAFKA"


def is_about_metadata(request: DescribeQuorumRequest) -> bool:
    """Whether the controller can answer the whole request."""
    return all(topic.topic_name == CLUSTER_METADATA for topic in request.topics)


def handle(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    broker = context.broker
    asked = each_once(
        ((topic.topic_name, topic.partitions) for topic in request.topics), lambda entry: entry.partition_index
    )
    topics = [
        DescribeQuorumResponseTopic(name, [_describe(broker, name, entry.partition_index) for entry in entries])
        for name, entries in asked.items()
    ]
    members = {
        replica.replica_id
        for topic in topics
        for partition in topic.partitions
        for replica in (*partition.current_voters, *partition.observers)
    }
    return DescribeQuorumResponse(
        topics=topics,
        nodes=[
            DescribeQuorumResponseNode(node_id, [DescribeQuorumResponseListener(LISTENER_NAME, known.host, known.port)])
            for node_id, known in sorted(broker.metadata.committed_catalog.brokers.items())
            if node_id in members
        ],
    )


def _describe(broker: Broker, topic: str, index: int) -> DescribeQuorumResponsePartition:
    try:
        partition = broker.partitions.by_name(topic, index, reads_records=False)
        partition.check_serving()
    except ApiError as error:
        leader, epoch = _known_leader(broker, topic, index)
        return DescribeQuorumResponsePartition(index, error.code, error.message, leader, epoch, _UNKNOWN)
    node = partition.replica.node
    assert node is not None, f"{partition!r} serves requests, but has no Raft node"
    progress = node.progress()
    configuration = node.configuration
    voters = configuration.voters | configuration.voters_before

    def replicas(members: frozenset[NodeId]) -> list[DescribeQuorumResponseReplica]:
        return [_replica(broker, partition, member, progress.get(member)) for member in sorted(members, key=node_of)]

    return DescribeQuorumResponsePartition(
        partition_index=index,
        leader_id=broker.node_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        current_voters=replicas(voters),
        observers=replicas(configuration.learners - voters),
    )


def _replica(
    broker: Broker, partition: Partition, member: NodeId, progress: PeerProgress | None
) -> DescribeQuorumResponseReplica:
    """Describe one member. `progress` is None for the leader itself."""
    node_id = node_of(member)
    known = broker.metadata.committed_catalog.brokers.get(node_id)
    directory_id = NO_DIRECTORY_ID
    if known is not None and known.member == member:
        directory_id = directory_bytes(known.directory_id)
    now_ms = broker.clock.wall_ms()
    if progress is None:
        return DescribeQuorumResponseReplica(node_id, directory_id, partition.next_offset, now_ms, now_ms)
    replica, node = partition.replica, partition.replica.node
    assert node is not None
    # A sleeping group does not count ticks: the heartbeats between the nodes replace the group's own.
    is_heard = replica.asleep and broker.network.is_up(node_id)
    tick_ms = broker.options.tick_ms
    heard_ms = now_ms if is_heard else now_ms - progress.ticks_since_heard * tick_ms
    behind_ticks = progress.ticks_since_caught_up
    # A follower that is caught up has a lag of 0 ticks, but that was last confirmed when the leader last heard from it.
    caught_up_ms = _UNKNOWN if behind_ticks is None else min(heard_ms, now_ms - behind_ticks * tick_ms)
    end_offset = _UNKNOWN if progress.match == NO_INDEX else max(0, replica.entries.next_offset(progress.match))
    return DescribeQuorumResponseReplica(node_id, directory_id, end_offset, heard_ms, caught_up_ms)


def _known_leader(broker: Broker, topic: str, index: int) -> tuple[int, int]:
    """The leader and its term, as far as this node knows them."""
    if topic == CLUSTER_METADATA:
        controller = broker.metadata.controller
        return (_UNKNOWN if controller is None else controller), _UNKNOWN
    known = broker.metadata.committed_catalog.topics.get(topic)
    notice = None if known is None else broker.host.leaders.get(GroupId(known.topic_id, index))
    return (_UNKNOWN, _UNKNOWN) if notice is None else (notice.leader, notice.term)
