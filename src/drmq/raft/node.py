"""`Node`: the door of the package. It settles terms, hands each message to the part that knows it, and
collects what they want from the world into a `Ready`.

Terms come first. A message of a higher term makes this node a follower of that term before anything else
is done with it, and one of a lower term is not acted upon; its sender is told the higher term where it
would otherwise go on leading. Two kinds of message are exempt:

- a pre-vote is about a term that nobody is in, so asking for one raises no term;
- a vote request is ignored, term and all, by a node that hears from a leader: a node that was cut off, or
  removed without knowing it, must not depose a leader that works.
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
from drmq.raft.ready import Leadership, Ready
from drmq.raft.snapshot import SnapshotId, SnapshotMeta, SnapshotReceiving
from drmq.raft.state import ReplicaState
from drmq.raft.types import NO_INDEX, EntryKind, HardState, LogIndex, Payload, Role, Term

if TYPE_CHECKING:
    from random import Random

_FROM_LEADER = (AppendRequest, Heartbeat, SnapshotChunk, TimeoutNow)


@dataclass(frozen=True, slots=True)
class PeerProgress:
    """How far a follower is, as its leader knows it."""

    state: ProgressState
    match: LogIndex
    votes: bool
    caught_up: bool
    """Heard of within an election timeout, and had all that was committed not long ago."""
    ticks_since_heard: int
    ticks_since_caught_up: int | None
    """Since it had all that was committed; None if it has never shown that to this leader."""
    in_flight_messages: int
    in_flight_bytes: int
    snapshot_received_bytes: int | None
    """How much of a snapshot it has, while it is being sent one."""


class Node:
    """One replica of one group. Belongs to one driver, which calls it from one task."""

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
        """A replica as its storage remembers it.

        `commit` is any commit index that was handed out before, `applied` what the state machine holds, and
        `receiving` a partly received snapshot whose bytes were kept. With `learners_take_turns`, a leader sends
        entries to a learner only when the driver gives it a turn: a message that the driver held back would lie in
        memory, and its silence would be taken for a loss.
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
        self._handed_leadership = Leadership(Role.FOLLOWER, hard_state.term, None)
        self._handed_commit = log.commit_index
        self._ready_number = 0
        self._persisted_number = 0

    # What this replica is

    @property
    def node_id(self) -> NodeId:
        """Who this is."""
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
        """Whom this node takes for the leader."""
        return self._state.leader_id

    @property
    def commit_index(self) -> LogIndex:
        """How far the log is committed, as far as this node knows."""
        return self._state.log.commit_index

    @property
    def applied_index(self) -> LogIndex:
        """How far the driver has applied it."""
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
        """Whom leadership is being handed to."""
        transfer = self._leader.transfer if self._leader is not None else None
        return transfer.target if transfer is not None else None

    def term_at(self, index: LogIndex) -> Term | None:
        """The term of an entry; None if it is not in the log."""
        return self._state.log.term_at(index)

    def progress(self) -> dict[NodeId, PeerProgress]:
        """What a leader knows about the others; empty on everyone else."""
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
        """Whether this is a leader with someone to send its log to."""
        return self._leader is not None and bool(self._leader.progress)

    @property
    def replicated_index(self) -> LogIndex:
        """On a leader: how far everyone has the log who has been heard within an election timeout."""
        leader = self._leader
        assert leader is not None
        return leader.replicated_index

    def snapshot_meta(self, index: LogIndex, data: bytes = b"") -> SnapshotMeta:
        """What a snapshot of the state at `index`, which must be applied, has to remember."""
        state = self._state
        assert index <= state.log.applied_index, (index, state.log.applied_index)
        term = state.log.term_at(index)
        assert term is not None, f"{index} is older than the last snapshot"
        return SnapshotMeta(index, term, state.configurations.at(index), data)

    # In

    def tick(self) -> None:
        """Time passes: one tick."""
        if self._leader is not None:
            self._leader.tick()
        else:
            self._election.tick()
        self._follow_role()

    def receive(self, message: Message) -> None:
        """Act upon a peer's message. Raises `ProtocolError` if it is wrong in itself."""
        _check(message, self._state.node_id)
        if self._settle_term(message):
            self._dispatch(message)
            self._follow_role()

    def campaign(self) -> None:
        """Try to become leader now, as if the timeout had passed. Does nothing where that makes no sense."""
        if self._leader is None and self._state.may_campaign:
            self._election.campaign()
            self._follow_role()

    def on_leader_lost(self) -> None:
        """The driver has reason to believe that the leader's process is gone: do not wait for its silence.

        A mistake does no harm: nothing is promised by it, and whoever still hears the leader grants no election.
        """
        state = self._state
        if state.role is Role.FOLLOWER and state.leader_id is not None:
            state.leader_id = None
            state.hasten_election()

    def on_member_lost(self, node_id: NodeId, ticks: int) -> None:
        """The driver knows that a member is gone, or was not heard for so many ticks by any of its groups.

        A leader that has lost its quorum by that steps down at its next tick. A mistake costs an election at worst.
        """
        if self._leader is not None:
            self._leader.on_member_lost(node_id, ticks)

    def on_member_restarted(self, node_id: NodeId) -> None:
        """The driver has seen that a member's process is another one than before: what it holds, it must show again.

        A disk that keeps its word has all of it. One that lies, or was put back to an earlier state, does not, and the
        member would be sent nothing of that any more. A mistake costs one question.
        """
        if self._leader is not None:
            self._leader.on_member_restarted(node_id)

    def propose(self, payloads: Sequence[Payload], spans: Sequence[int] | None = None) -> LogIndex:
        """Append payloads, in order, and give the first index. Raises a `Refusal`.

        `spans` says how many indexes each covers; without it each covers one.
        They are committed when a `Ready` says so, and lost when one says that they are truncated; until
        then their fate is open, also if this replica stops leading.
        """
        assert payloads, "nothing proposed"
        return self._must_lead().propose(payloads, spans)

    def check_proposal(self, size_bytes: int) -> None:
        """Raise the `Refusal` that a proposal of one payload of this size would get now, if any."""
        self._must_lead().check_proposal(size_bytes)

    def propose_configuration(self, voters: Iterable[NodeId], learners: Iterable[NodeId] = ()) -> LogIndex:
        """Begin to change the members to these. Raises a `Refusal`."""
        index = self._must_lead().propose_configuration(frozenset(voters), frozenset(learners))
        self._follow_role()
        return index

    def read_index(self, context: object) -> None:
        """Ask for an index that covers everything answered up to now. Raises a `Refusal`.

        `context` comes back in a `Ready`, with the index or refused.
        """
        self._must_lead().read(context)

    def transfer_leadership(self, target: NodeId) -> None:
        """Hand leadership over. Raises a `Refusal`."""
        self._must_lead().begin_transfer(target)

    # Out

    @property
    def has_ready(self) -> bool:
        """Whether `take_ready` would hold anything."""
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
        """Hand over everything that is to be done now, and forget it."""
        state, leader = self._state, self._leader
        if leader is not None:
            leader.prepare_ready()
        self._ready_number += 1
        hard_state = leadership = None
        if not state.is_hard_state(self._handed_hard_state):
            hard_state = self._handed_hard_state = state.hard_state
        if self._handed_leadership != (state.role, state.term, state.leader_id):
            leadership = self._handed_leadership = Leadership(state.role, state.term, state.leader_id)
        snapshot = self._follower.take_snapshot_to_install()
        chunks_to_save = self._follower.take_chunks_to_save()
        truncate_from, entries = state.log.take_unpersisted()
        if hard_state or snapshot or chunks_to_save or truncate_from or entries:
            state.log.on_handed_out(self._ready_number, hard_state, snapshot)
        elif not state.log.has_in_flight:
            # All that these messages rest upon is durable already.
            state.messages += state.messages_after_persist
            state.messages_after_persist = []
        messages, state.messages = state.messages, []
        messages_after_persist, state.messages_after_persist = state.messages_after_persist, []
        reads_refused, self._reads_refused = self._reads_refused, []
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
            commit=state.log.commit_index,
            chunks_wanted=leader.take_chunks_wanted() if leader is not None else (),
            turns_wanted=leader.take_turns_wanted() if leader is not None else (),
            reads_confirmed=leader.reads.take_confirmed() if leader is not None else (),
            reads_refused=tuple(reads_refused),
            leadership=leadership,
        )

    # The driver reports

    def on_persisted(self, number: int) -> None:
        """All that the `Ready`s up to `number` wanted to be durable is."""
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
        """Entries that the `LogReader` did not have at hand may be there now."""
        if self._leader is not None:
            self._leader.on_entries_read()

    def give_turn(self, target: NodeId) -> None:
        """Let a learner that a `Ready` wanted a turn for have one message with entries, in the next `Ready`."""
        if self._leader is not None:
            self._leader.give_turn(target)

    def send_snapshot_chunk(
        self, target: NodeId, snapshot_id: SnapshotId, offset: int, data: bytes | bytearray | memoryview, done: bool
    ) -> None:
        """Bring a chunk that a `Ready` wanted; `done` if it ends the snapshot."""
        if self._leader is not None:
            self._leader.send_snapshot_chunk(target, snapshot_id, offset, data, done)

    def on_snapshot_unavailable(self, target: NodeId, snapshot_id: SnapshotId) -> None:
        """A chunk that a `Ready` wanted cannot be had, for example because a newer snapshot replaced it."""
        if self._leader is not None:
            self._leader.on_snapshot_unavailable(target, snapshot_id)

    def on_snapshot_received(self, sender: NodeId, snapshot_id: SnapshotId, intact: bool) -> None:
        """The snapshot whose last chunk was saved is complete and was checked."""
        self._follower.on_snapshot_received(sender, snapshot_id, intact)

    # Inside

    def _must_lead(self) -> Leader:
        if self._leader is None:
            raise NotLeader(self._state.leader_id)
        return self._leader

    def _follow_role(self) -> None:
        """Make or drop what belongs to a reign, after anything that may have changed the role."""
        leads = self._state.role is Role.LEADER
        if leads and self._leader is None:
            self._leader = Leader(self._state, self._learners_take_turns)
        elif not leads and self._leader is not None:
            self._reads_refused += self._leader.reads.unconfirmed()
            self._reads_refused += [read.context for read in self._leader.reads.take_confirmed()]
            self._leader = None

    def _settle_term(self, message: Message) -> bool:
        """Bring this node and the message into one term; True if the message is to be acted upon."""
        state = self._state
        if isinstance(message, PreVoteRequest):
            return True
        if message.term > state.term:
            if isinstance(message, VoteRequest) and state.hears_leader and not message.transfer:
                return False
            from_leader = isinstance(message, _FROM_LEADER)
            state.become_follower(message.term, message.sender if from_leader else None)
            self._follow_role()
            return True
        if message.term < state.term:
            if isinstance(message, AppendRequest | Heartbeat | SnapshotChunk):
                # It leads no longer, or we could never follow it: we have seen a later term, and ignoring it
                # would leave us out for ever. Told, it steps down, and an election settles the matter.
                state.send_in_term(HeartbeatResponse(state.node_id, message.sender, state.term, 0))
            return isinstance(message, VoteRequest | PreVoteResponse)
        if isinstance(message, _FROM_LEADER):
            assert state.role is not Role.LEADER, f"two leaders in term {state.term}: {message}"
            assert state.leader_id in (None, message.sender), f"{state.leader_id} leads term {state.term}: {message}"
            state.become_follower(message.term, message.sender)
        return True

    def _dispatch(self, message: Message) -> None:
        """Hand a message to the part that knows it; answers to a leader that is none any more to nobody."""
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
                    self._election.campaign(transfer=True)


def _check(message: Message, node_id: NodeId) -> None:
    """Refuse what no replica of ours sends."""
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
