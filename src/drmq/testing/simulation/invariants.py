"""What must hold after every event, whatever faults have happened.

- **election-safety**: at most one leader in a term;
- **one-vote-per-term**: no member votes for two candidates in one term, even across restarts;
- **log-matching**: two entries with the same index and term are identical, and so is everything before them;
- **leader-completeness**: a committed entry is in the log of every later leader;
- **state-machine-safety**: what is committed at an index, or an offset, is the same everywhere and never changes;
- **durable-on-majority**: what a leader commits is synced on the disks of a majority. This is checked on the disks, not
  on the nodes;
- **applied-committed**: nothing is applied before it is committed, and neither index falls during a process run;
- **high-watermark-monotone**: the high watermark of a replica never falls during a process run, whichever node leads,
  and neither does the start of its log; and a leader starts to serve no lower than any earlier leader has served;
- **voters-have-caught-up**: before a member becomes a voter, it has acknowledged nearly all of what is committed: a
  member that lacks much would count in the quorum without helping it;
- **restarts-keep-promises**: a process that restarts on the same disk has every entry that the previous process knew to
  be durable, and its last term and vote;
- **retention-keeps-newest**: retention by size never removes the newest record of a log;
- **sound-copies**: no node considers a copy damaged if its disk has kept everything;
- **honest-messages**: no node receives a message that no node may send.

At the end, **replicas-identical**: the committed bytes of all replicas, and the states derived from them, are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from drmq.broker import Partition
from drmq.broker.partitions.derived_state import MachineState
from drmq.broker.replication.entry_log import Batch, EntryLog
from drmq.model import GroupId, NodeId, Offset, node_of
from drmq.raft import (
    AppendAccepted,
    AppendRequest,
    Configuration,
    LogIndex,
    Node,
    Role,
    Term,
    VoteRequest,
    VoteResponse,
)
from drmq.records import LENGTH_OVERHEAD, MAGIC, BatchHeader, batch_is_intact, iter_batches
from drmq.storage import Ballot, SegmentLog
from drmq.testing.simulation.disk import durable_log
from drmq.testing.simulation.node import DATA_DIRECTORY, SimulatedNode
from drmq.testing.simulation.world import World
from drmq.transport.peers import PeerMessage

_HEAD = Struct(">qiibIhi")
_LOG_SUFFIX = ".log"
_READ_BYTES = 1 << 20


class _Disk:
    """The durable batches of one log on one machine: their checksums, by the offset after each batch.

    Only new data is read. A file whose last known batch has changed is read again.
    """

    __slots__ = ("_ends", "batches")

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, int, bytes]] = {}
        """For each file: the end of the known batches, the start of the last one, and its header."""
        self.batches: dict[int, int] = {}

    def look(self, files: dict[str, bytearray]) -> None:
        names = sorted(name for name in files if name.endswith(_LOG_SUFFIX))
        if any(self._has_changed(files[name], name) for name in names):
            self._ends.clear()
            self.batches.clear()
        for name in names:
            self._read(files[name], name)

    def _has_changed(self, data: bytearray, name: str) -> bool:
        end, last, header = self._ends.get(name, (0, 0, b""))
        return len(data) < end or data[last : last + len(header)] != header

    def _read(self, data: bytearray, name: str) -> None:
        end, last, _ = self._ends.get(name, (0, 0, b""))
        begun = end
        while end + _HEAD.size <= len(data):
            base, length, epoch, magic, crc, _, delta = _HEAD.unpack_from(data, end)
            if magic != MAGIC or length <= 0 or end + LENGTH_OVERHEAD + length > len(data):
                break
            self.batches[base + delta + 1] = crc ^ epoch
            last, end = end, end + LENGTH_OVERHEAD + length
        if end > begun:
            self._ends[name] = (end, last, bytes(data[last : last + _HEAD.size]))


class _Group:
    """What is known of one replica group, over all its members and their process runs."""

    def __init__(self) -> None:
        self.leaders: dict[Term, NodeId] = {}
        self.votes: dict[tuple[NodeId, Term], NodeId] = {}
        self.entries: dict[tuple[int, Term], tuple[int, Term, int]] = {}
        self.own: dict[int, tuple[int, int, bytes]] = {}
        self.batches: dict[int, tuple[int, int]] = {}
        self.commit: tuple[int, Term, Term] = (0, Term(0), Term(0))
        """The highest committed index, its term, and the term in which it was committed."""
        self.high_watermark = 0
        self.high_watermark_in = Term(0)
        self.disks: dict[int, _Disk] = {}
        self.accepted: dict[NodeId, LogIndex] = {}
        """How much of the log each member has ever acknowledged."""
        self.trimmed_to = 0
        """Clients have requested the deletion of the records below this offset."""


class _Seen:
    """The state of a replica at the last check, in one process run of its node."""

    __slots__ = (
        "commit",
        "configuration",
        "high_watermark",
        "is_serving",
        "offset",
        "own",
        "partition",
        "raft",
        "reign",
        "start",
        "state",
    )

    def __init__(self, partition: Partition, raft: Node, before: _Seen | None) -> None:
        self.partition = partition
        self.raft = raft
        self.state: tuple[object, ...] = ()
        self.commit = self.own = raft.commit_index
        """How far commits were checked, and the replica's own entries among them."""
        self.offset = -1
        self.high_watermark = self.start = 0
        if before is not None and before.partition is partition:
            # Raft was restarted after a disk error; what readers received still holds.
            self.high_watermark, self.start = before.high_watermark, before.start
        self.reign: Term | None = None
        self.is_serving = False
        self.configuration: Configuration = raft.configuration


class _Promise(NamedTuple):
    """What a replica had made durable when its process ended."""

    member: NodeId
    last_index: LogIndex
    last_term: Term | None
    ballot: Ballot


class Invariants:
    """Checks every node after each of its events."""

    def __init__(self, world: World, nodes: list[SimulatedNode], *, keeps_everything: bool) -> None:
        self._world = world
        self._nodes = nodes
        self._disks_keep_everything = keeps_everything
        self._groups: dict[GroupId, _Group] = {}
        self._seen: dict[tuple[NodeId, GroupId], _Seen] = {}
        self._promises: dict[tuple[NodeId, GroupId], _Promise] = {}
        self._returned: set[SimulatedNode] = set()
        self._rotten: set[tuple[NodeId, str]] = set()
        self.on_elected: Callable[[], None] = lambda: None
        """Called when a node starts to lead anything."""
        self.checks = 0
        for node in nodes:
            self.watch(node)

    def watch(self, node: SimulatedNode) -> None:
        """Check this node from now on. It is in the list of nodes."""
        node.after_event = self.look
        node.on_end = self._on_end

    def _group(self, group: GroupId) -> _Group:
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = _Group()
        return found

    def on_trim_asked(self, group: GroupId, offset: int) -> None:
        """The records below `offset` are about to be deleted."""
        known = self._group(group)
        known.trimmed_to = max(known.trimmed_to, offset)

    def on_rot(self, node_id: NodeId, log: str) -> None:
        """A bit of a log is about to be flipped while its process runs, which can detect it only by reading."""
        self._rotten.add((node_id, log))

    # ---- messages -------------------------------------------------------------------------------

    def on_message(self, target: NodeId, group: GroupId, message: PeerMessage) -> None:
        if isinstance(message, AppendRequest):
            if message.entries:
                self._check_entries(group, message)
        elif isinstance(message, AppendAccepted):
            accepted = self._group(group).accepted
            accepted[message.sender] = max(message.match, accepted.get(message.sender, message.match))
        elif isinstance(message, VoteResponse):
            if message.granted:
                self._check_vote(group, message.sender, message.term, message.target)
        elif isinstance(message, VoteRequest):
            self._check_vote(group, message.sender, message.term, message.sender)

    def _check_vote(self, group: GroupId, voter: NodeId, term: Term, candidate: NodeId) -> None:
        known = self._group(group).votes.setdefault((voter, term), candidate)
        self._world.require(
            known == candidate,
            "one-vote-per-term",
            f"{_name(group)}: member {voter} votes for {known} and for {candidate} in term {term}",
        )

    def _check_entries(self, group: GroupId, message: AppendRequest) -> None:
        entries, previous = self._group(group).entries, message.previous_term
        for entry in message.entries:
            payload = entry.payload
            if isinstance(payload, Batch):
                content = payload.header.crc
            else:
                content = crc32(payload)  # type: ignore[arg-type]
            value = (entry.first, previous, content)
            known = entries.setdefault((entry.index, entry.term), value)
            if known != value:
                self._world.break_rule(
                    "log-matching",
                    f"{_name(group)}: member {message.sender} has {value} at index {entry.index} of term {entry.term}, "
                    f"but another member has {known}",
                )
            previous = entry.term

    # ---- nodes ----------------------------------------------------------------------------------

    def look(self, node: SimulatedNode) -> None:
        """Check everything that the last event may have changed on a node."""
        if not node.has_broker:
            return
        if node.is_serving and node not in self._returned:
            # All its remaining replicas are open, or stopped because of their files. Promises for other replicas no
            # longer apply.
            self._returned.add(node)
            for key in [key for key in self._promises if key[0] == node.node_id]:
                if key[1].partition not in node.broker.partitions.slots(key[1].topic_id):
                    del self._promises[key]
        host = node.broker.host
        if host.protocol_errors:
            self._world.break_rule("honest-messages", f"{node.name} received a message that no node may send")
        if self._disks_keep_everything and node.broker.assignments.lost:
            lost = [_name(group) for group in node.broker.assignments.lost]
            self._world.break_rule("sound-copies", f"{node.name} gives up {lost}, but nothing was damaged")
        for group, partition in host._partitions.items():
            raft = partition.replica.node
            if raft is None:
                continue
            seen = self._seen.get((node.node_id, group))
            if seen is None or seen.raft is not raft:
                seen = self._seen[node.node_id, group] = _Seen(partition, raft, seen)
                self._check_restart(node, partition, raft)
            start = partition.log.start_offset
            state = (
                raft.term,
                raft.role,
                raft.commit_index,
                partition.high_watermark,
                partition.is_serving,
                start,
                raft.configuration,
            )
            if state != seen.state:
                self._check(node, partition, raft, seen)
                seen.state = state

    def _on_end(self, node: SimulatedNode) -> None:
        """A process ends. It may have told others that what it knows to be durable is durable."""
        self._returned.discard(node)
        if not node.has_broker:
            return
        for group, partition in node.broker.host._partitions.items():
            # Its disk may be lost next, before its last messages have reached the others.
            files = durable_log(node.files, DATA_DIRECTORY, partition.log.name)
            if files:
                self._group(group).disks.setdefault(node.node_id, _Disk()).look(files)
            raft = partition.replica.node
            if raft is not None:
                index = raft.durable_index
                self._promises[node.node_id, group] = _Promise(
                    raft.node_id, index, raft.term_at(index), partition.replica.ledger.ballot
                )

    def _check_restart(self, node: SimulatedNode, partition: Partition, raft: Node) -> None:
        promise = self._promises.pop((node.node_id, partition.group), None)
        if promise is None or promise.member != raft.node_id:
            return
        # Checked on the disk: a message that was waiting for the replica may already have changed its state.
        ledger = partition.replica.ledger
        found, ballot = EntryLog(partition.log, ledger.base, ledger.entries), ledger.ballot
        self._world.require(
            ballot == promise.ballot or ballot.term > promise.ballot.term,
            "restarts-keep-promises",
            f"{node.name} {partition!r} restarts with {ballot}, but had {promise.ballot}",
        )
        here = found.term_at(promise.last_index)
        self._world.require(
            found.last_index >= promise.last_index
            and (here == promise.last_term or here is None or promise.last_term is None),
            "restarts-keep-promises",
            f"{node.name} {partition!r} restarts with a log up to {found.last_index} and term {here} at "
            f"{promise.last_index}, where it had term {promise.last_term}",
        )

    def _check(self, node: SimulatedNode, partition: Partition, raft: Node, seen: _Seen) -> None:
        self.checks += 1
        world, group = self._world, self._group(partition.group)
        who = f"{node.name} {partition!r}"
        if raft.role is Role.LEADER and seen.reign != raft.term:
            seen.reign = raft.term
            self._check_election(who, raft, group)
        if raft.configuration != seen.configuration and seen.state[:2] == (raft.term, Role.LEADER):
            self._check_promotion(node, who, raft, seen, group)
        commit = raft.commit_index
        world.require(
            raft.applied_index <= commit <= raft.last_index,
            "applied-committed",
            f"{who}: applied {raft.applied_index}, committed {commit}, last {raft.last_index}",
        )
        world.require(commit >= seen.commit, "applied-committed", f"{who}: commit falls from {seen.commit} to {commit}")
        if commit > seen.commit or seen.offset < 0:
            self._check_committed(node, who, partition, raft, seen, group)
        self._check_bounds(who, partition, seen, group)
        if partition.is_serving and not seen.is_serving:
            world.require(
                partition.high_watermark >= group.high_watermark or group.high_watermark_in >= raft.term,
                "high-watermark-monotone",
                f"{who} starts to serve at {partition.high_watermark}, but {group.high_watermark} was served before",
            )
        if partition.is_serving and partition.high_watermark > group.high_watermark:
            group.high_watermark, group.high_watermark_in = partition.high_watermark, raft.term
        seen.is_serving = partition.is_serving
        seen.configuration = raft.configuration

    def _check_bounds(self, who: str, partition: Partition, seen: _Seen, group: _Group) -> None:
        """The visible range of a replica may only grow at its end and shrink at its start."""
        end, start = partition.high_watermark, partition.log.start_offset
        self._world.require(
            end >= seen.high_watermark,
            "high-watermark-monotone",
            f"{who}: the high watermark falls from {seen.high_watermark} to {end}",
        )
        self._world.require(
            start >= seen.start,
            "high-watermark-monotone",
            f"{who}: the log starts at {start} now, but started at {seen.start} before",
        )
        seen.high_watermark = end
        if start > seen.start:
            seen.start = start
            self._check_start(who, partition, group)

    def _check_start(self, who: str, partition: Partition, group: _Group) -> None:
        """A log starts later than before. No clock here makes records old enough, so the reason is their size."""
        if isinstance(partition.state, MachineState):
            return
        start, end = partition.log.start_offset, max(partition.log.end_offset, group.high_watermark)
        self._world.require(
            start <= group.trimmed_to or start < end,
            "retention-keeps-newest",
            f"{who} starts at {start} now and is empty, but {partition.config.retention_bytes} bytes were to be kept",
        )

    def _check_election(self, who: str, raft: Node, group: _Group) -> None:
        world = self._world
        self.on_elected()
        known = group.leaders.setdefault(raft.term, raft.node_id)
        world.require(known == raft.node_id, "election-safety", f"{who} and member {known} both lead term {raft.term}")
        index, term, committed_in = group.commit
        if committed_in < raft.term:
            here = raft.term_at(LogIndex(index))
            world.require(
                here == term or (here is None and index < raft.commit_index),
                "leader-completeness",
                f"{who} leads term {raft.term} without entry {index} of term {term}, committed in term {committed_in}; "
                f"it has term {here} there, and its last index is {raft.last_index}",
            )

    def _check_promotion(self, node: SimulatedNode, who: str, raft: Node, seen: _Seen, group: _Group) -> None:
        """A leader has changed the members: new voters must have caught up.

        What counts is what the members have acknowledged, not what the leader concludes, and what was committed before.
        """
        lag_max = node.broker.host.raft_options.promotion_lag_max
        for member in sorted(_members(raft.configuration) - _members(seen.configuration)):
            accepted = group.accepted.get(member, 0)
            self._world.require(
                accepted + lag_max >= seen.commit,
                "voters-have-caught-up",
                f"{who} makes member {member} a voter, which has acknowledged {accepted}, but {seen.commit} is "
                "committed",
            )

    # ---- what is committed ----------------------------------------------------------------------

    def _check_committed(
        self, node: SimulatedNode, who: str, partition: Partition, raft: Node, seen: _Seen, group: _Group
    ) -> None:
        world, log, entries = self._world, partition.log, partition.replica.entries
        commit = raft.commit_index
        leads = raft.role is Role.LEADER and seen.state[:2] == (raft.term, Role.LEADER)
        # Entries that replace those of another leader are in the ledger only when they are durable.
        settled = LogIndex(min(commit, raft.durable_index))
        for own in entries.own_between(LogIndex(seen.own + 1), LogIndex(settled + 1)):
            value = (own.term, own.kind, own.payload)
            known = group.own.setdefault(own.index, value)
            world.require(
                known == value,
                "state-machine-safety",
                f"{who} commits {value} at {own.index}, where {known} was before",
            )
        start = max(seen.offset, log.start_offset)
        end = partition.high_watermark
        is_rotten = (node.node_id, log.name) in self._rotten
        for header, data in _stored(node, partition, start, end):
            value_here = (int(header.base_offset), header.crc ^ int(header.leader_epoch))
            known_batch = group.batches.setdefault(header.next_offset, value_here)
            world.require(
                known_batch == value_here and (is_rotten or batch_is_intact(data)),
                "state-machine-safety",
                f"{who} commits {value_here} before {header.next_offset}, where {known_batch} was before",
            )
        seen.offset = max(end, seen.offset)
        seen.commit = commit
        seen.own = max(seen.own, settled)
        if commit > group.commit[0]:
            term = raft.term_at(commit)
            if term is None:
                return
            group.commit = (commit, term, raft.term)
            world.require(
                not leads or term == raft.term,
                "leader-completeness",
                f"{who} leads term {raft.term} and commits {commit} of term {term} by counting",
            )
            batch = self._batch_at(partition, commit, term, group)
            if raft.role is Role.LEADER and batch is not None:
                self._check_durable(who, partition, batch, (seen.configuration, raft.configuration), group)

    def _batch_at(self, partition: Partition, index: LogIndex, term: Term, group: _Group) -> tuple[int, int] | None:
        """The offset after the batch at an index, and its checksum; None for an entry that is not a batch."""
        entries = partition.replica.entries
        next_offset = entries.next_offset(index)
        sent = group.entries.get((index, term))
        if sent is None or next_offset == entries.next_offset(LogIndex(index - 1)):
            return None
        return next_offset, sent[2] ^ term

    def _check_durable(
        self,
        who: str,
        partition: Partition,
        batch: tuple[int, int],
        configurations: tuple[Configuration, Configuration],
        group: _Group,
    ) -> None:
        """Check that a batch that was just committed is on enough disks."""
        holding: set[int] = set()
        nodes = {node_of(member) for configuration in configurations for member in _members(configuration)}
        for node_id in nodes:
            disk = group.disks.setdefault(node_id, _Disk())
            files = durable_log(self._nodes[node_id - 1].files, DATA_DIRECTORY, partition.log.name)
            if files:
                # A disk that was lost counts with what it had before.
                disk.look(files)
            if disk.batches.get(batch[0]) == batch[1]:
                holding.add(node_id)
        self._world.require(
            any(_is_quorum(configuration, holding) for configuration in configurations),
            "durable-on-majority",
            f"{who} commits up to offset {batch[0]}, which is durable on {sorted(holding)} of "
            f"{sorted(configurations[1].voters)}",
        )

    # ---- the end --------------------------------------------------------------------------------

    @property
    def _live_nodes(self) -> list[SimulatedNode]:
        return [node for node in self._nodes if not node.is_retired]

    def _replicas(self) -> dict[GroupId, list[tuple[SimulatedNode, Partition]]]:
        found: dict[GroupId, list[tuple[SimulatedNode, Partition]]] = {}
        for node in self._live_nodes:
            if node.has_broker:
                for partition in node.broker.host:
                    found.setdefault(partition.group, []).append((node, partition))
        return found

    def is_whole(self) -> bool:
        """Whether every group has one serving leader, and the leader counts all voters as in sync."""
        if not all(node.is_serving for node in self._live_nodes):
            return False
        for members in self._replicas().values():
            leading = [partition for _, partition in members if partition.is_serving]
            raft = leading[0].replica.node if len(leading) == 1 else None
            if raft is None or frozenset(leading[0].members_in_sync) != raft.configuration.voters:
                return False
        return True

    def is_settled(self) -> bool:
        """Whether every group has one serving leader, all of its replicas are up to date, and the leader counts them
        so.

        And no group has a member on a node that was removed.
        """
        nodes = self._live_nodes
        gone = {node.node_id for node in self._nodes if node.is_retired}
        if not all(node.is_serving for node in nodes):
            return False
        catalog = nodes[0].broker.catalog
        if catalog.reassignments:
            return False
        replicas = self._replicas()
        for group, assignment in catalog.assignments().items():
            if {node.node_id for node, _ in replicas.get(group, ())} != set(assignment.replicas):
                return False
        for members in replicas.values():
            rafts = [partition.replica.node for _, partition in members]
            ends = {(raft.last_index, raft.commit_index, raft.applied_index) for raft in rafts if raft is not None}
            if len(ends) != 1 or None in rafts or len(set(next(iter(ends)))) != 1:
                return False
            if sum(partition.is_serving for _, partition in members) != 1:
                return False
            leads = next(partition for _, partition in members if partition.is_serving)
            if {partition.high_watermark for _, partition in members} != {leads.high_watermark}:
                return False
            raft = leads.replica.node
            if raft is None or frozenset(leads.members_in_sync) != raft.configuration.voters:
                return False
            if any(node_of(one) in gone for raft in rafts if raft is not None for one in raft.configuration.members):
                return False
        return True

    def check_end(self) -> None:
        """Compare the replicas of every partition, byte by byte, and the state machines on them."""
        for group, members in self._replicas().items():
            start = max(partition.log.start_offset for _, partition in members)
            end = min(partition.high_watermark for _, partition in members)
            found = {node.name: _digest(partition, start, end) for node, partition in members}
            self._world.require(
                len(set(found.values())) == 1, "replicas-identical", f"{_name(group)} from {start} to {end}: {found}"
            )
            self._world.mark(repr(sorted(found.items())))
            producers = {
                node.name: _remembered(partition)
                for node, partition in members
                if not isinstance(partition.state, MachineState)
            }
            tables = list(producers.values())
            self._world.require(
                all(table == tables[0] for table in tables),
                "replicas-identical",
                f"{_name(group)}: the producers on {sorted(producers)} differ: {tables}",
            )
            machines = {
                node.name: sorted(partition.state.machine.snapshot(), key=repr)
                for node, partition in members
                if isinstance(partition.state, MachineState)
            }
            states = list(machines.values())
            self._world.require(
                all(state == states[0] for state in states),
                "replicas-identical",
                f"{_name(group)}: the states on {sorted(machines)} differ: {_difference(states)}",
            )

    def describe(self) -> str:
        """The state of every replica of every node, as text."""
        lines = []
        for node in self._nodes:
            state = "down" if not node.is_running else "serves" if node.is_serving else "is starting"
            lines.append(f"{node.name}: {state}")
            for partition in node.broker.host if node.is_running and node.has_broker else ():
                lines.append(f"  {_described(partition)}")
        return "\n".join(lines)


def _described(partition: Partition) -> str:
    raft = partition.replica.node
    if raft is None:
        return f"{partition!r}: closed: {partition.failure}"
    configuration = raft.configuration
    parts = [
        f"{partition!r}: {raft.role.value} in term {raft.term} of {raft.leader_id}",
        f"log to {raft.last_index}, durable {raft.durable_index}, committed {raft.commit_index}",
        f"applied {raft.applied_index}, offsets {partition.start_offset} to {partition.high_watermark}",
        f"voters {sorted(configuration.voters)}",
    ]
    if configuration.is_joint:
        parts.append(f"before {sorted(configuration.voters_before)}")
    if configuration.learners:
        parts.append(f"learners {sorted(configuration.learners)}")
    if partition.replica.asleep:
        parts.append("asleep")
    if partition.failure:
        parts.append(f"failed: {partition.failure}")
    return ", ".join(parts)


def _stored(
    node: SimulatedNode, partition: Partition, start: int, end: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a log, read without the process that has it open.

    Reading through the process would make it check and trust these batches, so the check would change its behaviour.
    """
    log = partition.log
    assert isinstance(log, SegmentLog), log
    for segment in log._view.segments:
        if segment.end_offset <= start or segment.base_offset >= end:
            continue
        index = segment.index
        begin = 0 if index is None else index.before_offset(Offset(max(start, segment.base_offset)))
        data = memoryview(node.files.content(segment.path))[begin : segment.size_bytes]
        for at, header in iter_batches(data):
            if header.base_offset >= end:
                return
            if header.next_offset > start:
                yield header, data[at : at + header.size]


def _digest(partition: Partition, start: int, end: int) -> str:
    digest = blake2b(digest_size=8)
    while start < end:
        data = partition.log.read(Offset(start), _READ_BYTES, Offset(end))
        assert data, (partition, start, end)
        view = memoryview(data)
        for at, header in iter_batches(view):
            if header.base_offset >= start:
                digest.update(view[at : at + header.size])
            start = header.next_offset
    return digest.hexdigest()


def _remembered(partition: Partition) -> dict[int, tuple[int, ...]]:
    """The last batch of every producer in a replica's producer table."""
    table = partition.producers._producers
    return {int(key): tuple(map(int, producer.batches[-1])) for key, producer in table.items()}


def _difference(states: list[list[tuple[bytes, bytes | None]]]) -> str:
    for state in states[1:]:
        for one, other in zip(states[0], state, strict=False):
            if one != other:
                return f"{one!r} and {other!r}"
    return "one has more"


def _members(configuration: Configuration) -> frozenset[NodeId]:
    return configuration.voters | configuration.voters_before


def _is_quorum(configuration: Configuration, holding: set[int]) -> bool:
    return all(
        2 * sum(node_of(member) in holding for member in voters) > len(voters)
        for voters in (configuration.voters, configuration.voters_before)
        if voters
    )


def _name(group: GroupId) -> str:
    return f"group {group.topic_id.hex()[:8]}-{group.partition}"
