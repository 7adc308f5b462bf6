"""Brokers, partitions and leaders as clients see them: from the catalog, and from the announcements of leaders.

Any node answers from what it knows. Only committed facts are used, because the controller's own catalog also contains
facts that may never be committed. A node's catalog may lag a little behind the controller's, and the leader it names is
a hint. Both carry epochs, so a client never goes back to an older leader.
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
    """One partition, as Metadata and similar requests describe it."""

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
        """The committed catalog."""
        return self._broker.metadata.committed_catalog

    def named_topic(self, name: str, topic_id: bytes, *, by_id: bool) -> Topic:
        """The topic of a request, found by id or by name, depending on the request's version. Raises `ApiError`."""
        return self.catalog.topic_by_id(TopicId(topic_id)) if by_id else self.catalog.topic(name)

    def name_of(self, topic: str | bytes) -> str | None:
        """The name of a topic that a request gives by name or by id; None for an unknown id."""
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
        """Whether a leader may still lead: another node must be up, this node must actually lead."""
        broker = self._broker
        if notice.leader == broker.node_id:
            partition = broker.host.get(notice.group)
            if partition is None or partition.is_serving:
                return partition is not None
            # This node's disk has failed and no other replica could lead. Clients keep asking here and get the error.
            return partition.failure is not None and notice.in_sync == (broker.node_id,)
        return notice.leader in self.catalog.brokers and broker.network.is_up(notice.leader)

    def group_of(self, topic: str | bytes, index: int) -> GroupId | None:
        """The replica group of a partition whose topic is given by name or by id; None for an unknown name."""
        if not isinstance(topic, str):
            return GroupId(TopicId(topic), index)
        known = self.catalog.topics.get(topic)
        return None if known is None else GroupId(known.topic_id, index)

    def leader_elsewhere(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """The leader, if it is another node, and its term; None if it is unknown, or is this node."""
        group = self.group_of(topic, index)
        notice = self._broker.host.leaders.get(group) if group is not None else None
        if notice is None or notice.leader == self._broker.node_id or not self.may_lead(notice):
            return None
        return notice.leader, notice.term

    def is_electing(self, topic: str | bytes, index: int) -> bool:
        """Whether no leader is known because the group, which includes this node, is electing one."""
        if self.leader_elsewhere(topic, index) is not None:
            return False
        group = self.group_of(topic, index)
        partition = self._broker.host.get(group) if group is not None else None
        return partition is not None and not partition.replica.is_alone and not partition.is_closed

    # ---- nodes ----------------------------------------------------------------------------------

    def is_cut_off(self) -> bool:
        """Whether most nodes are unreachable from here. They elect leaders that this node does not learn of."""
        broker = self._broker
        others = [node_id for node_id in self.catalog.brokers if node_id != broker.node_id]
        heard = 1 + sum(broker.network.is_up(node_id) for node_id in others)
        return 2 * heard < 1 + len(others)

    def live_brokers(self) -> list[RegisteredBroker]:
        """The brokers that clients can use, sorted by id."""
        brokers = self.catalog.brokers
        return [known for _, known in sorted(brokers.items()) if _is_up(known) and "broker" in known.roles]

    def controller_id(self) -> int:
        """The broker to which clients should send requests for the controller. Any other broker forwards them."""
        broker = self._broker
        controller = broker.metadata.controller
        known = self.catalog.brokers.get(controller) if controller is not None else None
        if known is not None and _is_up(known) and "broker" in known.roles:
            return known.node_id
        return broker.node_id if controller is not None else NO_LEADER

    def replica_in_rack(self, rack: str, in_sync: tuple[NodeId, ...], index: int) -> NodeId | None:
        """A replica in that rack that is in sync and reachable. Several are used in turn, by the partition's index."""
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
