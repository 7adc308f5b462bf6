"""The exceptions of this package.

    RaftError
    ├── ProtocolError              a peer sent an invalid message: close that connection
    │   └── UnknownConfiguration   a configuration that a later release has written (an `UnknownFormat`)
    └── Refusal                    a request that this replica cannot serve now; nothing has changed
        ├── NotLeader              ask `leader`, if it is known
        ├── TransferInProgress     leadership is being transferred; retry shortly
        ├── TooMuchUncommitted     the followers do not keep up; slow down
        ├── TooManyReads           more unconfirmed reads than allowed
        ├── ChangeInProgress       one membership change at a time
        ├── NotCaughtUp            a learner is too far behind to become a voter
        ├── InvalidConfiguration   a change that is never allowed
        └── InvalidTransfer        that node cannot become leader

All of them are raised before any state changes. Any other failure in this package is a bug and raises an assertion.
"""

from __future__ import annotations

from drmq.model import DrmqError, NodeId, UnknownFormat
from drmq.raft.types import LogIndex


class RaftError(DrmqError):
    """The root of this package's exceptions."""


class ProtocolError(RaftError):
    """A message that is invalid by itself, whatever the state of its receiver."""


class UnknownConfiguration(ProtocolError, UnknownFormat):
    """A configuration in a format that this release does not know."""


class Refusal(RaftError):
    """A request that is not served. Nothing was written, so it will not take effect later either."""


class NotLeader(Refusal):
    """Only the leader can do this. `leader` is the leader that this replica follows, if any."""

    def __init__(self, leader: NodeId | None) -> None:
        super().__init__("no leader is known" if leader is None else f"node {leader} leads")
        self.leader = leader


class TransferInProgress(Refusal):
    """Proposals are refused while leadership is transferred, so that the target can catch up."""

    def __init__(self, target: NodeId) -> None:
        super().__init__(f"leadership is moving to node {target}")
        self.target = target


class TooMuchUncommitted(Refusal):
    """The limit on proposed but uncommitted entries is reached."""

    def __init__(self, size_bytes: int, entry_count: int) -> None:
        super().__init__(f"{entry_count} entries of {size_bytes} bytes wait to be committed")
        self.size_bytes = size_bytes
        self.entry_count = entry_count


class TooManyReads(Refusal):
    """The limit on unconfirmed reads is reached."""


class ChangeInProgress(Refusal):
    """The latest configuration is uncommitted or joint, or this leader has not committed an entry of its term yet."""


class NotCaughtUp(Refusal):
    """A node that is to become a voter does not hold enough of the log yet, or does not respond."""

    def __init__(self, node_id: NodeId, match: LogIndex, commit: LogIndex) -> None:
        super().__init__(f"node {node_id} holds the log up to {match}, and {commit} is committed")
        self.node_id = node_id
        self.match = match
        self.commit = commit


class InvalidConfiguration(Refusal):
    """No voters, a node that would be both voter and learner, or a voter that was never a learner."""


class InvalidTransfer(Refusal):
    """The target is not a voter, is already the leader, or does not respond."""
