"""Quorum arithmetic: what a majority has reached, and whether an election is decided.

A configuration has one set of voters, or two while it changes (joint consensus). With two, everything needs a majority
of *each*. Then any two quorums, of the old voters, the new or both, share a node, and through that node the later
quorum knows what the earlier one decided.

These functions use nothing but sets and numbers. The tests compare them with versions that enumerate every case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from drmq.model import NodeId
from drmq.raft.configuration import Configuration


class VoteResult(Enum):
    """How an election stands."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority_size(voter_count: int) -> int:
    """The smallest number of voters such that any two subsets of that size overlap."""
    return voter_count // 2 + 1


def majority_reached(voters: Collection[NodeId], reached: Mapping[NodeId, int]) -> int:
    """The highest number that a majority of `voters` has reached. A voter not in `reached` is at 0."""
    assert voters, "no voters"
    numbers = sorted(reached.get(voter, 0) for voter in voters)
    return numbers[len(numbers) - majority_size(len(numbers))]


def quorum_reached(configuration: Configuration, reached: Mapping[NodeId, int]) -> int:
    """The highest number that a quorum has reached: of both sets of voters while they change."""
    number = majority_reached(configuration.voters, reached)
    if configuration.voters_before:
        number = min(number, majority_reached(configuration.voters_before, reached))
    return number


def majority_vote(voters: Collection[NodeId], votes: Mapping[NodeId, bool]) -> VoteResult:
    """Won as soon as a majority agrees, lost as soon as one no longer can."""
    needed = majority_size(len(voters))
    granted = sum(votes.get(voter) is True for voter in voters)
    refused = sum(votes.get(voter) is False for voter in voters)
    if granted >= needed:
        return VoteResult.WON
    if refused > len(voters) - needed:
        return VoteResult.LOST
    return VoteResult.PENDING


def quorum_vote(configuration: Configuration, votes: Mapping[NodeId, bool]) -> VoteResult:
    """Won when won in both sets of voters, lost when lost in either."""
    result = majority_vote(configuration.voters, votes)
    if not configuration.voters_before or result is VoteResult.LOST:
        return result
    before = majority_vote(configuration.voters_before, votes)
    if before is VoteResult.LOST or result is VoteResult.PENDING:
        return before if before is VoteResult.LOST else result
    return before
