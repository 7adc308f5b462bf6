"""The broker: builds one node from its parts, starts it, and stops it.

There are two steps to start. `start` opens what is on the disk and connects to peers. `join` makes the node part of its
cluster: it forms or joins one, registers, and changes its partitions to what the catalog says. To stop is the reverse:
leadership is handed over, the doors close, waiting work ends, snapshots are saved, and logs are closed and marked as
clean.

In between, maintenance runs at intervals: retention, snapshots, expiry of offsets. If a round fails, it is logged, and
the next one runs as usual.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from random import Random
from typing import Any, TypeVar

from drmq.broker.clock import Clock, SeenClock, SystemClock
from drmq.broker.cluster.assignments import Assignments
from drmq.broker.cluster.controller import Controller
from drmq.broker.cluster.features import FeatureLevels
from drmq.broker.cluster.membership import Buffer, Membership, NodeRemoved, Request
from drmq.broker.cluster.metadata import METADATA_TOPIC, Metadata
from drmq.broker.cluster.new_partitions import NewPartitions
from drmq.broker.cluster.partition_reports import PartitionReports, group_from, group_to_bytes
from drmq.broker.cluster.registrations import Registrations
from drmq.broker.component_options import group_options_of, peer_options_of, raft_options_of, topic_defaults_of
from drmq.broker.coordination.consumer_groups import ConsumerGroups
from drmq.broker.coordination.group_settings import GroupSettings
from drmq.broker.coordination.internal_topics import SEGMENT_BYTES, InternalTopic, InternalTopics
from drmq.broker.coordination.lease_groups import LeaseGroups, LeaseShardCoordinator
from drmq.broker.coordination.machine_log import MachineLog
from drmq.broker.environment import Environment
from drmq.broker.maintenance.housekeeping import Maintenance
from drmq.broker.options import BrokerOptions, ClusterOptions
from drmq.broker.partitions.derived_state import MachineState, StateUnreadable
from drmq.broker.partitions.log_store import LogStore
from drmq.broker.partitions.partition import Partition
from drmq.broker.partitions.partition_table import PartitionTable, StoppedPartition
from drmq.broker.partitions.writer_bridge import WriterBridge
from drmq.broker.replication.group_host import GroupHost
from drmq.broker.replication.outgoing_snapshot import SnapshotCache
from drmq.broker.replication.replica import Replica
from drmq.broker.services.router import serving
from drmq.broker.services.services import Services
from drmq.broker.services.topics import TopicService
from drmq.catalog import METADATA_VERSION, BrokerConfigs, Catalog, TopicDefaults, copy_rate, effective
from drmq.model import DrmqError, GroupId, MemberId, NodeId, TopicId, member_id, node_of
from drmq.model.names import CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE
from drmq.raft import Refusal
from drmq.storage import LedgerCorrupt, LogCorrupt, StorageError
from drmq.telemetry.system_errors import in_words
from drmq.transport.peers import Network, NoNetwork, PeerError, PeerNetwork

log = logging.getLogger("drmq.broker")

T = TypeVar("T")

_SNAPSHOT_INTERVAL_S = 2.0
_OFFSET_EXPIRY_INTERVAL_S = 600.0
_MEMBERS_INTERVAL_S = 0.25
_REPLACE_INTERVAL_S = 1.0
_HAND_OVER_S = 3.0
_WRITTEN_WITHIN_S, _WRITTEN_POLL_S = 1.0, 0.002
_STRANGERS_S = 3.0
_NO_METADATA = (
    "nothing was changed; if the other nodes of its cluster have a controller, start this one with an empty data "
    "directory, not with a backup, which has forgotten votes; a single node needs internal/ from a backup"
)


class Broker:
    """One node. Create it, then call `start` on a running loop, `join`, and in the end `stop`."""

    def __init__(
        self,
        node_id: NodeId,
        store: LogStore,
        options: BrokerOptions | None = None,
        clock: Clock | None = None,
        cluster: ClusterOptions | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.node_id = node_id
        self.store = store
        self.options = options or BrokerOptions()
        self.clock = clock or SystemClock()
        self.cluster = cluster or ClusterOptions()
        self.advertised: tuple[str, int] = ("localhost", 0)
        """The address that is announced to clients; set once the listener is bound."""
        self._environment = environment or Environment()
        self._random = self._environment.random
        self._pools = self._environment.pools
        self._bridge = WriterBridge(self._on_writer_crashed)
        self.writer = self._environment.make_writer(self._bridge)
        self.writer.journal = store.journal
        self.writer.logs_per_sync_max = store.logs_per_sync_max
        self.host = GroupHost(
            node_id,
            self.writer,
            self._pools.followers,
            Random(self._random.getrandbits(64)),
            raft_options_of(self.options),
            self.options.tick_ms / 1000,
            self.options.reassignment_bytes_per_s,
        )
        self.metadata = Metadata(self.clock)
        self._broker_configs: BrokerConfigs = {}
        self.host.catch_up.rate_of = self._copy_rate
        stamps = SeenClock(self.clock, lambda: self.partitions.seen_ms())
        self.groups = ConsumerGroups(group_options_of(self.options), stamps, self._random)
        self.leases = LeaseGroups(self.clock, self._random)
        self.group_settings = GroupSettings(lambda: self.metadata.committed_catalog)
        self.internal_topics = InternalTopics(
            InternalTopic(CLUSTER_METADATA, self.metadata, lambda: 1, is_readable=False, is_in_catalog=False),
            InternalTopic(CONSUMER_OFFSETS, self.groups, lambda: self.options.offsets_topic_partitions),
            InternalTopic(SHARE_GROUP_STATE, self.leases, lambda: self.options.share_state_topic_partitions),
        )
        self.partitions = PartitionTable(
            store,
            self.host,
            self.writer,
            self._pools.replicas,
            SnapshotCache(self._pools.snapshots),
            self.clock,
            self.internal_topics,
        )
        self.new_partitions = NewPartitions(self.metadata, self.host)
        self.topics = TopicService(
            self.metadata, self.new_partitions, topic_defaults_of(self.options), self.options.replicas_max
        )
        self.membership = Membership(node_id, store, self.cluster, self.metadata, self.host, self._random.randbytes(16))
        self.features = FeatureLevels(node_id, self.metadata, self.cluster)
        self.controller = Controller(
            node_id, self.metadata, self.host, self.options, self.clock, self._new_cluster_id, self.features
        )
        self.registrations = Registrations(self.metadata, self.membership, self.controller)
        notes = store.snapshots(METADATA_TOPIC.name, METADATA_TOPIC.topic_id, 0)
        self.assignments = Assignments(
            node_id,
            self.metadata,
            self.partitions,
            lambda topic, index: store.has_log(topic.name, topic.topic_id, index),
            self.topics.config_of,
            notes,
        )
        self.maintenance = Maintenance(self.partitions, self.options, self.clock, notes)
        self.network: Network = NoNetwork()
        self.blocking_calls = 0
        """Calls of `blocking` that run or wait."""
        self.services = Services(self)
        self._tasks: list[asyncio.Task[None]] = []
        self._past: set[TopicId] | None = set()
        """Topics that changed in the catalog while it was catching up after a restart; None once it has caught up.

        Until then the catalog may be older than the one on which this node acted before."""
        self.on_fatal: Callable[[BaseException], None] = lambda error: None
        """Called when the node cannot continue; the server ends the process."""
        self._wire()

    def _partitions_of(self, name: str) -> tuple[TopicId, int] | None:
        topic = self.metadata.committed_catalog.topics.get(name)
        return None if topic is None else (topic.topic_id, topic.partition_count)

    def _wire(self) -> None:
        """Connect the parts that notify each other."""
        catalog = self.metadata.coordinator
        catalog.on_changed = self._on_catalog_changed
        catalog.on_elected = self._on_elected
        self.partitions.on_role = self.assignments.on_role
        self.partitions.on_trimmed = self.maintenance.on_trimmed
        self.groups.deleted_topics = self._deleted_topics
        self.groups.deleted_topic_ids = lambda: self.metadata.committed_catalog.deleted
        self.groups.partitions_of = self._partitions_of
        self.groups.timing_of = self.group_settings.timing_of
        self.groups.on_deleting = self.services.share_groups.look_at
        self.groups.on_member_lost = self.services.share_groups.on_member_lost
        self.leases.on_paused = self.services.share_groups.on_paused
        self.leases.deleted_topic_ids = self.groups.deleted_topic_ids
        self.leases.on_changed = self._on_leases_changed
        self.leases.options_of = self.group_settings.lease_options_of
        self.leases.admits = self.groups.admits_queue
        self.leases.on_freed = self.groups.on_queue_removed
        self.groups.queue_bytes = lambda: self.leases.size_bytes
        self.partitions.committed_catalog = lambda: self.metadata.committed_catalog
        self.topics.on_deleted = lambda topic: self.groups.forget_topics([topic.name], [topic.topic_id])
        self.topics.stopped = self._why_stopped
        self.partitions.on_damage = self.assignments.on_damaged
        reports = PartitionReports(self.node_id, self.metadata, self.membership, self.controller)
        self.assignments.on_reassigned = reports.reassigned
        self.assignments.on_lost = reports.lost
        self.assignments.hand_over = self._hand_over
        self.controller.elect = self.elect
        self.membership.handlers.update(
            {
                Request.REGISTER: self.registrations.serve,
                Request.REGISTER_FOR: self.registrations.serve_forwarded,
                Request.RESERVE_IDS: self.services.producer_ids.serve,
                Request.REASSIGNED: reports.serve_reassigned,
                Request.ELECT: self._serve_elect,
                Request.LEASE: self.services.leases.shards.serve,
                Request.OPEN_RECORDS: self.services.lease_queries.serve,
                Request.REPLICA_LOST: reports.serve_lost,
                **{kind: serving(handler) for kind, handler in self.services.client_requests().items()},
            }
        )

    def _on_leases_changed(self, shard: LeaseShardCoordinator) -> None:
        self.services.dead_letters.look_at(shard)
        self.services.redrives.look_at(shard)

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id or ""

    @property
    def catalog(self) -> Catalog:
        return self.metadata.catalog

    @property
    def is_controller(self) -> bool:
        return self.metadata.is_controller

    # ---- starting -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the data directory and the peer network. Raises `StateUnreadable`, `UnknownFormat` and others."""
        try:
            await self._open()
        except BaseException:
            # Nothing was served, so nothing has to be saved: release the threads and the directory.
            self.host.stop()
            await self._close_network()
            self.writer.stop()
            self._pools.shutdown()
            self.store.close()
            raise

    async def _open(self) -> None:
        self._bridge.attach(asyncio.get_running_loop(), self.partitions)
        self.partitions.member = member_id(self.node_id, self.store.incarnation)
        self.assignments.load()
        self.maintenance.load()
        self.writer.start()
        self.host.start()
        topic = METADATA_TOPIC
        is_there = self.store.has_log(topic.name, topic.topic_id, 0)
        if is_there and not self.store.has_topics() and not self.store.was_used(topic.name, topic.topic_id, 0):
            # The node's first start ended before it was a member of a cluster.
            self.store.remove_partition(topic.name, topic.topic_id, 0)
            is_there = False
        if is_there:
            self.partitions.publish(self._open_metadata())
        elif self.store.has_topics():
            raise StateUnreadable(
                f"{self.store.location} holds topics, but the metadata log that describes them is gone; "
                "restore internal/ from a backup, or start with an empty directory"
            )
        if self.cluster.peer_port is not None:
            await self._open_network()

    async def _open_network(self) -> None:
        cluster, membership, options = self.cluster, self.membership, peer_options_of(self.options)
        network, port = await self._environment.open_network(
            membership.identity, membership, options, self.clock, cluster.peer_host, cluster.peer_port or 0
        )
        self.use_network(network, port)

    def use_network(self, network: Network, port: int) -> None:
        """Use this network to connect to peers."""
        self.network = self.host.network = self.membership.network = self.features.network = network
        self.membership.peer_address = (self.membership.peer_address[0], port)
        # A node that joined later is not among the first peers. If it votes, there may be no controller without it,
        # from which this node could learn more than it has stored. For now, configured addresses are preferred.
        self.membership.follow_catalog()
        self.membership.dial_first_peers()

    def _open_metadata(self) -> Partition:
        try:
            opened = self.partitions.open(METADATA_TOPIC, 0, self._metadata_config())
            assert isinstance(opened.state, MachineState), opened.state
            opened.state.check_log()
            return opened
        except (StorageError, OSError) as error:
            problem = (
                f"{error.finding}; {_NO_METADATA}" if isinstance(error, LogCorrupt | LedgerCorrupt) else in_words(error)
            )
            raise StateUnreadable(f"the metadata log cannot be read: {problem}") from error

    def _metadata_config(self) -> Any:
        return effective({}, TopicDefaults(retention_ms=-1, segment_bytes=SEGMENT_BYTES))

    def _make_metadata(self, members: Sequence[MemberId]) -> None:
        self.partitions.publish(self.partitions.make(METADATA_TOPIC, 0, self._metadata_config(), members))

    # ---- joining --------------------------------------------------------------------------------

    async def join(self) -> None:
        """Become part of the cluster. Returns when the partitions of this node match the catalog."""
        if not self.metadata.is_attached:
            await self._find_place()
        registered = await self.membership.register(self.advertised, self._register_locally)
        if self.store.cluster_id is None:
            self.store.identify(registered["cluster_id"], registered["incarnation"])
        if (self.store.cluster_id, self.store.incarnation) != (registered["cluster_id"], registered["incarnation"]):
            raise DrmqError(
                f"{self.store.location} is incarnation {self.store.incarnation} of node {self.node_id} in cluster "
                f"{self.store.cluster_id}, but the cluster knows a newer one ({registered['incarnation']}); "
                "start with an empty data directory"
            )
        while self.metadata.applied_offset < registered["offset"]:  # noqa: ASYNC110 (the log moves by many ways)
            await asyncio.sleep(0.002)
        peers = await self._ask_strangers()
        self.membership.follow_catalog()
        past, self._past = self._past or set(), None
        past.update(topic_id for topic_id, _ in self.store.found())
        self.new_partitions.begin()
        self.assignments.on_changed(past | self.catalog.topics_by_id.keys())
        await self.assignments.settled()
        if self.assignments.too_new is not None:
            raise self.assignments.too_new
        if self.is_alone and CONSUMER_OFFSETS not in self.catalog.topics:
            await self.services.topic_creation.create_internal(CONSUMER_OFFSETS)
        for partition in self.partitions:
            # This node can elect itself leader of these partitions. Wait for it, so that clients need not retry.
            while partition.replica.is_alone and not partition.is_serving:
                await self.host.next_leader_news(0.05)
        self._tasks = [
            asyncio.create_task(self._repeat(self.options.retention_check_interval_ms / 1000, self.maintain)),
            asyncio.create_task(self._repeat(_OFFSET_EXPIRY_INTERVAL_S, self._expire_offsets)),
            asyncio.create_task(self._repeat(_SNAPSHOT_INTERVAL_S, self._save_machines)),
            asyncio.create_task(self._repeat(_MEMBERS_INTERVAL_S, self.assignments.change_members)),
            asyncio.create_task(self._repeat(_REPLACE_INTERVAL_S, self.assignments.replace_lost)),
            asyncio.create_task(self.controller.run()),
            *peers,
        ]

    async def _ask_strangers(self) -> list[asyncio.Task[None]]:
        """Check that the configured peers are not those of another cluster. Raises `DrmqError` if they are.

        If none of the peers is up yet, this is not known. The returned task then waits for them, and stops the node if
        necessary.
        """
        if not self.membership.peers_are_strangers:
            return []
        asking = asyncio.create_task(self.membership.accepted())
        await asyncio.wait((asking,), timeout=_STRANGERS_S)
        if asking.done():
            asking.result()
            return []

        def on_answer(done: asyncio.Task[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                self.on_fatal(error)

        asking.add_done_callback(on_answer)
        return [asking]

    @property
    def is_alone(self) -> bool:
        """Whether this node is a cluster by itself."""
        return self.cluster.peer_port is None

    async def _find_place(self) -> None:
        """On a fresh node: join the existing cluster, or form one, alone or with all configured peers."""
        others = [node_id for node_id in self.cluster.peers if node_id != self.node_id]
        if others and await self.membership.find_cluster():
            registered = await self.membership.register(self.advertised, self._register_locally)
            self.store.identify(registered["cluster_id"], registered["incarnation"])
            self.partitions.member = member_id(self.node_id, registered["incarnation"])
            self._make_metadata(())
            log.info("joined cluster %s as node %d", registered["cluster_id"], self.node_id)
            return
        self._make_metadata([member_id(node_id, 0) for node_id in sorted([self.node_id, *others])])
        if self.node_id < min(others, default=self.node_id + 1):
            self.metadata.log.partition.replica.campaign()

    async def _register_locally(self) -> dict[str, Any]:
        return await self.registrations.register(self.node_id, self.membership.registration(self.advertised))

    def _on_elected(self) -> None:
        self.controller.on_lead()
        self.membership.notice_change()

    def _on_catalog_changed(self, topics: set[TopicId]) -> None:
        """Called when committed facts have changed the catalog."""
        catalog = self.metadata.committed_catalog
        cluster_id = catalog.cluster_id
        if cluster_id is not None:
            if self.store.cluster_id is None:
                self.store.identify(cluster_id, self.store.incarnation)
            elif self.store.cluster_id != cluster_id:
                self.on_fatal(
                    DrmqError(
                        f"{self.store.location} belongs to cluster {self.store.cluster_id}, "
                        f"but its metadata log is that of cluster {cluster_id}; restore the right data directory"
                    )
                )
                return
        if catalog.level(METADATA_VERSION) > 1:
            self._require_feature_levels()
        registered = catalog.brokers.get(self.node_id)
        if registered is None and self.node_id in catalog.former_brokers and self._tasks:
            text = f"node {self.node_id} was removed from cluster {cluster_id}; its data is no longer needed"
            self.on_fatal(NodeRemoved(text))
            return
        if registered is not None and registered.directory_id != self.store.directory_id and self._tasks:
            self.on_fatal(
                DrmqError(
                    f"another process with a different data directory has registered as node {self.node_id}; "
                    "run only one process per node id"
                )
            )
            return
        broker_configs = self.metadata.committed_catalog.broker_configs
        if broker_configs != self._broker_configs:
            self._broker_configs = broker_configs
            self.host.catch_up.on_rates_changed()
        self.membership.follow_catalog()
        self.internal_topics.follow(catalog)
        deleted = {topic_id: catalog.deleted[topic_id] for topic_id in topics if topic_id in catalog.deleted}
        if deleted:
            self.groups.forget_topics({name for name in deleted.values() if name not in catalog.topics}, deleted)
            self.leases.forget_topics(deleted)
            self.host.forget_topics(deleted)
        if self._past is None:
            self.new_partitions.on_changed(topics)
            self.assignments.on_changed(topics)
        else:
            # While the catalog catches up after a restart, it has topics that are deleted later in the log. This node
            # would consider their files lost, although it has removed them itself.
            self._past |= topics

    def _copy_rate(self, replica: Replica, member: NodeId) -> int:
        """The rate in bytes per second at which this node copies a replica to a learner."""
        catalog, group, rate = self.metadata.committed_catalog, replica.group, self.options.reassignment_bytes_per_s
        topic = catalog.topics_by_id.get(group.topic_id)
        if topic is None or not catalog.broker_configs:
            return rate
        return copy_rate(catalog.broker_configs, topic, group.partition, self.node_id, node_of(member), rate)

    def _deleted_topics(self) -> set[str]:
        """Deleted topics whose committed offsets may be removed. The deletion must be committed."""
        catalog = self.metadata.committed_catalog
        return {name for name in catalog.deleted.values() if name not in catalog.topics}

    def _require_feature_levels(self) -> None:
        try:
            self.store.require_feature_levels()
        except OSError as error:
            # The disk is full, perhaps. It is tried again at the next change; until then only the log has the level.
            log.warning("%s is not marked as one of this release: %s", self.store.location, in_words(error))

    def _why_stopped(self, group: GroupId) -> str | None:
        slot = self.partitions.slots(group.topic_id).get(group.partition)
        return slot.reason if isinstance(slot, StoppedPartition) else None

    # ---- stopping -------------------------------------------------------------------------------

    async def hand_over(self) -> None:
        """Hand over the leadership of all partitions, so that clients find a leader at once.

        Returns after `_HAND_OVER_S` at the latest.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _HAND_OVER_S
        asked: set[Partition] = set()
        while loop.time() < deadline:
            led = [partition for partition in self.partitions if partition.is_leader and len(partition.in_sync) > 1]
            if not led:
                return
            for partition in led:
                if partition not in asked and self._hand_over(partition):
                    asked.add(partition)
            await asyncio.sleep(0.01)

    def _hand_over(self, partition: Partition) -> bool:
        node = partition.replica.node
        if node is None:
            return True
        peers = {member: peer for member, peer in node.progress().items() if peer.votes and peer.caught_up}
        best = max(sorted(peers), key=lambda member: peers[member].match, default=None)
        return best is None or self._transfer(partition, best)

    def _transfer(self, partition: Partition, member: NodeId) -> bool:
        try:
            partition.replica.transfer(member)
        except Refusal as refusal:
            log.debug("the leadership of %r is not handed over: %s", partition, refusal)
            return False
        return True

    async def stop(self) -> None:
        """Stop cleanly: background work, waiting answers, snapshots, logs, in this order."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.assignments.stop()
        await self.maintenance.stop()
        self.services.dead_letters.stop()
        self.services.redrives.stop()
        self.services.share_groups.stop()
        self.services.recompression.stop()
        self.services.group_lag.stop()
        self.services.disk_space.stop()
        self.internal_topics.stop()
        # A snapshot must cover the whole log. While leaders continued to send, the log's end would keep moving.
        self.host.stop()
        await self._wait_written()
        for partition in self.partitions:
            try:
                await self.maintenance.save_producers(partition, force=True)
            except (StorageError, OSError) as error:
                log.warning("no snapshot of the producers of %r: %s", partition, in_words(error))
        for machine in self._machines():
            await self.maintenance.save_machine(machine, waits=False)
        await self._close_network()
        for partition in self.partitions:
            partition.replica.stop()
        await self._close_logs()

    async def _wait_written(self) -> None:
        """Wait until everything received is on disk, for `_WRITTEN_WITHIN_S` at most: the disk may have failed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WRITTEN_WITHIN_S
        while loop.time() < deadline:
            if not any(partition.replica.is_busy for partition in self.partitions):
                return
            await asyncio.sleep(_WRITTEN_POLL_S)

    def abandon(self) -> None:
        """Stop taking part in all groups at once, without saving anything."""
        self.services.recompression.stop()
        self.services.group_lag.stop()
        self.services.disk_space.stop()
        self.host.stop()
        for partition in self.partitions:
            partition.replica.stop()
        for task in self._tasks:
            task.cancel()

    async def let_go(self) -> None:
        """After `abandon`: end the threads and release the files as they are."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.assignments.stop()
        await self._close_network()
        await asyncio.to_thread(self.writer.stop)
        self._pools.shutdown()
        self.store.close()

    async def _close_network(self) -> None:
        if isinstance(self.network, PeerNetwork):
            await self.network.close()

    async def _close_logs(self) -> None:
        for partition in self.partitions:
            try:
                await self.partitions.on_writer(partition, partition.log.close)
                await self.partitions.on_writer(partition, partition.replica.ledger.close)
            except (StorageError, OSError) as error:
                log.error("%r was not closed cleanly: %s", partition, in_words(error))
        await asyncio.to_thread(self._end_threads)

    def _end_threads(self) -> None:
        self.writer.stop()
        self._pools.shutdown()
        self.store.close()

    def _on_writer_crashed(self, error: BaseException) -> None:
        log.critical("the writer thread died; the node stops", exc_info=error)
        self.on_fatal(error)

    # ---- maintenance ----------------------------------------------------------------------------

    async def _repeat(self, interval_s: float, function: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                result = function()
                if asyncio.iscoroutine(result):
                    await result
            except Exception:
                log.exception("a round of maintenance failed; the next one starts in %.0f s", interval_s)

    def _machines(self) -> list[MachineLog]:
        return [coordinator.log for coordinator in self.internal_topics.running()]

    async def maintain(self) -> None:
        """One round of retention and snapshots over all partitions."""
        await self.maintenance.round(self._machines())

    async def _save_machines(self) -> None:
        """Save the state of machines whose logs have grown, so that their logs stay in proportion to their state."""
        await self.maintenance.save_machines(self._machines())

    def _expire_offsets(self) -> None:
        self.groups.expire_offsets(self.maintenance.expiry.now_ms())

    # ---- requests between nodes -----------------------------------------------------------------

    def elect(self, group: GroupId, node_id: NodeId) -> None:
        """Ask a partition's leader to hand over to `node_id`, if that is possible now."""
        notice = self.host.leaders.get(group)
        if notice is None or notice.leader == node_id:
            return
        payload = group_to_bytes(group) + node_id.to_bytes(4, "big")
        if notice.leader == self.node_id:
            self._elect(payload)
            return

        async def ask() -> None:
            try:
                await self.network.request(notice.leader, Request.ELECT, (payload,), 5.0)
            except PeerError as error:
                log.info("node %d could not be asked to hand over leadership: %s", notice.leader, error)

        task = asyncio.ensure_future(ask())
        self._tasks.append(task)
        task.add_done_callback(lambda done: self._tasks.remove(done) if done in self._tasks else None)

    def _elect(self, payload: bytes) -> None:
        group, node_id = group_from(memoryview(payload)), NodeId(int.from_bytes(payload[20:24], "big"))
        partition = self.host.get(group)
        node = partition.replica.node if partition is not None else None
        if partition is None or node is None or not partition.is_leader:
            return
        for member in node.configuration.voters:
            if node_of(member) == node_id:
                self._transfer(partition, member)

    async def _serve_elect(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        self._elect(bytes(payload))
        return ()

    # ---- used by services -----------------------------------------------------------------------

    async def blocking(self, function: Callable[[], T]) -> T:
        """Run a function for a client that may wait for the disk."""
        self.blocking_calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pools.clients, function)
        finally:
            self.blocking_calls -= 1

    @property
    def codecs(self) -> Executor:
        """The threads that recompress batches."""
        return self._pools.codecs

    def new_topic_id(self) -> TopicId:
        return TopicId(self._random.randbytes(16))

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self._random.randbytes(16)).rstrip(b"=").decode()


__all__ = ["Broker"]
