"""The controller: the decisions that only one node makes, while it leads the metadata log.

It accepts registrations, tracks which nodes are up (by the heartbeats between nodes, which are never written to the
log), adds new nodes to the metadata group, returns leadership to the preferred replicas, and completes reassignments
and removals of nodes. All its own state is soft: a new controller starts with the catalog and the heartbeats that it
receives, and reaches the same decisions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Any

from drmq.broker.clock import Clock
from drmq.broker.cluster.features import FeatureLevels
from drmq.broker.cluster.membership import check_supported, removed
from drmq.broker.cluster.metadata import Metadata
from drmq.broker.cluster.metadata_voters import hand_vote_on, has_vote
from drmq.broker.options import BrokerOptions
from drmq.broker.replication.group_host import GroupHost
from drmq.broker.replication.sliced_work import SlicedWork
from drmq.catalog import Broker, Catalog, Fact, FeatureLevelSet, Move, Topic, plan_leaders, plan_rebalance_in_steps
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, TopicId, node_of
from drmq.raft import NotCaughtUp, Refusal

log = logging.getLogger("drmq.broker")

NODES_MAX = 1_000
"""Nodes of a cluster. Every node has connections with all others."""

_ROUND_S = 0.5
_TRANSFERS_PER_ROUND = 100
"""Leaderships that are transferred in a round. A node that returns may be the preferred leader of thousands."""
_COMPARED_PER_ROUND = 1_000
"""Partitions whose leaders are compared with the preferred ones in one round: about a millisecond."""
_MOVES_PER_BATCH = 20
"""Moves from a draining node that are decided at once."""
_TURNED_BACK_PER_ROUND = 100
"""Moves to nodes that are down, and that are cancelled in a round."""


class Controller:
    """Runs on every node, and acts only while this node is the controller. Used on the event loop."""

    def __init__(
        self,
        node_id: NodeId,
        metadata: Metadata,
        host: GroupHost,
        options: BrokerOptions,
        clock: Clock,
        new_cluster_id: Callable[[], str],
        features: FeatureLevels,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._host = host
        self._options = options
        self._clock = clock
        self._new_cluster_id = new_cluster_id
        self._features = features
        self._heard_ms: dict[NodeId, int] = {}
        self._balance_at_ms = 0
        self._reign = 0
        """Counts how often this node became the controller."""
        self._moving_away = SlicedWork()
        self._transfers: deque[tuple[GroupId, NodeId]] = deque()
        """Leaderships that are to be transferred, and to which node."""
        self._uncompared: deque[tuple[TopicId, int]] = deque()
        """Topics whose leaders are still to be compared with the preferred ones, and from which partition on."""
        self.elect: Callable[[GroupId, NodeId], None] = lambda group, node_id: None
        """Asks the leader of a partition to hand over to a node."""

    @property
    def _catalog(self) -> Catalog:
        return self._metadata.catalog

    def on_lead(self) -> None:
        """Called when this node becomes the controller. Every node gets the full session timeout from now on."""
        now_ms = self._clock.monotonic_ms()
        self._heard_ms = dict.fromkeys(self._catalog.brokers, now_ms)
        self._balance_at_ms = now_ms + self._options.leader_balance_interval_ms
        self._reign += 1
        self._transfers.clear()
        self._uncompared.clear()
        if self._catalog.cluster_id is None:
            cluster_id = self._new_cluster_id()
            self._metadata.append([*self._catalog.create_cluster(cluster_id), *self._first_levels()])
            log.info("formed cluster %s", cluster_id)
        log.info("node %d is the controller", self._node_id)

    def _first_levels(self) -> list[Fact]:
        """The newest levels that all founding nodes support."""
        raft = self._metadata.log.partition.replica.node
        levels = {} if raft is None else self._features.to_begin_with(raft.configuration)
        return [FeatureLevelSet(feature, level) for feature, level in levels.items()]

    # ---- registration ---------------------------------------------------------------------------

    async def register(self, node_id: NodeId, fields: Mapping[str, Any]) -> Broker:
        """Register a node, and return its catalog entry once it is committed. Raises `ApiError`."""
        if not self._metadata.is_controller:
            raise self._metadata.not_controller()
        cluster_id = fields.get("cluster_id")
        if cluster_id is not None and cluster_id != self._catalog.cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"node {node_id} belongs to cluster {cluster_id}, but this is another one; "
                "start it with its own peers, or with an empty data directory",
            )
        if node_id not in self._catalog.brokers and len(self._catalog.brokers) >= NODES_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the cluster has {len(self._catalog.brokers)} nodes, which is the limit; remove one before node "
                f"{node_id} joins",
            )
        if cluster_id is not None and node_id not in self._catalog.brokers and node_id in self._catalog.former_brokers:
            raise removed(node_id)
        check_supported(node_id, fields, self._catalog.features)
        before = self._catalog.brokers.get(node_id)
        facts = self._catalog.register_broker(
            node_id,
            fields["directory_id"],
            host=fields["host"],
            port=fields["port"],
            peer_host=fields["peer_host"],
            peer_port=fields["peer_port"],
            rack=fields["rack"],
            roles=fields["roles"],
            starts=fields["starts"],
            boot_id=fields["boot_id"],
        )
        self._heard_ms[node_id] = self._clock.monotonic_ms()
        self._metadata.append(facts)
        self._metadata.append(self._catalog.unfence(node_id))
        # Read the entry before waiting: another process may register the same id meanwhile, with its own incarnation.
        registered = self._catalog.broker(node_id)
        if facts:
            # Not after the wait, which ends early if the connection of the node does.
            self._metadata.log.when_durable(partial(_log_registration, before, registered))
        await self._metadata.committed(f"the registration of node {node_id}")
        return registered

    # ---- unusable copies ------------------------------------------------------------------------

    def check_majority_without(self, node_id: NodeId, group: GroupId, topic: Topic) -> None:
        """Raise `ApiError` unless the other replicas are a majority, in sync, and up without the copy on `node_id`.

        The leader's last announcement may be older than the last replacement of a copy. It therefore counts only for
        members that are in the catalog: as soon as a copy is given up, the catalog has a different member id for the
        next one.
        """
        assignment = topic.partitions[group.partition]
        replicas = assignment.replicas
        notice = self._host.leaders.get(group)
        in_sync = () if notice is None else notice.members_in_sync
        others = [other for other in replicas if other != node_id and (other == self._node_id or self._is_up(other))]
        sound = frozenset[NodeId](self._catalog.members(assignment, others)).intersection(in_sync)
        if len(sound) * 2 <= len(replicas):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the copy of {topic.name}-{group.partition} on node {node_id} cannot be replaced yet: a majority of "
                f"its {len(replicas)} replicas must be in sync without it, and only {len(sound)} are",
            )

    # ---- rounds ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run a round twice a second, as long as the node runs."""
        while True:
            await asyncio.sleep(_ROUND_S)
            if not self._metadata.is_controller:
                continue
            try:
                self._watch_brokers()
                self._follow_members()
                self._drain()
                self._balance()
            except ApiError as error:
                log.info("the controller's round ended early: %s", error.message)
            except Exception:
                log.exception("a round of the controller failed; the next one starts in %.1f s", _ROUND_S)

    def _watch_brokers(self) -> None:
        """Fence nodes that have been silent for too long, and unfence those that are back."""
        now_ms = self._clock.monotonic_ms()
        for node_id, broker in list(self._catalog.brokers.items()):
            if node_id == self._node_id or self._is_up(node_id):
                self._heard_ms[node_id] = now_ms
            silent_ms = now_ms - self._heard_ms.setdefault(node_id, now_ms)
            if silent_ms > self._options.broker_session_timeout_ms and not broker.fenced:
                log.warning("node %d has been silent for %.1f s and is considered down", node_id, silent_ms / 1000)
                self._metadata.append(self._catalog.fence(node_id))
            elif silent_ms == 0 and broker.fenced:
                log.info("node %d is back", node_id)
                self._metadata.append(self._catalog.unfence(node_id))

    def _follow_members(self) -> None:
        """Make every registered node a member of the metadata group, and remove members that no longer exist.

        These are nodes that were removed, and earlier incarnations of nodes that have a new disk.
        """
        replica = self._metadata.log.partition.replica
        node = replica.node
        if node is None or node.change_in_progress:
            return
        configuration = node.configuration
        brokers = self._catalog.brokers
        current = {broker.member for broker in brokers.values()}
        known = configuration.voters | configuration.learners
        voters: set[NodeId] = set(configuration.voters)
        learners: set[NodeId] = set(configuration.learners)
        for member in known - current:
            replaced = brokers.get(node_of(member))
            is_removed = replaced is None and node_of(member) in self._catalog.former_brokers
            if is_removed and self._is_up(node_of(member)):
                # The node learns of its removal from the log, and then stops. Until then it stays a member.
                continue
            if member in learners and (is_removed or replaced is not None):
                learners.discard(member)
            elif member in voters and is_removed and len(voters) > 1:
                voters.discard(member)
            elif member in voters and replaced is not None and replaced.member in configuration.learners:
                voters.discard(member)
                voters.add(replaced.member)
                learners.discard(replaced.member)
        learners |= {member for member in current if member not in known and member not in voters}
        if voters == configuration.voters and learners == configuration.learners:
            return
        try:
            replica.change_members(voters, learners, self._reason(known, voters | learners))
        except NotCaughtUp as refusal:
            log.debug("metadata members: %s", refusal)
            learners_only = set(configuration.learners) | (learners - set(configuration.voters))
            if learners_only != configuration.learners:
                reason = self._reason(known, configuration.voters | learners_only)
                replica.change_members(configuration.voters, learners_only, reason)
        except Refusal as refusal:
            log.debug("metadata members: %s", refusal)

    def _reason(self, before: Set[NodeId], after: Set[NodeId]) -> str:
        """Why members of the metadata group are added or removed, for the log."""
        known = set(map(node_of, before))
        reasons = []
        for node_id in sorted(set(map(node_of, before ^ after))):
            if node_id not in self._catalog.brokers:
                reasons.append(f"node {node_id} was removed from the cluster")
            elif node_id in known:
                reasons.append(f"node {node_id} has another data directory")
            else:
                reasons.append(f"node {node_id} has joined the cluster")
        return "; ".join(reasons)

    def _is_up(self, node_id: NodeId) -> bool:
        return self._host.network is not None and self._host.network.is_up(node_id)

    def _turn_back(self) -> None:
        """Cancel moves from a draining node whose target is down, so that they can be planned again."""
        catalog = self._catalog
        if not any(broker.draining for broker in catalog.brokers.values()):
            return
        facts: list[Fact] = []
        for group in catalog.reassignments:
            if len(facts) >= _TURNED_BACK_PER_ROUND:
                break
            topic = catalog.topics_by_id[group.topic_id]
            assignment = topic.partitions[group.partition]
            gone = set(catalog.waits_for(assignment)).intersection(assignment.adding)
            if gone and any(node in catalog.brokers and catalog.brokers[node].draining for node in assignment.replicas):
                log.warning(
                    "the move of %s-%d to node %d is cancelled, because that node is down",
                    topic.name,
                    group.partition,
                    min(gone),
                )
                facts += catalog.cancel_reassignment(topic, group.partition)
        self._metadata.append(facts)

    def _drain(self) -> None:
        """Move partitions away from draining brokers, then remove these brokers."""
        self._turn_back()
        for node_id, broker in list(self._catalog.brokers.items()):
            if not broker.draining or self._catalog.partitions_on(node_id):
                continue
            if has_vote(self._metadata, node_id):
                # Take the vote first. Otherwise the removed node would still count towards the majority of voters.
                refusal = hand_vote_on(self._metadata, broker)
                if refusal is not None:
                    log.debug("node %d keeps its vote: %s", node_id, refusal)
            else:
                self._metadata.append(self._catalog.remove_broker(node_id))
                log.info("node %d is removed from the cluster", node_id)
        is_leaving = any(broker.draining for broker in self._catalog.brokers.values())
        if is_leaving and not self._catalog.reassignments and not self._moving_away.is_busy:
            self._moving_away.add(self._move_away())

    def _move_away(self) -> Iterator[None]:
        """Plan where the replicas of draining nodes go, and start these moves.

        With ten thousand partitions this takes longer than other nodes wait for an answer. Meanwhile the catalog may
        change: a move that does not fit any more is left out, and planned again when there are no moves.
        """
        reign = self._reign
        try:
            moves = yield from plan_rebalance_in_steps(self._catalog)
            for first in range(0, len(moves), _MOVES_PER_BATCH):
                if not self._metadata.is_controller or self._reign != reign:
                    return
                facts: list[Fact] = []
                for move in moves[first : first + _MOVES_PER_BATCH]:
                    if self._is_needed(move):
                        topic = self._catalog.topics_by_id[move.group.topic_id]
                        facts += self._catalog.start_reassignment(topic, move.group.partition, move.replicas)
                self._metadata.append(facts)
                yield
        except ApiError as error:
            log.info("not all replicas of draining nodes are being moved yet: %s", error.message)

    def _is_needed(self, move: Move) -> bool:
        """Whether a planned move takes a partition off a node that leaves, and still fits the catalog."""
        brokers, topic = self._catalog.brokers, self._catalog.topics_by_id.get(move.group.topic_id)
        if topic is None:
            return False
        assignment = topic.partitions[move.group.partition]
        replicas = assignment.replicas
        return (
            assignment.target is None
            and any(node not in brokers or brokers[node].draining for node in replicas)
            and len(move.replicas) == len(replicas)
            and {*move.replicas}.difference(replicas) == {*move.adding}
            and all(node in brokers and brokers[node].takes_replicas for node in move.adding)
        )

    def _balance(self) -> None:
        """Return leadership to the preferred replicas, some at a time: each transfer is an election."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._balance_at_ms and not self._uncompared:
            self._balance_at_ms = now_ms + self._options.leader_balance_interval_ms
            self._transfers.clear()
            self._uncompared.extend((topic_id, 0) for topic_id in self._catalog.topics_by_id)
        if self._uncompared:
            self._compare_leaders()
        for _ in range(min(len(self._transfers), _TRANSFERS_PER_ROUND)):
            group, node_id = self._transfers.popleft()
            notice = self._host.leaders.get(group)
            if notice is not None and notice.leader != node_id and node_id in notice.in_sync:
                self.elect(group, node_id)

    def _compare_leaders(self) -> None:
        """Add the transfers that some of the partitions need. The rest is left for the next rounds."""
        brokers = self._catalog.brokers.items()
        live = {node_id for node_id, broker in brokers if not broker.fenced and not broker.draining}
        left = _COMPARED_PER_ROUND
        while self._uncompared and left > 0:
            topic_id, first = self._uncompared.popleft()
            topic = self._catalog.topics_by_id.get(topic_id)
            if topic is None:
                # It was deleted meanwhile.
                continue
            end = min(first + left, topic.partition_count)
            left -= end - first
            assignments = {GroupId(topic_id, index): topic.partitions[index] for index in range(first, end)}
            notices = ((group, self._host.leaders.get(group)) for group in assignments)
            leaders = {group: notice.leader for group, notice in notices if notice is not None}
            self._transfers.extend(plan_leaders(assignments, leaders, live))
            if end < topic.partition_count:
                self._uncompared.appendleft((topic_id, end))


def _log_registration(before: Broker | None, now: Broker, error: ErrorCode) -> None:
    if error is ErrorCode.NONE:
        why = _why_registered(before, now)
        log.info("node %d at %s:%d is registered: %s", now.node_id, now.host, now.port, why)


def _why_registered(before: Broker | None, now: Broker) -> str:
    if before is None:
        return "it has joined the cluster"
    if before.incarnation != now.incarnation:
        return "it has another data directory"
    if (before.starts, before.boot_id) != (now.starts, now.boot_id):
        return "it has started again"
    return "its addresses, rack or roles have changed"
