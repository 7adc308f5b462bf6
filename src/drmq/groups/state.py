"""The states of a classic group, and which may follow which.

    state                 meaning                                   leaves it when
    --------------------  ----------------------------------------  -------------------------------------------
    Empty                 no members; perhaps committed offsets     a member joins -> PreparingRebalance
    PreparingRebalance    members are (re)joining; joins are        all joined, or time is up -> CompletingRebalance
                          parked                                    no member is left -> Empty
    CompletingRebalance   all members know the new generation;      the leader syncs -> Stable
                          syncs are parked until the leader sends   a member joins, changes, leaves or
                          the assignment                            expires -> PreparingRebalance
    Stable                every member can have its assignment      as above -> PreparingRebalance
    Dead                  the group does not exist; DescribeGroups  (never stored)
                          returns it for an unknown name

The generation increases by one when the group leaves PreparingRebalance, and at no other time.

Deleting or expiring an Empty group removes it completely. `PreparingRebalance` is never stored: a new leader starts
from the state before it, and the members that were joining ask again.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """A group's state, by the name that Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}

STORED_STATES = frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE})
