"""Brokers, partitions and leaders as clients see them: from the catalog, and from the announcements of leaders.

Any node answers from what it knows. Only committed facts are used, because the controller's own catalog also contains
facts that may never be committed. A node's catalog may lag a little behind the controller's, and the leader it names is
a hint. Both carry epochs, so a client never goes back to an older leader.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from drmq.broker.partitions.partition import Partition
from drmq.catalog import Broker as RegisteredBroker
from drmq.catalog import Catalog, Topic
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, TopicId
from drmq.transport.peers import LeaderNotice

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

T = TypeVar("T")

NO_LEADER = -1
_KEYS_MAX = 4
"""How many things are remembered of a topic: few, because they are as large as its description."""
_REMEMBERED_MIN = 100
_IS_SERVING = attrgetter("is_serving")


class PartitionView(NamedTuple):
    """One partition, as Metadata and similar requests describe it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


class _Nodes(NamedTuple):
    """The state of the nodes on which descriptions of partitions depend."""

    up: frozenset[NodeId]
    """The brokers that are not fenced."""
    heard: frozenset[NodeId]
    """The other brokers that this node is connected to."""


class _Remembered(NamedTuple):
    """What was made from the description of a topic, and everything that the description depends on."""

    topic: Topic
    nodes: _Nodes
    stopped: frozenset[int]
    groups: list[GroupId]
    notices: list[LeaderNotice | None]
    own: list[Partition]
    """The partitions that are led here."""
    made: dict[object, Any]


class Look:
    """The partitions as they are at one moment. A cluster has thousands, so each must cost little."""

    def __init__(
        self, broker: Broker, view: ClusterView, nodes: _Nodes, remembered: dict[TopicId, _Remembered]
    ) -> None:
        self._broker = broker
        self._view = view
        self._nodes = nodes
        self._remembered = remembered
        # Most partitions have the same replicas as others.
        self._down: dict[tuple[NodeId, ...], tuple[NodeId, ...]] = {}
        self._in_sync: dict[tuple[tuple[NodeId, ...], tuple[NodeId, ...]], tuple[NodeId, ...]] = {}

    def partitions(self, topic: Topic, indexes: range) -> list[PartitionView]:
        """Some partitions of a topic."""
        own, heard = self._broker.node_id, self._nodes.heard
        stopped, leaders = self._broker.partitions.stopped(topic.topic_id), self._broker.host.leaders
        views = []
        for index in indexes:
            replicas = topic.partitions[index].hosts
            offline = self._down.get(replicas)
            if offline is None:
                up = self._nodes.up
                offline = self._down[replicas] = tuple(node_id for node_id in replicas if node_id not in up)
            if index in stopped:
                offline = tuple(sorted({*offline, own}))
            notice = leaders.get(GroupId(topic.topic_id, index))
            if notice is None:
                views.append(PartitionView(index, NO_LEADER, -1, replicas, (), offline))
                continue
            leader = notice.leader
            if leader in offline or not (leader in heard or (leader == own and self._view.may_lead(notice))):
                views.append(PartitionView(index, NO_LEADER, notice.term, replicas, (), offline))
                continue
            key = notice.members_in_sync, offline
            in_sync = self._in_sync.get(key)
            if in_sync is None:
                in_sync = self._in_sync[key] = tuple(node_id for node_id in notice.in_sync if node_id not in offline)
            views.append(PartitionView(index, leader, notice.term, replicas, in_sync, offline))
        return views

    def remembered(self, topic: Topic, key: object, make: Callable[[], T]) -> T:
        """What `make` returns, or has returned for this key before, if `partitions` still describes the topic alike.

        Nothing has to be told about changes: all that the description depends on is compared, which takes a small part
        of the time that it takes to describe the topic.
        """
        known = self._remembered.get(topic.topic_id)
        if known is None or not self._is_current(known, topic):
            known = self._begin(topic)
        made = known.made
        if key not in made:
            if len(made) >= _KEYS_MAX:
                made.clear()
            made[key] = make()
        found: T = made[key]
        return found

    def _is_current(self, known: _Remembered, topic: Topic) -> bool:
        broker = self._broker
        return (
            known.topic is topic
            and known.nodes is self._nodes
            and known.stopped == broker.partitions.stopped(topic.topic_id)
            and all(map(_IS_SERVING, known.own))
            and list(map(broker.host.leaders.get, known.groups)) == known.notices
        )

    def _begin(self, topic: Topic) -> _Remembered:
        broker = self._broker
        groups = [GroupId(topic.topic_id, index) for index in range(topic.partition_count)]
        notices = [broker.host.leaders.get(group) for group in groups]
        own = [
            broker.host.get(notice.group)
            for notice in notices
            if notice is not None and notice.leader == broker.node_id
        ]
        serving = [partition for partition in own if partition is not None and partition.is_serving]
        stopped = frozenset(broker.partitions.stopped(topic.topic_id))
        known = _Remembered(topic, self._nodes, stopped, groups, notices, serving, {})
        if len(serving) == len(own):
            # Otherwise the description depends on the state of a disk, which is not compared.
            self._remembered[topic.topic_id] = known
        return known


class ClusterView:
    """What this node knows of the cluster. Reads only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._nodes = _Nodes(frozenset(), frozenset())
        self._remembered: dict[TopicId, _Remembered] = {}

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
        return self.look().partitions(topic, range(index, index + 1))[0]

    def look(self) -> Look:
        """A view of all partitions, for one answer."""
        broker = self._broker
        brokers, own = self.catalog.brokers, broker.node_id
        nodes = _Nodes(
            frozenset(node_id for node_id, known in brokers.items() if _is_up(known)),
            frozenset(node_id for node_id in brokers if node_id != own and broker.network.is_up(node_id)),
        )
        if nodes != self._nodes:
            self._nodes = nodes
        if len(self._remembered) > 2 * len(self.catalog.topics) + _REMEMBERED_MIN:
            self._remembered.clear()  # Most are of topics that were deleted.
        return Look(broker, self, self._nodes, self._remembered)

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
