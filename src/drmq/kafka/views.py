"""Brokers and partitions as clients are told about them: the catalog, and what leaders say of themselves.

Any node answers from what it knows, and from what is committed: the controller's own catalog also has what may never
be. The catalog may be a little behind the controller's, and who leads is a hint; both carry epochs, so a client never
goes back to an older leader.
"""

from __future__ import annotations

from dataclasses import dataclass

from drmq.broker import Broker, StoppedPartition
from drmq.catalog import Broker as RegisteredBroker
from drmq.catalog import Topic
from drmq.model import GroupId, NodeId
from drmq.transport.peers import LeaderNotice

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition, for Metadata and its relatives."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


def partition_view(broker: Broker, topic: Topic, index: int) -> PartitionView:
    assignment = topic.partitions[index]
    brokers = broker.metadata.committed_catalog.brokers
    replicas = [int(node_id) for node_id in assignment.hosts]
    offline = [node_id for node_id in replicas if not _is_up(brokers.get(NodeId(node_id)))]
    if isinstance(broker.partitions.slots(topic.topic_id).get(index), StoppedPartition):
        offline = sorted({*offline, int(broker.node_id)})
    notice = broker.host.leaders.get(GroupId(topic.topic_id, index))
    if notice is None or notice.leader in offline or not may_lead(broker, notice):
        return PartitionView(index, NO_LEADER, -1 if notice is None else notice.term, replicas, [], offline)
    in_sync = [int(node_id) for node_id in notice.in_sync if node_id not in offline]
    return PartitionView(index, notice.leader, notice.term, replicas, in_sync, offline)


def may_lead(broker: Broker, notice: LeaderNotice) -> bool:
    """Whether what was last heard of a leader can still be so: it is up, or it is this node and does lead."""
    if notice.leader == broker.node_id:
        partition = broker.host.get(notice.group)
        if partition is None or partition.is_serving:
            return partition is not None
        # Its disk refuses it, and nobody else could lead instead: whoever asks here is told so.
        return partition.failure is not None and notice.in_sync == (broker.node_id,)
    return notice.leader in broker.metadata.committed_catalog.brokers and broker.network.is_up(notice.leader)


def is_cut_off(broker: Broker) -> bool:
    """Whether the nodes that this one does not hear are a majority: they have leaders, and it learns of none."""
    others = [node_id for node_id in broker.metadata.committed_catalog.brokers if node_id != broker.node_id]
    heard = 1 + sum(broker.network.is_up(node_id) for node_id in others)
    return 2 * heard < 1 + len(others)


def live_brokers(broker: Broker) -> list[RegisteredBroker]:
    """The brokers that clients can use, by id."""
    brokers = broker.metadata.committed_catalog.brokers
    return [known for _, known in sorted(brokers.items()) if _is_up(known) and "broker" in known.roles]


def controller_id(broker: Broker) -> int:
    """The broker to which requests for the controller are sent best; any passes them on."""
    controller = broker.metadata.controller
    known = broker.metadata.committed_catalog.brokers.get(controller) if controller is not None else None
    if known is not None and _is_up(known) and "broker" in known.roles:
        return known.node_id
    return broker.node_id if controller is not None else NO_LEADER


def _is_up(known: RegisteredBroker | None) -> bool:
    return known is not None and not known.fenced
