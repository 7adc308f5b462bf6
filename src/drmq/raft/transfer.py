"""Transferring leadership to a chosen node without waiting for a timeout.

The leader refuses new proposals, brings the target's log up to its own, and sends `TimeoutNow`. The target campaigns at
once and wins, because no other log is longer than its own (Raft thesis, section 3.10). If no new leader has appeared by
the deadline, the old one continues: a target that fails must not block the group.
"""

from __future__ import annotations

from dataclasses import dataclass

from drmq.model import NodeId


@dataclass(slots=True)
class Transfer:
    """A transfer in progress. Owned by the `Leader`."""

    target: NodeId
    deadline_tick: int
    asked: bool = False
    """`TimeoutNow` was sent."""
