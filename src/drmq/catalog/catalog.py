"""The cluster as a replicated state machine: its brokers, its topics, and which broker has which replica.

Each operation checks its input against the present state and returns the facts that implement it, or raises `ApiError`
and changes nothing. `replay` is the only method that changes state. The driver of the catalog appends the facts to the
metadata log, replays them, and answers once they are committed. So every node reaches the same state, also after a
restart. An operation that would change nothing returns no facts, and there is nothing to wait for.

`replay` accepts any fact in any state: a fact about a topic or a node that does not exist (because an earlier fact
removed it) changes nothing.

Which nodes are up, which replicas lead and which are in sync is not here: this changes without a decision, and the
drivers know it. Only decisions that follow from it are facts: a broker is fenced, a reassignment is finished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from drmq.catalog.broker_configs import BrokerConfigs, changed_broker_configs, with_broker_configs
from drmq.catalog.brokers import Broker, check_registration, is_older_copy, older_copy_text, registered, registration
from drmq.catalog.features import METADATA_VERSION, Ranges, check_update, level_before
from drmq.catalog.group_configs import GroupConfigs, changed_group_configs, with_group_configs
from drmq.catalog.moves import moved_assignment, restored_assignment, retargeted, without_copy
from drmq.catalog.placement import Load, place
from drmq.catalog.records import (
    AssignmentRestored,
    BrokerConfigsSet,
    BrokerDrainCancelled,
    BrokerDraining,
    BrokerFact,
    BrokerFenced,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterCreated,
    Fact,
    FeatureLevelSet,
    GroupConfigsSet,
    PartitionsAdded,
    ProducerIdsReserved,
    ReassignmentCancelled,
    ReassignmentFinished,
    ReassignmentStarted,
    ReplicaLost,
    TopicConfigsSet,
    TopicCreated,
    TopicDeleted,
    TopicFact,
)
from drmq.catalog.topic_configs import check_configs_size, checked_configs
from drmq.catalog.topics import Assignment, Topic, check_new_replicas, check_replicas, listed
from drmq.model import ApiError, ErrorCode, GroupId, MemberId, NodeId, TopicId, member_id
from drmq.model.names import check_not_internal, check_topic_name
from drmq.model.options import PARTITIONS_MAX

DELETED_TOPICS_MAX = 100_000
"""How many deleted topics are remembered, so that a node that was down knows which of its files it may remove."""
REPLICATION_FACTOR_DEFAULT = 3
"""Replicas of a topic that requests no number, if there are enough brokers: one may fail."""
_NAMED_MAX = 3


class Catalog:
    """The brokers, all topics by name and by id, and the next producer id. Owned by one driver."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.brokers: dict[NodeId, Broker] = {}
        self.former_brokers: dict[NodeId, Broker] = {}
        """Removed nodes in their last state, so that a node that registers again gets a new incarnation."""
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[TopicId, Topic] = {}
        self.deleted: dict[TopicId, str] = {}
        """The names of deleted topics, oldest first. Each node removes its files of them."""
        self.reassignments: dict[GroupId, tuple[NodeId, ...]] = {}
        """Partitions that are to be moved, and their targets, in the order of the requests. They are moved one at a
        time (`active_reassignment`), because each move copies a whole partition over the network. A cancelled
        reassignment stays here until the partition has returned."""
        self.next_producer_id = 0
        self.broker_configs: BrokerConfigs = {}
        """Settings of brokers that were changed at run time. Replaced, never changed."""
        self.group_configs: GroupConfigs = {}
        """Settings of lease groups. Replaced, never changed."""
        self.features: dict[str, int] = {}
        """The level of each feature that was finalized; see `level`."""
        self._hosted: dict[NodeId, dict[GroupId, None]] = {}
        self._firsts: Counter[NodeId] = Counter()
        self._metric_names: dict[str, str] = {}
        """The topic that has each metric name, so that a new topic need not be compared with all others."""

    def copy(self) -> Catalog:
        """A copy of the catalog that later replays do not change."""
        copied = Catalog()
        copied.cluster_id, copied.next_producer_id = self.cluster_id, self.next_producer_id
        copied.brokers, copied.former_brokers = self.brokers.copy(), self.former_brokers.copy()
        copied.topics, copied.topics_by_id = self.topics.copy(), self.topics_by_id.copy()
        copied.deleted, copied.reassignments = self.deleted.copy(), self.reassignments.copy()
        copied.features, copied.broker_configs = self.features.copy(), self.broker_configs
        copied.group_configs = self.group_configs
        copied._hosted = {node: groups.copy() for node, groups in self._hosted.items()}
        copied._firsts = self._firsts.copy()
        copied._metric_names = self._metric_names.copy()
        return copied

    # ---- queries --------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of this name, or `ApiError` (UNKNOWN_TOPIC_OR_PARTITION)."""
        topic = self.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id.hex()}")
        return topic

    def broker(self, node_id: NodeId) -> Broker:
        """The broker of this id, or `ApiError` (BROKER_ID_NOT_REGISTERED)."""
        broker = self.brokers.get(node_id)
        if broker is None:
            there = f"there are {listed(self.brokers)}" if self.brokers else "there is none yet"
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {node_id}; {there}")
        return broker

    def assignment(self, group: GroupId) -> Assignment | None:
        """The nodes that have this partition, or None if there is no such partition."""
        topic = self.topics_by_id.get(group.topic_id)
        if topic is None or not 0 <= group.partition < topic.partition_count:
            return None
        return topic.partitions[group.partition]

    def assignments(self) -> dict[GroupId, Assignment]:
        """The assignments of all partitions of all topics."""
        return {
            GroupId(topic.topic_id, partition): assignment
            for topic in self.topics_by_id.values()
            for partition, assignment in enumerate(topic.partitions)
        }

    def partitions_on(self, node_id: NodeId) -> list[GroupId]:
        """The partitions that have a replica on this node, now or at the end of a reassignment."""
        return list(self._hosted.get(node_id, ()))

    def members(self, assignment: Assignment, nodes: Iterable[NodeId]) -> tuple[MemberId, ...]:
        """The member ids of these nodes in the replica group of a partition.

        A node has a new member id for each incarnation of its disk, and each time that it is given the partition:
        together with its files it lost what it had confirmed, and its votes. Incarnations and moves only increase, so
        their sum never repeats.
        """
        return tuple(member_id(node, self._incarnation(node) + assignment.arrival(node)) for node in nodes)

    def active_reassignment(self) -> GroupId | None:
        """The partition that is moved now: the first one that does not wait for a node."""
        for group in self.reassignments:
            assignment = self.topics_by_id[group.topic_id].partitions[group.partition]
            if not assignment.returns and not self.waits_for(assignment):
                return group
        return None

    def waits_for(self, assignment: Assignment) -> tuple[NodeId, ...]:
        """Nodes that are down and without which a partition cannot be moved. Meanwhile other partitions are moved."""
        missing = [node for node in assignment.adding if self._is_down(node)]
        down = [node for node in assignment.replicas if self._is_down(node)]
        if len(down) * 2 >= len(assignment.replicas):
            missing += down
        return tuple(missing)

    def level(self, feature: str) -> int:
        """The level of a feature that the cluster has finalized."""
        return self.features.get(feature, level_before(feature))

    @property
    def default_replication_factor(self) -> int:
        """The number of replicas of a new topic that requests no number."""
        usable = sum(broker.takes_replicas for broker in self.brokers.values())
        return max(1, min(REPLICATION_FACTOR_DEFAULT, usable))

    def loads(self) -> dict[NodeId, Load]:
        """The number of replicas and first replicas of each broker."""
        return {node: Load(len(self._hosted.get(node, ())), self._firsts[node]) for node in self.brokers}

    # ---- operations on the cluster: they return facts and change nothing ------------------------

    def create_cluster(self, cluster_id: str) -> list[Fact]:
        """Set the cluster's id, which never changes afterwards."""
        if self.cluster_id == cluster_id:
            return []
        if self.cluster_id is not None:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self.cluster_id}, and it cannot become {cluster_id}; "
                "a node of another cluster joins with an empty data directory",
            )
        return [ClusterCreated(cluster_id)]

    def register_broker(
        self,
        node_id: NodeId,
        directory_id: str,
        *,
        host: str,
        port: int,
        peer_host: str,
        peer_port: int,
        rack: str | None = None,
        roles: Sequence[str] = ("broker", "controller"),
        starts: int = 0,
        boot_id: str = "",
    ) -> list[Fact]:
        """Register a node: a new one, an unchanged one, one with new addresses, or one with a new disk.

        A new broker counts as up. A known broker stays fenced until `unfence`.
        """
        known = self.brokers.get(node_id)
        last = known or self.former_brokers.get(node_id)
        incarnation = 0 if last is None else last.incarnation
        if last is not None and (last is not known or last.directory_id != directory_id):
            incarnation += 1
        fact = BrokerRegistered(
            node_id, incarnation, directory_id, host, port, peer_host, peer_port, rack, sorted(roles), starts, boot_id
        )
        check_registration(fact, self.brokers.values())
        if known is not None and incarnation == known.incarnation and is_older_copy(known, starts, boot_id):
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, older_copy_text(node_id))
        return [] if known is not None and registration(known) == fact else [fact]

    def set_level(
        self, feature: str, level: int, nodes: Mapping[NodeId, Ranges | None], *, downgrade: bool = False
    ) -> list[Fact]:
        """Finalize a level of a feature. `nodes` has what each broker supports, None for those that are not there."""
        present = self.level(feature)
        check_update(feature, level, present, nodes, downgrade=downgrade)
        return [] if level == present else [FeatureLevelSet(feature, level)]

    def change_broker_configs(
        self, node_id: NodeId | None, changes: Mapping[str, str | None], *, replace_all: bool = False
    ) -> list[Fact]:
        """Change settings of a broker, or of all for None. A value of None resets a setting, if it is set."""
        if node_id is not None:
            self.broker(node_id)
        level = self.level(METADATA_VERSION)
        return changed_broker_configs(self.broker_configs, level, node_id, changes, replace_all=replace_all)

    def change_group_configs(
        self, group: str, changes: Mapping[str, str | None], *, replace_all: bool = False
    ) -> list[Fact]:
        """Change settings of a lease group, which need not exist. A value of None resets a setting, if it is set."""
        level = self.level(METADATA_VERSION)
        return changed_group_configs(
            self.group_configs, level, self.broker_configs, group, changes, replace_all=replace_all
        )

    def fence(self, node_id: NodeId) -> list[Fact]:
        return [] if self.broker(node_id).fenced else [BrokerFenced(node_id)]

    def unfence(self, node_id: NodeId) -> list[Fact]:
        return [BrokerUnfenced(node_id)] if self.broker(node_id).fenced else []

    def drain(self, node_id: NodeId) -> list[Fact]:
        """Start to move a broker's partitions away, so that it can be removed. `balance` decides where to."""
        if self.broker(node_id).draining:
            return []
        takers = {broker.node_id for broker in self.brokers.values() if broker.takes_replicas} - {node_id}
        stuck = []
        for group in self.partitions_on(node_id):
            planned = self.topics_by_id[group.topic_id].partitions[group.partition].planned
            leaving = {node for node in planned if node == node_id or self._is_draining(node)}
            if node_id in leaving and len(takers.difference(planned)) < len(leaving):
                stuck.append(group)
        if stuck:
            up = f"{len(takers)} other broker{' is' if len(takers) == 1 else 's are'} up and staying"
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"node {node_id} cannot be drained: {self._named(stuck)} would have fewer replicas, since {up}; "
                "add a broker first, or have fewer replicas (`drmq topic alter NAME --replicas N`)",
            )
        return [BrokerDraining(node_id)]

    def cancel_drain(self, node_id: NodeId) -> list[Fact]:
        """Stop draining a broker. Reassignments that were started continue unless they are cancelled."""
        return [BrokerDrainCancelled(node_id)] if self.broker(node_id).draining else []

    def remove_broker(self, node_id: NodeId) -> list[Fact]:
        """Remove a broker that has no partitions left from the cluster."""
        broker = self.broker(node_id)
        kept = self.partitions_on(node_id)
        if not kept:
            return [BrokerRemoved(node_id)]
        problem = f"node {node_id} cannot be removed: {self._named(kept)} {'is' if len(kept) == 1 else 'are'} on it"
        if not any(node_id in self.topics_by_id[group.topic_id].partitions[group.partition].planned for group in kept):
            raise ApiError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"{problem}, on the way to others; wait until the move is through",
            )
        step = "rebalance, so that it is moved away, and wait" if broker.draining else "drain it first"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{problem}; {step}")

    # ---- operations on topics -------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        topic_id: TopicId,
        partition_count: int,
        configs: Mapping[str, str | None],
        *,
        internal: bool,
        replication_factor: int = -1,
        replicas: Sequence[Sequence[NodeId]] | None = None,
    ) -> list[Fact]:
        """Create a topic. `internal` is set by the broker itself, never by a client.

        The catalog places the replicas: `replication_factor` for each partition, or if that is -1 three, or as many as
        there are brokers up. Alternatively the replicas are given, one list for each partition.
        """
        check_topic_name(name)
        if not internal:
            check_not_internal(name)
        if name in self.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        twin = self._metric_names.get(_metric_name(name))
        if twin is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name!r} differs from {twin!r} only in '.' and '_', which metric names cannot tell apart",
            )
        if not 1 <= partition_count <= PARTITIONS_MAX:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions: allowed are 1 to {PARTITIONS_MAX}"
            )
        checked = checked_configs(configs, partition_count)
        if replicas is not None:
            check_new_replicas(self.brokers, name, range(partition_count), replicas, replication_factor)
            assigned = [list(nodes) for nodes in replicas]
        else:
            assigned = self._placed(partition_count, replication_factor)
        return [TopicCreated(topic_id, name, assigned, checked)]

    def delete_topic(self, topic: Topic) -> list[Fact]:
        if topic.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is one of DRMQ's own topics")
        return [TopicDeleted(topic.topic_id, topic.name)]

    def add_partitions(
        self, name: str, partition_count: int, replicas: Sequence[Sequence[NodeId]] | None = None
    ) -> list[Fact]:
        """Raise a topic's partition count to `partition_count`. `replicas`, if given, has a list for each new one."""
        topic = self.topic(name)
        if topic.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is one of DRMQ's own topics")
        if partition_count <= topic.partition_count:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {topic.partition_count} partitions; the number can only be raised",
            )
        if partition_count > PARTITIONS_MAX:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions: allowed are 1 to {PARTITIONS_MAX}"
            )
        added = range(topic.partition_count, partition_count)
        replication_factor = len(topic.partitions[0].planned)
        if replicas is not None:
            check_new_replicas(self.brokers, name, added, replicas, replication_factor)
            assigned = [list(nodes) for nodes in replicas]
        else:
            assigned = self._placed(len(added), replication_factor)
        return [PartitionsAdded(topic.topic_id, partition_count, assigned)]

    def set_configs(self, name: str, configs: Mapping[str, str | None]) -> list[Fact]:
        """Replace all settings of a topic (AlterConfigs)."""
        topic = self.topic(name)
        return [TopicConfigsSet(topic.topic_id, checked_configs(configs, topic.partition_count))]

    def change_configs(self, name: str, changes: Mapping[str, str | None]) -> list[Fact]:
        """Change single settings of a topic; None resets one to its default, if it is set."""
        topic = self.topic(name)
        # A value of None may be of a setting that is not set, or does not exist: tools clean up in this way.
        changed = {key: value for key, value in changes.items() if value is not None}
        kept = {key: value for key, value in topic.configs.items() if key not in changes}
        check_configs_size(kept | changed, topic.partition_count)
        configs = kept | checked_configs(changed, topic.partition_count)
        return [] if configs == topic.configs else [TopicConfigsSet(topic.topic_id, configs)]

    # ---- operations on replicas -----------------------------------------------------------------

    def start_reassignment(self, topic: Topic, partition: int, replicas: Sequence[NodeId]) -> list[Fact]:
        """Start to move a partition to `replicas`, the preferred leader first; their number may change.

        An earlier reassignment of the partition is replaced by this one and keeps its place in the queue. If only the
        order differs, nothing has to move, and the reassignment is finished at once.
        """
        group, present = self._partition(topic, partition)
        wanted = list(replicas)
        # A draining node keeps its replicas until there is another place for them, but it must not become
        # indispensable: with as many replicas as nodes it could never be removed.
        grows = len(wanted) > len(present.replicas)
        kept = [node for node in present.replicas if not (grows and self._is_draining(node))]
        check_replicas(self.brokers, f"{topic.name}-{partition}", wanted, kept)
        if tuple(wanted) == present.planned:
            return []
        if tuple(wanted) == present.replicas:
            return [ReassignmentCancelled(topic.topic_id, partition)]
        started = ReassignmentStarted(topic.topic_id, partition, wanted)
        if set(wanted) == set(present.replicas) and group not in self.reassignments:
            return [started, ReassignmentFinished(topic.topic_id, partition, wanted)]
        return [started]

    def finish_reassignment(self, topic: Topic, partition: int) -> list[Fact]:
        """Finish a reassignment, once the replica group has exactly the new members."""
        group, _ = self._partition(topic, partition)
        return [ReassignmentFinished(topic.topic_id, partition, list(self._target(topic, group)))]

    def cancel_reassignment(self, topic: Topic, partition: int) -> list[Fact]:
        """Keep a partition where it is. If its move has begun, it must first return, and is finished when it has."""
        group, present = self._partition(topic, partition)
        if self._target(topic, group) == present.replicas:
            return []
        return [ReassignmentCancelled(topic.topic_id, partition)]

    def lose_replica(self, topic: Topic, partition: int, node_id: NodeId, arrival: int) -> list[Fact]:
        """Let a node whose replica is damaged or lost create a new one. `arrival` identifies the lost replica."""
        _, present = self._partition(topic, partition)
        if node_id not in present.hosts or present.arrival(node_id) != arrival:
            return []
        return [ReplicaLost(topic.topic_id, partition, node_id, arrival)]

    # ---- operations on producers ----------------------------------------------------------------

    def reserve_producer_ids(self, count: int) -> list[Fact]:
        """Reserve the ids from `next_producer_id` on, so that none of them is assigned again after a restart."""
        return [ProducerIdsReserved(self.next_producer_id + count)]

    # ---- replicated state -----------------------------------------------------------------------

    def replay(self, fact: Fact) -> None:
        """Apply a fact."""
        if isinstance(fact, ClusterCreated):
            self.cluster_id = self.cluster_id or fact.cluster_id
        elif isinstance(fact, ProducerIdsReserved):
            self.next_producer_id = max(self.next_producer_id, fact.next_id)
        elif isinstance(fact, BrokerConfigsSet):
            self.broker_configs = with_broker_configs(self.broker_configs, fact)
        elif isinstance(fact, GroupConfigsSet):
            self.group_configs = with_group_configs(self.group_configs, fact)
        elif isinstance(fact, FeatureLevelSet):
            self.features[fact.feature] = max(fact.level, self.features.get(fact.feature, 0))
        else:
            if isinstance(fact, BrokerFact):
                self._replay_broker(fact)
            else:
                self._replay_topic(fact)
            self._begin_next()

    def snapshot(self) -> Iterable[Fact]:
        """Facts that produce this catalog from an empty one."""
        if self.cluster_id is not None:
            yield ClusterCreated(self.cluster_id)
        yield from (FeatureLevelSet(feature, level) for feature, level in self.features.items())
        yield ProducerIdsReserved(self.next_producer_id)
        for broker in self.former_brokers.values():
            yield registration(broker)
            yield BrokerRemoved(broker.node_id)
        for broker in self.brokers.values():
            yield registration(broker)
            if broker.fenced:
                yield BrokerFenced(broker.node_id)
            if broker.draining:
                yield BrokerDraining(broker.node_id)
        yield from (BrokerConfigsSet(node_id, dict(configs)) for node_id, configs in self.broker_configs.items())
        yield from (GroupConfigsSet(group, dict(configs)) for group, configs in self.group_configs.items())
        for topic_id, name in self.deleted.items():
            yield TopicDeleted(topic_id, name)
        for topic in self.topics_by_id.values():
            yield TopicCreated(
                topic.topic_id,
                topic.name,
                [list(assignment.replicas) for assignment in topic.partitions],
                dict(topic.configs),
                # The brokers above may have had other incarnations when the topic was created.
                [list(assignment.initial_members) for assignment in topic.partitions],
            )
        moved = {group: each for group, each in self.assignments().items() if each.moves and each.target is None}
        moving = {group: self.topics_by_id[group.topic_id].partitions[group.partition] for group in self.reassignments}
        for group, assignment in (moved | moving).items():
            yield AssignmentRestored(
                group.topic_id,
                group.partition,
                assignment.moves,
                [[node, move] for node, move in assignment.arrivals],
                None if assignment.target is None else list(assignment.target),
                list(assignment.given_up),
                assignment.begun,
            )

    def described(self, fact: TopicCreated) -> Topic:
        """The topic that `fact` creates."""
        partitions = [self._first_assignment(nodes) for nodes in fact.replicas]
        for partition, members in enumerate(fact.initial_members or ()):
            partitions[partition] = replace(partitions[partition], initial_members=tuple(members))
        return Topic(fact.topic_id, fact.name, tuple(partitions), fact.configs)

    def _first_assignment(self, nodes: Iterable[NodeId]) -> Assignment:
        assignment = Assignment(tuple(nodes), None, ())
        return replace(assignment, initial_members=self.members(assignment, assignment.replicas))

    def _replay_broker(self, fact: BrokerFact) -> None:
        known = self.brokers.get(fact.node_id)
        if isinstance(fact, BrokerRegistered):
            former = self.former_brokers.get(fact.node_id)
            if (known is not None and fact.incarnation < known.incarnation) or (
                former is not None and fact.incarnation <= former.incarnation
            ):
                return
            self.former_brokers.pop(fact.node_id, None)
            self.brokers[fact.node_id] = registered(fact, known)
        elif known is None:
            return
        elif isinstance(fact, BrokerRemoved):
            del self.brokers[fact.node_id]
            self.broker_configs = with_broker_configs(self.broker_configs, BrokerConfigsSet(fact.node_id, {}))
            self.former_brokers[fact.node_id] = replace(known, fenced=False, draining=False)
        elif isinstance(fact, BrokerFenced | BrokerUnfenced):
            self.brokers[fact.node_id] = replace(known, fenced=isinstance(fact, BrokerFenced))
        else:
            self.brokers[fact.node_id] = replace(known, draining=isinstance(fact, BrokerDraining))

    def _replay_topic(self, fact: TopicFact) -> None:
        if isinstance(fact, TopicCreated):
            # The first topic with a name or an id stays: a repeated fact never replaces it.
            if fact.name not in self.topics and fact.topic_id not in self.topics_by_id:
                self._put(self.described(fact))
            return
        known = self.topics_by_id.get(fact.topic_id)
        if isinstance(fact, TopicDeleted):
            self._forget(fact, known)
        elif known is None:
            return
        elif isinstance(fact, PartitionsAdded):
            # If two facts add the same partitions, those of the earlier fact exist already.
            there = known.partition_count - (fact.partition_count - len(fact.replicas))
            if there >= 0:
                added = map(self._first_assignment, fact.replicas[there:])
                self._put(replace(known, partitions=(*known.partitions, *added)), known.partition_count)
        elif isinstance(fact, TopicConfigsSet):
            self._put(replace(known, configs=fact.configs), known.partition_count)
        elif 0 <= fact.partition < known.partition_count:
            self._replay_reassignment(fact, known)

    def _replay_reassignment(
        self,
        fact: ReassignmentStarted | ReassignmentFinished | ReassignmentCancelled | ReplicaLost | AssignmentRestored,
        topic: Topic,
    ) -> None:
        group, present = GroupId(topic.topic_id, fact.partition), topic.partitions[fact.partition]
        if isinstance(fact, AssignmentRestored):
            moved = restored_assignment(present, fact)
            self.reassignments.pop(group, None)
            if moved.target is not None:
                self.reassignments[group] = moved.target
        elif isinstance(fact, ReplicaLost):
            if fact.node_id not in present.hosts or present.arrival(fact.node_id) != fact.arrival:
                return
            moved = without_copy(present, fact.node_id)
        elif isinstance(fact, ReassignmentFinished):
            if present.target != tuple(fact.replicas):
                # It finished after another target was requested: the group must continue towards that one.
                return
            moved = moved_assignment(present, present.target)
            del self.reassignments[group]
        elif isinstance(fact, ReassignmentStarted) or present.begun:
            target = tuple(fact.replicas) if isinstance(fact, ReassignmentStarted) else present.replicas
            moved = retargeted(present, target)
            self.reassignments[group] = target
        else:
            moved = retargeted(present, None)
            self.reassignments.pop(group, None)
        self._reassign(topic, fact.partition, moved)

    def _begin_next(self) -> None:
        """Mark the active reassignment as begun. Leaders act only if the catalog says so, or has said so before:
        if a partition is not marked, it is certain that no node has started to move it.
        """
        group = self.active_reassignment()
        if group is not None:
            topic = self.topics_by_id[group.topic_id]
            present = topic.partitions[group.partition]
            if not present.begun:
                self._reassign(topic, group.partition, replace(present, begun=True))

    def _reassign(self, topic: Topic, partition: int, moved: Assignment) -> None:
        group = GroupId(topic.topic_id, partition)
        self._unindex(group, topic.partitions[partition])
        self._index(group, moved)
        partitions = (*topic.partitions[:partition], moved, *topic.partitions[partition + 1 :])
        self._put(replace(topic, partitions=partitions), topic.partition_count)

    def _put(self, topic: Topic, indexed: int = 0) -> None:
        """Add or replace a topic. Its first `indexed` partitions are in the index already."""
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self._metric_names.setdefault(_metric_name(topic.name), topic.name)
        for partition in range(indexed, topic.partition_count):
            self._index(GroupId(topic.topic_id, partition), topic.partitions[partition])

    def _forget(self, fact: TopicDeleted, known: Topic | None) -> None:
        if known is not None:
            del self.topics[known.name]
            del self.topics_by_id[known.topic_id]
            self._metric_names.pop(_metric_name(known.name), None)
            for partition, assignment in enumerate(known.partitions):
                group = GroupId(known.topic_id, partition)
                self._unindex(group, assignment)
                self.reassignments.pop(group, None)
        self.deleted.setdefault(fact.topic_id, fact.name)
        if len(self.deleted) > DELETED_TOPICS_MAX:
            del self.deleted[next(iter(self.deleted))]

    # ---- the index of partitions by node --------------------------------------------------------

    def _index(self, group: GroupId, assignment: Assignment) -> None:
        for node in assignment.hosts:
            self._hosted.setdefault(node, {})[group] = None
        self._firsts.update(assignment.planned[:1])

    def _unindex(self, group: GroupId, assignment: Assignment) -> None:
        for node in assignment.hosts:
            del self._hosted[node][group]
        self._firsts.subtract(assignment.planned[:1])

    # ---- checks ---------------------------------------------------------------------------------

    def _incarnation(self, node_id: NodeId) -> int:
        broker = self.brokers.get(node_id) or self.former_brokers.get(node_id)
        return 0 if broker is None else broker.incarnation

    def _is_down(self, node_id: NodeId) -> bool:
        broker = self.brokers.get(node_id)
        return broker is None or broker.fenced

    def _is_draining(self, node_id: NodeId) -> bool:
        broker = self.brokers.get(node_id)
        return broker is not None and broker.draining

    def _partition(self, topic: Topic, partition: int) -> tuple[GroupId, Assignment]:
        group = GroupId(topic.topic_id, partition)
        assignment = self.assignment(group)
        if assignment is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of topic {topic.name!r}"
            )
        return group, assignment

    def _target(self, topic: Topic, group: GroupId) -> tuple[NodeId, ...]:
        target = self.reassignments.get(group)
        if target is None:
            raise ApiError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic.name}-{group.partition} is not being reassigned"
            )
        return target

    def _placed(self, partition_count: int, replication_factor: int) -> list[list[NodeId]]:
        brokers = list(self.brokers.values())
        if replication_factor == -1:
            replication_factor = self.default_replication_factor
        if replication_factor < 1:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor}: allowed is 1 or more, or -1 for the default",
            )
        return place(brokers, partition_count, replication_factor, self.loads())

    def _named(self, groups: Sequence[GroupId]) -> str:
        """Some partitions by name, for a message."""
        names = [f"{self.topics_by_id[group.topic_id].name}-{group.partition}" for group in groups[:_NAMED_MAX]]
        rest = len(groups) - len(names)
        return ", ".join(names) + (f" and {rest} more" if rest else "")


def _metric_name(topic: str) -> str:
    """The name of a topic in metrics, where '.' and '_' are the same."""
    return topic.replace(".", "_")
