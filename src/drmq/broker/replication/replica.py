"""One replica of one partition: it carries out consensus on a log, a ledger and the network.

`drmq.raft` makes the decisions. This driver does what a `Ready` says, in the given order: it queues batches for the
writer thread, and own entries and votes for the ledger, sends messages at once or when the disk has reported, and
reports the results to its owner in offsets.

Writes go to the writer thread in sequence: batches, which are reported by the writer's flush, or a job (a vote, own
entries, a truncation), which reports itself. A job syncs the log before it writes to the ledger, so a crash leaves a
prefix of the writes. When the last write of a `Ready` is reported, so is the `Ready`, and the messages that had to wait
are sent.

When the disk refuses a write, the replica ends: nothing is sent or reported any more. If the log still accepts appends,
the replica starts again from what is on the disk, as after a crash; otherwise it stays closed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from drmq.broker.notify import notify_all
from drmq.broker.partitions.derived_state import InstallationInDoubt
from drmq.broker.replication.campaign_backoff import CampaignBackoff
from drmq.broker.replication.entry_log import Batch, EntryLog, decode_offset, decode_trim, own_entry, received
from drmq.broker.replication.incoming_snapshot import IncomingSnapshot
from drmq.broker.replication.outgoing_snapshot import OutgoingSnapshot, SnapshotCache
from drmq.broker.replication.pending_writes import PendingWrite
from drmq.broker.replication.replica_ports import ReplicaHost, ReplicaOwner
from drmq.model import GroupId, MemberId, NodeId, Offset, node_of
from drmq.model.names import METADATA_GROUP
from drmq.raft import (
    NO_INDEX,
    AppendRequest,
    Cause,
    ChunkToSave,
    Entry,
    EntryKind,
    HardState,
    HeartbeatResponse,
    IndexRange,
    LogIndex,
    Message,
    Node,
    NotLeader,
    Ready,
    Role,
    SnapshotChunk,
    SnapshotMeta,
    Term,
    configuration_to_bytes,
)
from drmq.records import BatchHeader
from drmq.storage import Ballot, LedgerBase, LedgerLike, Log, LogCorrupt, OwnEntry, StorageError
from drmq.telemetry.system_errors import in_words

log = logging.getLogger("drmq.broker")

ReadDone = Callable[[LogIndex | None], None]
"""Called with the index at which a read is fresh, or None if another node must be asked."""


class Replica:
    """A member of a replica group on this node. Used on the event loop."""

    def __init__(
        self,
        group: GroupId,
        member: MemberId,
        entries: EntryLog,
        ledger: LedgerLike,
        incoming: IncomingSnapshot,
        host: ReplicaHost,
        owner: ReplicaOwner,
        snapshot_cache: SnapshotCache,
    ) -> None:
        self.group = group
        self.member = member
        self.entries = entries
        self.is_dirty = False
        self.asleep = False
        """It does not tick: its group is idle, and the nodes monitor each other instead."""
        self.idle_ticks = 0
        self.ledger = ledger
        self._host = host
        self._owner = owner
        self._pending_writes: deque[PendingWrite] = deque()
        self._queued_offset = entries.end_offset
        """The end of the log once all pending writes are done."""
        self._incoming = incoming
        self._snapshot_cache = snapshot_cache
        self._outgoing = OutgoingSnapshot(self, host, owner, snapshot_cache)
        self._replaced: SnapshotMeta | None = None
        """While a snapshot is installed: the one before it, to return to if the disk refuses the new one."""
        self._is_half_installed = False
        """Log and ledger do not match. Only opening them again repairs that."""
        self._reads: dict[object, ReadDone] = {}
        """Reads that wait for consensus to confirm that this replica is the leader."""
        self._reading = False
        self._restarting = False
        self._stopped = False
        self._is_over = False
        """Only opening the files again can restart it."""
        self.failed_alone = False
        """Whether this member was a majority by itself when it failed."""
        self._backoff = CampaignBackoff()
        self.node: Node | None = None

    @property
    def log(self) -> Log:
        return self.entries.log

    @property
    def queued_offset(self) -> Offset:
        """The end of the log once everything queued is written."""
        return self._queued_offset

    @property
    def is_alone(self) -> bool:
        """Whether this member is a majority by itself."""
        if self.node is None:
            return False
        configuration = self.node.configuration
        return configuration.voters == {self.member} and not configuration.is_joint

    @property
    def is_busy(self) -> bool:
        """Whether any write is on its way to the disk."""
        return bool(self._pending_writes)

    def offset_on(self, count: int) -> Offset:
        """On the leader: how far the log is durable on at least `count` replicas."""
        node = self.node
        if node is None:
            return Offset(0)
        reached = sorted([node.durable_index, *(peer.match for peer in node.progress().values())], reverse=True)
        return self.entries.next_offset(reached[count - 1]) if count <= len(reached) else Offset(0)

    def start(self, applied: LogIndex = NO_INDEX) -> None:
        """Take part in the group, starting from what is on the disk."""
        ballot = self.ledger.ballot
        entries = self.entries
        self._queued_offset = entries.end_offset
        self.node = Node(
            self.member,
            entries,
            self._host.random,
            self._host.raft_options,
            HardState(Term(ballot.term), NodeId(ballot.vote) if ballot.vote >= 0 else None),
            commit=max(applied, entries.snapshot.index),
            applied=max(applied, entries.snapshot.index),
            receiving=self._incoming.receiving,
            learners_take_turns=self.group != METADATA_GROUP,
        )
        if self.is_alone:
            # There is no other member to wait for.
            self.node.campaign(Cause.ALONE)
            self.pump()

    def stop(self) -> None:
        """Stop taking part. Queued writes still reach the disk."""
        self._stopped = True
        self.node = None
        self.entries.recent.clear()
        self._outgoing.drop()
        self._pending_writes.clear()
        self._refuse_reads()

    # ---- in -------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self.node is not None and self.node.role is Role.LEADER

    def _consensus(self) -> Node:
        """The Raft node. Raises `NotLeader` if there is none: this node is shutting down, or the disk has failed."""
        if self.node is None:
            raise NotLeader(None)
        return self.node

    def wake(self) -> None:
        """Make the replica tick again."""
        self.asleep = False
        self.idle_ticks = 0
        self._host.on_woken(self)

    def campaign(self) -> None:
        """Campaign without waiting for an election timeout. Does nothing if it is the leader or a candidate."""
        if self.node is not None and self.node.role is Role.FOLLOWER and not self._backoff.is_on:
            self.wake()
            self.node.campaign(Cause.FIRST)
            self._host.mark_dirty(self)

    def propose(self, header: BatchHeader, batch: memoryview, wants_written: bool) -> None:
        """Append a stamped batch to the group's log. Raises a `raft.Refusal` with nothing changed."""
        node = self._consensus()
        if self.asleep:
            self.wake()
        node.propose((Batch(header, batch, wants_written),), (header.next_offset - header.base_offset,))
        if not self.is_dirty:
            self._host.mark_dirty(self)

    def check_proposal(self, size_bytes: int) -> None:
        """Raise the `raft.Refusal` with which a batch of this size would be refused now, if any."""
        self._consensus().check_proposal(size_bytes)

    def propose_own(self, payload: bytes) -> LogIndex:
        """Append an internal command, which takes no offset. Raises a `raft.Refusal`."""
        node = self._consensus()
        self.wake()
        index = node.propose((payload,))
        self._host.mark_dirty(self)
        return index

    def read_index(self, done: ReadDone) -> None:
        """Confirm with a majority that this is the leader, then call `done`. Raises a `raft.Refusal`."""
        node = self._consensus()
        self.wake()
        context = object()
        node.read_index(context)
        self._reads[context] = done
        self._host.mark_dirty(self)

    def receive(self, message: Message) -> None:
        """Handle a peer's message. Raises `raft.ProtocolError`."""
        node = self.node
        if node is None or message.target != self.member or self._backoff.declines(message):
            return
        if isinstance(message, AppendRequest) and message.entries:
            message = AppendRequest(
                message.sender,
                message.target,
                message.term,
                message.previous_index,
                message.previous_term,
                tuple(map(received, message.entries)),
                message.commit,
            )
        # The answer to the last heartbeat before sleeping must not wake the group again.
        if self.asleep and not (isinstance(message, HeartbeatResponse) and message.term == node.term):
            self.wake()
        node.receive(message)
        if not self.is_dirty:
            self._host.mark_dirty(self)

    def change_members(self, voters: Iterable[NodeId], learners: Iterable[NodeId], reason: str) -> None:
        """Start to change the members of the group, for a reason in words. Raises a `raft.Refusal`."""
        node = self._consensus()
        self.wake()
        node.propose_configuration(voters, learners, reason)
        self._host.mark_dirty(self)

    def transfer(self, target: NodeId) -> None:
        """Transfer leadership to another member. Raises a `raft.Refusal`."""
        node = self._consensus()
        self.wake()
        node.transfer_leadership(target)
        self._host.mark_dirty(self)

    def take_turn(self, learner: NodeId) -> None:
        """Send a learner the next part of its copy, if it still needs one."""
        if self.node is not None:
            self._outgoing.send(learner)
            self.node.give_turn(learner)
            self._host.mark_dirty(self)

    def tick(self, patience: int = 1, may_campaign: bool = True) -> None:
        """Advance time by one tick. See `raft.Node.tick`."""
        if self.node is not None and not self._backoff.is_on:
            self.node.tick(patience, may_campaign)
            if self.node.has_ready:
                self._host.mark_dirty(self)

    # ---- out ------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Do everything that consensus asks for now."""
        self.is_dirty = False
        node = self.node
        while node is not None and node.has_ready:
            self._carry_out(node.take_ready())
            node = self.node
        self._outgoing.drop_if_over()
        if self.entries.recent:
            if node is not None and node.has_followers:
                self.entries.recent.release(node.replicated_index)
            else:
                self.entries.recent.clear()
        if self.entries.missing is not None and node is not None:
            self._fetch_missing()
        if self.entries.damage is not None:
            damage, self.entries.damage = self.entries.damage, None
            self._on_unreadable(damage, is_damage=True)

    def _call_on_loop(self, work: Callable[..., object], *arguments: object) -> None:
        """Call a function on the event loop, from any thread, in order."""
        self._host.call_on_loop(self._host.guard, self, work, *arguments)

    def _carry_out(self, ready: Ready) -> None:
        for change in ready.members_changes:
            self._owner.on_members_changed(change)
        if ready.leadership is not None:
            # Recent entries belong to one term: in another, other entries may be at their indexes.
            self.entries.recent.clear()
            self._owner.on_leadership(ready.leadership)
        for message in ready.messages:
            self._send(message)
        if ready.persists:
            self._persist(ready)
        if ready.messages_after_persist:
            if self._pending_writes:
                self._pending_writes[-1].messages += ready.messages_after_persist
            else:
                for message in ready.messages_after_persist:
                    self._send(message)
        if ready.committed is not None:
            self._apply(ready.committed)
        for read in ready.reads_confirmed:
            self._answer_read(read.context, read.index)
        for context in ready.reads_refused:
            self._answer_read(context, None)
        for learner in ready.turns_wanted:
            # A learner that catches up must not take the network away from replicas that are in sync.
            self._host.catch_up.ask(self, learner)
        for wanted in ready.chunks_wanted:
            self._outgoing.want(wanted)

    def _answer_read(self, context: object, index: LogIndex | None) -> None:
        done = self._reads.pop(context, None)
        if done is not None:
            done(index)

    def _refuse_reads(self) -> None:
        """Refuse all waiting reads, because consensus has ended here."""
        notify_all([partial(self._answer_read, context, None) for context in self._reads])

    def _send(self, message: Message) -> None:
        if isinstance(message, AppendRequest) and message.entries and self._is_learner(message.target):
            self._host.catch_up.on_sent(self, message.target, sum(entry.size_bytes for entry in message.entries))
        elif isinstance(message, SnapshotChunk) and message.data and self._is_learner(message.target):
            self._host.catch_up.on_sent(self, message.target, len(message.data))
        self._host.send(node_of(message.target), self.group, message)

    def _is_learner(self, member: NodeId) -> bool:
        return self.node is not None and member in self.node.configuration.learners

    def takes_turns(self, member: NodeId) -> bool:
        """Whether copies to a member wait for a turn."""
        # Not in the metadata group, whose learners stay learners: its entries must not wait behind copies of records.
        return self.group != METADATA_GROUP and self._is_learner(member)

    def _apply(self, committed: IndexRange) -> None:
        for own in self.entries.own_between(committed.start, committed.end):
            if own.kind == EntryKind.PAYLOAD:
                self._owner.on_trim(decode_trim(own.payload))
        if self._incoming.is_overtaken(LogIndex(committed.end - 1)):
            # The entries arrived by normal replication before the snapshot that was to replace them was complete.
            self._host.writer.run(self.log, self._incoming.forget())
        self._owner.on_committed(committed, self.entries.next_offset(LogIndex(committed.end - 1)))

    def on_applied(self, index: LogIndex) -> None:
        """The owner has applied everything up to `index`."""
        if self.node is not None:
            self.node.on_applied(index)

    # ---- writing --------------------------------------------------------------------------------

    def _persist(self, ready: Ready) -> None:
        """Queue everything that a `Ready` must persist, as writes in the required order."""
        jobs: list[Callable[[], object]] = []
        write = PendingWrite()
        if ready.hard_state is not None:
            vote = ready.hard_state.vote
            ballot = Ballot(ready.hard_state.term, -1 if vote is None else vote)
            jobs.append(lambda: self.ledger.save_ballot(ballot))
        if ready.snapshot is not None:
            write.snapshot = ready.snapshot
            jobs.append(self._installation(ready.snapshot))
            write.truncated_to = self._queued_offset
        if ready.truncate_from is not None:
            index = ready.truncate_from
            offset = self.entries.next_offset(LogIndex(index - 1))
            self.entries.on_truncated(index, offset)
            self._queued_offset = offset
            write.truncated_to = offset
            jobs.append(lambda: self._truncate(index, offset))
        if ready.entries:
            if self.node is not None and self.node.has_followers:
                self.entries.recent.extend(ready.entries)
            else:
                self.entries.recent.clear()
        own: list[OwnEntry] = []
        batches: list[Batch] = []
        for entry in ready.entries:
            payload = entry.payload
            if isinstance(payload, Batch):
                if jobs or own:
                    write = self._queue_job(write, jobs, own)
                    jobs, own = [], []
                assert payload.header.base_offset == self._queued_offset, (payload.header, self._queued_offset)
                self._queued_offset = payload.header.next_offset
                batches.append(payload)
            else:
                if batches:
                    self._queue_batches(batches)
                    batches = []
                own.append(self._note_own(entry))
        if batches:
            self._queue_batches(batches)
        if jobs or own:
            self._queue_job(write, jobs, own)
        if ready.chunks_to_save:
            self._queue_chunks(ready.chunks_to_save)
        self._pending_writes[-1].number = ready.number

    def _note_own(self, entry: Entry) -> OwnEntry:
        own = own_entry(entry, self._queued_offset)
        self.entries.on_own_appended((own,))
        return own

    def _queue_batches(self, batches: Sequence[Batch]) -> None:
        writer, target = self._host.writer, self.entries.log
        write = PendingWrite(batches[-1].header.next_offset)
        for batch in batches:
            writer.submit(target, batch.header, batch.data, batch.wants_written)
        # Not decided by the present role: a leader that proposed batches and was deposed before they were queued has
        # them in its tables already, and would add them a second time.
        write.headers = [batch.header for batch in batches if batch.is_received]
        self._pending_writes.append(write)

    def _queue_job(
        self, write: PendingWrite, jobs: Sequence[Callable[[], object]], own: Sequence[OwnEntry]
    ) -> PendingWrite:
        def work() -> object:
            result = None
            for job in jobs:
                made = job()
                # An empty table is a result too, although it is false in a condition.
                result = result if made is None else made
            if own:
                self._append_own(own)
            return result

        self._pending_writes.append(write)
        future = self._host.writer.run_step(self.log, work)
        future.add_done_callback(lambda done: self._call_on_loop(self._on_job_done, write, done))
        return PendingWrite()

    def _append_own(self, own: Sequence[OwnEntry]) -> None:
        """On the writer thread: append own entries to the ledger once everything before them is durable."""
        target = self.log
        if target.end_offset != own[0].offset:
            # The disk refused batches before them. The owner is notified of that separately.
            raise StorageError(f"{target.name} ends at {target.end_offset}, not at {own[0].offset}")
        target.flush()
        self.ledger.append(own)

    def _truncate(self, index: LogIndex, offset: Offset) -> object:
        """On the writer thread: truncate backwards, entry by entry, so that a crash in between leaves a prefix."""
        for own in reversed(self.ledger.entries):
            if own.index < index:
                break
            self.log.truncate_suffix(Offset(own.offset))
            self.ledger.truncate(own.index)
        self.log.truncate_suffix(offset)
        return self._owner.reload(offset)

    def on_flushed(self, flushed_offset: Offset) -> None:
        """The writer has synced the log up to `flushed_offset`."""
        steps = self._pending_writes
        finished = 0
        for write in steps:
            if write.end_offset is None or write.end_offset > flushed_offset:
                break
            finished += 1
        self._note_durable(flushed_offset)
        if finished:
            self._finish_steps(finished)

    def _note_durable(self, flushed_offset: Offset) -> None:
        """Move the durable end. Batches that a queued truncation will remove are not counted."""
        limit = flushed_offset
        for write in self._pending_writes:
            if write.truncated_to is not None:
                limit = min(limit, write.truncated_to)
        self.entries.end_offset = max(self.entries.end_offset, limit)

    def _on_job_done(self, write: PendingWrite, done: Future[object]) -> None:
        if write not in self._pending_writes:
            return  # The write belongs to an earlier run of this replica.
        error = done.exception()
        if error is not None:
            is_final = self.log.is_fenced or self.ledger.is_fenced or isinstance(error, InstallationInDoubt)
            self._fail(in_words(error), is_final=is_final)
            return
        position = self._pending_writes.index(write)
        # The job ran after all batches before it were synced, although their own report may still be on its way.
        for before in list(self._pending_writes)[:position]:
            if before.end_offset is not None:
                self._note_durable(before.end_offset)
        if position:
            self._finish_steps(position)
        if self._pending_writes and self._pending_writes[0] is write:
            self._finish_steps(1, done)

    def _finish_steps(self, count: int, done: Future[object] | None = None) -> None:
        number = 0
        messages: list[Message] = []
        for _ in range(count):
            write = self._pending_writes.popleft()
            if write.end_offset is not None:
                self._backoff.failures = 0
            if write.headers:
                self._owner.on_appended(write.headers)
            if write.snapshot is not None:
                assert done is not None
                self._replaced = None
                self._owner.on_snapshot_installed(write.snapshot, done.result())
            elif write.truncated_to is not None:
                assert done is not None
                self._owner.on_truncated(write.truncated_to, done.result())
            number = write.number or number
            messages += write.messages
        node = self.node
        if node is None:
            return
        if number:
            node.on_persisted(number)
        for message in messages:
            self._send(message)
        self._host.guard(self, self.pump)

    # ---- snapshots ------------------------------------------------------------------------------

    @property
    def is_installing(self) -> bool:
        """Whether a leader's snapshot is replacing log and state."""
        return self._replaced is not None

    def _queue_chunks(self, chunks: Sequence[ChunkToSave]) -> None:
        """Store received parts of a snapshot."""
        jobs = [job for job in map(self._incoming.take, chunks) if job is not None]
        last = chunks[-1]
        data = self._incoming.whole(last.meta) if last.done else None
        if data is not None:
            # Decoding a large state takes seconds, which would delay the heartbeats of this node for too long.
            decoding = self._snapshot_cache.pool.submit(self._owner.decode_snapshot, last.meta, data)
            decoding.add_done_callback(lambda done: self._call_on_loop(self._on_decoded, last, data, done))
        self._queue_job(PendingWrite(), jobs, ())

    def _on_decoded(self, chunk: ChunkToSave, data: bytes, done: Future[object | None]) -> None:
        if self.node is None or done.cancelled() or self._incoming.whole(chunk.meta) is not data:
            return  # The replica has ended, or another snapshot or the entries have arrived.
        decoded = done.result()
        if decoded is not None:
            self._incoming.accept(decoded)
        else:
            log.error("%s: a snapshot from node %d is damaged; it is requested again", self.log.name, chunk.sender)
            self._host.writer.run(self.log, self._incoming.forget())
        self.node.on_snapshot_received(chunk.sender, chunk.meta.snapshot_id, decoded is not None)
        self._host.mark_dirty(self)

    def _installation(self, meta: SnapshotMeta) -> Callable[[], object]:
        data, decoded = self._incoming.accepted(meta)
        forget = self._incoming.forget()
        offset = decode_offset(meta.data)
        base = LedgerBase(meta.index, meta.term, offset, configuration_to_bytes(meta.configuration))
        self._replaced = self.entries.snapshot
        self.entries.on_installed(base, meta)
        self._queued_offset = offset

        def install() -> object:
            self._owner.save_snapshot(meta, data)
            self._is_half_installed = True
            self.log.reset(offset)
            self.ledger.reset(base)
            self._owner.finish_snapshot(meta, data)
            self._is_half_installed = False
            forget()
            return decoded

        return install

    def rebase(self, base: LedgerBase, snapshot: SnapshotMeta) -> None:
        """Report to consensus where the log begins, before the writer thread removes its front."""
        self.entries.on_rebased(base, snapshot)

    # ---- reading for followers that lag ---------------------------------------------------------

    def _fetch_missing(self) -> None:
        """Read entries that a follower needs into the page cache, on another thread."""
        if self._reading:
            return
        missing, self.entries.missing = self.entries.missing, None
        assert missing is not None
        self._reading = True
        self._host.catch_up.on_reading(self)
        source = self.log

        def read() -> None:
            is_read = False
            try:
                source.read(missing[0], missing[2], missing[1])
                is_read = True
            except (StorageError, OSError) as error:
                self._call_on_loop(self._on_unreadable, in_words(error), isinstance(error, LogCorrupt))
            finally:
                self._call_on_loop(self._on_missing_read, is_read)

        self._host.pool.submit(read)

    def _on_missing_read(self, is_read: bool) -> None:
        """Continue after a read. After a failed one, the entries are retried at the next heartbeats, not at once."""
        self._reading = False
        if self.node is not None:
            if is_read:
                self.node.on_entries_read()
            self._host.mark_dirty(self)
        # After the mark, so that the replica has asked for its turn when the next one is granted.
        self._host.catch_up.on_read(self)

    def _on_unreadable(self, error: str, is_damage: bool) -> None:
        repeat = {"repeat_key": f"unreadable {self.log.name}"}
        log.error("%s: entries that a follower needs cannot be read: %s", self.log.name, error, extra=repeat)
        if is_damage:
            self._owner.on_damage()

    # ---- failing --------------------------------------------------------------------------------

    def on_bug(self, error: Exception) -> None:
        """End the replica after an unexpected exception, because it is unknown which part of its work was done."""
        self._fail(f"stopped by a bug; see the log of this node, and restart the node ({error!r})", is_final=True)

    def on_unknown_format(self, reason: str) -> None:
        """The replica has or receives data of a later release. Without it, its state would be incomplete."""
        log.critical("%s: its replica stops: %s; nothing is lost or changed by that", self.log.name, reason)
        self._fail(reason, is_final=True)

    def on_failed(self, reason: str, end_offset: Offset) -> None:
        """The writer could not append or sync."""
        self._fail(reason, is_final=self.log.is_fenced, end_offset=end_offset)

    def _fail(self, reason: str, *, is_final: bool, end_offset: Offset | None = None) -> None:
        if self._is_over:
            # Writes that were queued earlier fail as well. They are not the cause, and do not restart the replica.
            return
        self._is_over = is_final or self._is_half_installed
        if self.node is not None:
            self.failed_alone = self.is_alone
            self._host.wake_others(self)
        self.node = None
        self.entries.recent.clear()
        self._outgoing.drop()
        self._pending_writes.clear()
        try:
            self._owner.on_replica_failed(reason, self.log.end_offset if end_offset is None else end_offset)
        finally:
            self._refuse_reads()
        if self._is_over or self._restarting or self._stopped:
            return
        self._restarting = True
        self._backoff.failures += 1
        # A single member would become leader again at once, which writes to the disk: a full disk needs a pause.
        delay_s = self._backoff.length_s if self.failed_alone else 0.0

        def reload() -> object:
            # After everything that was queued for offsets that are now void.
            self.log.flush()
            return self._owner.reload(self.log.end_offset)

        future = self._host.writer.run(self.log, reload)
        future.add_done_callback(lambda done: self._call_on_loop(self._restart_after, delay_s, done))

    def _restart_after(self, delay_s: float, done: Future[object]) -> None:
        if delay_s > 0:
            self._host.call_later(delay_s, self._host.guard, self, self._restart, done)
        else:
            self._restart(done)

    def _restart(self, done: Future[object]) -> None:
        self._restarting = False
        if self._stopped or self._is_over:
            return
        error = done.exception()
        if error is not None:
            self._owner.on_replica_failed(in_words(error), self.log.flushed_offset)
            return
        self._host.writer.resume(self.log)
        old, replaced = self.entries, self._replaced
        self._replaced = None
        self.entries = EntryLog(
            old.log, self.ledger.base, self.ledger.entries, replaced or old.snapshot, self._host.recent_memory
        )
        self._owner.on_replica_restarted(done.result())
        self.wake()
        if not self.failed_alone:
            self._backoff.begin(self._host.call_later)
        self.start()
