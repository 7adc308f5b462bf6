"""What this package raises.

    RaftError
    ├── ProtocolError              a peer sent what no peer of ours sends: close that connection
    └── Refusal                    a request that this replica cannot serve now; nothing has changed
        ├── NotLeader              ask `leader`, if it is known
        ├── TransferInProgress     leadership is being handed over; ask again in a moment
        ├── TooMuchUncommitted     the followers do not keep up; slow down
        ├── TooManyReads           more unconfirmed reads than allowed
        ├── ChangeInProgress       one membership change at a time
        ├── NotCaughtUp            a learner is too far behind to become a voter
        ├── InvalidConfiguration   a change that could never be right
        └── InvalidTransfer        that node cannot lead

All of them are raised before any state changes. Everything else that goes wrong in here is a bug, and an
assertion.
"""

from __future__ import annotations

from drmq.model import DrmqError, NodeId
from drmq.raft.types import LogIndex


class RaftError(DrmqError):
    """The root of this package's exceptions."""


class ProtocolError(RaftError):
    """A message that is wrong in itself, whatever the state of its receiver."""


class Refusal(RaftError):
    """A request that is not served. Nothing was written, so nothing will appear later."""


class NotLeader(Refusal):
    """Only the leader can do this. `leader` is the one that this replica follows, where it follows one."""

    def __init__(self, leader: NodeId | None) -> None:
        super().__init__("no leader is known" if leader is None else f"node {leader} leads")
        self.leader = leader


class TransferInProgress(Refusal):
    """Proposals wait while leadership moves, so that the target can catch up."""

    def __init__(self, target: NodeId) -> None:
        super().__init__(f"leadership is moving to node {target}")
        self.target = target


class TooMuchUncommitted(Refusal):
    """The bound on what is proposed but not committed is reached."""

    def __init__(self, size_bytes: int, entry_count: int) -> None:
        super().__init__(f"{entry_count} entries of {size_bytes} bytes wait to be committed")
        self.size_bytes = size_bytes
        self.entry_count = entry_count


class TooManyReads(Refusal):
    """The bound on reads that wait for their confirmation is reached."""


class ChangeInProgress(Refusal):
    """The last configuration is not settled: uncommitted, joint, or older than this leader's first commit."""


class NotCaughtUp(Refusal):
    """A node that is to vote does not hold enough of the log yet, or does not answer."""

    def __init__(self, node_id: NodeId, match: LogIndex, commit: LogIndex) -> None:
        super().__init__(f"node {node_id} holds the log up to {match}, and {commit} is committed")
        self.node_id = node_id
        self.match = match
        self.commit = commit


class InvalidConfiguration(Refusal):
    """No voters, a node that would be both voter and learner, or a voter that was never a learner."""


class InvalidTransfer(Refusal):
    """The target does not vote, leads already, or does not answer."""
