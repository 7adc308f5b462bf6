"""The leader role: replicating the log, committing entries, confirming leadership, and stepping down.

A `Leader` object exists for one term: `node` creates it when an election is won and drops it when the role ends. So all
state in here is soft and belongs to one term. Appends are sent when the driver takes a `Ready`, not when something is
proposed, so that all proposals since the last `Ready` are sent in one message.

Always true:

- a leader only appends; it never changes the entries that it has;
- an entry is committed when a quorum has it on disk. The leader counts itself only if its own append is
  reported durable. Only an entry of the current term is counted; entries of earlier terms are committed with it
  and never by themselves (Raft paper, figure 8);
- a follower counts as reachable because of its messages, never because something was sent to it;
- unanswered messages are limited for each follower.
"""

from __future__ import annotations

from collections.abc import Sequence

from drmq.model import NodeId
from drmq.raft.configuration import Configuration, configuration_to_bytes
from drmq.raft.errors import (
    ChangeInProgress,
    InvalidTransfer,
    NotCaughtUp,
    TooManyReads,
    TransferInProgress,
)
from drmq.raft.membership import check_change
from drmq.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    SnapshotAnswer,
    SnapshotChunk,
    TimeoutNow,
)
from drmq.raft.progress import Progress, ProgressState, Turn
from drmq.raft.proposals import UncommittedProposals
from drmq.raft.quorum import quorum_reached
from drmq.raft.read_index import ReadRounds
from drmq.raft.ready import Cause, MembersChange
from drmq.raft.snapshot import ChunkWanted, SnapshotId, SnapshotSending, Stage
from drmq.raft.state import ReplicaState
from drmq.raft.transfer import Transfer
from drmq.raft.types import NO_INDEX, Entry, EntryKind, LogIndex, Payload

_KEEPS_UP_TIMEOUTS = 2
"""A follower keeps up if it is less than this many election timeouts behind. The leader's knowledge of a follower is
itself delayed: the slowest follower that counts is one that is always behind by half of this."""


class Leader:
    """One term of leadership. Owned by the `Node` while its role is leader."""

    def __init__(self, state: ReplicaState, learners_take_turns: bool = False) -> None:
        self._state = state
        self._learners_take_turns = learners_take_turns
        self._turns_wanted: list[NodeId] = []
        self._tick_count = 0
        self._heartbeat_elapsed_ticks = 0
        self._quorum_deadline_tick = state.options.election_timeout_ticks
        self._commit_unsent = False
        self._replication_due = True
        self._chunks_wanted: list[ChunkWanted] = []
        self._proposals = UncommittedProposals(state.options)
        self.reads = ReadRounds()
        self.transfer: Transfer | None = None
        self.progress: dict[NodeId, Progress] = {}
        self._first_index_of_term = LogIndex(state.log.last_index + 1)
        if state.log.last_index == NO_INDEX:
            # The first configuration of a group is only in the empty snapshots of its first nodes. As the first entry
            # of the log it also reaches nodes that join later and read the log from the start.
            self._append(EntryKind.CONFIGURATION, configuration_to_bytes(state.configuration))
        else:
            self._append(EntryKind.NOTHING, b"")
        # After a start it is not known which changes in the log are old. Those that arrived since are new.
        known = state.configurations.at(max(state.log.commit_index, state.last_index_at_start))
        self._members_before = known.begun() if known.is_joint else known
        """The members as of the last complete change that was reported."""
        self._change_reason = ""
        self._follow_configuration()
        self._send_heartbeats()

    @property
    def knows_commit(self) -> bool:
        """Whether an entry of this term is committed, and with it every entry of earlier terms."""
        return self._state.log.commit_index >= self._first_index_of_term

    # Time

    def tick(self, patience: int) -> None:
        """Advance time by one tick. See `Node.tick`."""
        state = self._state
        self._tick_count += 1
        if self._tick_count >= self._quorum_deadline_tick and not self._hears_quorum(patience):
            # The nodes on the other side of a partition may have elected a leader. Clients that wait for this one would
            # wait in vain, so it steps down (Raft thesis, section 6.2).
            state.cause, state.caused_by = Cause.NO_QUORUM, None
            state.become_follower(state.term, None)
            return
        if self.transfer is not None and self._tick_count >= self.transfer.deadline_tick:
            self.transfer = None
        for progress in self.progress.values():
            progress.look(state.log.commit_index, self._tick_count)
        self._heartbeat_elapsed_ticks += 1
        if self._heartbeat_elapsed_ticks >= state.options.heartbeat_ticks:
            self._send_heartbeats()
        elif self._commit_unsent:
            self._send_commit()

    def _hears_quorum(self, patience: int) -> bool:
        """Whether a quorum was heard within so many election timeouts. Also sets the next time to check."""
        state = self._state
        heard = {node_id: progress.heard_tick for node_id, progress in self.progress.items()}
        heard[state.node_id] = self._tick_count
        timeout_ticks = state.options.election_timeout_ticks * patience
        self._quorum_deadline_tick = quorum_reached(state.configuration, heard) + timeout_ticks
        return self._tick_count < self._quorum_deadline_tick

    def _send_heartbeats(self) -> None:
        self._heartbeat_elapsed_ticks = 0
        self._commit_unsent = False
        for node_id, progress in self.progress.items():
            self._send_heartbeat(node_id, progress)
            if progress.sending is not None and progress.sending.is_overdue(
                self._tick_count, self._state.options.snapshot_resend_ticks
            ):
                progress.sending.offer_again(self._tick_count)
                self._send_offer(node_id, progress.sending)

    def _send_heartbeat(self, node_id: NodeId, progress: Progress) -> None:
        state = self._state
        commit = min(state.log.commit_index, progress.match)
        progress.commit_sent = max(progress.commit_sent, commit)
        state.send(Heartbeat(state.node_id, node_id, state.term, commit, self.reads.last_round))

    def _send_commit(self) -> None:
        """Send the commit index to followers that would otherwise get it only with the next heartbeat."""
        self._commit_unsent = False
        for node_id, progress in self.progress.items():
            if progress.commit_sent < min(self._state.log.commit_index, progress.match):
                self._send_heartbeat(node_id, progress)

    # Proposals

    def propose(self, payloads: Sequence[Payload], spans: Sequence[int] | None) -> LogIndex:
        """Append payloads and return the first index. Raises a `Refusal`."""
        # Not by `check_proposal`: this runs for every batch of a producer.
        if self.transfer is not None:
            raise TransferInProgress(self.transfer.target)
        self._proposals.check(sum(map(len, payloads)), len(payloads))
        first = LogIndex(self._state.log.last_index + 1)
        for position, payload in enumerate(payloads):
            index = self._append(EntryKind.PAYLOAD, payload, spans[position] if spans is not None else 1)
            self._proposals.add(index, len(payload))
        return first

    def check_proposal(self, size_bytes: int, count: int = 1) -> None:
        """Raise a `Refusal` if `propose` would refuse payloads of this total size now."""
        if self.transfer is not None:
            raise TransferInProgress(self.transfer.target)
        self._proposals.check(size_bytes, count)

    def propose_configuration(self, voters: frozenset[NodeId], learners: frozenset[NodeId], reason: str) -> LogIndex:
        """Start a membership change. Raises a `Refusal`."""
        state = self._state
        if self.transfer is not None:
            raise TransferInProgress(self.transfer.target)
        if not self.knows_commit:
            # Until it has committed an entry of its own term, a leader cannot know whether a change from an earlier
            # term is in progress.
            raise ChangeInProgress("this leader has not committed anything yet")
        if state.configuration.is_joint or state.configurations.latest_index > state.log.commit_index:
            raise ChangeInProgress("the last change is not complete")
        configuration = check_change(state.configuration, voters, learners, self._check_caught_up)
        self._change_reason = reason
        return self._append_configuration(configuration)

    def keeps_up(self, progress: Progress) -> bool:
        """Whether a follower responds and recently had everything that was committed.

        Both are needed: a follower whose disk hangs still answers heartbeats, which need no disk, and may lack only few
        entries. A follower that needs a snapshot lacks entries that the leader no longer has, even if it had everything
        a moment ago.
        """
        timeout = self._state.options.election_timeout_ticks
        behind = self.ticks_since_caught_up(progress)
        return (
            progress.state is not ProgressState.SNAPSHOT
            and self.ticks_since_heard(progress) < timeout
            and behind is not None
            and behind < _KEEPS_UP_TIMEOUTS * timeout
        )

    def ticks_since_caught_up(self, progress: Progress) -> int | None:
        """How many ticks ago a follower had everything that was committed; None if it has never confirmed that."""
        tick = progress.caught_up_tick(self._state.log.commit_index, self._tick_count)
        return None if tick is None else self._tick_count - tick

    def _lacks_little(self, progress: Progress) -> bool:
        """Whether a follower lacks at most `promotion_lag_max` committed indexes, and these fit into its window.

        The window limits bytes: few entries can be many bytes.
        """
        log, options = self._state.log, self._state.options
        if progress.match >= log.commit_index:
            return True
        if progress.match + options.promotion_lag_max < log.commit_index:
            return False
        start = LogIndex(progress.match + 1)
        if start < log.first_index:
            return False
        lacking = log.entries(start, options.in_flight_bytes_max, options.append_entries_max)
        # Entries that are not on this node's own disk yet may not be available here. They are few: a majority has them
        # already.
        return bool(lacking) and lacking[-1].index >= min(log.commit_index, log.durable_index)

    def ticks_since_heard(self, progress: Progress) -> int:
        """How many ticks ago a follower was heard."""
        return self._tick_count - progress.heard_tick

    @property
    def replicated_index(self) -> LogIndex:
        """The index up to which every follower that responds has the log."""
        heard_since = self._tick_count - self._state.options.election_timeout_ticks
        matches = [progress.match for progress in self.progress.values() if progress.heard_tick > heard_since]
        return min(matches, default=self._state.log.last_index)

    def _check_caught_up(self, node_id: NodeId) -> None:
        progress = self.progress[node_id]
        if not self.keeps_up(progress) or not self._lacks_little(progress):
            raise NotCaughtUp(node_id, progress.match, self._state.log.commit_index)

    def _append(self, kind: EntryKind, payload: Payload, span: int = 1) -> LogIndex:
        state = self._state
        last_index = state.log.last_index
        entry = Entry(LogIndex(last_index + 1), LogIndex(last_index + span), state.term, kind, payload, len(payload))
        state.append(entry)
        self._replication_due = True
        return entry.index

    def _append_configuration(self, configuration: Configuration) -> LogIndex:
        index = self._append(EntryKind.CONFIGURATION, configuration_to_bytes(configuration))
        self._follow_configuration()
        self._maybe_commit()
        return index

    def _follow_configuration(self) -> None:
        """Track exactly the members of the configuration in effect."""
        state = self._state
        members = state.configuration.members
        for node_id in [node_id for node_id in self.progress if node_id not in members]:
            del self.progress[node_id]
        for node_id in sorted(members - self.progress.keys() - {state.node_id}):
            # Starts with the last entry, not after it: something must be sent to find out what the follower has.
            self.progress[node_id] = Progress(state.options, state.log.last_index, self._tick_count)
        if self.transfer is not None and self.transfer.target not in self.progress:
            self.transfer = None
        self._quorum_deadline_tick = self._tick_count
        self._replication_due = True

    # Replication

    @property
    def has_work(self) -> bool:
        """Whether the next `Ready` will contain something from the leader."""
        return (
            self._replication_due
            or bool(self._chunks_wanted)
            or self.reads.has_confirmed
            or (self.reads.has_waiting and self.knows_commit)
        )

    def prepare_ready(self) -> None:
        """Send what may be sent: appends as far as each window allows, and one round for all new reads."""
        if self.reads.has_waiting and self.knows_commit:
            self.reads.begin_round(self._state.log.commit_index)
            self._send_heartbeats()
            self._count_reads()
        if self._replication_due:
            self._replication_due = False
            for node_id, progress in self.progress.items():
                while self._has_more_for(progress) and self._has_turn(node_id, progress):
                    if not self._send_append(node_id, progress):
                        break

    def _has_more_for(self, progress: Progress) -> bool:
        return progress.may_send and progress.next <= self._state.log.last_index

    def _has_turn(self, node_id: NodeId, progress: Progress) -> bool:
        """Whether one message with entries may be sent now. A learner that takes turns asks for its next turn here."""
        if not self._learners_take_turns or node_id not in self._state.configuration.learners:
            return True
        if progress.turn is Turn.GIVEN:
            progress.turn = Turn.NONE
            return True
        if progress.turn is Turn.NONE:
            progress.turn = Turn.ASKED
            self._turns_wanted.append(node_id)
        return False

    def give_turn(self, node_id: NodeId) -> None:
        """Give a learner its turn. A turn that it cannot use now expires, and it asks again when it can use one."""
        progress = self.progress.get(node_id)
        if progress is not None and progress.turn is Turn.ASKED:
            progress.turn = Turn.GIVEN if self._has_more_for(progress) else Turn.NONE
            self._replication_due = True

    def take_turns_wanted(self) -> tuple[NodeId, ...]:
        """Learners that entries could be sent to."""
        wanted, self._turns_wanted = self._turns_wanted, []
        return tuple(wanted)

    def _send_append(self, node_id: NodeId, progress: Progress, with_entries: bool = True) -> bool:
        """Send the next entries, or with no entries a probe whether the earlier ones arrived. Returns True if sent."""
        state, log, options = self._state, self._state.log, self._state.options
        previous_index = LogIndex(progress.next - 1)
        previous_term = log.term_at(previous_index)
        if previous_term is None:
            self._begin_snapshot(node_id, progress)
            return False
        entries: Sequence[Entry] = ()
        if with_entries:
            entries = log.entries(progress.next, options.append_bytes_max, options.append_entries_max)
            if not entries:
                progress.paused = True
                return False
            if entries[0].first != progress.next:
                # The position was found by term alone and lies inside an entry: send the whole entry.
                progress.next = entries[0].first
                previous_index = LogIndex(progress.next - 1)
                previous_term = log.term_at(previous_index)
                assert previous_term is not None, (previous_index, log.first_index)
            progress.on_sent(entries[-1].index, sum(entry.size_bytes for entry in entries))
        commit = log.commit_index
        progress.commit_sent = max(progress.commit_sent, min(commit, entries[-1].index if entries else previous_index))
        state.send(
            AppendRequest(state.node_id, node_id, state.term, previous_index, previous_term, tuple(entries), commit)
        )
        return True

    def on_entries_read(self) -> None:
        """Entries that were not in memory may be available now."""
        for progress in self.progress.values():
            if progress.state is ProgressState.REPLICATE:
                progress.paused = False
        self._replication_due = True

    def on_append_accepted(self, message: AppendAccepted) -> None:
        """A follower has more of the log on disk."""
        progress = self._heard(message.sender)
        if progress is None:
            return
        state = self._state
        assert message.match <= state.log.last_index, (message, state.log.last_index)
        rose = progress.on_accepted(message.match, state.log.first_index)
        self._replication_due = True
        if rose:
            self._maybe_finish_transfer()
            self._maybe_commit()

    def on_append_rejected(self, message: AppendRejected) -> None:
        """A follower's log does not match at the expected index: go back to where both may agree."""
        progress = self._heard(message.sender)
        if progress is None:
            return
        agreed_at_most = self._state.log.last_at_most(message.hint_index, message.hint_term)
        if progress.on_rejected(message.rejected, agreed_at_most):
            self._replication_due = True

    def on_heartbeat_response(self, message: HeartbeatResponse) -> None:
        """A follower responds and accepts this node as leader."""
        progress = self._heard(message.sender)
        if progress is None:
            return
        if message.read_round > progress.read_round:
            progress.read_round = message.read_round
            self._count_reads()
        if progress.match >= self._state.log.last_index or progress.state is ProgressState.SNAPSHOT:
            return
        if progress.on_silence():
            progress.paused = False
            has_more = progress.next <= self._state.log.last_index
            if has_more and (progress.state is ProgressState.PROBE or progress.in_flight_count == 0):
                self._replication_due = True
            else:
                self._send_append(message.sender, progress, with_entries=False)

    def on_member_lost(self, node_id: NodeId, ticks: int) -> None:
        """A follower was last heard `ticks` ticks ago, even if this object counted fewer."""
        progress = self.progress.get(node_id)
        if progress is not None:
            progress.heard_tick = min(progress.heard_tick, self._tick_count - ticks)
            self._quorum_deadline_tick = self._tick_count

    def on_member_restarted(self, node_id: NodeId) -> None:
        """A follower has a new process. Its disk may hold less than it confirmed, if the disk lost synced data."""
        progress = self.progress.get(node_id)
        if progress is None or progress.state is ProgressState.SNAPSHOT or progress.match == NO_INDEX:
            return
        progress.forget()
        self._send_append(node_id, progress, with_entries=False)
        self._replication_due = True

    def on_own_log_durable(self) -> None:
        """More of the leader's own log is on its own disk."""
        self._maybe_commit()

    def _heard(self, node_id: NodeId) -> Progress | None:
        progress = self.progress.get(node_id)
        if progress is not None:
            progress.heard_tick = self._tick_count
        return progress

    # Commit

    def _maybe_commit(self) -> None:
        state, log = self._state, self._state.log
        reached: dict[NodeId, int] = {node_id: progress.match for node_id, progress in self.progress.items()}
        reached[state.node_id] = log.durable_index
        index = LogIndex(quorum_reached(state.configuration, reached))
        if index <= log.commit_index or log.term_at(index) != state.term:
            return
        log.commit_to(index)
        self._commit_unsent = True
        self._proposals.on_commit(index)
        self._on_commit()

    def _on_commit(self) -> None:
        """Take the next step of a membership change if the previous one is committed."""
        state = self._state
        if state.configurations.latest_index > state.log.commit_index:
            return
        if state.configuration.is_joint:
            self._append_configuration(state.configuration.settled())
            return
        if state.configuration is not self._members_before:
            self._report_members()
        if not state.configuration.votes(state.node_id):
            self._resign()

    def _report_members(self) -> None:
        state, before = self._state, self._members_before
        # The first entry of a group repeats the members that it has from the start.
        if state.configuration != before:
            state.members_changes.append(MembersChange(before, state.configuration, state.term, self._change_reason))
        self._members_before, self._change_reason = state.configuration, ""

    def _resign(self) -> None:
        """Step down because this node no longer votes; first send the commit, and ask the best voter to campaign."""
        state = self._state
        self._send_heartbeats()
        fittest = max(
            sorted(state.configuration.voters), key=lambda node_id: self.progress[node_id].match, default=None
        )
        if fittest is not None and self.progress[fittest].match == state.log.last_index:
            state.send(TimeoutNow(state.node_id, fittest, state.term))
        state.cause, state.caused_by = Cause.NO_VOTE, None
        state.become_follower(state.term, None)

    def on_later_term(self, sender: NodeId) -> None:
        """A message of a later term ends this leadership: record why."""
        state, transfer = self._state, self.transfer
        if transfer is not None and transfer.asked:
            state.cause, state.caused_by = Cause.HANDED_OVER, transfer.target
        else:
            state.cause, state.caused_by = Cause.LATER_TERM, sender

    # Reads

    def read(self, context: object) -> None:
        """Request confirmation that a read will see everything acknowledged so far. Raises `TooManyReads`."""
        if self.reads.count >= self._state.options.read_requests_max:
            raise TooManyReads(f"{self.reads.count} reads wait")
        self.reads.add(context)

    def _count_reads(self) -> None:
        state = self._state
        rounds = {node_id: progress.read_round for node_id, progress in self.progress.items()}
        rounds[state.node_id] = self.reads.last_round
        self.reads.on_quorum(quorum_reached(state.configuration, rounds))

    # Transfer of leadership

    def begin_transfer(self, target: NodeId) -> None:
        """Transfer leadership to `target`. Raises a `Refusal`."""
        state = self._state
        if self.transfer is not None:
            raise TransferInProgress(self.transfer.target)
        if target == state.node_id or target not in state.configuration.voters:
            raise InvalidTransfer(f"node {target} cannot take over")
        if self.ticks_since_heard(self.progress[target]) >= state.options.election_timeout_ticks:
            raise InvalidTransfer(f"node {target} does not answer")
        self.transfer = Transfer(target, self._tick_count + state.options.transfer_ticks_max)
        self._maybe_finish_transfer()

    def _maybe_finish_transfer(self) -> None:
        transfer, state = self.transfer, self._state
        if transfer is None or transfer.asked:
            return
        if self.progress[transfer.target].match == state.log.last_index:
            transfer.asked = True
            state.send(TimeoutNow(state.node_id, transfer.target, state.term))

    # Snapshots

    def _begin_snapshot(self, node_id: NodeId, progress: Progress) -> None:
        sending = SnapshotSending(self._state.log.snapshot, self._tick_count)
        progress.become_snapshot(sending)
        self._send_offer(node_id, sending)

    def _send_offer(self, node_id: NodeId, sending: SnapshotSending) -> None:
        state = self._state
        state.send(SnapshotChunk(state.node_id, node_id, state.term, sending.meta, 0, b"", False))

    def on_snapshot_answer(self, message: SnapshotAnswer) -> None:
        """A follower reports how much of a snapshot it has."""
        progress = self._heard(message.sender)
        if progress is None or progress.sending is None:
            return
        sending = progress.sending
        if sending.meta.snapshot_id != message.snapshot_id:
            return
        if sending.on_answer(message.received, self._tick_count):
            size_bytes_max = self._state.options.snapshot_chunk_bytes_max
            self._chunks_wanted.append(ChunkWanted(message.sender, sending.meta, sending.received, size_bytes_max))

    def send_snapshot_chunk(
        self, target: NodeId, snapshot_id: SnapshotId, offset: int, data: bytes | bytearray | memoryview, done: bool
    ) -> None:
        """Send a chunk that the driver has read. A chunk that is no longer wanted is dropped."""
        sending = self._wanted(target, snapshot_id)
        if sending is None or sending.received != offset:
            return
        assert data or done, "an empty chunk would ask for itself for ever"
        sending.stage = Stage.SENT
        sending.asked_tick = self._tick_count
        if done:
            sending.size_bytes = offset + len(data)
        state = self._state
        state.send(SnapshotChunk(state.node_id, target, state.term, sending.meta, offset, data, done))

    def on_snapshot_unavailable(self, target: NodeId, snapshot_id: SnapshotId) -> None:
        """The driver no longer has that snapshot: find out again what the follower needs."""
        if self._wanted(target, snapshot_id) is not None:
            progress = self.progress[target]
            progress.become_probe()
            progress.paused = True  # Until the next heartbeat is answered, instead of retrying at once.

    def _wanted(self, target: NodeId, snapshot_id: SnapshotId) -> SnapshotSending | None:
        progress = self.progress.get(target)
        sending = progress.sending if progress is not None else None
        if sending is None or sending.stage is not Stage.WANTED or sending.meta.snapshot_id != snapshot_id:
            return None
        return sending

    def take_chunks_wanted(self) -> tuple[ChunkWanted, ...]:
        """Parts of snapshots that the driver must read."""
        wanted, self._chunks_wanted = self._chunks_wanted, []
        return tuple(wanted)
