"""DescribeQuorum (55): the replica group of the cluster's metadata, or of any partition, as its leader sees it.

Kafka's brokers tell this of `__cluster_metadata` only; here every partition is such a group. Only a leader knows how
far the others are, so others answer NOT_LEADER_OR_FOLLOWER and name it. A request about the metadata alone is passed
on to the controller, which leads it.

A voter or observer is a node in one life of its data directory. While members change, those of both sets are voters.
A follower's log end is what it has confirmed to be durable. Times are the leader's, exact to a heartbeat.
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
    """Whether the controller can answer all of it."""
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
        leader, epoch = _who_leads(broker, topic, index)
        return DescribeQuorumResponsePartition(index, error.code, error.message, leader, epoch, _UNKNOWN)
    node = partition.replica.node
    assert node is not None, f"{partition!r} serves and takes no part in its group"
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
    """One member; without progress it is the leader itself."""
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
    # A group that sleeps does not count: there the heartbeats between the nodes stand for the group's own.
    is_heard = replica.asleep and broker.network.is_up(node_id)
    tick_ms = broker.options.tick_ms
    heard_ms = now_ms if is_heard else now_ms - progress.ticks_since_heard * tick_ms
    behind_ticks = progress.ticks_since_caught_up
    # Of one that has it all, nothing is known beyond when it was last heard.
    caught_up_ms = _UNKNOWN if behind_ticks is None else min(heard_ms, now_ms - behind_ticks * tick_ms)
    end_offset = _UNKNOWN if progress.match == NO_INDEX else max(0, replica.entries.next_offset(progress.match))
    return DescribeQuorumResponseReplica(node_id, directory_id, end_offset, heard_ms, caught_up_ms)


def _who_leads(broker: Broker, topic: str, index: int) -> tuple[int, int]:
    """The leader and its term, as far as this node has heard."""
    if topic == CLUSTER_METADATA:
        controller = broker.metadata.controller
        return (_UNKNOWN if controller is None else controller), _UNKNOWN
    known = broker.metadata.committed_catalog.topics.get(topic)
    notice = None if known is None else broker.host.leaders.get(GroupId(known.topic_id, index))
    return (_UNKNOWN, _UNKNOWN) if notice is None else (notice.leader, notice.term)
