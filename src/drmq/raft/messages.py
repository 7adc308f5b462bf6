"""The messages that replicas of one group exchange. One class per kind; all are values.

Every message has its sender, its target and the sender's term. A receiver with a lower term adopts the higher one
first, with two exceptions that `node` explains: a pre-vote refers to a term that no node is in yet, and a vote request
is ignored by nodes that receive messages from a leader.

    requests            answers
    PreVoteRequest      PreVoteResponse
    VoteRequest         VoteResponse
    AppendRequest       AppendAccepted or AppendRejected
    Heartbeat           HeartbeatResponse
    SnapshotChunk       SnapshotAnswer, and AppendAccepted once it is installed
    TimeoutNow          none: its target campaigns

A heartbeat is three small numbers, so that a driver can put the heartbeats of many groups into one message.
"""

from __future__ import annotations

from drmq.model import NodeId, value
from drmq.raft.snapshot import SnapshotId, SnapshotMeta
from drmq.raft.types import Entry, LogIndex, Term


@value
class PreVoteRequest:
    """Asks whether the target would vote for the sender in `campaign_term`. Neither side changes its term or vote."""

    sender: NodeId
    target: NodeId
    term: Term
    campaign_term: Term
    last_index: LogIndex
    last_term: Term


@value
class PreVoteResponse:
    """`term` is the answering node's own; `campaign_term` is the request's."""

    sender: NodeId
    target: NodeId
    term: Term
    campaign_term: Term
    granted: bool


@value
class VoteRequest:
    """Asks for a vote in `term`. The sender's log ends with `last_index` of `last_term`, durably."""

    sender: NodeId
    target: NodeId
    term: Term
    last_index: LogIndex
    last_term: Term
    transfer: bool
    """The leader requested this election, so the receiver must not ignore it because it hears that leader."""


@value
class VoteResponse:
    """The answer to a vote request. A granted vote is on the voter's disk before this is sent."""

    sender: NodeId
    target: NodeId
    term: Term
    granted: bool


@value
class AppendRequest:
    """Asks the target to append `entries` after entry `previous_index` of `previous_term`, if it has that entry."""

    sender: NodeId
    target: NodeId
    term: Term
    previous_index: LogIndex
    previous_term: Term
    entries: tuple[Entry, ...]
    commit: LogIndex


@value
class AppendAccepted:
    """The sender's log equals the leader's up to `match`, and is on its disk up to there."""

    sender: NodeId
    target: NodeId
    term: Term
    match: LogIndex


@value
class AppendRejected:
    """The sender does not have the entry before `rejected + 1`.

    The logs can agree only up to `hint_index`, where the sender's has `hint_term`: every entry after that in the
    sender's log is of a later term than the entry that the leader named, or does not exist.
    """

    sender: NodeId
    target: NodeId
    term: Term
    rejected: LogIndex
    hint_index: LogIndex
    hint_term: Term


@value
class Heartbeat:
    """The sender is the leader of `term`. `commit` never exceeds what the target has confirmed to hold."""

    sender: NodeId
    target: NodeId
    term: Term
    commit: LogIndex
    read_round: int
    """The number of the leader's latest round of reads to confirm. The answer returns it."""


@value
class HeartbeatResponse:
    """The sender follows the leader in `term`. A higher term means that the receiver is no longer the leader."""

    sender: NodeId
    target: NodeId
    term: Term
    read_round: int


@value
class SnapshotChunk:
    """Bytes of a snapshot from `offset` on. Without bytes and not `done`: an offer, which asks how much arrived."""

    sender: NodeId
    target: NodeId
    term: Term
    meta: SnapshotMeta
    offset: int
    data: bytes | bytearray | memoryview
    done: bool


@value
class SnapshotAnswer:
    """The sender has the first `received` bytes of that snapshot, durably. The transfer continues from there."""

    sender: NodeId
    target: NodeId
    term: Term
    snapshot_id: SnapshotId
    received: int


@value
class TimeoutNow:
    """Asks the target, which holds the whole log, to campaign at once."""

    sender: NodeId
    target: NodeId
    term: Term


Message = (
    PreVoteRequest
    | PreVoteResponse
    | VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendAccepted
    | AppendRejected
    | Heartbeat
    | HeartbeatResponse
    | SnapshotChunk
    | SnapshotAnswer
    | TimeoutNow
)
