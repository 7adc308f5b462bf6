"""The state that all roles share: identity, term and vote, the log, the configurations, and messages to be sent.

A change of role changes these fields and nothing else. Further state of a leader is in the `Leader` object, which
`node` creates when the role becomes leader and drops when it ends. So no state of one term of leadership can leak into
the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drmq.model import NodeId
from drmq.raft.configuration import Configuration, ConfigurationHistory
from drmq.raft.log import RaftLog
from drmq.raft.messages import Message
from drmq.raft.options import RaftOptions
from drmq.raft.ready import Cause, MembersChange
from drmq.raft.snapshot import SnapshotMeta
from drmq.raft.types import Entry, HardState, LogIndex, Role, Term

if TYPE_CHECKING:
    from random import Random

_DOUBLINGS_MAX = 3
"""How often the election timeout doubles, at most."""


class ReplicaState:
    """The state of one replica. Owned by its `Node`; the role modules work on it."""

    def __init__(
        self,
        node_id: NodeId,
        options: RaftOptions,
        log: RaftLog,
        configurations: ConfigurationHistory,
        hard_state: HardState,
        random: Random,
    ) -> None:
        self.node_id = node_id
        self.options = options
        self.log = log
        self.configurations = configurations
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.durable_hard_state = hard_state
        self.role = Role.FOLLOWER
        self.leader_id: NodeId | None = None
        self.elapsed_ticks = 0
        """Since the leader was last heard, a vote was granted, or an election began."""
        self.timeout_ticks = 0
        self.expects_other = False
        """Whether this timeout is longer than usual, because another replica is expected to campaign first."""
        self.campaigns = 0
        """How often this node has campaigned since it last had a leader or reason to expect success."""
        self.campaign_cause = Cause.TIMEOUT
        """Why this node campaigns, if it does."""
        self.cause = Cause.TIMEOUT
        """Why this node last became the leader, or stopped being it."""
        self.caused_by: NodeId | None = None
        self.messages: list[Message] = []
        self.messages_after_persist: list[Message] = []
        self.last_index_at_start = log.last_index
        self.members_changes: list[MembersChange] = []
        """Changes that this node has committed as the leader, and that the driver is not told of yet."""
        self._random = random
        self.reset_election_timer()

    @property
    def hard_state(self) -> HardState:
        """Term and vote as they are now, durable or not."""
        return HardState(self.term, self.vote)

    def is_hard_state(self, hard_state: HardState) -> bool:
        """Whether term and vote are currently these. Called often, so it creates no object."""
        return hard_state.term == self.term and hard_state.vote == self.vote

    @property
    def configuration(self) -> Configuration:
        """The configuration in effect."""
        return self.configurations.latest

    @property
    def knows_group(self) -> bool:
        """Whether this node knows the members of its group.

        Before that it must not vote: it may have been a member before and have lost what it confirmed, and with an
        empty log it would accept any candidate.
        """
        return bool(self.configuration.voters)

    @property
    def may_campaign(self) -> bool:
        """Whether this node is a voter, or was one before a change that may not be committed.

        A leader that has removed itself can be the only node with the longest log when it fails. Then no other node
        could be elected, with or without its vote, so it must be able to campaign itself (Raft thesis, section 4.2.2).
        Its own vote counts only if its configuration says so.
        """
        return self.configurations.voted_since(self.log.commit_index, self.node_id)

    @property
    def hears_leader(self) -> bool:
        """Whether this node is the leader, or heard one within the shortest election timeout."""
        if self.role is Role.LEADER:
            return True
        return self.leader_id is not None and self.elapsed_ticks < self.options.election_timeout_ticks

    # Sending

    def send(self, message: Message) -> None:
        """Queue a message that promises nothing about this node's disk."""
        self.messages.append(message)

    def send_after_persist(self, message: Message) -> None:
        """Queue a message that is true only once everything decided so far is durable."""
        self.messages_after_persist.append(message)

    def send_in_term(self, message: Message) -> None:
        """Queue a message that is true once this node's term and vote are durable, as they usually are already.

        It need not wait for entries that are being written: a slow disk must not look like a failed node.
        """
        if self.is_hard_state(self.durable_hard_state):
            self.messages.append(message)
        else:
            self.messages_after_persist.append(message)

    # Roles

    def become_follower(self, term: Term, leader_id: NodeId | None) -> None:
        """Follow `leader_id`, or wait for a leader. The vote is reset only together with the term."""
        assert term >= self.term, (term, self.term)
        if term > self.term:
            self.term = term
            self.vote = None
        if leader_id is not None:
            self.campaigns = 0
            self.campaign_cause = Cause.TIMEOUT
        if self.role is not Role.FOLLOWER or leader_id is not None:
            self.reset_election_timer()
        self.role = Role.FOLLOWER
        self.leader_id = leader_id

    def become_pre_candidate(self) -> None:
        """Ask whether an election could be won. Term and vote do not change."""
        assert self.role is not Role.LEADER
        self.role = Role.PRE_CANDIDATE
        self.leader_id = None
        self.campaigns += 1
        self.reset_election_timer()

    def become_candidate(self) -> None:
        """Start an election: a new term, and a vote for this node."""
        assert self.role is not Role.LEADER
        self.role = Role.CANDIDATE
        self.term = Term(self.term + 1)
        self.vote = self.node_id
        self.leader_id = None
        self.reset_election_timer()

    def become_leader(self) -> None:
        """Become leader after a won election."""
        assert self.role is Role.CANDIDATE, self.role
        self.role = Role.LEADER
        self.leader_id = self.node_id
        self.campaigns = 0
        self.cause, self.caused_by = self.campaign_cause, None

    def reset_election_timer(self) -> None:
        """Start a new election timeout. It is random, so that nodes rarely campaign at once and split the vote.

        From the third campaign on it doubles each time, up to a limit: a group that cannot elect a leader, because
        nodes are missing or too busy to answer, must not add to what keeps them busy.
        """
        self.elapsed_ticks = 0
        self.expects_other = False
        doublings = min(max(self.campaigns - 2, 0), _DOUBLINGS_MAX)
        timeout = self.options.election_timeout_ticks << doublings
        self.timeout_ticks = timeout + int(self._random.random() * timeout)

    def hasten_election(self, rank: int) -> None:
        """Shorten the election timeout to a few ticks, still random. Nodes of different ranks take turns."""
        spread = max(1, self.options.election_timeout_ticks // 3)
        ticks = 1 + rank * spread + int(self._random.random() * spread)
        self.campaigns = 0
        self.timeout_ticks = min(self.timeout_ticks, self.elapsed_ticks + ticks)

    # Log and configurations, which change together

    def append(self, entry: Entry) -> bool:
        """Append an entry to the log. Returns True if it changed the configuration."""
        self.log.append(entry)
        if not self.configurations.on_append(entry):
            return False
        self.configurations.on_compact(self.log.snapshot.index)
        return True

    def truncate_from(self, start: LogIndex) -> None:
        """Remove the entries from `start` on, and the configurations in them."""
        self.log.truncate_from(start)
        self.configurations.on_truncate(start)

    def restore(self, meta: SnapshotMeta) -> None:
        """Start again after a snapshot, with its configuration."""
        self.log.restore(meta)
        self.configurations = ConfigurationHistory(meta.index, meta.configuration, ())
