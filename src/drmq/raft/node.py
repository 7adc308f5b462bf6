"""`Node`: the interface of the package. It handles terms, passes each message to the role that handles it, and collects
what they request into a `Ready`.

Terms come first. A message of a higher term makes this node a follower of that term before the message is handled. A
message of a lower term is not handled; its sender is answered with the higher term if it would otherwise continue as
leader. Two kinds of message are exceptions:

- a pre-vote refers to a term that no node is in yet, so a pre-vote request raises no term;
- a vote request is ignored, including its term, by a node that receives messages from a leader: a node that was
  disconnected, or was removed without being notified, must not depose a working leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drmq.model import NodeId
from drmq.raft.configuration import Configuration, ConfigurationHistory, configuration_from_bytes
from drmq.raft.election import Election
from drmq.raft.errors import NotLeader, ProtocolError
from drmq.raft.follower import Follower
from drmq.raft.leader import Leader
from drmq.raft.log import LogReader, RaftLog
from drmq.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    SnapshotAnswer,
    SnapshotChunk,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from drmq.raft.options import RaftOptions
from drmq.raft.progress import ProgressState
from drmq.raft.ready import Cause, Leadership, Ready
from drmq.raft.snapshot import SnapshotId, SnapshotMeta, SnapshotReceiving
from drmq.raft.state import ReplicaState
from drmq.raft.types import NO_INDEX, EntryKind, HardState, LogIndex, Payload, Role, Term

if TYPE_CHECKING:
    from random import Random

_FROM_LEADER = (AppendRequest, Heartbeat, SnapshotChunk, TimeoutNow)


@dataclass(frozen=True, slots=True)
class PeerProgress:
    """How far a follower is, as far as its leader knows."""

    state: ProgressState
    match: LogIndex
    votes: bool
    caught_up: bool
    """Heard within an election timeout, and recently had everything that was committed."""
    ticks_since_heard: int
    ticks_since_caught_up: int | None
    """Since it had everything that was committed; None if it has never confirmed that to this leader."""
    in_flight_messages: int
    in_flight_bytes: int
    snapshot_received_bytes: int | None
    """How many bytes of a snapshot it has, while one is sent to it."""


class Node:
    """One replica of one group. Owned by one driver, which calls it from one task."""

    def __init__(
        self,
        node_id: NodeId,
        reader: LogReader,
        random: Random,
        options: RaftOptions | None = None,
        hard_state: HardState | None = None,
        commit: LogIndex = NO_INDEX,
        applied: LogIndex = NO_INDEX,
        receiving: SnapshotReceiving | None = None,
        *,
        learners_take_turns: bool = False,
    ) -> None:
        """Create a replica from its stored state.

        `commit` is any commit index that was handed out before, `applied` is what the state machine holds, and
        `receiving` is a partly received snapshot whose bytes were kept. With `learners_take_turns`, a leader sends
        entries to a learner only when the driver gives it a turn. If the driver held messages back instead, they would
        take memory, and the missing answers would look like message loss.
        """
        hard_state = hard_state or HardState()
        log = RaftLog(reader, commit, applied)
        assert hard_state.term >= log.last_term, (hard_state, log.last_term)
        configurations = ConfigurationHistory(
            reader.snapshot.index, reader.snapshot.configuration, reader.configuration_entries()
        )
        self._state = ReplicaState(node_id, options or RaftOptions(), log, configurations, hard_state, random)
        self._election = Election(self._state)
        self._follower = Follower(self._state, receiving)
        self._leader: Leader | None = None
        self._learners_take_turns = learners_take_turns
        self._reads_refused: list[object] = []
        self._handed_hard_state = hard_state
        self._handed_leadership: tuple[Role, Term, NodeId | None] = (Role.FOLLOWER, hard_state.term, None)
        self._handed_commit = log.commit_index
        self._ready_number = 0
        self._persisted_number = 0

    # What this replica is

    @property
    def node_id(self) -> NodeId:
        """The id of this replica's node."""
        return self._state.node_id

    @property
    def term(self) -> Term:
        """The current term."""
        return self._state.term

    @property
    def role(self) -> Role:
        """The current role."""
        return self._state.role

    @property
    def leader_id(self) -> NodeId | None:
        """The node that this one considers the leader; None if unknown."""
        return self._state.leader_id

    @property
    def commit_index(self) -> LogIndex:
        """The commit index, as far as this node knows."""
        return self._state.log.commit_index

    @property
    def applied_index(self) -> LogIndex:
        """How far the driver has applied the log."""
        return self._state.log.applied_index

    @property
    def durable_index(self) -> LogIndex:
        """How far the log is on this node's disk."""
        return self._state.log.durable_index

    @property
    def last_index(self) -> LogIndex:
        """The end of the log."""
        return self._state.log.last_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in effect, committed or not."""
        return self._state.configuration

    @property
    def change_in_progress(self) -> bool:
        """Whether a membership change is under way."""
        state = self._state
        return state.configuration.is_joint or state.configurations.latest_index > state.log.commit_index

    @property
    def knows_commit(self) -> bool:
        """Whether this is a leader that has committed an entry of its own term."""
        return self._leader is not None and self._leader.knows_commit

    @property
    def transfer_target(self) -> NodeId | None:
        """The node that leadership is being transferred to; None if there is no transfer."""
        transfer = self._leader.transfer if self._leader is not None else None
        return transfer.target if transfer is not None else None

    def term_at(self, index: LogIndex) -> Term | None:
        """The term of an entry; None if it is not in the log."""
        return self._state.log.term_at(index)

    def matches(self) -> Iterable[tuple[NodeId, LogIndex]]:
        """The index up to which a leader knows its followers to agree; nothing on a node that is not the leader."""
        leader = self._leader
        if leader is None:
            return ()
        return [(node_id, progress.match) for node_id, progress in leader.progress.items()]

    def progress(self) -> dict[NodeId, PeerProgress]:
        """What a leader knows about its followers; empty on a node that is not the leader."""
        leader = self._leader
        if leader is None:
            return {}
        return {
            node_id: PeerProgress(
                progress.state,
                progress.match,
                self.configuration.votes(node_id),
                leader.keeps_up(progress),
                leader.ticks_since_heard(progress),
                leader.ticks_since_caught_up(progress),
                progress.in_flight_count,
                progress.in_flight_bytes,
                progress.sending.received if progress.sending is not None else None,
            )
            for node_id, progress in leader.progress.items()
        }

    @property
    def has_followers(self) -> bool:
        """Whether this is a leader that has other members to send its log to."""
        return self._leader is not None and bool(self._leader.progress)

    @property
    def replicated_index(self) -> LogIndex:
        """On a leader: the index up to which every follower that was heard within an election timeout has the log."""
        leader = self._leader
        assert leader is not None
        return leader.replicated_index

    def snapshot_meta(self, index: LogIndex, data: bytes = b"") -> SnapshotMeta:
        """The metadata for a snapshot of the state at `index`, which must be applied."""
        state = self._state
        assert index <= state.log.applied_index, (index, state.log.applied_index)
        term = state.log.term_at(index)
        assert term is not None, f"{index} is older than the last snapshot"
        return SnapshotMeta(index, term, state.configurations.at(index), data)

    # In

    def tick(self, patience: int = 1, may_campaign: bool = True) -> None:
        """Advance time by one tick.

        A driver that knows by other means which nodes work need not rely on the messages of each group. With
        `patience`, this replica waits for its leader, or for its quorum, that many times longer than usual. The driver
        reports what it knows by `on_leader_lost` and `on_member_lost`. Without `may_campaign`, a campaign that is due
        waits for a later tick.
        """
        if self._leader is not None:
            self._leader.tick(patience)
        else:
            self._election.tick(patience, may_campaign)
        self._follow_role()

    @property
    def is_campaigning(self) -> bool:
        """Whether this node asks for votes or pre-votes."""
        return self._state.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)

    def receive(self, message: Message) -> None:
        """Handle a peer's message. Raises `ProtocolError` if it is invalid by itself."""
        _check(message, self._state.node_id)
        if self._settle_term(message):
            self._dispatch(message)
            self._follow_role()

    def campaign(self, cause: Cause = Cause.TIMEOUT) -> None:
        """Try to become leader now, as if the timeout had passed. Does nothing if this node may not campaign."""
        if self._leader is None and self._state.may_campaign:
            self._state.campaign_cause = cause
            self._election.campaign()
            self._follow_role()

    def on_leader_lost(self, rank: int = 0, cause: Cause = Cause.LEADER_DOWN) -> None:
        """The driver has reason to believe that the leader's process is gone: start an election soon.

        Drivers that give different ranks to the members, from 0, make them campaign one after the other. A mistake does
        no harm: no promise depends on it, and nodes that still hear the leader do not grant pre-votes.
        """
        state = self._state
        if state.role is Role.FOLLOWER and state.leader_id is not None:
            state.leader_id = None
            state.campaign_cause = cause
            state.hasten_election(rank)

    def hasten_election(self, cause: Cause) -> None:
        """The driver wants this replica to become leader if the group has none: campaign soon."""
        if self._leader is None and self._state.leader_id is None:
            self._state.campaign_cause = cause
            self._state.hasten_election(0)

    def delay_election(self, patience: int) -> None:
        """The driver expects another replica to campaign: wait so many times longer than usual before this one does.

        Not if a replica asks for this one's vote and lacks entries that this one has: then it cannot be elected.
        """
        if self._leader is None and self._state.leader_id is None:
            self._state.timeout_ticks *= patience
            self._state.expects_other = True

    def on_voter_returned(self, rank: int = 0) -> None:
        """The driver knows that a voter can be reached again: if campaigns have failed, the next one follows soon."""
        if self._leader is None and self._state.leader_id is None and self._state.campaigns:
            self._state.hasten_election(rank)

    def on_member_lost(self, node_id: NodeId, ticks: int) -> None:
        """The driver knows that a member is gone, or that none of its groups heard it for `ticks` ticks.

        A leader that lost its quorum by this steps down at its next tick. A mistake costs at most an election.
        """
        if self._leader is not None:
            self._leader.on_member_lost(node_id, ticks)

    def on_member_restarted(self, node_id: NodeId) -> None:
        """The driver has seen that a member runs a new process: verify again what it holds.

        A correct disk still has everything. A disk that lost synced data, or was restored to an earlier state, does
        not, and without this check the leader would never send the missing entries again. A mistake costs one message.
        """
        if self._leader is not None:
            self._leader.on_member_restarted(node_id)

    def propose(self, payloads: Sequence[Payload], spans: Sequence[int] | None = None) -> LogIndex:
        """Append payloads, in order, and return the first index. Raises a `Refusal`.

        `spans` says how many indexes each payload covers; without it each covers one. The entries are committed when a
        `Ready` says so, and lost when one says that they are truncated. Until then their outcome is unknown, even if
        this replica stops being the leader.
        """
        assert payloads, "nothing proposed"
        return self._must_lead().propose(payloads, spans)

    def check_proposal(self, size_bytes: int) -> None:
        """Raise the `Refusal` that a proposal of one payload of this size would get now, if any."""
        self._must_lead().check_proposal(size_bytes)

    def propose_configuration(
        self, voters: Iterable[NodeId], learners: Iterable[NodeId] = (), reason: str = ""
    ) -> LogIndex:
        """Start to change the members to these. Raises a `Refusal`. `reason` is returned when that is committed."""
        index = self._must_lead().propose_configuration(frozenset(voters), frozenset(learners), reason)
        self._follow_role()
        return index

    def read_index(self, context: object) -> None:
        """Request an index that covers everything acknowledged so far. Raises a `Refusal`.

        A later `Ready` returns `context`, either with the index or as refused.
        """
        self._must_lead().read(context)

    def transfer_leadership(self, target: NodeId) -> None:
        """Transfer leadership to `target`. Raises a `Refusal`."""
        self._must_lead().begin_transfer(target)

    # Out

    @property
    def has_ready(self) -> bool:
        """Whether `take_ready` would return anything to do."""
        state = self._state
        return bool(
            state.messages
            or state.messages_after_persist
            or state.log.has_work
            or (self._leader is not None and self._leader.has_work)
            or self._follower.has_work
            or self._reads_refused
            or self._handed_commit != state.log.commit_index
            or not state.is_hard_state(self._handed_hard_state)
            or self._handed_leadership != (state.role, state.term, state.leader_id)
        )

    def take_ready(self) -> Ready:
        """Return everything that is to be done now, and forget it."""
        state, leader = self._state, self._leader
        if leader is not None:
            leader.prepare_ready()
        self._ready_number += 1
        hard_state = leadership = None
        if not state.is_hard_state(self._handed_hard_state):
            hard_state = self._handed_hard_state = state.hard_state
        if self._handed_leadership != (state.role, state.term, state.leader_id):
            self._handed_leadership = (state.role, state.term, state.leader_id)
            leadership = Leadership(*self._handed_leadership, state.cause, state.caused_by)
        snapshot = self._follower.take_snapshot_to_install()
        chunks_to_save = self._follower.take_chunks_to_save()
        truncate_from, entries = state.log.take_unpersisted()
        if hard_state or snapshot or chunks_to_save or truncate_from or entries:
            state.log.on_handed_out(self._ready_number, hard_state, snapshot)
        elif not state.log.has_in_flight:
            # Everything that these messages depend on is durable already.
            state.messages += state.messages_after_persist
            state.messages_after_persist = []
        messages, state.messages = state.messages, []
        messages_after_persist, state.messages_after_persist = state.messages_after_persist, []
        reads_refused, self._reads_refused = self._reads_refused, []
        members_changes, state.members_changes = state.members_changes, []
        self._handed_commit = state.log.commit_index
        return Ready(
            number=self._ready_number,
            messages=tuple(messages),
            hard_state=hard_state,
            snapshot=snapshot,
            truncate_from=truncate_from,
            entries=entries,
            chunks_to_save=chunks_to_save,
            messages_after_persist=tuple(messages_after_persist),
            committed=state.log.take_committed(),
            members_changes=tuple(members_changes),
            commit=state.log.commit_index,
            chunks_wanted=leader.take_chunks_wanted() if leader is not None else (),
            turns_wanted=leader.take_turns_wanted() if leader is not None else (),
            reads_confirmed=leader.reads.take_confirmed() if leader is not None else (),
            reads_refused=tuple(reads_refused),
            leadership=leadership,
        )

    # The driver reports

    def on_persisted(self, number: int) -> None:
        """Everything that the `Ready`s up to `number` had to persist is durable."""
        assert self._persisted_number <= number <= self._ready_number, (number, self._ready_number)
        self._persisted_number = number
        state = self._state
        hard_state = state.log.on_persisted(number)
        if hard_state is not None:
            state.durable_hard_state = hard_state
            self._election.on_hard_state_durable()
        if self._leader is not None:
            self._leader.on_own_log_durable()
        self._follow_role()

    def on_applied(self, index: LogIndex) -> None:
        """The state machine has applied everything up to `index`."""
        self._state.log.on_applied(index)

    def on_entries_read(self) -> None:
        """Entries that the `LogReader` did not have in memory may be available now."""
        if self._leader is not None:
            self._leader.on_entries_read()

    def give_turn(self, target: NodeId) -> None:
        """Grant a learner's turn: one message with entries may be sent to it in the next `Ready`."""
        if self._leader is not None:
            self._leader.give_turn(target)

    def send_snapshot_chunk(
        self, target: NodeId, snapshot_id: SnapshotId, offset: int, data: bytes | bytearray | memoryview, done: bool
    ) -> None:
        """Pass in a chunk that a `Ready` asked for; `done` if it is the last one of the snapshot."""
        if self._leader is not None:
            self._leader.send_snapshot_chunk(target, snapshot_id, offset, data, done)

    def on_snapshot_unavailable(self, target: NodeId, snapshot_id: SnapshotId) -> None:
        """A chunk that a `Ready` asked for is not available, for example because a newer snapshot replaced it."""
        if self._leader is not None:
            self._leader.on_snapshot_unavailable(target, snapshot_id)

    def on_snapshot_received(self, sender: NodeId, snapshot_id: SnapshotId, intact: bool) -> None:
        """The snapshot whose last chunk was saved is complete and has been checked."""
        self._follower.on_snapshot_received(sender, snapshot_id, intact)

    # Inside

    def _must_lead(self) -> Leader:
        if self._leader is None:
            raise NotLeader(self._state.leader_id)
        return self._leader

    def _follow_role(self) -> None:
        """Create or drop the `Leader` object after anything that may have changed the role."""
        leads = self._state.role is Role.LEADER
        if leads and self._leader is None:
            self._leader = Leader(self._state, self._learners_take_turns)
        elif not leads and self._leader is not None:
            self._reads_refused += self._leader.reads.unconfirmed()
            self._reads_refused += [read.context for read in self._leader.reads.take_confirmed()]
            self._leader = None

    def _settle_term(self, message: Message) -> bool:
        """Bring this node and the message to one term. Returns True if the message is to be handled."""
        state = self._state
        if isinstance(message, PreVoteRequest):
            return True
        if message.term > state.term:
            if isinstance(message, VoteRequest) and state.hears_leader and not message.transfer:
                return False
            if self._leader is not None:
                self._leader.on_later_term(message.sender)
            from_leader = isinstance(message, _FROM_LEADER)
            state.become_follower(message.term, message.sender if from_leader else None)
            self._follow_role()
            return True
        if message.term < state.term:
            if isinstance(message, AppendRequest | Heartbeat | SnapshotChunk):
                # Its sender is no longer the leader, or this node could never follow it, because it has seen a later
                # term. If the message were ignored, this node would be left out for ever. With this answer the sender
                # steps down, and an election follows.
                state.send_in_term(HeartbeatResponse(state.node_id, message.sender, state.term, 0))
            return isinstance(message, VoteRequest | PreVoteResponse)
        if isinstance(message, _FROM_LEADER):
            assert state.role is not Role.LEADER, f"two leaders in term {state.term}: {message}"
            assert state.leader_id in (None, message.sender), f"{state.leader_id} leads term {state.term}: {message}"
            state.become_follower(message.term, message.sender)
        return True

    def _dispatch(self, message: Message) -> None:
        """Pass a message to the role that handles it. Answers for a leader are dropped if this node no longer leads."""
        leader = self._leader
        match message:
            case AppendRequest():
                self._follower.on_append(message)
            case AppendAccepted():
                if leader is not None:
                    leader.on_append_accepted(message)
            case Heartbeat():
                self._follower.on_heartbeat(message)
            case HeartbeatResponse():
                if leader is not None:
                    leader.on_heartbeat_response(message)
            case AppendRejected():
                if leader is not None:
                    leader.on_append_rejected(message)
            case PreVoteRequest():
                self._election.on_pre_vote_request(message)
            case PreVoteResponse():
                self._election.on_pre_vote_response(message)
            case VoteRequest():
                self._election.on_vote_request(message)
            case VoteResponse():
                self._election.on_vote_response(message)
            case SnapshotChunk():
                self._follower.on_snapshot_chunk(message)
            case SnapshotAnswer():
                if leader is not None:
                    leader.on_snapshot_answer(message)
            case TimeoutNow():
                if self._state.may_campaign:
                    self._state.campaign_cause = Cause.HANDED_OVER
                    self._election.campaign(transfer=True)


def _check(message: Message, node_id: NodeId) -> None:
    """Raise `ProtocolError` for a message that no correct replica sends."""
    if message.target != node_id or message.sender == node_id:
        raise ProtocolError(f"a message from {message.sender} to {message.target} came to {node_id}")
    if isinstance(message, AppendRequest):
        index, term = message.previous_index, message.previous_term
        for entry in message.entries:
            if not index + 1 == entry.first <= entry.index or not term <= entry.term <= message.term:
                raise ProtocolError(
                    f"entry {entry.first} to {entry.index} of term {entry.term} cannot follow {index} of term {term}"
                )
            index, term = entry.index, entry.term
            if entry.kind is EntryKind.CONFIGURATION:
                _check_configuration(configuration_from_bytes(entry.payload))
    elif isinstance(message, SnapshotChunk):
        _check_configuration(message.meta.configuration)


def _check_configuration(configuration: Configuration) -> None:
    if not configuration.voters or configuration.voters & configuration.learners:
        raise ProtocolError(f"impossible members: {configuration}")
