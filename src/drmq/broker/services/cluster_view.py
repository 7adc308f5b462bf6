"""Brokers, partitions and leaders as clients are told about them: the catalog, and what leaders say of themselves.

Any node answers from what it knows, and from what is committed: the controller's own catalog also has what may never
be. The catalog may be a little behind the controller's, and who leads is a hint; both carry epochs, so a client never
goes back to an older leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drmq.broker.partitions.partition_table import StoppedPartition
from drmq.catalog import Broker as RegisteredBroker
from drmq.catalog import Catalog, Topic
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, TopicId
from drmq.transport.peers import LeaderNotice

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

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


class ClusterView:
    """What this node knows of the cluster. Reads only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def catalog(self) -> Catalog:
        """What is committed."""
        return self._broker.metadata.committed_catalog

    def named_topic(self, name: str, topic_id: bytes, *, by_id: bool) -> Topic:
        """The topic that a request means, by whichever of the two its version has. Raises `ApiError`."""
        return self.catalog.topic_by_id(TopicId(topic_id)) if by_id else self.catalog.topic(name)

    def name_of(self, topic: str | bytes) -> str | None:
        """The name of a topic that a request gives by name or by id; None for an id that is not known."""
        if isinstance(topic, str):
            return topic
        known = self.catalog.topics_by_id.get(TopicId(topic))
        return None if known is None else known.name

    # ---- partitions and their leaders -----------------------------------------------------------

    def partition(self, topic: Topic, index: int) -> PartitionView:
        broker = self._broker
        assignment = topic.partitions[index]
        brokers = self.catalog.brokers
        replicas = [int(node_id) for node_id in assignment.hosts]
        offline = [node_id for node_id in replicas if not _is_up(brokers.get(NodeId(node_id)))]
        if isinstance(broker.partitions.slots(topic.topic_id).get(index), StoppedPartition):
            offline = sorted({*offline, int(broker.node_id)})
        notice = broker.host.leaders.get(GroupId(topic.topic_id, index))
        if notice is None or notice.leader in offline or not self.may_lead(notice):
            return PartitionView(index, NO_LEADER, -1 if notice is None else notice.term, replicas, [], offline)
        in_sync = [int(node_id) for node_id in notice.in_sync if node_id not in offline]
        return PartitionView(index, notice.leader, notice.term, replicas, in_sync, offline)

    def may_lead(self, notice: LeaderNotice) -> bool:
        """Whether what was last heard of a leader can still be so: it is up, or it is this node and does lead."""
        broker = self._broker
        if notice.leader == broker.node_id:
            partition = broker.host.get(notice.group)
            if partition is None or partition.is_serving:
                return partition is not None
            # Its disk refuses it, and nobody else could lead instead: whoever asks here is told so.
            return partition.failure is not None and notice.in_sync == (broker.node_id,)
        return notice.leader in self.catalog.brokers and broker.network.is_up(notice.leader)

    def group_of(self, topic: str | bytes, index: int) -> GroupId | None:
        """The replica group of a partition that a request gives by name or by id."""
        if not isinstance(topic, str):
            return GroupId(TopicId(topic), index)
        known = self.catalog.topics.get(topic)
        return None if known is None else GroupId(known.topic_id, index)

    def leader_elsewhere(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """Leader and term; None where they are not known, or where it is this node that should lead and does not."""
        group = self.group_of(topic, index)
        notice = self._broker.host.leaders.get(group) if group is not None else None
        if notice is None or notice.leader == self._broker.node_id or not self.may_lead(notice):
            return None
        return notice.leader, notice.term

    def is_electing(self, topic: str | bytes, index: int) -> bool:
        """Whether no leader is known because the group, which this node is in, is electing one."""
        if self.leader_elsewhere(topic, index) is not None:
            return False
        group = self.group_of(topic, index)
        partition = self._broker.host.get(group) if group is not None else None
        return partition is not None and not partition.replica.is_alone and not partition.is_closed

    # ---- nodes ----------------------------------------------------------------------------------

    def is_cut_off(self) -> bool:
        """Whether the nodes that this one does not hear are a majority: they have leaders, and it learns of none."""
        broker = self._broker
        others = [node_id for node_id in self.catalog.brokers if node_id != broker.node_id]
        heard = 1 + sum(broker.network.is_up(node_id) for node_id in others)
        return 2 * heard < 1 + len(others)

    def live_brokers(self) -> list[RegisteredBroker]:
        """The brokers that clients can use, by id."""
        brokers = self.catalog.brokers
        return [known for _, known in sorted(brokers.items()) if _is_up(known) and "broker" in known.roles]

    def controller_id(self) -> int:
        """The broker to which requests for the controller are sent best; any passes them on."""
        broker = self._broker
        controller = broker.metadata.controller
        known = self.catalog.brokers.get(controller) if controller is not None else None
        if known is not None and _is_up(known) and "broker" in known.roles:
            return known.node_id
        return broker.node_id if controller is not None else NO_LEADER

    def replica_in_rack(self, rack: str, in_sync: tuple[NodeId, ...], index: int) -> NodeId | None:
        """A replica in that rack which keeps up and is heard; partitions take turns by their index."""
        near = [
            node_id
            for node_id in in_sync
            if (known := self.catalog.brokers.get(node_id)) is not None
            and known.rack == rack
            and not known.fenced
            and "broker" in known.roles
            and self._broker.network.is_up(node_id)
        ]
        return near[index % len(near)] if near else None


def check_partition(topic: Topic, index: int) -> None:
    """Raise `ApiError` unless the topic has this partition, served or stopped."""
    if not 0 <= index < topic.partition_count:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {index}",
        )


def _is_up(known: RegisteredBroker | None) -> bool:
    return known is not None and not known.fenced
