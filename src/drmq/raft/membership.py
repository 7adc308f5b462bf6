"""Changing who belongs to a group, while it works.

One change at a time, whatever its size: nodes may join, leave and swap roles together. The steps (Raft
paper, section 6; `configuration` has the words):

1. a newcomer is added as a learner, gets the log, and counts for nothing;
2. when it is caught up, a change that makes it a voter is accepted. The leader writes the joint
   configuration, in force at once: from here on both majorities decide;
3. when the joint configuration is committed, by both, the leader writes the new one alone;
4. when that is committed too, the change is complete. A leader that no longer votes steps down.

A leader that dies between the steps leaves a joint configuration behind, and its successor goes on with
step 3: `Leader` looks for it whenever something is committed.
"""

from __future__ import annotations

from collections.abc import Callable

from drmq.model import NodeId
from drmq.raft.configuration import Configuration
from drmq.raft.errors import InvalidConfiguration


def check_change(
    current: Configuration,
    voters: frozenset[NodeId],
    learners: frozenset[NodeId],
    check_caught_up: Callable[[NodeId], None],
) -> Configuration:
    """The configuration to write next on the way to these members. Raises a `Refusal` if there is none."""
    if not voters:
        raise InvalidConfiguration("a group needs a voter")
    if voters & learners:
        raise InvalidConfiguration(f"both voter and learner: {sorted(voters & learners)}")
    if voters == current.voters and learners == current.learners:
        raise InvalidConfiguration("nothing would change")
    for node_id in sorted(voters - current.voters):
        if node_id not in current.learners:
            raise InvalidConfiguration(f"node {node_id} must be a learner before it votes")
        check_caught_up(node_id)
    return current.towards(voters, learners)
