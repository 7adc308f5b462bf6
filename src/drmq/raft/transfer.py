"""Handing leadership over, to a node of one's choice, without waiting for a timeout.

The leader stops taking proposals, brings the target's log up to its own, and sends `TimeoutNow`; the target
campaigns at once and wins, because nobody's log is longer than its own (Raft thesis, section 3.10). If no
new leader has appeared at the deadline, the old one goes on: a target that died must not stop the group.
"""

from __future__ import annotations

from dataclasses import dataclass

from drmq.model import NodeId


@dataclass(slots=True)
class Transfer:
    """A handover under way. Owned by the `Leader`."""

    target: NodeId
    deadline_tick: int
    asked: bool = False
    """`TimeoutNow` was sent."""
