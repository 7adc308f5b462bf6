"""Elections: waiting for a leader, asking for pre-votes, and voting.

A follower that receives nothing from a leader for its timeout first asks for *pre-votes* (Raft thesis, section 9.6):
would the other node vote for it in the next term? Only with a quorum of yes answers does it raise its term and ask for
votes. So a node that was disconnected, or was removed without being notified, never returns with a high term that would
depose a healthy leader.

For the same reason a node that receives messages from a leader ignores vote requests (section 4.2.3), unless that
leader requested the election.

Always true:

- a node votes once per term, for the first candidate that asks with a log at least as complete as its own;
- a granted vote is sent, and the node's own vote counts, only once it is durable;
- an election is decided by a majority of answers, not when all have arrived.
"""

from __future__ import annotations

from drmq.model import NodeId
from drmq.raft.messages import PreVoteRequest, PreVoteResponse, VoteRequest, VoteResponse
from drmq.raft.quorum import VoteResult, quorum_vote
from drmq.raft.state import ReplicaState
from drmq.raft.types import Role, Term


class Election:
    """The part of a replica that waits for leaders, campaigns and votes. Owned by its `Node`."""

    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        self._votes: dict[NodeId, bool] = {}
        self._transfer = False
        self._ask_at_tick = 0
        """When to repeat the request. The interval doubles: those who do not answer may be busy with many of them."""

    def tick(self, patience: int, may_campaign: bool) -> None:
        """Advance time by one tick on a node that is not the leader. See `Node.tick`."""
        state = self._state
        state.elapsed_ticks += 1
        if state.elapsed_ticks >= state.timeout_ticks * (1 if state.leader_id is None else patience):
            if not state.may_campaign:
                state.leader_id = None
                state.reset_election_timer()
            elif may_campaign:
                self.campaign()
        elif state.role is not Role.FOLLOWER and state.elapsed_ticks >= self._ask_at_tick:
            self._ask()

    def campaign(self, transfer: bool = False) -> None:
        """Try to become leader. With `transfer`, skip the pre-votes, because the leader requested the election."""
        state = self._state
        assert state.may_campaign
        self._transfer = transfer
        self._votes = {}
        if transfer:
            self._begin_election()
            return
        state.become_pre_candidate()
        self._votes[state.node_id] = True
        self._ask()
        self._count()

    def on_pre_vote_request(self, message: PreVoteRequest) -> None:
        """Answer whether this node would vote for the sender. Changes neither term nor vote."""
        state = self._state
        if state.hears_leader:
            return
        is_complete = state.log.is_up_to_date(message.last_index, message.last_term)
        if state.expects_other and not is_complete:
            # The one that is expected lacks entries, as the first node that was shut down does when all start again. It
            # would ask in vain, and this one wait for it.
            state.expects_other = False
            state.hasten_election(0)
        granted = state.knows_group and message.campaign_term > state.term and is_complete
        state.send_in_term(PreVoteResponse(state.node_id, message.sender, state.term, message.campaign_term, granted))

    def on_pre_vote_response(self, message: PreVoteResponse) -> None:
        """Count an answer to the current round of pre-votes. Answers to earlier rounds are ignored."""
        state = self._state
        if state.role is Role.PRE_CANDIDATE and message.campaign_term == state.term + 1:
            self._votes[message.sender] = message.granted
            self._count()

    def on_vote_request(self, message: VoteRequest) -> None:
        """Grant or refuse a vote. The message is of this node's term or an older one."""
        state = self._state
        granted = (
            state.knows_group
            and message.term == state.term
            and (state.vote == message.sender or (state.vote is None and state.leader_id is None))
            and state.log.is_up_to_date(message.last_index, message.last_term)
        )
        response = VoteResponse(state.node_id, message.sender, state.term, granted)
        if not granted:
            state.send_in_term(response)
            return
        state.vote = message.sender
        state.elapsed_ticks = 0
        # The vote is sent only once it is on disk. If it were sent first, a crash here could make this node forget it
        # and vote again in the same term, which allows two leaders in one term (section 5.2).
        state.send_after_persist(response)

    def on_vote_response(self, message: VoteResponse) -> None:
        """Count a vote. The message is of this node's term."""
        if self._state.role is Role.CANDIDATE:
            self._votes[message.sender] = message.granted
            self._count()

    def on_hard_state_durable(self) -> None:
        """Count this node's own vote, now that term and vote are on disk."""
        state = self._state
        if state.role is Role.CANDIDATE and state.is_hard_state(state.durable_hard_state):
            self._votes[state.node_id] = True
            self._count()

    def _begin_election(self) -> None:
        self._votes = {}
        self._state.become_candidate()
        self._ask()

    def _count(self) -> None:
        state = self._state
        result = quorum_vote(state.configuration, self._votes)
        if result is VoteResult.LOST:
            state.become_follower(state.term, None)
        elif result is VoteResult.WON:
            if state.role is Role.PRE_CANDIDATE:
                self._begin_election()
            else:
                state.become_leader()

    def _ask(self) -> None:
        """Ask the voters that have not answered. Repeated during the election, because messages can be lost."""
        state, log = self._state, self._state.log
        self._ask_at_tick = max(state.options.heartbeat_ticks, 2 * state.elapsed_ticks)
        configuration = state.configuration
        for voter in sorted(configuration.voters | configuration.voters_before):
            if voter in self._votes or voter == state.node_id:
                continue
            if state.role is Role.PRE_CANDIDATE:
                campaign_term = Term(state.term + 1)
                state.send(
                    PreVoteRequest(state.node_id, voter, state.term, campaign_term, log.last_index, log.last_term)
                )
            else:
                # Votes are granted for the log that this message describes. If it were sent before that log is durable,
                # this node could crash, come back with a shorter log and still receive these votes.
                state.send_after_persist(
                    VoteRequest(state.node_id, voter, state.term, log.last_index, log.last_term, self._transfer)
                )
