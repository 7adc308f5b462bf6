"""Changing the members of a group while it is in use.

One change at a time, of any size: nodes may join, leave and swap roles together. The steps (Raft paper, section 6; the
terms are explained in `configuration`):

1. a new node is added as a learner: it receives the log and is not counted;
2. when it has caught up, a change that makes it a voter is accepted. The leader writes the joint
   configuration, which takes effect at once: from now on both majorities are needed;
3. when the joint configuration is committed by both majorities, the leader writes the new configuration;
4. when that is committed too, the change is complete. A leader that is no longer a voter steps down.

If the leader fails between these steps, a joint configuration remains and the next leader continues with step 3:
`Leader` checks for it whenever something is committed.
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
    """The next configuration to write on the way to these members. Raises a `Refusal` if the change is not allowed."""
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
