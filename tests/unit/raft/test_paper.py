"""The rules of the Raft paper and thesis, one test each, with the sentence's place in its docstring.

"Paper" is Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm" (extended version);
"thesis" is Ongaro's dissertation. Figure 2 of the paper is the summary of all rules.
"""

from __future__ import annotations

from random import Random

import pytest

from drmq.raft import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatResponse,
    LogIndex,
    Node,
    NotLeader,
    PreVoteRequest,
    PreVoteResponse,
    Role,
    Term,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

from .nodes import FIVE, FOUR, ME, OPTIONS, THREE, TWO, Driver, append, entries, storage


def vote_request(term: int, last_index: int = 0, last_term: int = 0, transfer: bool = False) -> VoteRequest:
    return VoteRequest(TWO, ME, Term(term), LogIndex(last_index), Term(last_term), transfer)


def accepted(match: int, term: int, sender: int = 2) -> AppendAccepted:
    return AppendAccepted(TWO if sender == 2 else THREE, ME, Term(term), LogIndex(match))


# Terms (paper, section 5.1)


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.CANDIDATE, Role.LEADER])
def test_a_higher_term_makes_a_follower(role: Role) -> None:
    """Figure 2, all servers: a higher term in any message is taken over, and its receiver becomes a follower."""
    driver = Driver(storage())
    if role is Role.LEADER:
        driver.lead()
    elif role is Role.CANDIDATE:
        driver.receive(Heartbeat(TWO, ME, Term(1), LogIndex(0), 0), TimeoutNow(TWO, ME, Term(1)))
    assert driver.node.role is role
    driver.receive(HeartbeatResponse(TWO, ME, Term(9), 0))
    assert (driver.node.role, driver.node.term) == (Role.FOLLOWER, 9)


def test_messages_of_an_older_term_are_not_acted_upon() -> None:
    """Section 5.1: a server rejects a request with a stale term."""
    driver = Driver(storage(term=3))
    assert driver.receive(append(0, 0, entries([1]), commit=1, term=1)) == [HeartbeatResponse(ME, TWO, Term(3), 0)]
    assert driver.node.last_index == 0
    assert driver.receive(vote_request(2, 5, 2)) == [VoteResponse(ME, TWO, Term(3), False)]


# Elections (section 5.2)


def test_starts_as_follower() -> None:
    """Section 5.2: when servers start up, they begin as followers."""
    assert Driver(storage()).node.role is Role.FOLLOWER


def test_follower_campaigns_after_its_timeout() -> None:
    """Section 5.2: a follower that receives nothing over the election timeout begins an election."""
    driver = Driver(storage())
    sent = driver.tick(2 * OPTIONS.election_timeout_ticks)
    assert {type(message) for message in sent} == {PreVoteRequest}
    assert {message.target for message in sent} == {TWO, THREE}


def test_heartbeats_keep_a_follower_quiet() -> None:
    """Section 5.2: a server remains a follower as long as it receives valid messages from a leader."""
    driver = Driver(storage())
    for _ in range(10 * OPTIONS.election_timeout_ticks):
        driver.receive(Heartbeat(TWO, ME, Term(1), LogIndex(0), 0))
        assert driver.tick() == []


def test_election_timeouts_are_spread() -> None:
    """Section 5.2: timeouts are chosen randomly from a fixed interval, so that split votes are rare."""
    seen = set()
    for seed in range(200):
        node = Driver(storage(), seed=seed).node
        ticks = 0
        while node.role is Role.FOLLOWER:
            node.tick()
            ticks += 1
        seen.add(ticks)
    assert seen == set(range(OPTIONS.election_timeout_ticks, 2 * OPTIONS.election_timeout_ticks))


def test_candidate_raises_its_term_and_votes_for_itself() -> None:
    """Section 5.2: to begin an election, a follower increments its term and votes for itself."""
    driver = Driver(storage(terms=[1, 1]))
    driver.node.campaign()
    driver.work()
    sent = driver.receive(PreVoteResponse(TWO, ME, Term(1), Term(2), True))
    assert driver.disk.hard_state == HardState(Term(2), ME)
    assert VoteRequest(ME, TWO, Term(2), LogIndex(2), Term(1), False) in sent


@pytest.mark.parametrize(("voters", "granted", "wins"), [(3, 1, True), (5, 1, False), (5, 2, True), (1, 0, True)])
def test_a_majority_wins(voters: int, granted: int, wins: bool) -> None:
    """Section 5.2: a candidate wins if it receives votes from a majority of the servers in the full cluster."""
    driver = Driver(storage(voters=voters))
    driver.node.campaign()
    driver.work()
    for peer in (TWO, THREE, FOUR, FIVE)[: voters - 1]:
        driver.receive(PreVoteResponse(peer, ME, Term(0), Term(1), True))
    driver.receive(*(VoteResponse(peer, ME, Term(1), True) for peer in (TWO, THREE)[:granted]))
    assert (driver.node.role is Role.LEADER) is wins


def test_a_vote_counted_twice_is_one_vote() -> None:
    """Section 5.2: each server votes for at most one candidate; a duplicate of its answer is no second vote."""
    driver = Driver(storage(voters=5))
    driver.node.campaign()
    driver.work()
    driver.receive(*(PreVoteResponse(peer, ME, Term(0), Term(1), True) for peer in (TWO, THREE)))
    driver.receive(VoteResponse(TWO, ME, Term(1), True), VoteResponse(TWO, ME, Term(1), True))
    assert driver.node.role is Role.CANDIDATE


def test_candidate_follows_a_leader_of_its_term() -> None:
    """Section 5.2: a candidate that receives a message from a leader of at least its own term becomes a follower."""
    driver = Driver(storage())
    driver.receive(Heartbeat(TWO, ME, Term(1), LogIndex(0), 0), TimeoutNow(TWO, ME, Term(1)))
    assert driver.node.role is Role.CANDIDATE
    driver.receive(Heartbeat(THREE, ME, Term(2), LogIndex(0), 0))
    assert (driver.node.role, driver.node.leader_id) == (Role.FOLLOWER, THREE)


def test_one_vote_per_term_first_come_first_served() -> None:
    """Section 5.2: each server votes for at most one candidate in a given term."""
    driver = Driver(storage())
    assert driver.receive(vote_request(1)) == [VoteResponse(ME, TWO, Term(1), True)]
    other = VoteRequest(THREE, ME, Term(1), LogIndex(0), Term(0), False)
    assert driver.receive(other) == [VoteResponse(ME, THREE, Term(1), False)]
    assert driver.receive(vote_request(1)) == [VoteResponse(ME, TWO, Term(1), True)]


def test_vote_is_not_cleared_within_its_term() -> None:
    """Figure 2: votedFor belongs to the term; stepping down inside it does not give the vote back."""
    driver = Driver(storage())
    driver.receive(Heartbeat(TWO, ME, Term(1), LogIndex(0), 0), TimeoutNow(TWO, ME, Term(1)))
    driver.receive(VoteResponse(TWO, ME, Term(2), False), VoteResponse(THREE, ME, Term(2), False))
    assert driver.node.role is Role.FOLLOWER
    assert driver.receive(vote_request(2)) == [VoteResponse(ME, TWO, Term(2), False)]


def test_vote_survives_a_restart() -> None:
    """Figure 2: currentTerm and votedFor are updated on stable storage before responding."""
    driver = Driver(storage())
    driver.node.receive(vote_request(1))
    ready = driver.node.take_ready()
    assert ready.hard_state == HardState(Term(1), TWO)
    assert ready.messages == ()
    assert ready.messages_after_persist == (VoteResponse(ME, TWO, Term(1), True),)
    driver.disk.write(ready)
    again = Driver(driver.disk)
    other = VoteRequest(THREE, ME, Term(1), LogIndex(0), Term(0), False)
    assert again.receive(other) == [VoteResponse(ME, THREE, Term(1), False)]


# The election restriction (section 5.4.1)


@pytest.mark.parametrize(
    ("last_index", "last_term", "granted"),
    [(1, 3, True), (3, 2, True), (2, 2, False), (9, 1, False), (4, 2, True), (3, 3, True)],
)
def test_vote_only_for_a_log_at_least_as_up_to_date(last_index: int, last_term: int, granted: bool) -> None:
    """Section 5.4.1: the later last term is more up to date; with equal terms the longer log is."""
    driver = Driver(storage(terms=[1, 2, 2]))
    (answer,) = driver.receive(vote_request(5, last_index, last_term))
    assert answer == VoteResponse(ME, TWO, Term(5), granted)
    assert driver.disk.hard_state == HardState(Term(5), TWO if granted else None)


# Leaders and log replication (section 5.3)


def test_leader_announces_itself_and_appends_a_no_op() -> None:
    """Figure 2 and section 8: upon election, a leader sends heartbeats, and commits a blank entry of its term."""
    driver = Driver(storage(terms=[1, 1]))
    driver.node.campaign()
    driver.work()
    driver.receive(PreVoteResponse(TWO, ME, Term(1), Term(2), True))
    sent = driver.receive(VoteResponse(TWO, ME, Term(2), True))
    assert {message.target for message in sent if isinstance(message, Heartbeat)} == {TWO, THREE}
    (request, _) = [message for message in sent if isinstance(message, AppendRequest)]
    assert (request.previous_index, request.previous_term) == (2, 1)
    assert [(e.kind, e.term) for e in request.entries] == [(EntryKind.NOTHING, 2)]


def test_leader_sends_heartbeats_when_idle() -> None:
    """Section 5.2: leaders send periodic heartbeats to all followers to maintain their authority."""
    driver = Driver(storage()).lead()
    sent = driver.tick(OPTIONS.heartbeat_ticks)
    assert [message.target for message in sent if isinstance(message, Heartbeat)] == [TWO, THREE]


def test_only_the_leader_takes_proposals() -> None:
    """Section 5.1: a follower redirects clients to the leader."""
    driver = Driver(storage())
    driver.receive(Heartbeat(TWO, ME, Term(1), LogIndex(0), 0))
    with pytest.raises(NotLeader) as refusal:
        driver.node.propose([b"x"])
    assert refusal.value.leader == TWO


def test_entry_is_committed_by_a_majority_and_applied() -> None:
    """Section 5.3: an entry is committed once the leader that created it has replicated it on a majority."""
    driver = Driver(storage()).lead()
    driver.receive(accepted(1, 1))
    index = driver.node.propose([b"a", b"b"])
    driver.work()
    assert driver.node.commit_index == 1
    driver.receive(accepted(3, 1))
    assert (index, driver.node.commit_index, driver.node.applied_index) == (2, 3, 3)


def test_leader_counts_itself_only_when_durable() -> None:
    """Thesis, section 10.2.1: a leader may write in parallel, and counts itself only once its own write is durable."""
    driver = Driver(storage()).lead()
    driver.receive(accepted(1, 1))
    driver.node.propose([b"a"])
    ready = driver.node.take_ready()
    assert [(type(message), message.target) for message in ready.messages] == [(AppendRequest, TWO)]
    driver.node.receive(accepted(2, 1))
    assert driver.node.commit_index == 1
    driver.disk.write(ready)
    driver.node.on_persisted(ready.number)
    assert driver.node.commit_index == 2


def test_append_is_accepted_only_after_the_matching_entry() -> None:
    """Section 5.3, consistency check: without an entry of the same index and term, the new ones are refused."""
    driver = Driver(storage(terms=[1, 1]))
    for previous, term in ((2, 3), (3, 1), (5, 4)):
        (answer,) = driver.receive(append(previous, term, entries([4], previous + 1), term=4))
        assert isinstance(answer, AppendRejected)
    (answer,) = driver.receive(append(2, 1, entries([4], 3), term=4))
    assert answer == AppendAccepted(ME, TWO, Term(4), LogIndex(3))


@pytest.mark.parametrize(
    "terms",
    [
        [1, 1, 1, 4, 4, 5, 5, 6, 6],
        [1, 1, 1, 4],
        [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
        [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
        [1, 1, 1, 4, 4, 4, 4],
        [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    ],
    ids="abcdef",
)
def test_figure_7_logs_are_brought_to_the_leaders(terms: list[int]) -> None:
    """Figure 7: missing, extra and conflicting entries end as the leader has them, in at most three rejections."""
    leader_terms = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    leader = Driver(storage(terms=leader_terms, term=7)).lead()
    follower = Driver(storage(terms=terms, term=7))
    requests = [m for m in leader.sent if isinstance(m, AppendRequest) and m.target == TWO]
    rejections = 0
    for _ in range(10):
        answers = [
            answer
            for request in requests
            for answer in follower.receive(
                AppendRequest(
                    TWO,
                    ME,
                    request.term,
                    request.previous_index,
                    request.previous_term,
                    request.entries,
                    request.commit,
                )
            )
        ]
        requests = []
        for answer in answers:
            assert isinstance(answer, AppendAccepted | AppendRejected)
            rejections += isinstance(answer, AppendRejected)
            fields = (answer.match,) if isinstance(answer, AppendAccepted) else answer_fields(answer)
            turned = type(answer)(TWO, ME, answer.term, *fields)
            requests += [m for m in leader.receive(turned) if isinstance(m, AppendRequest) and m.target == TWO]
    last = follower.node.last_index
    assert [follower.node.term_at(LogIndex(i)) for i in range(1, last + 1)] == [*leader_terms, 8]
    assert rejections <= 3


def answer_fields(answer: AppendRejected) -> tuple[LogIndex, LogIndex, Term]:
    return answer.rejected, answer.hint_index, answer.hint_term


def test_follower_keeps_what_does_not_conflict() -> None:
    """Section 5.3, figure 2: entries are deleted only on conflict; a late, shorter message removes nothing."""
    driver = Driver(storage(terms=[1, 1, 1]))
    driver.receive(append(0, 0, entries([1]), term=1))
    assert driver.node.last_index == 3
    driver.receive(append(1, 1, entries([2], 2), term=2))
    assert (driver.node.last_index, driver.node.term_at(LogIndex(2))) == (2, 2)
    assert driver.readies[-1].truncate_from == 2


def test_follower_commits_up_to_the_last_new_entry() -> None:
    """Figure 2, AppendEntries 5: commitIndex = min(leaderCommit, index of last new entry)."""
    driver = Driver(storage(terms=[1, 1, 1, 1]))
    driver.receive(append(1, 1, entries([1], 2), commit=4))
    assert driver.node.commit_index == 2


def test_commit_index_never_falls() -> None:
    """Figure 2: commitIndex increases monotonically."""
    driver = Driver(storage(terms=[1, 1]))
    driver.receive(append(2, 1, commit=2))
    driver.receive(append(2, 1, commit=1), Heartbeat(TWO, ME, Term(1), LogIndex(0), 0))
    assert driver.node.commit_index == 2


def test_committed_entries_are_never_truncated() -> None:
    """Section 5.4.3, leader completeness: a message that would replace a committed entry can only come from a bug."""
    driver = Driver(storage(terms=[1, 1]))
    driver.receive(append(2, 1, commit=2))
    with pytest.raises(AssertionError):
        driver.receive(append(1, 1, entries([2, 2], 2), term=2))


def test_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    """Section 5.4.2: only entries of the leader's current term are committed by counting replicas."""
    driver = Driver(storage(terms=[1, 1])).lead()
    driver.receive(accepted(2, 2))
    assert driver.node.commit_index == 0
    driver.receive(accepted(3, 2))
    assert driver.node.commit_index == 3


def test_acceptance_waits_for_the_disk() -> None:
    """Figure 2: log entries are on stable storage before the RPC is answered."""
    driver = Driver(storage(term=1))
    driver.node.receive(append(0, 0, entries([1])))
    ready = driver.node.take_ready()
    assert ready.messages == ()
    assert ready.messages_after_persist == (AppendAccepted(ME, TWO, Term(1), LogIndex(1)),)


# Beyond the paper


def test_pre_vote_changes_nothing() -> None:
    """Thesis, section 9.6: a server does not raise its term, nor give its vote, for a pre-vote."""
    driver = Driver(storage(terms=[1]))
    request = PreVoteRequest(TWO, ME, Term(1), Term(2), LogIndex(1), Term(1))
    assert driver.receive(request) == [PreVoteResponse(ME, TWO, Term(1), Term(2), True)]
    assert (driver.node.term, driver.disk.hard_state.vote) == (1, None)


@pytest.mark.parametrize("kind", ["pre-vote", "vote"])
def test_votes_are_not_heard_while_a_leader_is(kind: str) -> None:
    """Thesis, section 4.2.3: within the minimum election timeout of hearing from a leader, no vote and no term."""
    driver = Driver(storage())
    driver.receive(Heartbeat(THREE, ME, Term(1), LogIndex(0), 0))
    request = vote_request(5) if kind == "vote" else PreVoteRequest(TWO, ME, Term(1), Term(2), LogIndex(0), Term(0))
    driver.tick(OPTIONS.election_timeout_ticks - 1)
    assert driver.receive(request) == []
    assert driver.node.term == 1
    driver.tick()
    assert len(driver.receive(request)) == 1


def test_a_transfer_is_heard_even_so() -> None:
    """Thesis, section 3.10: an election that the leader asked for is not held up by hearing from that leader."""
    driver = Driver(storage())
    driver.receive(Heartbeat(THREE, ME, Term(1), LogIndex(0), 0))
    assert driver.receive(vote_request(2, transfer=True)) == [VoteResponse(ME, TWO, Term(2), True)]


def test_leader_without_quorum_steps_down_in_one_timeout() -> None:
    """Thesis, section 6.2: a leader steps down if an election timeout passes without a round to a majority."""
    driver = Driver(storage()).lead()
    roles = []
    for _ in range(OPTIONS.election_timeout_ticks):
        driver.tick()
        roles.append(driver.node.role)
    assert roles == [Role.LEADER] * (OPTIONS.election_timeout_ticks - 1) + [Role.FOLLOWER]


def test_one_answer_in_time_is_enough_for_three() -> None:
    """Thesis, section 6.2: hearing from a majority, itself included, keeps a leader."""
    driver = Driver(storage()).lead()
    for _ in range(5):
        driver.tick(OPTIONS.election_timeout_ticks - 1)
        driver.receive(HeartbeatResponse(TWO, ME, driver.node.term, 0))
    assert driver.node.role is Role.LEADER


def test_read_waits_for_a_round_that_began_after_it() -> None:
    """Thesis, section 6.4: the leader notes its commit index, then exchanges heartbeats with a majority."""
    driver = Driver(storage()).lead()
    driver.node.read_index("early")
    driver.work()
    assert not any(ready.reads_confirmed for ready in driver.readies)
    driver.receive(accepted(1, 1))
    first_round = [m.read_round for m in driver.sent if isinstance(m, Heartbeat)][-1]
    driver.node.read_index("late")
    driver.work()
    driver.receive(HeartbeatResponse(TWO, ME, Term(1), first_round))
    confirmed = [read.context for ready in driver.readies for read in ready.reads_confirmed]
    assert confirmed == ["early"]
    driver.receive(HeartbeatResponse(THREE, ME, Term(1), first_round + 1))
    assert [(r.context, r.index) for ready in driver.readies for r in ready.reads_confirmed][1:] == [("late", 1)]


def test_same_seed_same_timeouts() -> None:
    """Not in the paper: all randomness comes from the generator handed in, so a run can be repeated."""

    def first_campaign(seed: int) -> int:
        node = Node(ME, storage(), Random(seed), OPTIONS)
        ticks = 0
        while node.role is Role.FOLLOWER:
            node.tick()
            ticks += 1
        return ticks

    assert [first_campaign(seed) for seed in range(20)] == [first_campaign(seed) for seed in range(20)]
