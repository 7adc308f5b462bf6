"""What the catalog says about partitions, carried out on this node.

Two jobs. *Files*: a partition that the catalog puts on this node has its log and ledger here, one that it has
moved away or deleted has not; nothing is ever removed because nobody knows it. *Members*: where this node leads
a partition and the members of its group are not those that the catalog wants, it changes them. A newcomer gets
the log as a learner first, and only when it keeps up does it count.

A node that has come back with an empty disk is another member than before, so its partitions are mended by the
same rule: the old member goes, the new one is added.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from drmq.broker.coordinator import GroupCoordinator
from drmq.broker.logs import Snapshots
from drmq.broker.metadata import METADATA_GROUP, Metadata
from drmq.broker.partition import Partition
from drmq.broker.partitions import PartitionTable, StoppedPartition
from drmq.catalog import Assignment, Topic, TopicConfig
from drmq.model import DrmqError, GroupId, MemberId, NodeId, Offset, TopicId
from drmq.model.names import CONSUMER_OFFSETS
from drmq.raft import NotCaughtUp, Refusal
from drmq.storage import StorageError

log = logging.getLogger("drmq.broker")

_RETRY_S = 2.0
_MADE = "made"


def _index(data: bytes) -> int:
    return int.from_bytes(data, "big")


class Assignments:
    """Makes this node's partitions what the catalog says. Lives on the event loop."""

    def __init__(
        self,
        node_id: NodeId,
        metadata: Metadata,
        table: PartitionTable,
        groups: GroupCoordinator,
        has_files: Callable[[Topic, int], bool],
        config_of: Callable[[Topic], TopicConfig],
        notes: Snapshots,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._table = table
        self._groups = groups
        self._has_files = has_files
        self._config_of = config_of
        self._waiting: dict[TopicId, None] = {}
        self._worker: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()
        self._unsettled: set[GroupId] = set()
        self._made: set[GroupId] = set()
        """Partitions whose files have been made on this node."""
        self._notes = notes
        self.on_reassigned: Callable[[GroupId], Awaitable[None]]
        """Tells the controller that a partition has the members that it was to have."""

    # ---- files ----------------------------------------------------------------------------------

    def load(self) -> None:
        """Remember what this node has made before. Blocks; used before anything is opened."""
        noted = self._notes.load_latest(_MADE)
        data = b"" if noted is None else noted.payload
        self._made = {
            GroupId(TopicId(data[at : at + 16]), _index(data[at + 16 : at + 20])) for at in range(0, len(data), 20)
        }

    def _note_made(self) -> None:
        """Durably, before a partition takes part in its group: its files may get lost, and then it must not."""
        payload = b"".join(group.topic_id + group.partition.to_bytes(4, "big") for group in sorted(self._made))
        self._notes.save(_MADE, Offset(0), payload)

    def on_changed(self, topics: Iterable[TopicId]) -> None:
        """The catalog has changed about these topics."""
        self._waiting.update(dict.fromkeys(sorted(topics)))
        self._groups.shard_count = self._shard_count()
        self._unsettled.update(partition.group for partition in self._table if partition.is_leader)
        if self._waiting and self._worker is None:
            self._settled.clear()
            self._worker = asyncio.ensure_future(self._work())

    def _shard_count(self) -> int:
        offsets = self._metadata.catalog.topics.get(CONSUMER_OFFSETS)
        return 0 if offsets is None else offsets.partition_count

    async def settled(self) -> None:
        """Wait until all that was asked for so far is done."""
        await self._settled.wait()

    async def stop(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            topic_id = next(iter(self._waiting))
            del self._waiting[topic_id]
            try:
                await self._settle(topic_id)
            except Exception:
                log.exception("the partitions of topic %s are not what they should be", topic_id.hex())
        self._worker = None
        self._settled.set()

    async def _settle(self, topic_id: TopicId) -> None:
        before = len(self._made)
        await self._bring_and_remove(topic_id)
        if len(self._made) < before:
            # So that a partition which comes back is made anew, and not missed.
            await self._table.in_pool(self._note_made)

    async def _bring_and_remove(self, topic_id: TopicId) -> None:
        catalog = self._metadata.catalog
        topic = catalog.topics_by_id.get(topic_id)
        if topic is None:
            if topic_id in catalog.deleted:
                await self._remove_topic(topic_id, catalog.deleted[topic_id])
            return
        config = self._config_of(topic)
        self._table.set_config(topic, config)
        slots = self._table.slots(topic_id)
        brought = []
        for index, assignment in enumerate(topic.partitions):
            is_here = index in slots
            if self._node_id in assignment.hosts:
                if not is_here:
                    brought.append(self._bring(topic, index, assignment, config))
            elif isinstance(slots.get(index), StoppedPartition):
                await self._remove_stopped(topic, index)
            elif is_here:
                await self._remove(GroupId(topic_id, index))
            elif not self._has_files(topic, index):
                self._made.discard(GroupId(topic_id, index))
        if brought:
            await self._publish(topic, [each for each in await asyncio.gather(*brought) if each is not None])

    async def _bring(
        self, topic: Topic, index: int, assignment: Assignment, config: TopicConfig
    ) -> tuple[Partition, bool] | None:
        """Open a replica, or make it if it is new; the replica, and whether it is to lead from the start."""
        group = GroupId(topic.topic_id, index)
        begins = self._table.member in assignment.initial_members
        was_made = group in self._made
        has_files = self._has_files(topic, index)
        if was_made and not has_files:
            self._table.publish_stopped(
                topic,
                index,
                f"the files of {topic.name}-{index} were on this node and are gone. A replica that has forgotten its "
                "votes must not vote: restore them, or move the partition to other nodes and back",
            )
            return None

        def bring() -> Partition:
            # One that was never noted has never been used: a crash came before it was whole. Should the note be
            # what is lost, the files speak for themselves.
            if was_made or (has_files and self._table.was_used(topic, index)):
                return self._table.open(topic, index, config)
            return self._table.make(topic, index, config, assignment.initial_members if begins else (), over=has_files)

        try:
            partition = await self._table.in_pool(bring)
        except (StorageError, OSError, DrmqError) as error:
            self._table.publish_stopped(topic, index, str(error))
            if not was_made:
                # No room for it, perhaps. It is tried again; others of its group may be fine.
                asyncio.get_running_loop().call_later(_RETRY_S, self._retry, topic.topic_id, index)
            return None
        return partition, not was_made and begins and assignment.replicas[0] == self._node_id

    async def _publish(self, topic: Topic, brought: Sequence[tuple[Partition, bool]]) -> None:
        """Have new replicas take part in their groups."""
        groups = {partition.group for partition, _ in brought}
        if not groups <= self._made:
            self._made |= groups
            await self._table.in_pool(self._note_made)
        for partition, is_to_lead in brought:
            if topic.name == CONSUMER_OFFSETS:
                self._groups.add_shard(partition)
            self._table.publish(partition)
            if is_to_lead:
                # The first of the replicas is to lead. Nobody has to wait for a leader that never was.
                partition.replica.campaign()
        if topic.topic_id not in self._metadata.catalog.topics_by_id:
            # Deleted meanwhile. Whoever noticed that found nothing here to remove.
            self._waiting[topic.topic_id] = None

    def _retry(self, topic_id: TopicId, index: int) -> None:
        if isinstance(self._table.slots(topic_id).get(index), StoppedPartition):
            self._table.withdraw(GroupId(topic_id, index))
            self.on_changed((topic_id,))

    async def _remove(self, group: GroupId) -> None:
        partition = self._table.withdraw(group)
        if partition is None:
            return
        if partition.topic == CONSUMER_OFFSETS:
            self._groups.remove_shard(partition.index)
        try:
            await self._table.remove(partition)
            self._made.discard(group)
        except (StorageError, OSError) as error:
            log.warning("the files of %r, which has moved away or is deleted, are still there: %s", partition, error)

    async def _remove_stopped(self, topic: Topic, index: int) -> None:
        """Give up a replica that could not be opened. Were its files kept, it could not be opened either later."""
        group = GroupId(topic.topic_id, index)
        self._table.withdraw(group)
        try:
            await self._table.remove_files(topic, index)
            self._made.discard(group)
        except (StorageError, OSError) as error:
            log.warning("the files of %s-%d, which has moved away, are still there: %s", topic.name, index, error)

    async def _remove_topic(self, topic_id: TopicId, name: str) -> None:
        for index in list(self._table.slots(topic_id)):
            await self._remove(GroupId(topic_id, index))
        try:
            await self._table.remove_topic(topic_id, name)
        except (StorageError, OSError) as error:
            log.warning(
                "the files of deleted topic %s are still there (tried again at the next start): %s", name, error
            )

    # ---- members --------------------------------------------------------------------------------

    def on_role(self, partition: Partition) -> None:
        if partition.is_serving:
            self._unsettled.add(partition.group)

    async def change_members(self) -> None:
        """One round: take the next step wherever this node leads and the members are not the right ones."""
        catalog = self._metadata.catalog
        active = next(iter(catalog.reassignments), None)
        for group in sorted(self._unsettled):
            self._unsettled.discard(group)
            topic = catalog.topics_by_id.get(group.topic_id)
            slot = self._table.slots(group.topic_id).get(group.partition)
            if topic is None or not isinstance(slot, Partition) or not slot.is_serving:
                continue
            assignment = topic.partitions[group.partition]
            wanted = assignment.planned if group == active else assignment.replicas
            if not self._step(slot, catalog.members(wanted)):
                self._unsettled.add(group)
            elif group == active and assignment.target is not None:
                self._unsettled.add(group)
                await self.on_reassigned(group)
            elif assignment.target is not None:
                self._unsettled.add(group)

    def _step(self, partition: Partition, wanted: tuple[MemberId, ...]) -> bool:
        """Whether the group has the members that it should have; if not, a step towards them has been tried."""
        node = partition.replica.node
        if node is None:
            return False
        configuration = node.configuration
        voters = frozenset[NodeId](wanted)
        if configuration.voters == voters and not configuration.learners and not node.change_in_progress:
            return True
        missing = voters - configuration.members
        try:
            if missing:
                partition.replica.change_members(configuration.voters, configuration.learners | missing)
            else:
                partition.replica.change_members(voters, ())
        except NotCaughtUp:
            return False
        except Refusal as refusal:
            log.debug("%r: members are not changed yet: %s", partition, refusal)
        return False


def is_metadata(partition: Partition) -> bool:
    return partition.group == METADATA_GROUP
