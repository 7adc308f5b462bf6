"""The quorum arithmetic against versions that are too simple to be wrong."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from drmq.model import NodeId
from drmq.raft import Configuration
from drmq.raft.quorum import VoteResult, majority_reached, majority_size, quorum_reached, quorum_vote

node_ids = st.integers(1, 9).map(NodeId)
voters = st.frozensets(node_ids, min_size=1, max_size=7)
configurations = st.builds(
    Configuration, voters, st.frozensets(node_ids), st.one_of(st.just(frozenset[NodeId]()), voters)
)
reached_numbers = st.dictionaries(node_ids, st.integers(0, 8))
votes_cast = st.dictionaries(node_ids, st.booleans())


def quorums(configuration: Configuration) -> list[frozenset[NodeId]]:
    """Every set of members that is a quorum, found by trying them all."""
    members = sorted(configuration.voters | configuration.voters_before)
    groups = [group for group in (configuration.voters, configuration.voters_before) if group]
    return [
        frozenset(chosen)
        for size in range(len(members) + 1)
        for chosen in combinations(members, size)
        if all(2 * len(group & set(chosen)) > len(group) for group in groups)
    ]


@given(configurations, reached_numbers)
def test_reached_is_what_some_quorum_has(configuration: Configuration, reached: dict[NodeId, int]) -> None:
    """The number is the best that all members of some quorum have."""
    best = max(min(reached.get(node_id, 0) for node_id in quorum) for quorum in quorums(configuration))
    assert quorum_reached(configuration, reached) == best


@given(configurations, votes_cast)
def test_vote_is_what_some_quorum_decides(configuration: Configuration, votes: dict[NodeId, bool]) -> None:
    """Won if some quorum has said yes; lost if none can any more."""
    all_quorums = quorums(configuration)
    if any(all(votes.get(node_id) is True for node_id in quorum) for quorum in all_quorums):
        expected = VoteResult.WON
    elif any(all(votes.get(node_id) is not False for node_id in quorum) for quorum in all_quorums):
        expected = VoteResult.PENDING
    else:
        expected = VoteResult.LOST
    assert quorum_vote(configuration, votes) is expected


@given(configurations)
def test_any_two_quorums_share_a_node(configuration: Configuration) -> None:
    """This is what carries a decision from one quorum to the next."""
    found = quorums(configuration)
    assert all(one & other for one in found for other in found)


@given(voters, voters)
def test_joint_quorums_meet_those_before_and_after(old: frozenset[NodeId], new: frozenset[NodeId]) -> None:
    """No step of a change lets two groups decide apart."""
    joint = quorums(Configuration(new, voters_before=old))
    for neighbour in (Configuration(old), Configuration(new)):
        assert all(one & other for one in joint for other in quorums(neighbour))


@given(configurations, reached_numbers)
def test_learners_count_for_nothing(configuration: Configuration, reached: dict[NodeId, int]) -> None:
    """What a learner has reached changes no decision."""
    without = {n: number for n, number in reached.items() if configuration.votes(n)}
    assert quorum_reached(configuration, reached) == quorum_reached(configuration, without)


@given(st.integers(1, 100))
def test_majority_size(count: int) -> None:
    """More than half, and no more than needed."""
    assert 2 * majority_size(count) > count >= 2 * (majority_size(count) - 1)


def test_two_need_both() -> None:
    """With two voters one cannot decide alone."""
    assert majority_reached([NodeId(1), NodeId(2)], {NodeId(1): 9}) == 0
