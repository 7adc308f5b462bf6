"""Carries out what the catalog decides about the partitions of this node.

There are two tasks:

- *Files.* A partition that the catalog places on this node has its log and ledger here. One that was moved away or
  deleted has not. Files are removed only because of a fact in the catalog, never because the catalog does not mention
  them.
- *Members.* If this node leads a partition, and the members of its group are not those that the catalog wants, it
  changes them. A new member first receives the log as a learner. It becomes a voter only when it has caught up.

A node that returns with an empty disk is a different member than before, so the same rule repairs its partitions: the
old member is removed and the new one is added. The same applies to a single copy that is damaged or missing: the node
reports it to the controller, which gives the next copy a different member id, if the other in-sync replicas are a
majority of all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from struct import Struct

from drmq.broker.cluster.metadata import Metadata
from drmq.broker.partitions.derived_state import StateUnreadable
from drmq.broker.partitions.log_store import Snapshots
from drmq.broker.partitions.partition import Partition
from drmq.broker.partitions.partition_table import PartitionTable, Slot, StoppedPartition
from drmq.catalog import Assignment, Topic, TopicConfig
from drmq.model import DrmqError, GroupId, MemberId, NodeId, Offset, TopicId, UnknownFormat, incarnation_of
from drmq.model.names import METADATA_GROUP
from drmq.raft import NotCaughtUp, Refusal
from drmq.storage import LedgerCorrupt, LedgerMissing, LogCorrupt, StorageError

log = logging.getLogger("drmq.broker")

_RETRY_S = 2.0
_REMOVAL_RETRY_S = 60.0
_MADE = "made"
_NOTE = Struct(">16sIQ")
LOST = (LogCorrupt, LedgerCorrupt, LedgerMissing, StateUnreadable)
"""Errors which mean that a copy is unusable. Other errors may be temporary: a full disk, a file without permission."""


class Assignments:
    """Makes the partitions of this node match the catalog. Used on the event loop."""

    def __init__(
        self,
        node_id: NodeId,
        metadata: Metadata,
        table: PartitionTable,
        has_files: Callable[[Topic, int], bool],
        config_of: Callable[[Topic], TopicConfig],
        notes: Snapshots,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._table = table
        self._has_files = has_files
        self._config_of = config_of
        self._waiting: dict[TopicId, None] = {}
        self._worker: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()
        self._unsettled: set[GroupId] = set()
        self._made: dict[GroupId, MemberId] = {}
        """Partitions whose files were created on this node, and the member that each was created for."""
        self._notes = notes
        self._removed_later: set[TopicId] = set()
        self._lost: set[GroupId] = set()
        """Partitions whose copy on this node is damaged or missing."""
        self.too_new: UnknownFormat | None = None
        """Why a partition that a later release wrote could not be opened. The node must not start then."""
        self.on_lost: Callable[[GroupId, int], Awaitable[bool]]
        """Reports to the controller that a copy is unusable; returns whether a new copy may replace it."""
        self.hand_over: Callable[[Partition], bool]
        """Transfers the leadership of a partition to another replica."""
        self.on_reassigned: Callable[[GroupId, int], Awaitable[None]]
        """Reports to the controller that a partition has the members that it should have after a move."""

    # ---- files ----------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the list of partitions that were created on this node. Blocks; called before anything is opened."""
        noted = self._notes.load_latest(_MADE)
        data = b"" if noted is None else noted.payload
        for topic_id, index, member in _NOTE.iter_unpack(data[: len(data) - len(data) % _NOTE.size]):
            self._made[GroupId(TopicId(topic_id), index)] = MemberId(NodeId(member))

    def _note_made(self) -> None:
        """Store the list of created partitions durably.

        This happens before a partition takes part in its group. If its files are lost later, the list shows that they
        existed, and the partition must not take part with empty files: it would have forgotten its votes.
        """
        payload = b"".join(_NOTE.pack(*group, member) for group, member in sorted(self._made.items()))
        self._notes.save(_MADE, Offset(0), payload)

    def on_changed(self, topics: Iterable[TopicId]) -> None:
        """Called when committed facts have changed these topics."""
        self._waiting.update(dict.fromkeys(sorted(topics)))
        for partition in self._table:
            if partition.is_leader:
                self._unsettled.add(partition.group)
                self._note_former(partition)
        if self._waiting and self._worker is None:
            self._settled.clear()
            self._worker = asyncio.ensure_future(self._work())

    async def settled(self) -> None:
        """Wait until all changes so far have been carried out."""
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
                log.exception("the partitions of topic %s could not be changed as the catalog requires", topic_id.hex())
        self._worker = None
        self._settled.set()

    async def _settle(self, topic_id: TopicId) -> None:
        before = self._made.keys() | ()
        await self._bring_and_remove(topic_id)
        if not before <= self._made.keys():
            # A partition that is moved back to this node later is then created again, and not reported as lost.
            await self._table.in_pool(self._note_made)

    async def _bring_and_remove(self, topic_id: TopicId) -> None:
        # Read the catalog now, because facts may have been added in the meantime; but only committed ones count.
        catalog = self._metadata.committed_catalog
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
                slot = slots.get(index)
                if slot is not None and _member(slot) != self._table.member_in(topic, index):
                    # The partition was moved away and back before this node noticed. The replica is now a different
                    # member, which has no files yet.
                    await self._remove(GroupId(topic_id, index))
                    is_here = False
                if not is_here:
                    brought.append(self._bring(topic, index, assignment, config))
            elif isinstance(slots.get(index), Partition):
                await self._remove(GroupId(topic_id, index))
            elif is_here or self._was_left(topic, index):
                await self._remove_closed(topic, index)
            elif not self._has_files(topic, index):
                self._made.pop(GroupId(topic_id, index), None)
        if brought:
            await self._publish(topic, [each for each in await asyncio.gather(*brought) if each is not None])

    async def _bring(
        self, topic: Topic, index: int, assignment: Assignment, config: TopicConfig
    ) -> tuple[Partition, bool] | None:
        """Open a replica, or create it if it is new. Returns it, and whether it should become the first leader."""
        group = GroupId(topic.topic_id, index)
        member = self._table.member_in(topic, index)
        begins = member in assignment.initial_members
        has_files = self._has_files(topic, index)
        # Files of an earlier member do not count as missing: the node gave them up with the partition, and its replica
        # is a different member now.
        was_made = group in self._made and (has_files or self._made[group] == member)
        is_replaced = self._made.get(group, member) != member
        if was_made and not has_files:
            self._table.publish_stopped(
                topic,
                index,
                f"the files of {topic.name}-{index} were on this node and are gone. A replica that has forgotten its "
                "votes must not vote; it is rebuilt once the other in-sync replicas are a majority of all",
            )
            self._lost.add(group)
            return None

        def bring() -> Partition:
            # A replica that is not in the list of created partitions was never used: a crash interrupted its creation.
            # If the list itself was lost, `was_used` finds out from the files.
            is_over = has_files
            if was_made or (has_files and self._table.was_used(topic, index)):
                try:
                    return self._table.open(topic, index, config)
                except LOST:
                    if not is_replaced:
                        raise
                    self._table.set_aside(topic.name, topic.topic_id, index)
                    is_over = False
            return self._table.make(topic, index, config, assignment.initial_members if begins else (), over=is_over)

        try:
            partition = await self._table.in_pool(bring)
        except (StorageError, OSError, DrmqError) as error:
            self._table.publish_stopped(topic, index, str(error))
            if isinstance(error, UnknownFormat):
                self.too_new = self.too_new or error
            elif isinstance(error, LOST):
                self._lost.add(group)
            elif not was_made:
                # The disk may be full. This is tried again; the other replicas of the group may work.
                asyncio.get_running_loop().call_later(_RETRY_S, self._retry, topic.topic_id, index)
            return None
        return partition, not was_made and begins and assignment.replicas[0] == self._node_id

    async def _publish(self, topic: Topic, brought: Sequence[tuple[Partition, bool]]) -> None:
        """Let opened or created replicas take part in their groups."""
        members = {partition.group: partition.replica.member for partition, _ in brought}
        self._lost -= members.keys()
        if not members.items() <= self._made.items():
            noted_before, self._made = self._made, self._made | members
            try:
                await self._table.in_pool(self._note_made)
            except (StorageError, OSError) as error:
                self._made = noted_before
                await self._put_away(topic, [partition for partition, _ in brought], error)
                return
        for partition, is_to_lead in brought:
            self._table.publish(partition)
            if is_to_lead:
                # The first replica becomes leader at once. The others need not wait for an election timeout.
                partition.replica.campaign()
        if topic.topic_id not in self._metadata.committed_catalog.topics_by_id:
            # The topic was deleted in the meantime, when this node had nothing to remove yet.
            self._waiting[topic.topic_id] = None

    async def _put_away(self, topic: Topic, brought: Sequence[Partition], why: Exception) -> None:
        """Close created replicas again, because the list of created partitions could not be stored; try again later.

        Without the list they must not take part in their groups. The disk may be full.
        """
        for partition in brought:
            try:
                await self._table.put_away(partition)
            except (StorageError, OSError) as error:
                log.warning("%r was not closed cleanly: %s", partition, error)
            reason = f"the creation of {topic.name}-{partition.index} could not be recorded: {why}; it is tried again"
            self._table.publish_stopped(topic, partition.index, reason)
            asyncio.get_running_loop().call_later(_RETRY_S, self._retry, topic.topic_id, partition.index)

    def _retry(self, topic_id: TopicId, index: int) -> None:
        if isinstance(self._table.slots(topic_id).get(index), StoppedPartition):
            self._table.withdraw(GroupId(topic_id, index))
            self.on_changed((topic_id,))

    async def _remove(self, group: GroupId) -> None:
        partition = self._table.withdraw(group)
        if partition is None:
            return
        try:
            await (self._table.retire if group in self._lost else self._table.remove)(partition)
            self._made.pop(group, None)
        except (StorageError, OSError) as error:
            self._remove_later(group.topic_id, f"{partition.topic}-{partition.index}", error)

    def _was_left(self, topic: Topic, index: int) -> bool:
        """Whether this node has files that it should have removed before, but a disk error prevented it.

        This is so only if the catalog has a later move than the one by which the files came here. If the catalog is
        older than the files, because an old metadata log was restored, they may be the only copy.
        """
        made = self._made.get(GroupId(topic.topic_id, index))
        latest = incarnation_of(self._table.member) + topic.partitions[index].moves
        return made is not None and incarnation_of(made) < latest and self._has_files(topic, index)

    async def _remove_closed(self, topic: Topic, index: int) -> None:
        """Remove a replica that is not open. If damaged files were kept, they could not be opened later either."""
        group = GroupId(topic.topic_id, index)
        self._table.withdraw(group)
        try:
            await self._table.remove_files(topic, index)
            self._made.pop(group, None)
        except (StorageError, OSError) as error:
            self._remove_later(topic.topic_id, f"{topic.name}-{index}", error)

    async def _remove_topic(self, topic_id: TopicId, name: str) -> None:
        for index in list(self._table.slots(topic_id)):
            await self._remove(GroupId(topic_id, index))
        try:
            await self._table.remove_topic(topic_id, name)
        except (StorageError, OSError) as error:
            self._remove_later(topic_id, f"topic {name}", error)
            return
        # The files of partitions that could not be opened were removed with the others.
        for group in [group for group in self._made if group.topic_id == topic_id]:
            del self._made[group]

    def _remove_later(self, topic_id: TopicId, what: str, error: Exception) -> None:
        """Try the removal again later, so that no restart is needed once the disk works."""
        log.warning(
            "the files of %s, which was deleted or moved away, could not be removed: %s; trying again in a minute",
            what,
            error,
            extra={"repeat_key": f"removal of {what}"},
        )
        if topic_id not in self._removed_later:
            self._removed_later.add(topic_id)
            asyncio.get_running_loop().call_later(_REMOVAL_RETRY_S, self._remove_again, topic_id)

    def _remove_again(self, topic_id: TopicId) -> None:
        self._removed_later.discard(topic_id)
        self.on_changed((topic_id,))

    # ---- damage ---------------------------------------------------------------------------------

    @property
    def lost(self) -> Collection[GroupId]:
        """Partitions whose copy on this node is unusable."""
        return self._lost

    def on_damaged(self, partition: Partition) -> None:
        """Note that a partition's data is damaged."""
        self._lost.add(partition.group)

    async def replace_lost(self) -> None:
        """One round: for each unusable copy on this node, ask the controller for permission to replace it."""
        for group in sorted(self._lost):
            topic = self._metadata.committed_catalog.topics_by_id.get(group.topic_id)
            slot = self._table.slots(group.topic_id).get(group.partition)
            if topic is None or slot is None:
                self._lost.discard(group)
                continue
            assignment = topic.partitions[group.partition]
            if _member(slot) != self._table.member_in(topic, group.partition) or len(assignment.replicas) < 3:
                # The copy is already being replaced; or the other replicas would not be a majority without it.
                continue
            if isinstance(slot, Partition) and slot.is_leader:
                self.hand_over(slot)
            elif await self.on_lost(group, assignment.arrival(self._node_id)):
                log.warning("%s-%d is rebuilt on this node from the other replicas", topic.name, group.partition)

    # ---- members --------------------------------------------------------------------------------

    def on_role(self, partition: Partition) -> None:
        if partition.is_serving:
            self._unsettled.add(partition.group)
            self._note_former(partition)

    def _note_former(self, partition: Partition) -> None:
        """On a leader: note the members that the catalog has replaced. They no longer count as in sync."""
        assignment = self._metadata.committed_catalog.assignment(partition.group)
        node = partition.replica.node
        if assignment is not None and node is not None:
            current = self._metadata.committed_catalog.members(assignment, assignment.hosts)
            former = node.configuration.voters - frozenset[NodeId](current)
            if former != partition.former_members:
                partition.former_members = former
                self._table.look_at(partition)

    async def change_members(self) -> None:
        """One round: take the next step in each group that this node leads and that has the wrong members."""
        catalog = self._metadata.committed_catalog
        active = catalog.active_reassignment()
        through = []
        for group in sorted(self._unsettled):
            self._unsettled.discard(group)
            topic = catalog.topics_by_id.get(group.topic_id)
            slot = self._table.slots(group.topic_id).get(group.partition)
            if topic is None or not isinstance(slot, Partition) or not slot.is_serving:
                continue
            assignment = topic.partitions[group.partition]
            if assignment.target is not None:
                self._unsettled.add(group)
                if _has_members(slot, catalog.members(assignment, assignment.target)):
                    through.append((group, assignment.moves))
                    continue
            # A move that must wait for a node returns to its previous members for now, since a replica that is down is
            # of no use.
            wanted = assignment.planned if group == active else assignment.replicas
            if not self._step(slot, catalog.members(assignment, wanted)):
                self._unsettled.add(group)
        for group, moves in through:
            await self.on_reassigned(group, moves)

    def _step(self, partition: Partition, wanted: tuple[MemberId, ...]) -> bool:
        """Whether the group has the wanted members. If not, one step towards them is attempted."""
        node = partition.replica.node
        if node is None:
            return False
        if _has_members(partition, wanted):
            return True
        configuration = node.configuration
        voters = frozenset[NodeId](wanted)
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


def _member(slot: Slot) -> MemberId:
    return slot.member if isinstance(slot, StoppedPartition) else slot.replica.member


def _has_members(partition: Partition, wanted: tuple[MemberId, ...]) -> bool:
    """Whether the committed members of a group that this node leads are exactly these."""
    node = partition.replica.node
    if node is None or node.change_in_progress:
        return False
    return node.configuration.voters == frozenset[NodeId](wanted) and not node.configuration.learners


def is_metadata(partition: Partition) -> bool:
    return partition.group == METADATA_GROUP
