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

The cost of a fact is in proportion to what it changes. A topic is compared with what it was before, and only partitions
whose assignment differs are looked at; a node that has a new disk concerns only the partitions that it hosts. Replicas
are opened and created some at a time, so that the first take part in their groups while the others are being created.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import NamedTuple

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
from drmq.telemetry.system_errors import in_words

log = logging.getLogger("drmq.broker")

_RETRY_S, _RETRY_MAX_S = 2.0, 30.0
"""The pauses before partitions that could not be opened are tried again: the longer, the more often it was in vain."""
_REMOVAL_RETRY_S = 60.0
_AT_ONCE = 128
"""Replicas that are opened or created together. The list of created partitions is stored once for all of them."""
_PUBLISHED_AT_ONCE = 16
"""Replicas that begin to take part in their groups in one turn of the event loop."""
_MADE = "made"
_NOTE = Struct(">16sIQ")
LOST = (LogCorrupt, LedgerCorrupt, LedgerMissing, StateUnreadable)
"""Errors which mean that a copy is unusable. Other errors may be temporary: a full disk, a file without permission."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A replica that this node should have and does not have open."""

    topic: Topic
    index: int
    config: TopicConfig

    @property
    def group(self) -> GroupId:
        return GroupId(self.topic.topic_id, self.index)


class _Brought(NamedTuple):
    """A replica that was opened or created and does not take part in its group yet."""

    topic: Topic
    partition: Partition
    is_new: bool
    """Whether its group has never had a leader, as far as this node knows."""


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
        self._seen: dict[TopicId, Topic] = {}
        """Each topic as it was at its last change."""
        self._incarnations: dict[NodeId, int] = {}
        """The incarnation of each node at the last change of the catalog."""
        self._waiting: dict[TopicId, set[int]] = {}
        """The topics and partitions that have changed and that the worker has not looked at yet."""
        self._reconfigured: set[TopicId] = set()
        """Topics whose settings have changed likewise."""
        self._worker: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()
        self._unsettled: set[GroupId] = set()
        """Groups whose members may have to be changed."""
        self._queued: set[GroupId] = set()
        """Groups whose move waits for those before it, and that have the right members until then."""
        self._made: dict[GroupId, MemberId] = {}
        """Partitions whose files were created on this node, and the member that each was created for."""
        self._is_forgetful = False
        """Whether partitions were removed from `_made` since it was stored."""
        self._notes = notes
        self._retries: dict[GroupId, None] = {}
        """Partitions that could not be opened, and may be later."""
        self._retry_s = _RETRY_S
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
        # A copy, because the loop may change it meanwhile. Not sorted: with 20,000 partitions that takes 16 ms of 19.
        made = list(self._made.items())
        payload = b"".join(_NOTE.pack(*group, member) for group, member in made)
        self._notes.save(_MADE, Offset(0), payload)

    def on_changed(self, topics: Iterable[TopicId]) -> None:
        """Called when committed facts have changed these topics, or the brokers."""
        for topic_id in sorted(topics):
            self._compare(topic_id)
        self._compare_brokers()
        self._start_work()

    def _compare(self, topic_id: TopicId) -> None:
        """Note what has changed in a topic."""
        topic = self._metadata.committed_catalog.topics_by_id.get(topic_id)
        before = self._seen.pop(topic_id, None)
        if topic is None:
            self._waiting.setdefault(topic_id, set()).update(range(0 if before is None else before.partition_count))
            return
        self._seen[topic_id] = topic
        changed = list(_changed(() if before is None else before.partitions, topic.partitions))
        if before is None or before.configs != topic.configs:
            self._reconfigured.add(topic_id)
        elif not changed:
            return
        self._waiting.setdefault(topic_id, set()).update(changed)
        for index in changed:
            self._on_members_wanted(GroupId(topic_id, index))

    def _compare_brokers(self) -> None:
        """A node with a new disk is another member of its groups than before."""
        catalog = self._metadata.committed_catalog
        for node_id, broker in catalog.brokers.items():
            if self._incarnations.get(node_id) != broker.incarnation:
                self._incarnations[node_id] = broker.incarnation
                for group in catalog.partitions_on(node_id):
                    self._on_members_wanted(group)

    def _on_members_wanted(self, group: GroupId) -> None:
        """The catalog may want other members of a group than before."""
        slot = self._table.slots(group.topic_id).get(group.partition)
        if isinstance(slot, Partition) and slot.is_leader:
            self._unsettled.add(group)
            self._note_former(slot)

    def _start_work(self) -> None:
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
            wanted: list[_Wanted] = []
            while self._waiting and len(wanted) < _AT_ONCE:
                topic_id = next(iter(self._waiting))
                try:
                    wanted += await self._settle(topic_id, self._waiting.pop(topic_id))
                except Exception as error:  # noqa: BLE001 - a bug costs its own topic, and no other
                    self._on_bug(error, topic_id)
            await self._note_forgotten()
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                try:
                    found = await asyncio.gather(*map(self._bring, some))
                    await self._publish([each for each in found if each is not None])
                except Exception as error:  # noqa: BLE001 - a bug costs these partitions, and no others
                    for topic_id in dict.fromkeys(each.topic.topic_id for each in some):
                        self._on_bug(error, topic_id)
        self._worker = None
        self._settled.set()

    def _on_bug(self, error: Exception, topic_id: TopicId) -> None:
        text = "the partitions of topic %s could not be changed as the catalog requires"
        log.error(text, topic_id.hex(), exc_info=error)
        # At its next change, all of it is looked at.
        self._seen.pop(topic_id, None)

    async def _settle(self, topic_id: TopicId, changed: Collection[int]) -> list[_Wanted]:
        """Remove what should not be here of the changed partitions of a topic; returns what should be and is not."""
        # Read the catalog now, because facts may have been added in the meantime; but only committed ones count.
        catalog = self._metadata.committed_catalog
        topic = catalog.topics_by_id.get(topic_id)
        wanted: list[_Wanted] = []
        if topic is not None:
            config = self._config_of(topic)
            if topic_id in self._reconfigured:
                self._reconfigured.discard(topic_id)
                self._table.set_config(topic, config)
            for index in sorted(changed):
                if index < topic.partition_count and await self._settle_one(topic, index):
                    wanted.append(_Wanted(topic, index, config))
        elif topic_id in catalog.deleted:
            await self._remove_topic(topic_id, catalog.deleted[topic_id], changed)
        return wanted

    async def _settle_one(self, topic: Topic, index: int) -> bool:
        """Remove a replica that should not be here, or not as this member; whether one must be opened or created."""
        group = GroupId(topic.topic_id, index)
        slot = self._table.slots(topic.topic_id).get(index)
        if self._node_id in topic.partitions[index].hosts:
            if slot is not None and _member(slot) != self._table.member_in(topic, index):
                # The partition was moved away and back before this node noticed. The replica is now a different
                # member, which has no files yet.
                await self._remove(group)
                return True
            return slot is None
        if isinstance(slot, Partition):
            await self._remove(group)
        elif slot is not None or self._was_left(topic, index):
            await self._remove_closed(topic, index)
        elif group in self._made and not self._has_files(topic, index):
            self._forget_made(group)
        return False

    def _forget_made(self, group: GroupId) -> None:
        if self._made.pop(group, None) is not None:
            self._is_forgetful = True

    async def _note_forgotten(self) -> None:
        """Store the list of created partitions, if some were removed from it.

        A partition that is moved back to this node later is then created again, and not reported as lost.
        """
        if self._is_forgetful:
            try:
                await self._table.in_pool(self._note_made)
                self._is_forgetful = False
            except (StorageError, OSError) as error:
                log.warning("the removal of partitions could not be recorded: %s", in_words(error))

    async def _bring(self, wanted: _Wanted) -> _Brought | None:
        """Open a replica, or create it if it is new."""
        topic, index, config = wanted.topic, wanted.index, wanted.config
        group, assignment = wanted.group, topic.partitions[index]
        member = self._table.member_in(topic, index)
        begins = member in assignment.initial_members
        made = self._made.get(group)
        is_replaced = made is not None and made != member
        was_made = False

        def bring() -> Partition | None:
            nonlocal was_made
            has_files = self._has_files(topic, index)
            # Files of an earlier member do not count as missing: the node gave them up with the partition, and its
            # replica is a different member now.
            was_made = made is not None and (has_files or not is_replaced)
            if was_made and not has_files:
                return None
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
            members = assignment.initial_members if begins else ()
            return self._table.make(topic, index, config, members, over=is_over)

        try:
            partition = await self._table.in_pool(bring)
        except (StorageError, OSError, DrmqError) as error:
            is_permanent = isinstance(error, (UnknownFormat, *LOST))
            self._table.publish_stopped(topic, index, in_words(error), may_repeat=not is_permanent)
            if isinstance(error, UnknownFormat):
                self.too_new = self.too_new or error
            elif is_permanent:
                self._lost.add(group)
            else:
                # The disk may be full. This is tried again; the other replicas of the group may work.
                self._retry_later(group)
            return None
        if partition is None:
            self._table.publish_stopped(
                topic,
                index,
                f"the files of {topic.name}-{index} were on this node and are gone. A replica that has forgotten its "
                "votes must not vote; it is rebuilt once the other in-sync replicas are a majority of all",
            )
            self._lost.add(group)
            return None
        return _Brought(topic, partition, is_new=not was_made and begins)

    async def _publish(self, brought: Sequence[_Brought]) -> None:
        """Let opened or created replicas take part in their groups."""
        members = {partition.group: partition.replica.member for _, partition, _ in brought}
        self._lost -= members.keys()
        before = {group: self._made.get(group) for group in members}
        if members != before:
            self._made.update(members)
            try:
                await self._table.in_pool(self._note_made)
            except (StorageError, OSError) as error:
                for group, member in before.items():
                    if member is None:
                        del self._made[group]
                    else:
                        self._made[group] = member
                await self._put_away(brought, error)
                return
        for number, (topic, partition, is_new) in enumerate(brought, 1):
            preferred = topic.partitions[partition.index].replicas[0]
            self._table.publish(partition)
            if not is_new:
                self._table.rejoin(partition, preferred)
            elif preferred == self._node_id:
                # The first replica becomes leader at once. The others need not wait for an election timeout.
                partition.replica.campaign()
            if number % _PUBLISHED_AT_ONCE == 0:
                await asyncio.sleep(0)
        if brought:
            self._retry_s = _RETRY_S
        known = self._metadata.committed_catalog.topics_by_id
        for topic_id in {topic.topic_id for topic, _, _ in brought}:
            if topic_id not in known:
                # The topic was deleted in the meantime, when this node had nothing to remove yet.
                self._waiting.setdefault(topic_id, set())

    async def _put_away(self, brought: Sequence[_Brought], why: Exception) -> None:
        """Close created replicas again, because the list of created partitions could not be stored; try again later.

        Without the list they must not take part in their groups. The disk may be full.
        """
        for topic, partition, _ in brought:
            try:
                await self._table.put_away(partition)
            except (StorageError, OSError) as error:
                log.warning("%r was not closed cleanly: %s", partition, in_words(error))
            what = f"the creation of {topic.name}-{partition.index}"
            reason = f"{what} could not be recorded: {in_words(why)}; it is tried again"
            self._table.publish_stopped(topic, partition.index, reason, may_repeat=True)
            self._retry_later(partition.group)

    def _retry_later(self, group: GroupId) -> None:
        """Try again to open a partition, together with others that could not be opened."""
        if not self._retries:
            asyncio.get_running_loop().call_later(self._retry_s, self._retry)
        self._retries[group] = None

    def _retry(self) -> None:
        """Try some partitions again. There may be thousands of them, and the node has other work to do."""
        self._retry_s = min(self._retry_s * 2, _RETRY_MAX_S)
        for group in list(islice(self._retries, _AT_ONCE)):
            del self._retries[group]
            if isinstance(self._table.slots(group.topic_id).get(group.partition), StoppedPartition):
                self._table.withdraw(group)
                self._waiting.setdefault(group.topic_id, set()).add(group.partition)
        if self._retries:
            asyncio.get_running_loop().call_later(self._retry_s, self._retry)
        self._start_work()

    async def _remove(self, group: GroupId) -> None:
        partition = self._table.withdraw(group)
        if partition is None:
            return
        try:
            await (self._table.retire if group in self._lost else self._table.remove)(partition)
            self._forget_made(group)
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
            self._forget_made(group)
        except (StorageError, OSError) as error:
            self._remove_later(topic.topic_id, f"{topic.name}-{index}", error)

    async def _remove_topic(self, topic_id: TopicId, name: str, indexes: Collection[int]) -> None:
        """Remove all of a deleted topic. `indexes` are its partitions, or none if they are not known."""
        for index in list(self._table.slots(topic_id)):
            await self._remove(GroupId(topic_id, index))
        try:
            await self._table.remove_topic(topic_id, name)
        except (StorageError, OSError) as error:
            self._remove_later(topic_id, f"topic {name}", error)
            return
        # The files of partitions that could not be opened were removed with the others.
        known = [GroupId(topic_id, index) for index in indexes]
        for group in known or [group for group in self._made if group.topic_id == topic_id]:
            self._forget_made(group)

    def _remove_later(self, topic_id: TopicId, what: str, error: Exception) -> None:
        """Try the removal again later, so that no restart is needed once the disk works."""
        log.warning(
            "the files of %s, which was deleted or moved away, could not be removed: %s; trying again in a minute",
            what,
            in_words(error),
            extra={"repeat_key": f"removal of {what}"},
        )
        # At its next change, all of it is looked at.
        self._seen.pop(topic_id, None)
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
        if active in self._queued:
            self._unsettled.add(active)
        through = []
        for group in sorted(self._unsettled):
            self._unsettled.discard(group)
            self._queued.discard(group)
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
            reason = _reason(assignment, is_active=group == active)
            if not self._step(slot, catalog.members(assignment, wanted), reason):
                self._unsettled.add(group)
            elif assignment.target is not None and group != active:
                self._unsettled.discard(group)
                self._queued.add(group)
        for group, moves in through:
            await self.on_reassigned(group, moves)

    def _step(self, partition: Partition, wanted: tuple[MemberId, ...], reason: str) -> bool:
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
                partition.replica.change_members(configuration.voters, configuration.learners | missing, reason)
            else:
                partition.replica.change_members(voters, (), reason)
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


def _reason(assignment: Assignment, *, is_active: bool) -> str:
    """Why the members of a group are changed, for the log."""
    if is_active:
        return f"reassignment to nodes {', '.join(map(str, assignment.planned))}"
    if assignment.target is not None:
        return "its reassignment waits for a node, or is cancelled"
    return "the copy on a node was lost or replaced"


def _changed(before: Sequence[Assignment], after: Sequence[Assignment]) -> Iterator[int]:
    """The partitions of a topic whose assignment is new or differs."""
    if before is after:
        return
    for index, assignment in enumerate(after):
        if index >= len(before) or (assignment is not before[index] and assignment != before[index]):
            yield index


def is_metadata(partition: Partition) -> bool:
    return partition.group == METADATA_GROUP
